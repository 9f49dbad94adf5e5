"""Tokenizers of folders without a tokenizer.json give the ids that transformers gives for the same files."""

import io
import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers, pre_tokenizers, trainers

from regard.data import sentencepiece_model
from regard.data.hf_tokenizers import DEFAULT_ROLES
from regard.data.tokenizer import Tokenizer
from regard.modalities.synthetic import phrasebook

PHRASES = [text for phrase in list(phrasebook.phrases())[:400] for text in (phrase.english, phrase.german)]
ODD = [
    *("", " ", "   ", "\n", "\t a\r\n", "a  b", " a", "a ", "\u00a0", "\u3000x", "\u200b", "\ufeff", "x\u00ady"),
    *("\x00", "\x01\x02 a", "\x7f", "\x85", "\u2028", "\ufffd", "\ud7ff", "\U0010ffff", "\ue000"),
    *("é", "e\u0301", "Åström", "A\u030a", "ÀÉÎÕÜ", "ß ẞ", "İstanbul ı", "ﬁ ﬂ", "Ǆ", "x\u0301\u0302\u0303", "ñandú"),
    *("😀", "👩‍👩‍👧‍👦", "🇩🇪🇫🇷", "👍🏽 ok", "☃️", "a😀b", "♥ ♥"),
    *("我们 去", "我a们", "日本語テキスト", "한국어", "각", "ｆｕｌｌ　ｗｉｄｔｈ", "ｱﾞ", "㐀𠀀"),
    *("0", "1234567890", "3.14", "1,000,000", "½ ¼ ①", "٣٤", "10€", "2nd", "0x1F", "1e-5"),
    *("it's", "I'LL WE'VE they're", "don't!", "''''", "...", "?!?!", "--", "a-b_c", "#tag @you", "x=y+z", "(a[b]{c})"),
    *("ДОМ дом", "ελληνικά Σίσυφος ς", "עברית", "العربية", "हिन्दी क्षि", "ไทย", "ქართული"),
    *("a" * 150, "A" * 33, "ab " * 40, "ﷺ", "\u202eabc", "ĲĳŒœ", "K Å", "ſ", "▁", "a▁b", "##a", "Ġa", "</w>", "a</w>b"),
]  # fmt: skip


def texts(count: int = 300) -> list[str]:
    draw = random.Random(4)
    mixed = ["".join(draw.choice([*ODD, *PHRASES, " ", " "]) for _ in range(draw.randint(1, 5))) for _ in range(count)]
    return [*ODD, *mixed][:count]


TEXTS = texts()
PAIRS = list(zip(TEXTS[:60], TEXTS[60:120], strict=True))


def write(folder: Path, **files: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def bert(folder: Path, lower: bool = True) -> Path:
    backend = Backend(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=lower)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = [*DEFAULT_ROLES["bert"].values()]
    trainer = trainers.WordPieceTrainer(vocab_size=400, special_tokens=special, show_progress=False)
    backend.train_from_iterator([*PHRASES, *ODD[20:60]], trainer)
    folder.mkdir(parents=True, exist_ok=True)
    backend.model.save(str(folder))
    return folder


def bytes_bpe(folder: Path, special: list[str]) -> Path:
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator([*PHRASES, *ODD], trainer)
    folder.mkdir(parents=True, exist_ok=True)
    backend.model.save(str(folder))
    return folder


def clip(folder: Path) -> Path:
    """All bytes, all bytes that end a word, their merges, and the two special tokens last."""
    backend = Backend(models.BPE(end_of_word_suffix="</w>"))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=900, initial_alphabet=alphabet, end_of_word_suffix="</w>", show_progress=False
    )
    backend.train_from_iterator([word for text in PHRASES for word in text.split()], trainer)
    model = json.loads(backend.to_str())["model"]
    names = dict.fromkeys(
        [*alphabet, *(letter + "</w>" for letter in alphabet), *model["vocab"], *DEFAULT_ROLES["clip"].values()]
    )
    folder = write(folder, vocab={name: i for i, name in enumerate(names)})
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(map(" ".join, model["merges"])), encoding="utf-8")
    return folder


def spm(kind: str, sentences: list[str], **options: Any) -> bytes:
    library = pytest.importorskip("sentencepiece", reason='SentencePiece needs the library: pip install "regard[spm]"')
    buffer = io.BytesIO()
    library.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_writer=buffer, model_type=kind, minloglevel=2, **options
    )
    return buffer.getvalue()


