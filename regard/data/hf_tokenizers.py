"""Tokenizers of Hugging Face folders that have no tokenizer.json, made from the files they have instead.

    BERT       vocab.txt                             [CLS] a ##b c [SEP] d [SEP]
    RoBERTa    vocab.json + merges.txt               <s> a Ġb </s> </s> c </s>
    GPT-2      vocab.json + merges.txt               a Ġb
    CLIP       vocab.json + merges.txt               <|startoftext|> a</w> b</w> <|endoftext|>
    Marian     source.spm + target.spm + vocab.json  ▁a ▁b </s>
    LLaMA      tokenizer.model                       <s> ▁a ▁b

Which of them it is follows from model_type in config.json, else from tokenizer_class in tokenizer_config.json, else
from the special tokens. A text that names a special token is only text; transformers would make a token of the name.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Engine

from regard.data.sentencepiece_model import Marian, read_bpe
from regard.hub.files import GROWTH, TOKENIZER, once, read_json, read_plain, there

WHOLE = "tokenizer.json"
FILES = {
    "bert": ("vocab.txt",),
    "gpt2": ("vocab.json", "merges.txt"),
    "roberta": ("vocab.json", "merges.txt"),
    "clip": ("vocab.json", "merges.txt"),
    "marian": ("source.spm", "target.spm", "vocab.json"),
    "llama": ("tokenizer.model",),
}
SIDE = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja")
KINDS = {  # model_type, or tokenizer_class without its ending
    **{name: name for name in FILES},
    **{"distilbert": "bert", "clip_text_model": "clip", "mistral": "llama"},
}
TYPED = ("Bert", "PreTrained", "Electra", "Deberta", "DebertaV2", "ConvBert", "MobileBert", "SqueezeBert", "Funnel")
NAMES = ("bos_token", "eos_token", "unk_token", "pad_token", "cls_token", "sep_token", "mask_token")
ROLES = {  # where nothing else is said; what is most particular comes first
    "clip": dict(zip(NAMES[:4], ("<|startoftext|>", *["<|endoftext|>"] * 3), strict=True)),
    "gpt2": dict.fromkeys(NAMES[:3], "<|endoftext|>"),
    "bert": dict(zip(NAMES[2:], ("[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]"), strict=True)),
    "roberta": dict(zip(NAMES, ("<s>", "</s>", "<unk>", "<pad>", "<s>", "</s>", "<mask>"), strict=True)),
    "marian": dict(zip(NAMES[1:4], ("</s>", "<unk>", "<pad>"), strict=True)),
    "llama": dict(zip(NAMES[:3], ("<s>", "</s>", "<unk>"), strict=True)),
}
SPLIT = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"  # CLIP's words


def holds_tokenizer(folder: Path) -> bool:
    return (folder / WHOLE).is_file() or bool(fitting(folder))


def fitting(folder: Path) -> list[str]:
    return [kind for kind, files in FILES.items() if all((folder / name).is_file() for name in files)]


def files_of(folder: Path) -> dict[str, bytes]:
    """All that a tokenizer may be made of."""
    names = {WHOLE, *SIDE, "target_vocab.json"}.union(*FILES.values())
    files = {folder / name for name in names} | {*folder.glob("*.model"), *folder.glob("*.spm")}
    return {file.name: read_plain(file, TOKENIZER) for file in sorted(files) if there(file)}


def read_engine(file: Path) -> Engine:
    content = read_plain(file, TOKENIZER)
    try:
        told: Any = json.loads(content, object_pairs_hook=once)
        for part in (("normalizer", "pre_tokenizer"), ("decoder",)):
            must_not_grow([step for name in part for step in steps_of(told.get(name))], part[0])
        return Engine.from_buffer(content)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the engine's panics are no Exceptions
        raise ValueError(f"{file} is not a tokenizer: {error}") from None


def steps_of(part: Any) -> list[dict[str, Any]]:
    """What a normalizer, pre-tokenizer or decoder does, one after the other."""
    if not isinstance(part, dict) or part.get("type") != "Sequence":
        return [part] * isinstance(part, dict)
    names = ("normalizers", "pretokenizers", "decoders")
    return [step for name in names for one in part.get(name) or [] for step in steps_of(one)]


def must_not_grow(steps: list[dict[str, Any]], part: str) -> None:
    """Refuse steps that together make a text too long. From the last: what a character before it can become."""
    weights, other = dict[str, float](), 1.0  # of some characters, and of all others
    for step in reversed(steps):
        added, pattern, largest = step.get("content"), step.get("pattern"), max(other, *weights.values(), 0)
        match step.get("type"):
            case "Replace" if isinstance(added, str) and isinstance(pattern, dict):
                total = sum(times * weights.get(letter, other) for letter, times in Counter(added).items())
                if letters := pattern.get("String"):
                    weights |= {one: max(weights.get(one, other), total / len(letters)) for one in {*letters}}
                else:  # an expression may match between any two characters
                    weights, other = {one: weight + total for one, weight in weights.items()}, other + total
            case "ByteLevel" if part != "decoder":  # a character becomes one for each of its bytes
                weights, other = {}, 4 * largest
            case "Precompiled":  # the size of a trie, the trie, and what it points to
                rules = b64decode(step.get("precompiled_charsmap") or "")
                targets = rules[4 + int.from_bytes(rules[:4], "little") :].split(b"\0")
                weights, other = {}, largest * max(1, *map(len, targets))
        if max(other, *weights.values(), 0) > GROWTH:
            raise ValueError(f"its {part} can make over {GROWTH} characters of one, which is the limit")


@contextmanager
def blaming(name: str) -> Iterator[None]:
    """What the engine cannot do is the fault of the file it came from."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, MemoryError, TypeError):
        raise
    except BaseException as error:
        raise ValueError(f"{name} cannot do this: {error}") from None


