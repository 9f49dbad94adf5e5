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
from tokenizers import Tokenizer as Engine
from tokenizers import models, normalizers, pre_tokenizers, trainers

from regard.data import sentencepiece_model
from regard.data.bundled import phrasebook
from regard.data.hf_tokenizers import ROLES
from regard.data.tokenizer import Tokenizer

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
    engine = Engine(models.WordPiece(unk_token="[UNK]"))
    engine.normalizer = normalizers.BertNormalizer(lowercase=lower)
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = [*ROLES["bert"].values()]
    trainer = trainers.WordPieceTrainer(vocab_size=400, special_tokens=special, show_progress=False)
    engine.train_from_iterator([*PHRASES, *ODD[20:60]], trainer)
    folder.mkdir(parents=True, exist_ok=True)
    engine.model.save(str(folder))
    return folder


def bytes_bpe(folder: Path, special: list[str]) -> Path:
    engine = Engine(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    engine.train_from_iterator([*PHRASES, *ODD], trainer)
    folder.mkdir(parents=True, exist_ok=True)
    engine.model.save(str(folder))
    return folder


def clip(folder: Path) -> Path:
    """All bytes, all bytes that end a word, what is joined of them, and the two special tokens last."""
    engine = Engine(models.BPE(end_of_word_suffix="</w>"))
    engine.normalizer = normalizers.Lowercase()
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=900, initial_alphabet=letters, end_of_word_suffix="</w>", show_progress=False
    )
    engine.train_from_iterator([word for text in PHRASES for word in text.split()], trainer)
    model = json.loads(engine.to_str())["model"]
    names = dict.fromkeys(
        [*letters, *(letter + "</w>" for letter in letters), *model["vocab"], *ROLES["clip"].values()]
    )
    folder = write(folder, vocab={name: i for i, name in enumerate(names)})
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(map(" ".join, model["merges"])), encoding="utf-8")
    return folder


def spm(kind: str, sentences: list[str], **how: Any) -> bytes:
    library = pytest.importorskip("sentencepiece", reason='SentencePiece needs the library: pip install "regard[spm]"')
    made = io.BytesIO()
    library.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_writer=made, model_type=kind, minloglevel=2, **how
    )
    return made.getvalue()


def llama(folder: Path, **how: Any) -> Path:
    plain = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False, "byte_fallback": True}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.model").write_bytes(spm("bpe", PHRASES, **({"vocab_size": 600} | plain | how)))
    return folder


def marian(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    names = ["</s>", "<unk>", ">>de<<"]
    for file, sentences in ("source.spm", PHRASES[::2]), ("target.spm", PHRASES[1::2]):
        model = spm("unigram", sentences, vocab_size=200)
        (folder / file).write_bytes(model)
        names += [
            piece.text for piece in sentencepiece_model.parse_model(model)[0][3:-20]
        ]  # the last are not in the list
    return write(folder, vocab={name: i for i, name in enumerate(dict.fromkeys([*names, "<pad>"]))})


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("foreign")
    made = {
        "bert": bert(base / "bert"),
        "cased": bert(base / "cased", lower=False),
        "gpt2": bytes_bpe(base / "gpt2", ["<|endoftext|>"]),
        "roberta": bytes_bpe(base / "roberta", ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]),
        "clip": clip(base / "clip"),
    }
    for name, folder in made.items():
        write(folder, config={"model_type": "bert" if name == "cased" else name})
    return made


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