def llama(folder: Path, **options: Any) -> Path:
    plain = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False, "byte_fallback": True}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.model").write_bytes(spm("bpe", PHRASES, **({"vocab_size": 600} | plain | options)))
    return folder


def marian(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    names = ["</s>", "<unk>", ">>de<<"]
    for file, sentences in ("source.spm", PHRASES[::2]), ("target.spm", PHRASES[1::2]):
        model = spm("unigram", sentences, vocab_size=200)
        (folder / file).write_bytes(model)
        names += [piece.text for piece in sentencepiece_model.parse_model(model)[0][3:-20]]  # leave out the last pieces
    return write(folder, vocab={name: i for i, name in enumerate(dict.fromkeys([*names, "<pad>"]))})


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("hf")
    folders_by_kind = {
        "bert": bert(base / "bert"),
        "cased": bert(base / "cased", lower=False),
        "gpt2": bytes_bpe(base / "gpt2", ["<|endoftext|>"]),
        "roberta": bytes_bpe(base / "roberta", ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]),
        "clip": clip(base / "clip"),
    }
    for name, folder in folders_by_kind.items():
        write(folder, config={"model_type": "bert" if name == "cased" else name})
    return folders_by_kind


@pytest.fixture(scope="module")
def transformers() -> Any:
    return pytest.importorskip("transformers", reason="parity needs the dev extra")


