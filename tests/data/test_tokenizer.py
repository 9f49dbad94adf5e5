"""Text becomes pieces and the same text again; the same data gives the same tokenizer, anywhere."""

import hashlib
import json
import os
import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Engine

from regard.data import tokenizer
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_train import (
    BERT_LAYOUT,
    GPT_LAYOUT,
    MARIAN_LAYOUT,
    TokenizerLayout,
    TokenizerOptions,
    train_tokenizer,
)

SENTENCE = (
    "the Cat sat, on a mat. Die Katze saß auf der Matte! Où est-il? éó x\u0301 e\u0301 “naïve” 我们 ☃ 🙂 #1 <b> it's"
)
WORDS = SENTENCE.split()
TEXTS = [" ".join(WORDS[i % len(WORDS)] for i in range(n, 7 * n, n % 5 + 1)) for n in range(1, 60)]
SEEN = sorted({*unicodedata.normalize("NFC", "".join(WORDS))} | {"e", "\u0301"})
SPACES = " \t\n\r\x0b\x0c\x85\xa0\u2003\u2028\u3000"
UNKNOWN = 1
KINDS = ["bpe", "unigram", "characters"]
TEXT = st.lists(st.sampled_from([*SEEN, *SPACES, "e\u0301", "o\u0301"]), max_size=40).map("".join)


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return train_tokenizer(TEXTS, TokenizerOptions(request.param))


def fingerprint(tokenizer: Tokenizer) -> str:
    return hashlib.sha256(tokenizer.backend_tokenizer.to_str().encode()).hexdigest()


@given(text=TEXT.filter(lambda text: {*unicodedata.normalize("NFC", text)} <= {*SEEN, *SPACES}))
@settings(deadline=None, derandomize=True, max_examples=200)
def test_a_text_comes_back_but_for_white_space_and_composed_letters(tokenizer: Tokenizer, text: str) -> None:
    (ids,) = tokenizer.encode([text])
    assert UNKNOWN not in ids
    assert tokenizer.decode([ids]) == [" ".join(unicodedata.normalize("NFC", text).split())]


def test_ids_are_in_the_order_that_marian_needs(tokenizer: Tokenizer) -> None:
    assert tokenizer.convert_ids_to_tokens([0, 1, len(tokenizer) - 1]) == ["</s>", "<unk>", "<pad>"]
    assert (tokenizer.eos_token_id, tokenizer.pad_token_id) == (0, len(tokenizer) - 1)
    assert len({*tokenizer.convert_ids_to_tokens(range(len(tokenizer)))}) == len(tokenizer)


def test_every_text_is_closed_by_one_end(tokenizer: Tokenizer) -> None:
    for ids in tokenizer.encode([*TEXTS, ""]):
        assert ids.index(tokenizer.eos_token_id) == len(ids) - 1


def test_what_was_never_seen_is_unknown_and_no_crash(tokenizer: Tokenizer) -> None:
    for text in "Ж", "the Ж cat", "\x00", "\ufffd", "𝄞𝄞𝄞", "\u202e":
        (ids,) = tokenizer.encode([text])
        assert UNKNOWN in ids
        assert text not in tokenizer.decode([ids])


@pytest.mark.parametrize("text", ["</s>", "a <pad> b", "<unk>", "the</s>Cat", "<pad><pad>"])
def test_a_text_that_names_a_special_token_is_only_text(tokenizer: Tokenizer, text: str) -> None:
    (*ids, last) = tokenizer.encode([text])[0]
    assert last == tokenizer.eos_token_id
    assert not {tokenizer.eos_token_id, tokenizer.pad_token_id} & {*ids}
    assert "<" in tokenizer.decode([ids])[0]


@given(text=st.text())
@settings(deadline=None, derandomize=True, max_examples=100)
def test_any_text_at_all_can_be_read(tokenizer: Tokenizer, text: str) -> None:
    (ids,) = tokenizer.encode([text])
    assert all(0 <= i < tokenizer.pad_token_id for i in ids)
    assert isinstance(tokenizer.decode([ids])[0], str)


LEARN = f"""
import json, sys
from regard.data.tokenizer_train import Pieces, learn
from hashlib import sha256
for kind in {KINDS}:
    print(sha256(learn(json.load(open(sys.argv[1])), Pieces(kind)).engine.to_str().encode()).hexdigest())
"""