def read_told(folder: Path) -> dict[str, Any]:
    """tokenizer_config.json; in older folders special_tokens_map.json and added_tokens.json say more."""
    told = read_object(folder / "tokenizer_config.json")
    older = "added_tokens_decoder" not in told
    more = read_object(folder / "special_tokens_map.json") if older else {}
    told |= more
    for name in NAMES:
        token = told.pop(name, None)
        text = token.get("content", token) if isinstance(token, dict) else token
        if not isinstance(text, str | None):
            file = folder / ("special_tokens_map.json" if name in more else "tokenizer_config.json")
            raise ValueError(f"{file}: {name} of the tokenizer must be a text, not {text!r:.80}")
        if text:
            told[name] = text
    if older:
        names = {told[name] for name in NAMES if name in told}
        told["added_tokens_decoder"] = {
            place: {"content": token, "special": token in names, "normalized": token not in names}
            for token, place in read_object(folder / "added_tokens.json").items()
        }
    return told


def read_object(file: Path) -> dict[str, Any]:
    """What a file of JSON says, or nothing if it is not there."""
    return read_json(file) if there(file) else {}


def roles_of(folder: Path, told: Mapping[str, Any], known: Collection[str]) -> dict[str, str]:
    """The special tokens and what each is for: those that are told, or else those usual for the kind."""
    found = {name: told[name] for name in NAMES if name in told}
    if not found:
        kind = told_kind(folder, told)
        usual = ROLES[kind] if kind else {}
        found = next((roles for roles in (usual, *ROLES.values()) if roles and {*roles.values()} <= {*known}), usual)
    return {name: token for name, token in found.items() if token in known}


def told_kind(folder: Path, told: Mapping[str, Any], kinds: Collection[str] = FILES) -> str | None:
    model = str(read_object(folder / "config.json").get("model_type"))
    named = str(told.get("tokenizer_class")).removesuffix("Fast").removesuffix("Tokenizer").lower()
    return next((KINDS[name] for name in (model, named) if KINDS.get(name) in kinds), None)


def gives_types(folder: Path, told: Mapping[str, Any]) -> bool:
    """Whether transformers gives a model the type_ids of this tokenizer: as its configuration says, or its class."""
    names = told.get("model_input_names")
    if names is not None:
        return isinstance(names, list) and "token_type_ids" in names
    if kind := told.get("tokenizer_class"):
        return str(kind).removesuffix("Fast").removesuffix("Tokenizer") in TYPED
    return read_object(folder / "config.json").get("model_type") == "bert"


def inputs_of(folder: Path) -> list[str]:
    """What a tokenizer of ours gives the model in a folder: type_ids only if it has a table for them."""
    types = ["token_type_ids"] if "type_vocab_size" in read_object(folder / "config.json") else []
    return ["input_ids", *types, "attention_mask"]


def kind_of(folder: Path, told: Mapping[str, Any]) -> str:
    kinds = fitting(folder)
    if not kinds:
        others = "; ".join(" + ".join(files) for files in dict.fromkeys(FILES.values()))
        raise ValueError(f"{folder} has no {WHOLE}, so its model cannot read text (nor has it {others})")
    if kind := told_kind(folder, told, kinds):
        return kind
    known = read_object(folder / "vocab.json") if len(kinds) > 1 else {}
    return next((kind for kind in ROLES if kind in kinds and {*ROLES[kind].values()} <= {*known}), kinds[0])


def build(folder: Path, told: Mapping[str, Any]) -> Any:
    """An engine from the files of a folder, or what answers like one."""
    kind = kind_of(folder, told)
    roles = ROLES[kind] | {name: told[name] for name in NAMES if name in told}
    makers: dict[str, Any] = {"gpt2": gpt2, "roberta": roberta, "clip": clip, "marian": marian, "llama": llama}
    files = [folder / name for name in FILES[kind]]
    try:
        engine = makers.get(kind, wordpiece)(*files, roles, told)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the engine's panics are no Exceptions
        names = " and ".join(map(str, files))
        raise ValueError(f"{names}: no tokenizer of the kind {kind} can be made of this: {error}") from None
    if kind != "marian":  # whose list of ids is whole
        add_tokens(engine, told.get("added_tokens_decoder"), folder)
    return engine