CASES = [
    ("bert", {}),
    ("bert", {"do_lower_case": True, "strip_accents": False, "model_max_length": 512}),
    ("cased", {"do_lower_case": False}),
    ("cased", {"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False}),
    ("gpt2", {}),
    ("gpt2", {"add_prefix_space": True, "model_max_length": 1024}),
    ("gpt2", {"add_bos_token": True}),
    ("roberta", {}),
    ("roberta", {"add_prefix_space": True}),
    ("clip", {}),
]


@pytest.mark.parametrize(("name", "config"), CASES, ids=str)
def test_ids_are_those_of_transformers(folders: dict[str, Path], transformers: Any, name: str, config: dict) -> None:
    folder = write(folders[name], tokenizer_config=config)
    hf = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer = Tokenizer.load(folder)
    assert len(tokenizer) == len(hf)
    assert tokenizer.encode(TEXTS) == hf(TEXTS)["input_ids"]
    hf_pairs = hf(*map(list, zip(*PAIRS, strict=True)))
    assert tokenizer.encode(PAIRS) == hf_pairs["input_ids"]
    if "token_type_ids" in hf_pairs:
        assert [encoding.type_ids for encoding in tokenizer.encodings(PAIRS)] == hf_pairs["token_type_ids"]
    rows = tokenizer.encode(TEXTS)
    assert tokenizer.decode(rows) == hf.batch_decode(rows, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    for role in ("pad", "eos", "bos", "cls", "sep", "mask", "unk"):
        if f"{role}_token" in tokenizer.roles:
            assert tokenizer.roles[f"{role}_token"] == getattr(hf, f"{role}_token")
    assert {*tokenizer.roles} >= {role for role, token in hf.special_tokens_map.items() if token}


@pytest.fixture(scope="module")
def sentencepiece_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders with SentencePiece models."""
    base = tmp_path_factory.mktemp("sentencepiece_folders")
    return {
        "llama": write(llama(base / "llama"), config={"model_type": "llama"}),
        "marian": write(marian(base / "marian"), config={"model_type": "marian"}),
    }


@cache
def loaded(folder: Path) -> Tokenizer:
    return Tokenizer.load(folder)


@cache
def processor(file: Path) -> Any:
    return pytest.importorskip("sentencepiece").SentencePieceProcessor(model_proto=file.read_bytes())


def test_llama_encodes_as_sentencepiece(sentencepiece_folders: dict[str, Path]) -> None:
    tokenizer, library = (
        Tokenizer.load(sentencepiece_folders["llama"]),
        processor(sentencepiece_folders["llama"] / "tokenizer.model"),
    )
    assert [row[1:] for row in tokenizer.encode(TEXTS)] == [library.encode(text) for text in TEXTS]
    assert {row[0] for row in tokenizer.encode(TEXTS)} == {library.bos_id()}
    assert tokenizer.decode(tokenizer.encode(TEXTS)) == [library.decode(library.encode(text)) for text in TEXTS]
    assert len(tokenizer) == library.vocab_size()


@given(text=st.text() | st.text(" ▁aenrt\n", max_size=60))
@settings(deadline=None, derandomize=True, max_examples=200)
def test_llama_encodes_any_text_as_sentencepiece(sentencepiece_folders: dict[str, Path], text: str) -> None:
    tokenizer, library = (
        loaded(sentencepiece_folders["llama"]),
        processor(sentencepiece_folders["llama"] / "tokenizer.model"),
    )
    [row] = tokenizer.encode([text])
    assert row[1:] == library.encode(text)
    assert tokenizer.decode([row]) == [library.decode(row[1:])]


def test_llama_without_byte_fallback_has_unknown_tokens(tmp_path: Path) -> None:
    folder = write(llama(tmp_path, byte_fallback=False, vocab_size=300, add_dummy_prefix=False))
    tokenizer, library = Tokenizer.load(folder), processor(folder / "tokenizer.model")
    assert [row[1:] for row in tokenizer.encode(TEXTS)] == [library.encode(text) for text in TEXTS]


def test_llama_equals_transformers_except_for_a_leading_space(
    sentencepiece_folders: dict[str, Path], transformers: Any
) -> None:
    """transformers 5 puts no mark before a text that begins with a space; SentencePiece, and so the model, had one."""
    from transformers.tokenization_utils_base import generate_merges

    tokenizer = Tokenizer.load(sentencepiece_folders["llama"])
    vocab = {name: i for i, name in enumerate(tokenizer.convert_ids_to_tokens(range(len(tokenizer))))}
    hf = transformers.LlamaTokenizer(vocab=vocab, merges=generate_merges(vocab), add_bos_token=True)
    inner = [text for text in TEXTS if not text.startswith((" ", "▁"))]
    assert len(inner) > 280
    assert tokenizer.encode(inner) == hf(inner)["input_ids"]
    rows = tokenizer.encode(TEXTS)
    assert tokenizer.decode(rows) == hf.batch_decode(rows, skip_special_tokens=True)


def test_llama_does_not_need_sentencepiece(
    sentencepiece_folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sentencepiece", None)
    assert len(Tokenizer.load(sentencepiece_folders["llama"]).encode(["the cat"])[0]) > 2
    with pytest.raises(ValueError, match=r'needs the library sentencepiece: pip install "regard\[spm\]"'):
        Tokenizer.load(sentencepiece_folders["marian"])


@pytest.mark.parametrize(("first", "last"), [(True, False), (False, False), (False, True), (True, True)])
def test_llama_adds_bos_and_eos_as_configured(
    sentencepiece_folders: dict[str, Path], tmp_path: Path, first: bool, last: bool
) -> None:
    (tmp_path / "tokenizer.model").write_bytes((sentencepiece_folders["llama"] / "tokenizer.model").read_bytes())
    tokenizer = Tokenizer.load(write(tmp_path, tokenizer_config={"add_bos_token": first, "add_eos_token": last}))
    assert tokenizer.template_ids == [1] * first + [2] * last
    assert tokenizer.bos_token_id == (1 if first else 2)
    assert tokenizer.encode([("a", "b")])[0].count(1) == 2 * first


def test_a_continuation_keeps_its_space(sentencepiece_folders: dict[str, Path], folders: dict[str, Path]) -> None:
    for tokenizer in Tokenizer.load(sentencepiece_folders["llama"]), Tokenizer.load(folders["gpt2"]):
        before = tokenizer.encode(["the man"])[0]
        full = tokenizer.encode(["the man sleeps"])[0]
        assert full[: len(before)] == before
        assert tokenizer.decode_continuation(before, full[len(before) :]) == " sleeps"
        assert tokenizer.decode_continuation([], full) == "the man sleeps"


def test_marian_equals_transformers(sentencepiece_folders: dict[str, Path], transformers: Any) -> None:
    tokenizer, hf = (
        Tokenizer.load(sentencepiece_folders["marian"]),
        transformers.AutoTokenizer.from_pretrained(sentencepiece_folders["marian"]),
    )
    texts = [*TEXTS, ">>de<< the cat", ">>de<<the cat", ">>fr<< x", ">> <<", ">>a"]
    sources, targets = tokenizer.encode(texts), tokenizer.encode_targets(texts)
    assert sources == hf(texts)["input_ids"]
    assert targets == hf(text_target=texts)["input_ids"]
    assert sources != targets
    assert tokenizer.decode(targets) == hf.batch_decode(targets, skip_special_tokens=True, use_source_tokenizer=False)
    assert len(tokenizer) == len(hf)
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id) == (hf.pad_token_id, hf.eos_token_id)


@given(text=st.text())
@settings(deadline=None, derandomize=True, max_examples=100)
def test_marian_encodes_any_text_as_sentencepiece(sentencepiece_folders: dict[str, Path], text: str) -> None:
    tokenizer, library = (
        loaded(sentencepiece_folders["marian"]),
        processor(sentencepiece_folders["marian"] / "target.spm"),
    )
    [row] = tokenizer.encode_targets([text])
    ids = tokenizer.backend_tokenizer.get_vocab()
    assert row == [*(ids.get(piece, ids["<unk>"]) for piece in library.encode(text, out_type=str)), ids["</s>"]]


def test_marian_truncates_and_has_no_offsets(sentencepiece_folders: dict[str, Path]) -> None:
    tokenizer = Tokenizer.load(sentencepiece_folders["marian"])
    [full] = tokenizer.encode([PHRASES[0]])
    assert tokenizer.encode([PHRASES[0]], 3) == [[*full[:2], tokenizer.eos_token_id]]
    assert tokenizer.encode([PHRASES[0]]) == [full]
    with pytest.raises(ValueError, match="has no token offsets"):
        tokenizer.encodings(["a"])
    with pytest.raises(ValueError, match="single texts, not pairs"):
        tokenizer.encode([("a", "b")])


@pytest.mark.parametrize("name", ["bert", "gpt2", "roberta", "clip", "llama", "marian"])
def test_files_are_saved_unchanged(request: pytest.FixtureRequest, tmp_path: Path, name: str) -> None:
    folder = request.getfixturevalue("sentencepiece_folders" if name in ("llama", "marian") else "folders")[name]
    write(folder, tokenizer_config={"model_max_length": 77}, special_tokens_map={}, added_tokens={})
    tokenizer = Tokenizer.load(folder)
    tokenizer.encode(TEXTS[:50], 9)
    before = {file.name: file.read_bytes() for file in folder.iterdir() if file.name != "config.json"}
    for place in "one", "two":
        (tmp_path / place).mkdir()
        tokenizer.save(tmp_path / place)
        assert {file.name: file.read_bytes() for file in (tmp_path / place).iterdir()} == before
        write(tmp_path / place, config={"model_type": name})
        assert Tokenizer.load(tmp_path / place).encode(TEXTS) == tokenizer.encode(TEXTS)
        tokenizer = Tokenizer.load(tmp_path / place)


@pytest.mark.parametrize("name", ["bert", "cased", "gpt2", "roberta", "clip"])
@given(
    parts=st.lists(
        st.sampled_from([*{token for roles in DEFAULT_ROLES.values() for token in roles.values()}, "a", " "])
    )
)
@settings(deadline=None, derandomize=True, max_examples=60)
def test_the_name_of_a_special_token_is_plain_text(folders: dict[str, Path], name: str, parts: list[str]) -> None:
    tokenizer = loaded(folders[name])
    templates = {*tokenizer.all_special_ids} - {tokenizer.token_id(tokenizer.roles["unk_token"])} | {
        tokenizer.eos_token_id
    }
    [row] = tokenizer.encode(["".join(parts)])
    assert [number for number in row if number in templates] == tokenizer.template_ids


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_padding_defaults_to_eos(request: pytest.FixtureRequest, name: str) -> None:
    tokenizer = Tokenizer.load(request.getfixturevalue("sentencepiece_folders" if name == "llama" else "folders")[name])
    assert "pad_token" not in tokenizer.roles
    assert tokenizer.pad_token_id == tokenizer.eos_token_id
    assert tokenizer.eos_token_id not in tokenizer.suppress_tokens
    assert tokenizer.suppress_tokens == ([0] if name == "llama" else [])


def test_the_kind_follows_from_model_then_class_then_special_tokens(folders: dict[str, Path], tmp_path: Path) -> None:
    """A vocabulary with the special tokens of all three."""
    names = dict.fromkeys(token for kind in ("clip", "roberta") for token in DEFAULT_ROLES[kind].values())
    bytes_bpe(tmp_path, list(names))
    templates = {"gpt2": [], "roberta": ["<s>", "</s>"], "clip": ["<|startoftext|>", "<|endoftext|>"]}

    def template_tokens() -> list[str]:
        tokenizer = Tokenizer.load(tmp_path)
        return tokenizer.convert_ids_to_tokens(tokenizer.template_ids)

    assert template_tokens() == templates["clip"], "the most distinctive special tokens"
    for kind, case in (("gpt2", "GPT2TokenizerFast"), ("roberta", "RobertaTokenizer"), ("clip", "CLIPTokenizer")):
        write(tmp_path, tokenizer_config={"tokenizer_class": case}, config={"model_type": "something"})
        assert template_tokens() == templates[kind]
        for model in templates:
            write(tmp_path, config={"model_type": model})
            assert template_tokens() == templates[model]
    for kind in templates:
        folder = tmp_path / kind
        folder.mkdir()
        for name in ("vocab.json", "merges.txt"):
            (folder / name).write_bytes((folders[kind] / name).read_bytes())
        tokenizer = Tokenizer.load(folder)
        assert tokenizer.convert_ids_to_tokens(tokenizer.template_ids) == templates[kind]
        assert tokenizer.encode(TEXTS) == Tokenizer.load(folders[kind]).encode(TEXTS)


@pytest.mark.parametrize("new", [False, True])
def test_added_tokens_are_encoded(folders: dict[str, Path], transformers: Any, tmp_path: Path, new: bool) -> None:
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / name).write_bytes((folders["gpt2"] / name).read_bytes())
    size = len(Tokenizer.load(folders["gpt2"]))
    write(tmp_path, config={"model_type": "gpt2"})
    if new:
        flags = {"lstrip": False, "rstrip": False, "single_word": False}
        added = {
            str(size): {"content": "[PAD]", "special": True, "normalized": False, **flags},
            str(size + 1): {"content": "Fischerin", "special": False, "normalized": True, **flags},
        }
        write(tmp_path, tokenizer_config={"added_tokens_decoder": added, "pad_token": "[PAD]"} | DEFAULT_ROLES["gpt2"])
    else:
        write(tmp_path, added_tokens={"[PAD]": size, "Fischerin": size + 1})
        write(tmp_path, special_tokens_map={"pad_token": {"content": "[PAD]", "lstrip": False}} | DEFAULT_ROLES["gpt2"])
    tokenizer, hf = Tokenizer.load(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert (len(tokenizer), tokenizer.pad_token_id) == (size + 2, size)
    texts = [*TEXTS, "die Fischerin, Fischerinnen"]
    assert tokenizer.encode(texts) == hf(texts)["input_ids"]
    assert size + 1 in tokenizer.encode(texts[-1:])[0]
    assert tokenizer.pad_token_id not in tokenizer.encode(["[PAD]"])[0]


BROKEN = {
    "merges of nothing": {"merges.txt": b"#version: 0.2\nzzz yyy\n"},
    "no numbers": {"vocab.json": b'{"a": "b"}'},
    "below 0": {"vocab.json": b'{"a": -1}'},
    "a list": {"vocab.json": b"[1, 2]"},
    "no JSON": {"vocab.json": b"{"},
    "no text": {"vocab.json": b"\xff\xfe\x00"},
    "deep": {"vocab.json": b"[" * 100_000},
    "no end": {"vocab.json": b'{"a": 0}', "merges.txt": b""},
    "deep settings": {"tokenizer_config.json": b"[" * 100_000},
    "settings in a list": {"tokenizer_config.json": b"[]"},
    "a word for a switch": {"tokenizer_config.json": b'{"add_prefix_space": "yes"}'},
    "a number for a token": {"tokenizer_config.json": b'{"eos_token": 3}'},
    "a token of nothing": {"special_tokens_map.json": b'{"eos_token": {"content": []}}'},
    "a length of words": {"tokenizer_config.json": b'{"model_max_length": "long"}'},
    "no length": {"tokenizer_config.json": b'{"model_max_length": -3}'},
    "added in the middle": {"added_tokens.json": b'{"new": 7}'},
    "added nowhere": {"added_tokens.json": b'{"new": "x"}'},
    "added of nothing": {"tokenizer_config.json": b'{"added_tokens_decoder": {"7": 8}}'},
    "added in a list": {"tokenizer_config.json": b'{"added_tokens_decoder": [1]}'},
    "a model of lists": {"config.json": b"[]"},
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_files_are_refused_by_name(folders: dict[str, Path], tmp_path: Path, case: str) -> None:
    for name in ("vocab.json", "merges.txt", "config.json"):
        (tmp_path / name).write_bytes((folders["gpt2"] / name).read_bytes())
    for name, content in BROKEN[case].items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=str(tmp_path)):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "unigram", "vocab_size": 400}, "is not a BPE model"),
        ({"normalization_rule_name": "nmt_nfkc"}, "normalises characters by a table"),
        ({"remove_extra_whitespaces": True}, "removes extra spaces"),
        ({"user_defined_symbols": ["<sep>"]}, "user-defined pieces"),
        ({"treat_whitespace_as_suffix": True}, "marks the end of a word instead of its start"),
    ],
)
def test_unsupported_sentencepiece_models_are_refused_with_a_remedy(
    tmp_path: Path, options: dict, message: str
) -> None:
    plain = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False, "byte_fallback": True}
    model = spm(options.pop("kind", "bpe"), PHRASES, **({"vocab_size": 600} | plain | options))
    (tmp_path / "tokenizer.model").write_bytes(model)
    with pytest.raises(
        ValueError, match=f"tokenizer.model.*{message}; convert it to a tokenizer.json with transformers"
    ):
        Tokenizer.load(tmp_path)


@given(where=st.floats(0, 1, exclude_max=True), message=st.binary(max_size=4), early=st.booleans())
@settings(deadline=None, derandomize=True, max_examples=150)
def test_a_broken_model_is_refused_by_name_or_still_loads(
    sentencepiece_folders: dict[str, Path], where: float, message: bytes, early: bool
) -> None:
    full = (sentencepiece_folders["llama"] / "tokenizer.model").read_bytes()
    at = int(where * (60 if early else len(full)))
    damaged = sentencepiece_folders["llama"].parent / "broken"
    damaged.mkdir(exist_ok=True)
    (damaged / "tokenizer.model").write_bytes(full[:at] + message + full[at + len(message) :] if message else full[:at])
    trouble = ""
    try:
        Tokenizer.load(damaged).encode(["the cat"])
    except ValueError as error:
        trouble = str(error)
    assert not trouble or str(damaged) in trouble


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("source.spm", b"nothing"),
        ("target.spm", b""),
        ("vocab.json", b"[]"),
        ("vocab.json", b'{"</s>": 0}'),
        ("vocab.json", b'{"</s>": 0, "<unk>": -1}'),
        ("tokenizer_config.json", b'{"separate_vocabs": true}'),
    ],
)
def test_a_broken_marian_is_refused_by_name(
    sentencepiece_folders: dict[str, Path], tmp_path: Path, name: str, content: bytes
) -> None:
    for file in sentencepiece_folders["marian"].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=str(tmp_path)):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("name", ["vocab.json", "tokenizer_config.json", "tokenizer.json", "other.spm"])
def test_a_link_out_of_the_folder_is_not_followed(folders: dict[str, Path], tmp_path: Path, name: str) -> None:
    """Otherwise `save` would copy a private file into a folder that may be shared."""
    (tmp_path / "secret").write_text("{}")
    (tmp_path / "model").mkdir()
    for file in ("vocab.json", "merges.txt", "config.json"):
        (tmp_path / "model" / file).write_bytes((folders["gpt2"] / file).read_bytes())
    (tmp_path / "model" / name).unlink(missing_ok=True)
    (tmp_path / "model" / name).symlink_to(tmp_path / "secret")
    with pytest.raises(ValueError, match="is a link out of its folder"):
        Tokenizer.load(tmp_path / "model")


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_special_tokens_beside_a_mask_are_plain_text(folders: dict[str, Path], name: str) -> None:
    """transformers would make tokens of all of them."""
    tokenizer = Tokenizer.load(folders[name])
    typed = [tokenizer.roles[role] for role in ("sep_token", "cls_token", "pad_token")]
    ids = tokenizer.encode_with_mask(f"{' '.join(typed)} {tokenizer.roles['mask_token']} a")
    control = {tokenizer.token_id(token) for token in (*typed, tokenizer.roles["mask_token"])}
    assert [number for number in ids if number in control] == [
        tokenizer.bos_token_id,
        tokenizer.mask_token_id,
        tokenizer.token_id(typed[0]),
    ]