def test_the_same_data_gives_the_same_tokenizer_here_and_in_another_process(tmp_path: Path) -> None:
    here = [fingerprint(train_tokenizer(TEXTS, TokenizerOptions(kind))) for kind in KINDS]
    assert here == [fingerprint(train_tokenizer(TEXTS, TokenizerOptions(kind))) for kind in KINDS]
    (tmp_path / "texts.json").write_text(json.dumps(TEXTS))
    for seed in "1", "2":
        command = [sys.executable, "-c", LEARN, str(tmp_path / "texts.json")]
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        there = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
        assert there == here


def test_the_order_of_the_texts_does_not_matter() -> None:
    for kind in KINDS:
        assert fingerprint(train_tokenizer(TEXTS, TokenizerOptions(kind))) == fingerprint(
            train_tokenizer(TEXTS[::-1], TokenizerOptions(kind))
        )


def test_what_was_saved_is_what_is_loaded(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert fingerprint(loaded) == fingerprint(tokenizer)
    assert loaded.encode(TEXTS) == tokenizer.encode(TEXTS)
    assert (loaded.pad, loaded.end) == (tokenizer.pad_token_id, tokenizer.eos_token_id)
    facts = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert [facts[f"{name}_token"] for name in ("eos", "unk", "pad")] == ["</s>", "<unk>", "<pad>"]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_list_has_the_size_that_was_asked_for(kind: str) -> None:
    assert len(train_tokenizer(TEXTS, TokenizerOptions(kind, vocab_size=52))) == 52


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize(("vocab", "advice"), [(9000, "or fewer"), (20, "more than that")])
def test_a_size_that_the_data_cannot_give_is_refused_with_both_numbers(kind: str, vocab: int, advice: str) -> None:
    with pytest.raises(ValueError, match=rf"--vocab-size {vocab} cannot .* \d+ pieces") as error:
        train_tokenizer(TEXTS, TokenizerOptions(kind, vocab_size=vocab))
    assert advice in str(error.value)
    possible = int(re.findall(r"(\d+) pieces", str(error.value))[0]) + (vocab == 20)
    assert len(train_tokenizer(TEXTS, TokenizerOptions(kind, vocab_size=possible))) == possible, (
        "the advice should work"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_list_that_is_not_told_its_size_holds_every_letter(kind: str) -> None:
    text = " ".join(chr(0x4E00 + i) for i in range(400))
    tokenizer = train_tokenizer([text], TokenizerOptions(kind))
    assert tokenizer.decode(tokenizer.encode([text])) == [text]


@pytest.mark.parametrize("texts", [[], [""], [" \n", "\t"]])
def test_nothing_to_learn_from_is_refused(texts: list[str]) -> None:
    with pytest.raises(ValueError, match="no text"):
        train_tokenizer(texts, TokenizerOptions())


@given(where=st.floats(0, 1, exclude_max=True), what=st.sampled_from([b"", b"\x00", b"}", b'"', b"9"]))
@settings(deadline=None, derandomize=True, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_broken_file_is_refused_by_name_or_still_a_tokenizer(tmp_path: Path, where: float, what: bytes) -> None:
    train_tokenizer(TEXTS, TokenizerOptions("characters")).save(tmp_path)
    file = tmp_path / "tokenizer.json"
    whole = file.read_bytes()
    at = int(where * len(whole))
    file.write_bytes(whole[:at] + what + (whole[at + 1 :] if what else b""))
    trouble = ""
    try:
        Tokenizer.load(tmp_path).encode(["the cat"])
    except ValueError as error:
        trouble = str(error)
    assert not trouble or "tokenizer" in trouble


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b"not json", b"\xff\xfe", b'{"model": {"type": "BPE"}}', b"[" * 100_000]
)
def test_what_is_no_tokenizer_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"tokenizer\.json is not a tokenizer"):
        Tokenizer.load(tmp_path)


def test_a_folder_without_a_tokenizer_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"{tmp_path} has no tokenizer.json"):
        Tokenizer.load(tmp_path)


