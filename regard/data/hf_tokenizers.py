"""Tokenizers of Hugging Face folders without a tokenizer.json, built from the older files.

    BERT       vocab.txt                             [CLS] a ##b c [SEP] d [SEP]
    RoBERTa    vocab.json + merges.txt               <s> a Ġb </s> </s> c </s>
    GPT-2      vocab.json + merges.txt               a Ġb
    CLIP       vocab.json + merges.txt               <|startoftext|> a</w> b</w> <|endoftext|>
    Marian     source.spm + target.spm + vocab.json  ▁a ▁b </s>
    LLaMA      tokenizer.model                       <s> ▁a ▁b

The kind follows from model_type in config.json, else from tokenizer_class in tokenizer_config.json, else from the
special tokens. The name of a special token inside a text is plain text; transformers would make it that token.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

from regard import json_files
from regard.data.sentencepiece_model import MarianTokenizer, bpe_from_sentencepiece
from regard.json_files import MAX_GROWTH, MAX_TOKENIZER, lexists, read_bounded, read_flag, read_json

TOKENIZER_JSON = "tokenizer.json"
FILES: dict[str, tuple[str, ...]] = {
    "bert": ("vocab.txt",),
    **dict.fromkeys(("gpt2", "roberta", "clip"), ("vocab.json", "merges.txt")),
    "marian": ("source.spm", "target.spm", "vocab.json"),
    "llama": ("tokenizer.model",),
}
CONFIG_FILES = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja")
# By model_type, or by tokenizer_class without its suffix.
KINDS = {name: name for name in FILES} | {"distilbert": "bert", "clip_text_model": "clip", "mistral": "llama"}
ROLE_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token", "cls_token", "sep_token", "mask_token")
DEFAULT_ROLES = {  # if no file names the special tokens; the most distinctive first
    "clip": dict(zip(ROLE_NAMES[:4], ("<|startoftext|>", *["<|endoftext|>"] * 3), strict=True)),
    "gpt2": dict.fromkeys(ROLE_NAMES[:3], "<|endoftext|>"),
    "bert": dict(zip(ROLE_NAMES[2:], ("[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]"), strict=True)),
    "roberta": dict(zip(ROLE_NAMES, ("<s>", "</s>", "<unk>", "<pad>", "<s>", "</s>", "<mask>"), strict=True)),
    "marian": dict(zip(ROLE_NAMES[1:4], ("</s>", "<unk>", "<pad>"), strict=True)),
    "llama": dict(zip(ROLE_NAMES[:3], ("<s>", "</s>", "<unk>"), strict=True)),
}
CLIP_SPLIT = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"


def matching_kinds(folder: Path) -> list[str]:
    return [kind for kind, files in FILES.items() if all((folder / name).is_file() for name in files)]


def tokenizer_files(folder: Path) -> dict[str, bytes]:
    """The content of all files that may belong to a tokenizer."""
    names = {TOKENIZER_JSON, *CONFIG_FILES, "target_vocab.json"}.union(*FILES.values())
    files = {folder / name for name in names} | {*folder.glob("*.model"), *folder.glob("*.spm")}
    return {file.name: read_bounded(file, MAX_TOKENIZER) for file in sorted(files) if lexists(file)}


def read_backend(file: Path) -> Backend:
    content = read_bounded(file, MAX_TOKENIZER)
    with backend_errors(f"{file} is not a tokenizer"):
        parts = json.loads(content, object_pairs_hook=json_files.reject_duplicate_keys)
        for part in (("normalizer", "pre_tokenizer"), ("decoder",)):
            limit_growth([step for name in part for step in flatten_steps(parts.get(name))], part[0])
        return Backend.from_buffer(content)


def flatten_steps(part: object) -> list[dict[str, object]]:
    """The steps of a normalizer, pre-tokenizer or decoder, in order."""
    if not isinstance(part, dict):
        return []
    if part.get("type") != "Sequence":
        return [part]
    names = ("normalizers", "pretokenizers", "decoders")
    return [step for name in names for item in part.get(name) or [] for step in flatten_steps(item)]


def limit_growth(steps: list[dict[str, object]], part: str) -> None:
    """Refuse steps that can expand one character to over GROWTH. The weight of a character is the largest number of
    characters that it can become; it is computed from the last step back."""
    weights, rest = dict[str, float](), 1.0  # of single characters, and of all others
    for step in reversed(steps):
        replacement, pattern, largest = step.get("content"), step.get("pattern"), max(rest, *weights.values(), 0)
        match step.get("type"):
            case "Replace" if isinstance(replacement, str) and isinstance(pattern, dict):
                total = sum(n * weights.get(char, rest) for char, n in Counter(replacement).items())
                if chars := pattern.get("String"):
                    weights |= {char: max(weights.get(char, rest), total / len(chars)) for char in {*chars}}
                else:  # a regular expression may match between any two characters
                    weights, rest = {char: weight + total for char, weight in weights.items()}, rest + total
            case "ByteLevel" if part != "decoder":  # one character per byte
                weights, rest = {}, 4 * largest
            case "Precompiled":  # the size of a trie, the trie, and the replacements
                rules = b64decode(str(step.get("precompiled_charsmap") or ""))
                targets = rules[4 + int.from_bytes(rules[:4], "little") :].split(b"\0")
                weights, rest = {}, largest * max(1, *map(len, targets))
        if max(rest, *weights.values(), 0) > MAX_GROWTH:
            raise ValueError(f"its {part} can expand one character to over {MAX_GROWTH}, which is the limit")


@contextmanager
def backend_errors(
    message: str, passed: tuple[type[BaseException], ...] = (KeyboardInterrupt, SystemExit)
) -> Iterator[None]:
    """Turn an error of the backend, whose panics are not Exceptions, into a ValueError; `passed` stay as they are."""
    try:
        yield
    except passed:
        raise
    except BaseException as error:
        raise ValueError(f"{message}: {error}") from None


def read_tokenizer_config(folder: Path) -> dict[str, object]:
    """tokenizer_config.json; in old folders completed by special_tokens_map.json and added_tokens.json."""
    config = read_optional_json(folder / "tokenizer_config.json")
    is_old_format = "added_tokens_decoder" not in config
    special_map = read_optional_json(folder / "special_tokens_map.json") if is_old_format else {}
    config |= special_map
    for name in ROLE_NAMES:
        token = config.pop(name, None)
        text = token.get("content", token) if isinstance(token, dict) else token
        if not isinstance(text, str | None):
            file = folder / ("special_tokens_map.json" if name in special_map else "tokenizer_config.json")
            raise ValueError(f"{file}: {name} of the tokenizer must be a string, not {text!r:.80}")
        if text:
            config[name] = text
    if is_old_format:
        names = {*configured_roles(config).values()}
        config["added_tokens_decoder"] = {
            token_id: {"content": token, "special": token in names, "normalized": token not in names}
            for token, token_id in read_optional_json(folder / "added_tokens.json").items()
        }
    return config


def read_optional_json(file: Path) -> dict[str, Any]:
    """The JSON object of a file, or an empty one without the file."""
    return read_json(file) if lexists(file) else {}


def configured_roles(config: Mapping[str, object]) -> dict[str, str]:
    return {name: str(config[name]) for name in ROLE_NAMES if name in config}


def roles_of(folder: Path, config: Mapping[str, object], vocab: Collection[str]) -> dict[str, str]:
    """The special tokens by role: those that the files name, else the defaults of the kind."""
    roles = configured_roles(config)
    if not roles:
        kind = configured_kind(folder, config)
        default = DEFAULT_ROLES[kind] if kind else {}
        candidates = (default, *DEFAULT_ROLES.values())
        roles = next((roles for roles in candidates if roles and {*roles.values()} <= {*vocab}), default)
    return {name: token for name, token in roles.items() if token in vocab}


def configured_kind(folder: Path, config: Mapping[str, object], kinds: Collection[str] = FILES) -> str | None:
    model = str(read_optional_json(folder / "config.json").get("model_type"))
    tokenizer = str(config.get("tokenizer_class")).removesuffix("Fast").removesuffix("Tokenizer").lower()
    return next((KINDS[name] for name in (model, tokenizer) if KINDS.get(name) in kinds), None)


def find_kind(folder: Path, config: Mapping[str, object]) -> str:
    kinds = matching_kinds(folder)
    if not kinds:
        alternatives = "; ".join(" + ".join(files) for files in dict.fromkeys(FILES.values()))
        raise ValueError(f"{folder} has no {TOKENIZER_JSON}, so its model cannot read text (nor {alternatives})")
    if kind := configured_kind(folder, config, kinds):
        return kind
    vocab = read_optional_json(folder / "vocab.json") if len(kinds) > 1 else {}
    matches = (kind for kind in DEFAULT_ROLES if kind in kinds and {*DEFAULT_ROLES[kind].values()} <= {*vocab})
    return next(matches, kinds[0])


def build_backend(folder: Path, config: Mapping[str, object]) -> Backend | MarianTokenizer:
    """A backend tokenizer from the files of a folder; for Marian, a `MarianTokenizer`."""
    kind = find_kind(folder, config)
    roles = DEFAULT_ROLES[kind] | configured_roles(config)
    builders: dict[str, Callable[..., Backend | MarianTokenizer]] = {"bert": wordpiece, "clip": clip, "marian": marian}
    builders |= {"gpt2": gpt2, "roberta": roberta, "llama": llama}
    files = [folder / name for name in FILES[kind]]
    with backend_errors(f"{' and '.join(map(str, files))}: cannot build a {kind} tokenizer"):
        backend = builders[kind](*files, roles, config)
    if isinstance(backend, Backend):  # Marian's vocab.json is complete
        add_tokens(backend, config.get("added_tokens_decoder"), folder)
    return backend


def wordpiece(vocab: Path, roles: dict[str, str], config: Mapping[str, object]) -> Backend:
    backend = Backend(models.WordPiece.from_file(str(vocab), unk_token=roles["unk_token"]))
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=read_flag(config, "tokenize_chinese_chars", True),
        strip_accents=None if config.get("strip_accents") is None else read_flag(config, "strip_accents", True),
        lowercase=read_flag(config, "do_lower_case", True),
    )
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece(prefix="##")
    first, last = roles["cls_token"], roles["sep_token"]
    backend.post_processor = template(backend, f"{first} $A {last}", f"{first} $A {last} $B:1 {last}:1", (first, last))
    return backend


def gpt2(vocab: Path, merges: Path, roles: dict[str, str], config: Mapping[str, object]) -> Backend:
    backend = Backend(models.BPE.from_file(str(vocab), str(merges)))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=read_flag(config, "add_prefix_space", False))
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = bos_eos_template(backend, roles, config, add_bos=False)
    return backend


def roberta(vocab: Path, merges: Path, roles: dict[str, str], config: Mapping[str, object]) -> Backend:
    backend = gpt2(vocab, merges, roles, {**config, "add_bos_token": False, "add_eos_token": False})
    first, last = (token_and_id(backend, roles[name]) for name in ("cls_token", "sep_token"))
    trim, space = read_flag(config, "trim_offsets", True), read_flag(config, "add_prefix_space", False)
    backend.post_processor = processors.RobertaProcessing(last, first, trim, space)
    return backend


def clip(vocab: Path, merges: Path, roles: dict[str, str], config: Mapping[str, object]) -> Backend:
    model = models.BPE.from_file(str(vocab), str(merges), unk_token=roles["unk_token"], end_of_word_suffix="</w>")
    backend = Backend(model)
    spaces = normalizers.Replace(Regex(r"\s+"), " ")
    backend.normalizer = normalizers.Sequence([normalizers.NFC(), spaces, normalizers.Lowercase()])
    split = pre_tokenizers.Split(Regex(CLIP_SPLIT), "removed", invert=True)
    backend.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    word_ends = [decoders.Replace("</w>", " "), decoders.Replace(Regex(r"^\s+|\s+$"), "")]
    backend.decoder = decoders.Sequence([decoders.ByteLevel(), *word_ends])
    first, last = (token_and_id(backend, roles[name]) for name in ("bos_token", "eos_token"))
    backend.post_processor = processors.RobertaProcessing(last, first, trim_offsets=False, add_prefix_space=False)
    return backend


def llama(model: Path, roles: dict[str, str], config: Mapping[str, object]) -> Backend:
    backend = bpe_from_sentencepiece(model.read_bytes())
    backend.post_processor = bos_eos_template(backend, roles, config, add_bos=True)
    return backend


def marian(
    source: Path, target: Path, vocab: Path, roles: dict[str, str], config: Mapping[str, object]
) -> MarianTokenizer:
    if read_flag(config, "separate_vocabs", False):
        raise ValueError("separate_vocabs: separate vocabularies per language are not supported")
    ids = read_optional_json(vocab)
    if not all(type(number) is int and number >= 0 for number in ids.values()):
        raise ValueError("ids must be integers from 0")
    unknown, end = roles["unk_token"], roles["eos_token"]
    for token in (unknown, end):
        if token not in ids:
            raise ValueError(f"no token {token}")
    other = MarianTokenizer(target.read_bytes(), ids, unknown, end)
    return MarianTokenizer(source.read_bytes(), ids, unknown, end, other)


def bos_eos_template(
    backend: Backend, roles: dict[str, str], config: Mapping[str, object], add_bos: bool
) -> processors.TemplateProcessing:
    """A template with bos_token and eos_token around each text, as the configuration says."""
    first = roles["bos_token"] if read_flag(config, "add_bos_token", add_bos) else None
    last = roles["eos_token"] if read_flag(config, "add_eos_token", False) else None
    sides = enumerate(("$A", "$B"))
    single, second = (" ".join(f"{part}:{side}" for part in (first, text, last) if part) for side, text in sides)
    return template(backend, single, f"{single} {second}", {token for token in (first, last) if token})


def template(backend: Backend, single: str, pair: str, tokens: Collection[str]) -> processors.TemplateProcessing:
    special = [token_and_id(backend, token) for token in sorted({*tokens})]
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=special)


def token_and_id(backend: Backend, token: str) -> tuple[str, int]:
    token_id = backend.token_to_id(token)
    if token_id is None:
        raise ValueError(f"no token {token}")
    return token, token_id


def add_tokens(backend: Backend, added: Any, folder: Path) -> None:
    """Add the tokens of added_tokens_decoder, which must get the ids that it states."""
    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    try:
        for number, token in sorted((int(number), token) for number, token in (added or {}).items()):
            added_token = AddedToken(token["content"], **{name: bool(token[name]) for name in flags if name in token})
            (backend.add_special_tokens if added_token.special else backend.add_tokens)([added_token])
            if (token_id := backend.token_to_id(added_token.content)) != number:
                raise ValueError(f"{added_token.content} should be token {number}, not {token_id}")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{folder}: the added tokens of its tokenizer are inconsistent: {error!r}") from None