@pytest.mark.parametrize(("name", "told"), CASES, ids=str)
def test_ids_are_those_of_transformers(folders: dict[str, Path], transformers: Any, name: str, told: dict) -> None:
    folder = write(folders[name], tokenizer_config=told)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    ours = Tokenizer.load(folder)
    assert len(ours) == len(theirs)
    assert ours.encode(TEXTS) == theirs(TEXTS)["input_ids"]
    both = theirs(*map(list, zip(*PAIRS, strict=True)))
    assert ours.encode(PAIRS) == both["input_ids"]
    if "token_type_ids" in both:
        assert [encoding.type_ids for encoding in ours.encodings(PAIRS)] == both["token_type_ids"]
    rows = ours.encode(TEXTS)
    assert ours.decode(rows) == theirs.batch_decode(rows, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    for role in ("pad", "eos", "bos", "cls", "sep", "mask", "unk"):
        if f"{role}_token" in ours.roles:
            assert ours.roles[f"{role}_token"] == getattr(theirs, f"{role}_token")
    assert {*ours.roles} >= {role for role, token in theirs.special_tokens_map.items() if token}


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Those of SentencePiece."""
    base = tmp_path_factory.mktemp("spoken")
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


def test_llama_cuts_as_sentencepiece_does(spoken: dict[str, Path]) -> None:
    ours, library = Tokenizer.load(spoken["llama"]), processor(spoken["llama"] / "tokenizer.model")
    assert [row[1:] for row in ours.encode(TEXTS)] == [library.encode(text) for text in TEXTS]
    assert {row[0] for row in ours.encode(TEXTS)} == {library.bos_id()}
    assert ours.decode(ours.encode(TEXTS)) == [library.decode(library.encode(text)) for text in TEXTS]
    assert len(ours) == library.vocab_size()


@given(text=st.text() | st.text(" ▁aenrt\n", max_size=60))
@settings(deadline=None, derandomize=True, max_examples=200)
def test_llama_cuts_anything_as_sentencepiece_does(spoken: dict[str, Path], text: str) -> None:
    ours, library = loaded(spoken["llama"]), processor(spoken["llama"] / "tokenizer.model")
    [row] = ours.encode([text])
    assert row[1:] == library.encode(text)
    assert ours.decode([row]) == [library.decode(row[1:])]


def test_without_bytes_what_llama_never_saw_is_unknown(tmp_path: Path) -> None:
    folder = write(llama(tmp_path, byte_fallback=False, vocab_size=300, add_dummy_prefix=False))
    ours, library = Tokenizer.load(folder), processor(folder / "tokenizer.model")
    assert [row[1:] for row in ours.encode(TEXTS)] == [library.encode(text) for text in TEXTS]


def test_llama_is_that_of_transformers_but_for_a_first_space(spoken: dict[str, Path], transformers: Any) -> None:
    """transformers 5 puts no mark before a text that begins with a space; SentencePiece, and so the model, had one."""
    from transformers.tokenization_utils_base import generate_merges

    ours = Tokenizer.load(spoken["llama"])
    vocab = {name: i for i, name in enumerate(ours.pieces(range(len(ours))))}
    theirs = transformers.LlamaTokenizer(vocab=vocab, merges=generate_merges(vocab), add_bos_token=True)
    inner = [text for text in TEXTS if not text.startswith((" ", "▁"))]
    assert len(inner) > 280
    assert ours.encode(inner) == theirs(inner)["input_ids"]
    rows = ours.encode(TEXTS)
    assert ours.decode(rows) == theirs.batch_decode(rows, skip_special_tokens=True)


def test_llama_needs_no_library(spoken: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sentencepiece", None)
    assert len(Tokenizer.load(spoken["llama"]).encode(["the cat"])[0]) > 2
    with pytest.raises(ValueError, match=r'needs the library sentencepiece: pip install "regard\[spm\]"'):
        Tokenizer.load(spoken["marian"])


@pytest.mark.parametrize(("first", "last"), [(True, False), (False, False), (False, True), (True, True)])
def test_llama_begins_and_ends_as_told(spoken: dict[str, Path], tmp_path: Path, first: bool, last: bool) -> None:
    (tmp_path / "tokenizer.model").write_bytes((spoken["llama"] / "tokenizer.model").read_bytes())
    ours = Tokenizer.load(write(tmp_path, tokenizer_config={"add_bos_token": first, "add_eos_token": last}))
    assert ours.around == [1] * first + [2] * last
    assert ours.begin == (1 if first else 2)
    assert ours.encode([("a", "b")])[0].count(1) == 2 * first


def test_what_follows_a_text_keeps_its_space(spoken: dict[str, Path], folders: dict[str, Path]) -> None:
    for ours in Tokenizer.load(spoken["llama"]), Tokenizer.load(folders["gpt2"]):
        before = ours.encode(["the man"])[0]
        whole = ours.encode(["the man sleeps"])[0]
        assert whole[: len(before)] == before
        assert ours.more(before, whole[len(before) :]) == " sleeps"
        assert ours.more([], whole) == "the man sleeps"


def test_marian_is_that_of_transformers(spoken: dict[str, Path], transformers: Any) -> None:
    ours, theirs = Tokenizer.load(spoken["marian"]), transformers.AutoTokenizer.from_pretrained(spoken["marian"])
    texts = [*TEXTS, ">>de<< the cat", ">>de<<the cat", ">>fr<< x", ">> <<", ">>a"]
    sources, targets = ours.encode(texts), ours.encode_targets(texts)
    assert sources == theirs(texts)["input_ids"]
    assert targets == theirs(text_target=texts)["input_ids"]
    assert sources != targets
    assert ours.decode(targets) == theirs.batch_decode(targets, skip_special_tokens=True, use_source_tokenizer=False)
    assert len(ours) == len(theirs)
    assert (ours.pad, ours.end) == (theirs.pad_token_id, theirs.eos_token_id)


@given(text=st.text())
@settings(deadline=None, derandomize=True, max_examples=100)
def test_marian_cuts_anything_as_sentencepiece_does(spoken: dict[str, Path], text: str) -> None:
    ours, library = loaded(spoken["marian"]), processor(spoken["marian"] / "target.spm")
    [row] = ours.encode_targets([text])
    ids = ours.engine.get_vocab()
    assert row == [*(ids.get(piece, ids["<unk>"]) for piece in library.encode(text, out_type=str)), ids["</s>"]]


def test_marian_is_cut_and_tells_no_places(spoken: dict[str, Path]) -> None:
    ours = Tokenizer.load(spoken["marian"])
    [whole] = ours.encode([PHRASES[0]])
    assert ours.encode([PHRASES[0]], 3) == [[*whole[:2], ours.end]]
    assert ours.encode([PHRASES[0]]) == [whole]
    with pytest.raises(ValueError, match="does not tell where"):
        ours.encodings(["a"])
    with pytest.raises(ValueError, match="single texts, not pairs"):
        ours.encode([("a", "b")])


@pytest.mark.parametrize("name", ["bert", "gpt2", "roberta", "clip", "llama", "marian"])
def test_files_go_back_as_they_were(request: pytest.FixtureRequest, tmp_path: Path, name: str) -> None:
    folder = request.getfixturevalue("spoken" if name in ("llama", "marian") else "folders")[name]
    write(folder, tokenizer_config={"model_max_length": 77}, special_tokens_map={}, added_tokens={})
    ours = Tokenizer.load(folder)
    ours.encode(TEXTS[:50], 9)
    before = {file.name: file.read_bytes() for file in folder.iterdir() if file.name != "config.json"}
    for place in "one", "two":
        (tmp_path / place).mkdir()
        ours.save(tmp_path / place)
        assert {file.name: file.read_bytes() for file in (tmp_path / place).iterdir()} == before
        write(tmp_path / place, config={"model_type": name})
        assert Tokenizer.load(tmp_path / place).encode(TEXTS) == ours.encode(TEXTS)
        ours = Tokenizer.load(tmp_path / place)


@pytest.mark.parametrize("name", ["bert", "cased", "gpt2", "roberta", "clip"])
@given(parts=st.lists(st.sampled_from([*{token for roles in ROLES.values() for token in roles.values()}, "a", " "])))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_a_text_that_names_a_special_token_is_only_text(folders: dict[str, Path], name: str, parts: list[str]) -> None:
    ours = loaded(folders[name])
    marks = {*ours.special} - {ours.token_id(ours.roles["unk_token"])} | {ours.end}
    [row] = ours.encode(["".join(parts)])
    assert [number for number in row if number in marks] == ours.around


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_who_has_no_padding_pads_with_the_end(request: pytest.FixtureRequest, name: str) -> None:
    ours = Tokenizer.load(request.getfixturevalue("spoken" if name == "llama" else "folders")[name])
    assert "pad_token" not in ours.roles
    assert ours.pad == ours.end
    assert ours.end not in ours.never
    assert ours.never == ([0] if name == "llama" else [])


def test_the_kind_follows_from_model_then_class_then_special_tokens(folders: dict[str, Path], tmp_path: Path) -> None:
    """A list with the special tokens of all three."""
    names = dict.fromkeys(token for kind in ("clip", "roberta") for token in ROLES[kind].values())
    bytes_bpe(tmp_path, list(names))
    marks = {"gpt2": [], "roberta": ["<s>", "</s>"], "clip": ["<|startoftext|>", "<|endoftext|>"]}

    def around() -> list[str]:
        ours = Tokenizer.load(tmp_path)
        return ours.pieces(ours.around)

    assert around() == marks["clip"], "the most particular special tokens"
    for kind, named in (("gpt2", "GPT2TokenizerFast"), ("roberta", "RobertaTokenizer"), ("clip", "CLIPTokenizer")):
        write(tmp_path, tokenizer_config={"tokenizer_class": named}, config={"model_type": "something"})
        assert around() == marks[kind]
        for model in marks:
            write(tmp_path, config={"model_type": model})
            assert around() == marks[model]
    for kind in marks:
        folder = tmp_path / kind
        folder.mkdir()
        for name in ("vocab.json", "merges.txt"):
            (folder / name).write_bytes((folders[kind] / name).read_bytes())
        ours = Tokenizer.load(folder)
        assert ours.pieces(ours.around) == marks[kind]
        assert ours.encode(TEXTS) == Tokenizer.load(folders[kind]).encode(TEXTS)


@pytest.mark.parametrize("new", [False, True])
def test_tokens_that_were_added_later_are_found(
    folders: dict[str, Path], transformers: Any, tmp_path: Path, new: bool
) -> None:
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
        write(tmp_path, tokenizer_config={"added_tokens_decoder": added, "pad_token": "[PAD]"} | ROLES["gpt2"])
    else:
        write(tmp_path, added_tokens={"[PAD]": size, "Fischerin": size + 1})
        write(tmp_path, special_tokens_map={"pad_token": {"content": "[PAD]", "lstrip": False}} | ROLES["gpt2"])
    ours, theirs = Tokenizer.load(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert (len(ours), ours.pad) == (size + 2, size)
    texts = [*TEXTS, "die Fischerin, Fischerinnen"]
    assert ours.encode(texts) == theirs(texts)["input_ids"]
    assert size + 1 in ours.encode(texts[-1:])[0]
    assert ours.pad not in ours.encode(["[PAD]"])[0]


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


@pytest.mark.parametrize("named", BROKEN)
def test_broken_files_are_refused_by_name(folders: dict[str, Path], tmp_path: Path, named: str) -> None:
    for name in ("vocab.json", "merges.txt", "config.json"):
        (tmp_path / name).write_bytes((folders["gpt2"] / name).read_bytes())
    for name, content in BROKEN[named].items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=str(tmp_path)):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ({"kind": "unigram", "vocab_size": 400}, "is no BPE model"),
        ({"normalization_rule_name": "nmt_nfkc"}, "changes letters before it cuts"),
        ({"remove_extra_whitespaces": True}, "drops spaces"),
        ({"user_defined_symbols": ["<sep>"]}, "pieces of the user's own"),
        ({"treat_whitespace_as_suffix": True}, "puts the mark of a word behind it"),
    ],
)
def test_a_model_that_cannot_be_turned_is_refused_with_the_remedy(tmp_path: Path, how: dict, what: str) -> None:
    plain = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False, "byte_fallback": True}
    made = spm(how.pop("kind", "bpe"), PHRASES, **({"vocab_size": 600} | plain | how))
    (tmp_path / "tokenizer.model").write_bytes(made)
    with pytest.raises(ValueError, match=f"tokenizer.model.*{what}; transformers can write it as a tokenizer.json"):
        Tokenizer.load(tmp_path)


@given(where=st.floats(0, 1, exclude_max=True), what=st.binary(max_size=4), early=st.booleans())
@settings(deadline=None, derandomize=True, max_examples=150)
def test_a_broken_model_is_refused_by_name_or_still_a_tokenizer(
    spoken: dict[str, Path], where: float, what: bytes, early: bool
) -> None:
    whole = (spoken["llama"] / "tokenizer.model").read_bytes()
    at = int(where * (60 if early else len(whole)))
    broken = spoken["llama"].parent / "broken"
    broken.mkdir(exist_ok=True)
    (broken / "tokenizer.model").write_bytes(whole[:at] + what + whole[at + len(what) :] if what else whole[:at])
    trouble = ""
    try:
        Tokenizer.load(broken).encode(["the cat"])
    except ValueError as error:
        trouble = str(error)
    assert not trouble or str(broken) in trouble


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
def test_a_broken_marian_is_refused_by_name(spoken: dict[str, Path], tmp_path: Path, name: str, content: bytes) -> None:
    for file in spoken["marian"].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=str(tmp_path)):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("name", ["vocab.json", "tokenizer_config.json", "tokenizer.json", "other.spm"])
def test_a_link_out_of_the_folder_is_not_followed(folders: dict[str, Path], tmp_path: Path, name: str) -> None:
    """Else saving would copy a file of the user's into a folder that may be shared."""
    (tmp_path / "secret").write_text("{}")
    (tmp_path / "model").mkdir()
    for file in ("vocab.json", "merges.txt", "config.json"):
        (tmp_path / "model" / file).write_bytes((folders["gpt2"] / file).read_bytes())
    (tmp_path / "model" / name).unlink(missing_ok=True)
    (tmp_path / "model" / name).symlink_to(tmp_path / "secret")
    with pytest.raises(ValueError, match="is a link out of its folder"):
        Tokenizer.load(tmp_path / "model")


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_a_typed_control_token_is_text_even_beside_a_mask(folders: dict[str, Path], name: str) -> None:
    """Transformers would make tokens of all of them."""
    ours = Tokenizer.load(folders[name])
    typed = [ours.roles[role] for role in ("sep_token", "cls_token", "pad_token")]
    ids = ours.encode_with_mask(f"{' '.join(typed)} {ours.roles['mask_token']} a")
    control = {ours.token_id(token) for token in (*typed, ours.roles["mask_token"])}
    assert [number for number in ids if number in control] == [ours.begin, ours.mask, ours.token_id(typed[0])]