LAYOUTS = {"translating": MARIAN_LAYOUT, "reading": BERT_LAYOUT, "writing": GPT_LAYOUT}
EXACT = ["characters", "bytes", "bpe"]
ALL = [(name, kind) for name in LAYOUTS for kind in (EXACT if name == "writing" else KINDS)]
every_layout = pytest.mark.parametrize(("name", "kind"), ALL)
NAMED = st.lists(st.sampled_from([*WORDS, *SPACES, *(t for layout in LAYOUTS.values() for t in layout.first)]))


@pytest.fixture(scope="module")
def learnt() -> dict[tuple[str, str], Tokenizer]:
    """All there are, of texts that name every special token."""
    named = " ".join(token for layout in LAYOUTS.values() for token in layout.first + layout.last)
    return {
        (name, kind): train_tokenizer([" ".join([*TEXTS, named, SPACES])], TokenizerOptions(kind), LAYOUTS[name])
        for name, kind in ALL
    }


@pytest.mark.parametrize("kind", EXACT)
@given(text=st.lists(st.sampled_from([*SEEN, *SPACES, "e\u0301", "\r\n"])).map("".join))
@settings(deadline=None, derandomize=True, max_examples=100)
def test_to_write_is_to_give_back_every_letter(learnt: dict[Any, Tokenizer], kind: str, text: str) -> None:
    tokenizer = learnt["writing", kind]
    (ids,) = tokenizer.encode([text])
    assert tokenizer.decode([ids]) == [text]
    assert not {*ids} & {*tokenizer.all_special_ids}


@pytest.mark.parametrize("kind", ["bytes", "bpe"])
@given(text=st.text())
@settings(deadline=None, derandomize=True, max_examples=100)
def test_bytes_give_back_any_text_at_all(learnt: dict[Any, Tokenizer], kind: str, text: str) -> None:
    tokenizer = learnt["writing", kind]
    assert tokenizer.decode(tokenizer.encode([text])) == [text]


def test_a_byte_is_a_piece_and_a_letter_is_a_piece(learnt: dict[Any, Tokenizer]) -> None:
    for text in SENTENCE, "", " \n ":
        assert len(learnt["writing", "bytes"].encode([text])[0]) == len(text.encode())
        assert len(learnt["writing", "characters"].encode([text])[0]) == len(text)
    assert len(learnt["writing", "bytes"]) == 256 + len(GPT_LAYOUT.first)
    joined = train_tokenizer(TEXTS, TokenizerOptions("bpe", vocab_size=330), GPT_LAYOUT)
    assert len(joined.encode([SENTENCE])[0]) < 0.5 * len(SENTENCE.encode())


def test_a_list_of_letters_holds_those_of_every_text() -> None:
    tokenizer = train_tokenizer(["ab", "bc", "d\n"], TokenizerOptions("characters"), GPT_LAYOUT)
    assert tokenizer.convert_ids_to_tokens(range(len(tokenizer))) == [*GPT_LAYOUT.first, "\n", "a", "b", "c", "d"]


def test_lowercase_reads_capital_letters_as_small_ones() -> None:
    for layout, kind in (GPT_LAYOUT, "bpe"), (GPT_LAYOUT, "bytes"), (GPT_LAYOUT, "characters"), (BERT_LAYOUT, "bpe"):
        tokenizer = train_tokenizer(["The Cat SAT on THE mat"], TokenizerOptions(kind, lowercase=True), layout)
        assert tokenizer.decode(tokenizer.encode(["THE cat"])) == ["the cat"]


@every_layout
@given(parts=NAMED)
@settings(deadline=None, derandomize=True, max_examples=40)
def test_in_no_layout_does_a_text_turn_into_a_special_token(
    learnt: dict[Any, Tokenizer], name: str, kind: str, parts: list[str]
) -> None:
    tokenizer, text = learnt[name, kind], "".join(parts)
    marks = {
        id_
        for id_ in tokenizer.all_special_ids
        if tokenizer.convert_ids_to_tokens([id_]) != [tokenizer.roles["unk_token"]]
    }
    (around,), (ids,) = tokenizer.encode([""]), tokenizer.encode([text])
    assert sorted(i for i in ids if i in marks) == sorted(around)
    said = tokenizer.decode([ids])[0]
    assert said == text if name == "writing" else said == " ".join(unicodedata.normalize("NFC", text).split())