def wordpiece(vocab: Path, roles: dict[str, str], told: Mapping[str, Any]) -> Engine:
    engine = Engine(models.WordPiece.from_file(str(vocab), unk_token=roles["unk_token"]))
    engine.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=switch(told, "tokenize_chinese_chars", True),
        strip_accents=None if told.get("strip_accents") is None else switch(told, "strip_accents", True),
        lowercase=switch(told, "do_lower_case", True),
    )
    engine.pre_tokenizer, engine.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece(prefix="##")
    first, last = roles["cls_token"], roles["sep_token"]
    engine.post_processor = template(engine, f"{first} $A {last}", f"{first} $A {last} $B:1 {last}:1", (first, last))
    return engine


def gpt2(vocab: Path, merges: Path, roles: dict[str, str], told: Mapping[str, Any]) -> Engine:
    engine = Engine(models.BPE.from_file(str(vocab), str(merges)))
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=switch(told, "add_prefix_space", False))
    engine.decoder = decoders.ByteLevel()
    engine.post_processor = around(engine, roles, told, begins=False)
    return engine


def roberta(vocab: Path, merges: Path, roles: dict[str, str], told: Mapping[str, Any]) -> Engine:
    engine = gpt2(vocab, merges, roles, {**told, "add_bos_token": False, "add_eos_token": False})
    first, last = (place(engine, roles[name]) for name in ("cls_token", "sep_token"))
    spaced = switch(told, "add_prefix_space", False)
    engine.post_processor = processors.RobertaProcessing(last, first, switch(told, "trim_offsets", True), spaced)
    return engine


def clip(vocab: Path, merges: Path, roles: dict[str, str], told: Mapping[str, Any]) -> Engine:
    model = models.BPE.from_file(str(vocab), str(merges), unk_token=roles["unk_token"], end_of_word_suffix="</w>")
    engine = Engine(model)
    engine.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    engine.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(SPLIT), "removed", invert=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    spaces = [decoders.Replace("</w>", " "), decoders.Replace(Regex(r"^\s+|\s+$"), "")]
    engine.decoder = decoders.Sequence([decoders.ByteLevel(), *spaces])
    first, last = (place(engine, roles[name]) for name in ("bos_token", "eos_token"))
    engine.post_processor = processors.RobertaProcessing(last, first, trim_offsets=False, add_prefix_space=False)
    return engine


def llama(model: Path, roles: dict[str, str], told: Mapping[str, Any]) -> Engine:
    engine = read_bpe(model.read_bytes())
    engine.post_processor = around(engine, roles, told, begins=True)
    return engine


def marian(source: Path, target: Path, vocab: Path, roles: dict[str, str], told: Mapping[str, Any]) -> Marian:
    if switch(told, "separate_vocabs", False):
        raise ValueError("separate_vocabs: two lists of ids, one for each language, are not read")
    ids = read_object(vocab)
    if not all(type(number) is int and number >= 0 for number in ids.values()):
        raise ValueError("ids must be whole numbers from 0")
    unknown, end = roles["unk_token"], roles["eos_token"]
    for token in (unknown, end):
        if token not in ids:
            raise ValueError(f"it has no {token}")
    return Marian(source.read_bytes(), ids, unknown, end, Marian(target.read_bytes(), ids, unknown, end))


def switch(told: Mapping[str, Any], name: str, usual: bool) -> bool:
    value = told.get(name)
    if not isinstance(value, bool | None):
        raise ValueError(f"{name} must be true or false, not {value!r}")
    return usual if value is None else value


def around(engine: Engine, roles: dict[str, str], told: Mapping[str, Any], begins: bool) -> Any:
    """The first and the last token of each text, if they are asked for."""
    first = roles["bos_token"] if switch(told, "add_bos_token", begins) else None
    last = roles["eos_token"] if switch(told, "add_eos_token", False) else None
    single, other = (
        " ".join(f"{part}:{side}" for part in (first, text, last) if part) for side, text in enumerate(("$A", "$B"))
    )
    return template(engine, single, f"{single} {other}", {token for token in (first, last) if token})


def template(engine: Engine, single: str, pair: str, tokens: Collection[str]) -> Any:
    special = [place(engine, token) for token in sorted({*tokens})]
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=special)


def place(engine: Engine, token: str) -> tuple[str, int]:
    found = engine.token_to_id(token)
    if found is None:
        raise ValueError(f"it has no {token}")
    return token, found


def add_tokens(engine: Engine, told: Any, folder: Path) -> None:
    """Tokens that were added later stand behind the others, where the files say."""
    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    try:
        for number, token in sorted((int(number), token) for number, token in (told or {}).items()):
            made = AddedToken(token["content"], **{flag: bool(token[flag]) for flag in flags if flag in token})
            (engine.add_special_tokens if made.special else engine.add_tokens)([made])
            if engine.token_to_id(made.content) != number:
                raise ValueError(f"{made.content} should be token {number}, not {engine.token_to_id(made.content)}")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{folder}: the added tokens of its tokenizer do not fit: {error!r}") from None