@every_layout
def test_roles_survive_a_folder(learnt: dict[Any, Tokenizer], name: str, kind: str, tmp_path: Path) -> None:
    tokenizer = learnt[name, kind]
    tokenizer.save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert loaded.roles == tokenizer.roles == LAYOUTS[name].roles
    assert sorted(loaded.special) == sorted(tokenizer.all_special_ids)
    for role in ("pad", "end", "begin"):
        assert getattr(loaded, role) == getattr(tokenizer, role)
    texts = [*TEXTS, "</s> [MASK] <pad> [CLS]", ""]
    assert loaded.encode(texts) == tokenizer.encode(texts)
    assert loaded.decode(loaded.encode(texts)) == tokenizer.decode(tokenizer.encode(texts))


@every_layout
def test_the_order_of_texts_does_not_matter_to_any_layout(name: str, kind: str) -> None:
    first, again = (train_tokenizer(texts, TokenizerOptions(kind), LAYOUTS[name]) for texts in (TEXTS, TEXTS[::-1]))
    assert fingerprint(first) == fingerprint(again)


@pytest.mark.parametrize("kind", KINDS)
def test_to_read_one_text_or_two_is_to_mark_where_they_end(learnt: dict[Any, Tokenizer], kind: str) -> None:
    tokenizer = learnt["reading", kind]
    assert tokenizer.convert_ids_to_tokens(range(5)) == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.mask_token_id) == (
        0,
        2,
        3,
        4,
    )
    one, two = tokenizer.encode(["the Cat", "a mat."])
    [both] = tokenizer.encodings([("the Cat", "a mat.")])
    assert one[0] == two[0] == tokenizer.bos_token_id
    assert one[-1] == two[-1] == tokenizer.eos_token_id
    assert both.ids == one + two[1:]
    assert both.type_ids == [0] * len(one) + [1] * (len(two) - 1)
    assert tokenizer.decode([both.ids]) == ["the Cat a mat."]


def test_only_who_reads_can_hide_a_word(learnt: dict[Any, Tokenizer]) -> None:
    with pytest.raises(ValueError, match=r"no \[MASK\]: it was made for another kind of model"):
        _ = learnt["writing", "bpe"].mask


@pytest.mark.parametrize("kind", KINDS)
def test_every_word_of_a_list_is_told_apart(learnt: dict[Any, Tokenizer], kind: str) -> None:
    words = ["the", "Cat", "it's", ",", "mat."]
    [encoding] = learnt["reading", kind].encodings([words], words=True)
    told = encoding.word_ids
    assert told[0] is told[-1] is None
    assert [*dict.fromkeys(told[1:-1])] == [0, 1, 2, 3, 4]


def test_what_is_longer_is_cut_in_that_call_only(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(TEXTS, TokenizerOptions("characters"), BERT_LAYOUT)
    whole = tokenizer.encode([TEXTS[5], (TEXTS[5], "a mat")])
    one, two = tokenizer.encode([TEXTS[5], (TEXTS[5], "a mat")], 12)
    assert len(one) == len(two) == 12
    assert one[:11] == whole[0][:11]
    assert one[-1] == two[-1] == tokenizer.eos_token_id
    assert two.count(tokenizer.eos_token_id) == 2, "the longer text gives way first"
    tokenizer.save(tmp_path)
    assert tokenizer.encode([TEXTS[5]]) == Tokenizer.load(tmp_path).encode([TEXTS[5]]) == whole[:1]


@pytest.mark.parametrize(
    ("layout", "kind"), [(GPT_LAYOUT, "unigram"), (BERT_LAYOUT, "bytes"), (MARIAN_LAYOUT, "bytes")]
)
def test_pieces_that_are_not_for_a_layout_are_refused_with_those_that_are(layout: TokenizerLayout, kind: str) -> None:
    with pytest.raises(ValueError, match=f"--tokenizer {kind} is not for this task: choose bpe"):
        train_tokenizer(TEXTS, TokenizerOptions(kind), layout)


def test_a_list_to_write_with_has_the_size_that_was_asked_for() -> None:
    assert len(train_tokenizer(TEXTS, TokenizerOptions("bpe", vocab_size=300), GPT_LAYOUT)) == 300
    with pytest.raises(ValueError, match="--vocab-size 100 cannot hold the 256 bytes: take more than 259"):
        train_tokenizer(TEXTS, TokenizerOptions("bpe", vocab_size=100), GPT_LAYOUT)
    with pytest.raises(ValueError, match=r"--vocab-size 9000 cannot be learnt from this data: it gives \d+ pieces"):
        train_tokenizer(TEXTS, TokenizerOptions("bpe", vocab_size=9000), GPT_LAYOUT)


@pytest.mark.parametrize("kind", ["bpe", "characters"])
def test_nothing_to_learn_to_write_from_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="no text"):
        train_tokenizer([], TokenizerOptions(kind), GPT_LAYOUT)


def tokenizer_json(folder: Path, **parts: Any) -> Path:
    """A small one of letters, with the parts given."""
    names = ["</s>", "<unk>", "<pad>", *"abcdefgh! "]
    facts: dict[str, Any] = json.loads(
        train_tokenizer(["abc"], TokenizerOptions("characters"), GPT_LAYOUT).engine.to_str()
    )
    facts["model"] = {"type": "BPE", "vocab": {name: i for i, name in enumerate(names)}, "merges": []}
    facts["added_tokens"] = [
        token | {"id": names.index(token["content"])} for token in facts["added_tokens"] if token["content"] in names
    ]
    (folder / "tokenizer.json").write_text(json.dumps(facts | parts))
    return folder


def bpe(vocab: dict[str, int], **more: Any) -> dict[str, Any]:
    return {"type": "BPE", "vocab": {"</s>": 0, "<unk>": 1, "<pad>": 2} | vocab, "merges": [], **more}


def cut_by(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def surrounded(ids: list[int], part: dict[str, Any] | None = None) -> dict[str, Any]:
    first = [{"SpecialToken": {"id": "x", "type_id": 0}}, part or {"Sequence": {"id": "A", "type_id": 0}}]
    known = {"x": {"id": "x", "ids": ids, "tokens": ["x"] * len(ids)}}
    return {"type": "TemplateProcessing", "single": first, "pair": first, "special_tokens": known}


HOSTILE: dict[str, dict[str, Any]] = {
    "a bomb": {"pre_tokenizer": cut_by("(a|a|aa)+$")},
    "another bomb": {"normalizer": {"type": "Replace", "pattern": {"Regex": "(a|a|aa)+$"}, "content": ""}},
    "no regex": {"pre_tokenizer": cut_by("(a")},
    "merges of nothing": {"model": bpe({"a": 3}, merges=["a z"])},
    "a merge of three": {"model": bpe({"a": 3}, merges=["a a a"])},
    "a merge into nothing": {"model": bpe({"a": 3}, merges=["a a"])},
    "a prefix longer than the pieces": {
        "model": bpe({"a": 3, "aa": 4}, merges=["a a"], continuing_subword_prefix="#####")
    },
    "an id below 0": {"model": bpe({"a": -3})},
    "an id of letters": {"model": bpe({"a": "3"})},
    "an id beyond all": {"model": bpe({"a": 1 << 40})},
    "a list for a vocabulary": {"model": {"type": "BPE", "vocab": ["a"], "merges": []}},
    "no model": {"model": None},
    "a model of another world": {"model": {"type": "Pickle", "vocab": {}}},
    "no vocabulary": {"model": {"type": "BPE", "vocab": {}, "merges": []}, "added_tokens": []},
    "nothing is unknown": {"model": {"type": "WordPiece", "vocab": {"</s>": 0}, "unk_token": "[UNK]"}},
    "unknown beyond all": {"model": {"type": "Unigram", "vocab": [["</s>", 0.0]], "unk_id": 99}},
    "around it what is not there": {"post_processor": surrounded([999])},
    "around it nothing": {"post_processor": surrounded([])},
    "another text around it": {"post_processor": surrounded([3], {"Sequence": {"id": "B", "type_id": 0}})},
    "chunks of nothing": {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
    "letters changed by garbage": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
    "deep": {"normalizer": json.loads('{"type":"Sequence","normalizers":[' * 90 + "]}" * 90)},
    "a number for a token": {"added_tokens": [{"id": "x", "content": 3}]},
}


@pytest.mark.parametrize("named", HOSTILE)
def test_a_hostile_file_is_refused_by_name_or_harmless(tmp_path: Path, named: str) -> None:
    tokenizer_json(tmp_path, **HOSTILE[named])
    trouble = ""
    try:
        tokenizer = Tokenizer.load(tmp_path)
        rows = tokenizer.encode(["a" * 60 + "!", "", "abc"])
        tokenizer.encodings([("a", "b"), ("", "")])
        tokenizer.decode(rows)
    except ValueError as error:
        trouble = str(error)
    harmless = named in ("around it nothing", "deep")
    assert str(tmp_path / "tokenizer.json") in trouble or (harmless and not trouble)


def test_an_id_in_a_hole_counts_as_a_row(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(tokenizer_json(tmp_path, model=bpe({"a": 3, "b": 4_000_000_000})))
    assert len(tokenizer) == 4_000_000_001, "so that it is refused where it meets a table of fewer rows"
    assert tokenizer.convert_ids_to_tokens([3, 4, 4_000_000_000]) == ["a", "", "b"]


def test_what_a_file_says_of_length_and_padding_is_not_done_and_not_lost(tmp_path: Path) -> None:
    padding = {
        "strategy": {"Fixed": 9},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 2,
        "pad_type_id": 0,
    }
    cutting = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    tokenizer_json(tmp_path, padding=padding | {"pad_token": "<pad>"}, truncation=cutting)
    content = (tmp_path / "tokenizer.json").read_bytes()
    tokenizer = Tokenizer.load(tmp_path)
    assert [len(row) for row in tokenizer.encode(["abcdefgh", "ab", ""])] == [8, 2, 0]
    assert [len(row) for row in tokenizer.encode(["abcdefgh", "ab", ""], 5)] == [5, 2, 0]
    for place in "one", "two":
        (tmp_path / place).mkdir()
        tokenizer.save(tmp_path / place)
        assert (tmp_path / place / "tokenizer.json").read_bytes() == content
        assert [file.name for file in (tmp_path / place).iterdir()] == ["tokenizer.json"]
        tokenizer = Tokenizer.load(tmp_path / place)


@pytest.mark.parametrize(("most", "length"), [(6, 6), (6.0, 6), (1e30, 7), (None, 7), (10**30, 7)])
def test_nothing_is_longer_than_the_tokenizer_was_made_for(tmp_path: Path, most: Any, length: int) -> None:
    tokenizer_json(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": most}))
    tokenizer = Tokenizer.load(tmp_path)
    assert [len(row) for row in tokenizer.encode(["abcdefgh"])] == [8], "until it is asked for"
    assert [len(row) for row in tokenizer.encode(["abcdefgh"], 7)] == [length]
    assert [len(row) for row in tokenizer.encode(["abcdefgh"], 3)] == [3]


TOLD = {
    "eos_token": "a",
    "unk_token": {"content": "b", "lstrip": False},
    "pad_token": {"__type": "AddedToken", "content": "c"},
}


@pytest.mark.parametrize(
    ("config", "older", "roles"),
    [
        (TOLD, {}, {"eos_token": "a", "unk_token": "b", "pad_token": "c"}),
        ({}, TOLD, {"eos_token": "a", "unk_token": "b", "pad_token": "c"}),
        (
            {"eos_token": "d", "bos_token": "e"},
            TOLD,
            {"bos_token": "e", "eos_token": "a", "unk_token": "b", "pad_token": "c"},
        ),
        ({"eos_token": "d", "added_tokens_decoder": {}}, TOLD, {"eos_token": "d"}),
        ({"eos_token": "d", "pad_token": None, "mask_token": "[nowhere]"}, {}, {"eos_token": "d"}),
        ({}, {}, {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}),
    ],
)
def test_roles_come_from_either_file_and_in_either_form(tmp_path: Path, config: Any, older: Any, roles: Any) -> None:
    tokenizer_json(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(older))
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.roles == roles
    assert tokenizer.convert_ids_to_tokens([tokenizer.pad_token_id]) == [roles.get("pad_token", roles["eos_token"])]
    assert tokenizer.eos_token_id not in tokenizer.suppress_tokens
    marks = [*dict.fromkeys(roles.values())]
    assert tokenizer.decode([tokenizer.all_special_ids]) == [""], "what has a role is not text"
    assert (
        tokenizer.convert_ids_to_tokens(tokenizer.encode(["".join(marks)])[0]) == [*"".join(marks)] or "</s>" in marks
    )


def test_who_begins_a_text_with_a_token_begins_a_document_with_it(tmp_path: Path) -> None:
    tokenizer_json(tmp_path, post_processor=surrounded([4]))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "a", "bos_token": "b"}))
    tokenizer = Tokenizer.load(tmp_path)
    assert (tokenizer.template_ids, tokenizer.bos_token_id, tokenizer.eos_token_id) == ([4], 4, 3)
    tokenizer_json(tmp_path)
    assert Tokenizer.load(tmp_path).begin == 3, "a token that stands nowhere begins nothing"


def test_a_folder_is_asked_for_a_tokenizer_before_it_is_opened(tmp_path: Path) -> None:
    assert not Tokenizer.exists_in(tmp_path)
    (tmp_path / "vocab.json").write_text("{}")
    assert not Tokenizer.exists_in(tmp_path)
    (tmp_path / "merges.txt").write_text("")
    assert Tokenizer.exists_in(tmp_path)
    (tmp_path / "own").mkdir()
    train_tokenizer(TEXTS, TokenizerOptions()).save(tmp_path / "own")
    assert Tokenizer.exists_in(tmp_path / "own")


def test_translations_are_cut_like_their_sources_unless_there_are_two_models(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode_targets(TEXTS[:5]) == tokenizer.encode(TEXTS[:5])


@given(
    st.lists(st.sampled_from(["the cat", "a mat", "sat", "[SEP]", "é", "dog dog dog"]), max_size=9),
    st.lists(st.sampled_from(["on", "the mat", "x"]), max_size=9),
    st.integers(3, 20),
)
@settings(max_examples=40)
def test_truncation_is_that_of_the_library(
    learnt: dict[Any, Tokenizer], one: list[str], two: list[str], n: int
) -> None:
    """Whose own switch is for an engine that nobody shares."""
    for kind in KINDS:
        ours = learnt["reading", kind]
        alone = Engine.from_str(ours.engine.to_str())
        alone.encode_special_tokens = True
        alone.enable_truncation(n, strategy="longest_first")
        texts = [" ".join(one), (" ".join(one), " ".join(two)), (" ".join(two), " ".join(one))]
        assert ours.encode(texts, n) == [encoding.ids for encoding in alone.encode_batch(texts)]


def amid(monkeypatch: pytest.MonkeyPatch, other: Callable[[], object]) -> list[object]:
    """Another thread's request runs, from beginning to end, at the moment when a request asks the engine."""
    answers: list[object] = []
    begun: list[bool] = []
    before = tokenizer.blaming

    @contextmanager
    def interrupted(name: str) -> Iterator[None]:
        if not begun:
            begun.append(True)
            thread = Thread(target=lambda: answers.append(other()))
            thread.start()
            thread.join()
        with before(name):
            yield

    monkeypatch.setattr(tokens, "blaming", interrupted)
    return answers


TYPED = "the [SEP] cat [CLS] sat [PAD] on"


def test_a_marked_text_changes_nothing_for_other_threads(
    learnt: dict[Any, Tokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = learnt["reading", "bpe"]
    [alone] = tokenizer.encode([TYPED])
    marked = tokenizer.encode_with_mask("the [MASK] sat")
    answers = amid(monkeypatch, lambda: tokenizer.encode([TYPED])[0])
    assert tokenizer.encode_with_mask("the [MASK] sat") == marked
    assert answers == [alone]


def test_another_threads_truncation_changes_nothing(
    learnt: dict[Any, Tokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = learnt["reading", "bpe"]
    short, whole = tokenizer.encode(TEXTS[5:7], 6), tokenizer.encode(TEXTS[5:7])
    answers = amid(monkeypatch, lambda: tokenizer.encode(TEXTS[5:7], 6))
    assert tokenizer.encode(TEXTS[5:7]) == whole
    assert answers == [short]


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_mask_is_a_control_token_of_a_marked_text(learnt: dict[Any, Tokenizer], kind: str) -> None:
    tokenizer = learnt["reading", kind]
    ids = tokenizer.encode_with_mask(f"{TYPED} [MASK] mat")
    control = {number for number in tokenizer.all_special_ids if tokenizer.convert_ids_to_tokens([number]) != ["[UNK]"]}
    assert [number for number in ids[1:-1] if number in control] == [tokenizer.mask_token_id]
    assert tokenizer.encode_with_mask(TYPED) == tokenizer.encode([TYPED])[0], "without a mask it is any text"
