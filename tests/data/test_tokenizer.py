"""Encoding and decoding restore a text, and training is deterministic."""

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
from tokenizers import Tokenizer as Backend

from regard.data import hf_tokenizers
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
CHARACTERS = sorted({*unicodedata.normalize("NFC", "".join(WORDS))} | {"e", "\u0301"})
SPACES = " \t\n\r\x0b\x0c\x85\xa0\u2003\u2028\u3000"
UNKNOWN = 1
ALGORITHMS = ["bpe", "unigram", "characters"]
TEXT = st.lists(st.sampled_from([*CHARACTERS, *SPACES, "e\u0301", "o\u0301"]), max_size=40).map("".join)


@pytest.fixture(scope="module", params=ALGORITHMS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return train_tokenizer(TEXTS, TokenizerOptions(request.param))


def fingerprint(tokenizer: Tokenizer) -> str:
    return hashlib.sha256(tokenizer.backend_tokenizer.to_str().encode()).hexdigest()


@given(text=TEXT.filter(lambda text: {*unicodedata.normalize("NFC", text)} <= {*CHARACTERS, *SPACES}))
@settings(deadline=None, derandomize=True, max_examples=200)
def test_decoding_restores_a_text_up_to_white_space_and_nfc(tokenizer: Tokenizer, text: str) -> None:
    (ids,) = tokenizer.encode([text])
    assert UNKNOWN not in ids
    assert tokenizer.decode([ids]) == [" ".join(unicodedata.normalize("NFC", text).split())]


def test_special_ids_are_those_of_marian(tokenizer: Tokenizer) -> None:
    assert tokenizer.convert_ids_to_tokens([0, 1, len(tokenizer) - 1]) == ["</s>", "<unk>", "<pad>"]
    assert (tokenizer.eos_token_id, tokenizer.pad_token_id) == (0, len(tokenizer) - 1)
    assert len({*tokenizer.convert_ids_to_tokens(range(len(tokenizer)))}) == len(tokenizer)


def test_every_text_ends_with_one_eos(tokenizer: Tokenizer) -> None:
    for ids in tokenizer.encode([*TEXTS, ""]):
        assert ids.index(tokenizer.eos_token_id) == len(ids) - 1


def test_unseen_characters_are_unknown(tokenizer: Tokenizer) -> None:
    for text in "Ж", "the Ж cat", "\x00", "\ufffd", "𝄞𝄞𝄞", "\u202e":
        (ids,) = tokenizer.encode([text])
        assert UNKNOWN in ids
        assert text not in tokenizer.decode([ids])


@pytest.mark.parametrize("text", ["</s>", "a <pad> b", "<unk>", "the</s>Cat", "<pad><pad>"])
def test_the_name_of_a_special_token_is_plain_text(tokenizer: Tokenizer, text: str) -> None:
    (*ids, last) = tokenizer.encode([text])[0]
    assert last == tokenizer.eos_token_id
    assert not {tokenizer.eos_token_id, tokenizer.pad_token_id} & {*ids}
    assert "<" in tokenizer.decode([ids])[0]


@given(text=st.text())
@settings(deadline=None, derandomize=True, max_examples=100)
def test_any_text_can_be_encoded(tokenizer: Tokenizer, text: str) -> None:
    (ids,) = tokenizer.encode([text])
    assert all(0 <= i < tokenizer.pad_token_id for i in ids)
    assert isinstance(tokenizer.decode([ids])[0], str)


TRAIN_SCRIPT = f"""
import json, sys
from regard.data.tokenizer_train import TokenizerOptions, train_tokenizer
from hashlib import sha256
for kind in {ALGORITHMS}:
    tokenizer = train_tokenizer(json.load(open(sys.argv[1])), TokenizerOptions(kind))
    print(sha256(tokenizer.backend_tokenizer.to_str().encode()).hexdigest())
"""


def test_training_is_deterministic_across_processes(tmp_path: Path) -> None:
    local = [fingerprint(train_tokenizer(TEXTS, TokenizerOptions(kind))) for kind in ALGORITHMS]
    assert local == [fingerprint(train_tokenizer(TEXTS, TokenizerOptions(kind))) for kind in ALGORITHMS]
    (tmp_path / "texts.json").write_text(json.dumps(TEXTS))
    for seed in "1", "2":
        command = [sys.executable, "-c", TRAIN_SCRIPT, str(tmp_path / "texts.json")]
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        remote = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
        assert remote == local


def test_the_order_of_the_texts_does_not_matter() -> None:
    for kind in ALGORITHMS:
        assert fingerprint(train_tokenizer(TEXTS, TokenizerOptions(kind))) == fingerprint(
            train_tokenizer(TEXTS[::-1], TokenizerOptions(kind))
        )


def test_save_and_load_round_trip(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert fingerprint(loaded) == fingerprint(tokenizer)
    assert loaded.encode(TEXTS) == tokenizer.encode(TEXTS)
    assert (loaded.pad_token_id, loaded.eos_token_id) == (tokenizer.pad_token_id, tokenizer.eos_token_id)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert [config[f"{name}_token"] for name in ("eos", "unk", "pad")] == ["</s>", "<unk>", "<pad>"]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_the_vocabulary_has_vocab_size_tokens(kind: str) -> None:
    assert len(train_tokenizer(TEXTS, TokenizerOptions(kind, vocab_size=52))) == 52


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize(("vocab", "advice"), [(9000, "at most that"), (20, "more than that")])
def test_an_unreachable_vocab_size_is_refused_with_both_numbers(kind: str, vocab: int, advice: str) -> None:
    with pytest.raises(ValueError, match=rf"--vocab-size {vocab} cannot .* \d+ tokens") as error:
        train_tokenizer(TEXTS, TokenizerOptions(kind, vocab_size=vocab))
    assert advice in str(error.value)
    possible = int(re.findall(r"(\d+) tokens", str(error.value))[0]) + (vocab == 20)
    assert len(train_tokenizer(TEXTS, TokenizerOptions(kind, vocab_size=possible))) == possible, (
        "the advice should work"
    )


@pytest.mark.parametrize("kind", ALGORITHMS)
def test_the_default_vocabulary_contains_every_character(kind: str) -> None:
    text = " ".join(chr(0x4E00 + i) for i in range(400))
    tokenizer = train_tokenizer([text], TokenizerOptions(kind))
    assert tokenizer.decode(tokenizer.encode([text])) == [text]


@pytest.mark.parametrize("texts", [[], [""], [" \n", "\t"]])
def test_training_without_text_is_refused(texts: list[str]) -> None:
    with pytest.raises(ValueError, match="no text"):
        train_tokenizer(texts, TokenizerOptions())


@given(where=st.floats(0, 1, exclude_max=True), content=st.sampled_from([b"", b"\x00", b"}", b'"', b"9"]))
@settings(deadline=None, derandomize=True, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_broken_file_is_refused_by_name_or_still_loads(tmp_path: Path, where: float, content: bytes) -> None:
    train_tokenizer(TEXTS, TokenizerOptions("characters")).save(tmp_path)
    file = tmp_path / "tokenizer.json"
    full = file.read_bytes()
    at = int(where * len(full))
    file.write_bytes(full[:at] + content + (full[at + 1 :] if content else b""))
    trouble = ""
    try:
        Tokenizer.load(tmp_path).encode(["the cat"])
    except ValueError as error:
        trouble = str(error)
    assert not trouble or "tokenizer" in trouble


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b"not json", b"\xff\xfe", b'{"model": {"type": "BPE"}}', b"[" * 100_000]
)
def test_other_content_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"tokenizer\.json is not a tokenizer"):
        Tokenizer.load(tmp_path)


def test_a_folder_without_a_tokenizer_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"{tmp_path} has no tokenizer.json"):
        Tokenizer.load(tmp_path)


LAYOUTS = {"translating": MARIAN_LAYOUT, "reading": BERT_LAYOUT, "writing": GPT_LAYOUT}
EXACT = ["characters", "bytes", "bpe"]
ALL = [(name, kind) for name in LAYOUTS for kind in (EXACT if name == "writing" else ALGORITHMS)]
every_layout = pytest.mark.parametrize(("name", "kind"), ALL)
NAMED = st.lists(st.sampled_from([*WORDS, *SPACES, *(t for layout in LAYOUTS.values() for t in layout.first)]))


@pytest.fixture(scope="module")
def trained() -> dict[tuple[str, str], Tokenizer]:
    """A tokenizer of every layout and algorithm, trained on texts that name every special token."""
    case = " ".join(token for layout in LAYOUTS.values() for token in layout.first + layout.last)
    return {
        (name, kind): train_tokenizer([" ".join([*TEXTS, case, SPACES])], TokenizerOptions(kind), LAYOUTS[name])
        for name, kind in ALL
    }


@pytest.mark.parametrize("kind", EXACT)
@given(text=st.lists(st.sampled_from([*CHARACTERS, *SPACES, "e\u0301", "\r\n"])).map("".join))
@settings(deadline=None, derandomize=True, max_examples=100)
def test_the_gpt_layout_restores_every_character(trained: dict[Any, Tokenizer], kind: str, text: str) -> None:
    tokenizer = trained["writing", kind]
    (ids,) = tokenizer.encode([text])
    assert tokenizer.decode([ids]) == [text]
    assert not {*ids} & {*tokenizer.all_special_ids}


@pytest.mark.parametrize("kind", ["bytes", "bpe"])
@given(text=st.text())
@settings(deadline=None, derandomize=True, max_examples=100)
def test_bytes_restore_any_text(trained: dict[Any, Tokenizer], kind: str, text: str) -> None:
    tokenizer = trained["writing", kind]
    assert tokenizer.decode(tokenizer.encode([text])) == [text]


def test_bytes_and_characters_are_tokens(trained: dict[Any, Tokenizer]) -> None:
    for text in SENTENCE, "", " \n ":
        assert len(trained["writing", "bytes"].encode([text])[0]) == len(text.encode())
        assert len(trained["writing", "characters"].encode([text])[0]) == len(text)
    assert len(trained["writing", "bytes"]) == 256 + len(GPT_LAYOUT.first)
    byte_bpe = train_tokenizer(TEXTS, TokenizerOptions("bpe", vocab_size=330), GPT_LAYOUT)
    assert len(byte_bpe.encode([SENTENCE])[0]) < 0.5 * len(SENTENCE.encode())


def test_a_character_vocabulary_covers_every_text() -> None:
    tokenizer = train_tokenizer(["ab", "bc", "d\n"], TokenizerOptions("characters"), GPT_LAYOUT)
    assert tokenizer.convert_ids_to_tokens(range(len(tokenizer))) == [*GPT_LAYOUT.first, "\n", "a", "b", "c", "d"]


def test_lowercase_converts_capital_letters() -> None:
    for layout, kind in (GPT_LAYOUT, "bpe"), (GPT_LAYOUT, "bytes"), (GPT_LAYOUT, "characters"), (BERT_LAYOUT, "bpe"):
        tokenizer = train_tokenizer(["The Cat SAT on THE mat"], TokenizerOptions(kind, lowercase=True), layout)
        assert tokenizer.decode(tokenizer.encode(["THE cat"])) == ["the cat"]


@every_layout
@given(parts=NAMED)
@settings(deadline=None, derandomize=True, max_examples=40)
def test_no_text_becomes_a_special_token(trained: dict[Any, Tokenizer], name: str, kind: str, parts: list[str]) -> None:
    tokenizer, text = trained[name, kind], "".join(parts)
    special_ids = {
        id_
        for id_ in tokenizer.all_special_ids
        if tokenizer.convert_ids_to_tokens([id_]) != [tokenizer.roles["unk_token"]]
    }
    (template,), (ids,) = tokenizer.encode([""]), tokenizer.encode([text])
    assert sorted(i for i in ids if i in special_ids) == sorted(template)
    decoded = tokenizer.decode([ids])[0]
    assert decoded == text if name == "writing" else decoded == " ".join(unicodedata.normalize("NFC", text).split())


@every_layout
def test_roles_round_trip_through_a_folder(trained: dict[Any, Tokenizer], name: str, kind: str, tmp_path: Path) -> None:
    tokenizer = trained[name, kind]
    tokenizer.save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert loaded.roles == tokenizer.roles == LAYOUTS[name].roles
    assert sorted(loaded.all_special_ids) == sorted(tokenizer.all_special_ids)
    for role in ("pad_token_id", "eos_token_id", "bos_token_id"):
        assert getattr(loaded, role) == getattr(tokenizer, role)
    texts = [*TEXTS, "</s> [MASK] <pad> [CLS]", ""]
    assert loaded.encode(texts) == tokenizer.encode(texts)
    assert loaded.decode(loaded.encode(texts)) == tokenizer.decode(tokenizer.encode(texts))


@every_layout
def test_the_order_of_texts_does_not_matter_to_any_layout(name: str, kind: str) -> None:
    first, reversed_order = (
        train_tokenizer(texts, TokenizerOptions(kind), LAYOUTS[name]) for texts in (TEXTS, TEXTS[::-1])
    )
    assert fingerprint(first) == fingerprint(reversed_order)


@pytest.mark.parametrize("kind", ALGORITHMS)
def test_the_bert_layout_marks_segments(trained: dict[Any, Tokenizer], kind: str) -> None:
    tokenizer = trained["reading", kind]
    assert tokenizer.convert_ids_to_tokens(range(5)) == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.mask_token_id) == (
        0,
        2,
        3,
        4,
    )
    first, second = tokenizer.encode(["the Cat", "a mat."])
    [pair] = tokenizer.encodings([("the Cat", "a mat.")])
    assert first[0] == second[0] == tokenizer.bos_token_id
    assert first[-1] == second[-1] == tokenizer.eos_token_id
    assert pair.ids == first + second[1:]
    assert pair.type_ids == [0] * len(first) + [1] * (len(second) - 1)
    assert tokenizer.decode([pair.ids]) == ["the Cat a mat."]


def test_only_the_bert_layout_has_a_mask(trained: dict[Any, Tokenizer]) -> None:
    with pytest.raises(ValueError, match=r"no \[MASK\]: it was made for another kind of model"):
        _ = trained["writing", "bpe"].mask_token_id


@pytest.mark.parametrize("kind", ALGORITHMS)
def test_word_ids_of_a_list_of_words(trained: dict[Any, Tokenizer], kind: str) -> None:
    words = ["the", "Cat", "it's", ",", "mat."]
    [encoding] = trained["reading", kind].encodings([words], words=True)
    word_ids = encoding.word_ids
    assert word_ids[0] is word_ids[-1] is None
    assert [*dict.fromkeys(word_ids[1:-1])] == [0, 1, 2, 3, 4]


def test_truncation_affects_only_its_call(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(TEXTS, TokenizerOptions("characters"), BERT_LAYOUT)
    full = tokenizer.encode([TEXTS[5], (TEXTS[5], "a mat")])
    first, second = tokenizer.encode([TEXTS[5], (TEXTS[5], "a mat")], 12)
    assert len(first) == len(second) == 12
    assert first[:11] == full[0][:11]
    assert first[-1] == second[-1] == tokenizer.eos_token_id
    assert second.count(tokenizer.eos_token_id) == 2, "the longer text is truncated first"
    tokenizer.save(tmp_path)
    assert tokenizer.encode([TEXTS[5]]) == Tokenizer.load(tmp_path).encode([TEXTS[5]]) == full[:1]


@pytest.mark.parametrize(
    ("layout", "kind"), [(GPT_LAYOUT, "unigram"), (BERT_LAYOUT, "bytes"), (MARIAN_LAYOUT, "bytes")]
)
def test_algorithms_that_a_layout_lacks_are_refused_with_alternatives(layout: TokenizerLayout, kind: str) -> None:
    with pytest.raises(ValueError, match=f"--tokenizer {kind} is not for this task: choose one of bpe"):
        train_tokenizer(TEXTS, TokenizerOptions(kind), layout)


def test_vocab_size_of_the_gpt_layout() -> None:
    assert len(train_tokenizer(TEXTS, TokenizerOptions("bpe", vocab_size=300), GPT_LAYOUT)) == 300
    with pytest.raises(ValueError, match="--vocab-size 100 cannot contain 256 bytes: choose more than 259"):
        train_tokenizer(TEXTS, TokenizerOptions("bpe", vocab_size=100), GPT_LAYOUT)
    with pytest.raises(ValueError, match=r"--vocab-size 9000 cannot be reached: this data gives \d+ tokens"):
        train_tokenizer(TEXTS, TokenizerOptions("bpe", vocab_size=9000), GPT_LAYOUT)


@pytest.mark.parametrize("kind", ["bpe", "characters"])
def test_training_the_gpt_layout_without_text_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="no text"):
        train_tokenizer([], TokenizerOptions(kind), GPT_LAYOUT)


def tokenizer_json(folder: Path, **parts: Any) -> Path:
    """A small tokenizer.json of characters, with these parts replaced."""
    names = ["</s>", "<unk>", "<pad>", *"abcdefgh! "]
    config: dict[str, Any] = json.loads(
        train_tokenizer(["abc"], TokenizerOptions("characters"), GPT_LAYOUT).backend_tokenizer.to_str()
    )
    config["model"] = {"type": "BPE", "vocab": {name: i for i, name in enumerate(names)}, "merges": []}
    config["added_tokens"] = [
        token | {"id": names.index(token["content"])} for token in config["added_tokens"] if token["content"] in names
    ]
    (folder / "tokenizer.json").write_text(json.dumps(config | parts))
    return folder


def bpe(vocab: dict[str, int], **options: Any) -> dict[str, Any]:
    return {"type": "BPE", "vocab": {"</s>": 0, "<unk>": 1, "<pad>": 2} | vocab, "merges": [], **options}


def split_by(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def template_processor(ids: list[int], part: dict[str, Any] | None = None) -> dict[str, Any]:
    first = [{"SpecialToken": {"id": "x", "type_id": 0}}, part or {"Sequence": {"id": "A", "type_id": 0}}]
    special_tokens = {"x": {"id": "x", "ids": ids, "tokens": ["x"] * len(ids)}}
    return {"type": "TemplateProcessing", "single": first, "pair": first, "special_tokens": special_tokens}


HOSTILE: dict[str, dict[str, Any]] = {
    "a bomb": {"pre_tokenizer": split_by("(a|a|aa)+$")},
    "another bomb": {"normalizer": {"type": "Replace", "pattern": {"Regex": "(a|a|aa)+$"}, "content": ""}},
    "no regex": {"pre_tokenizer": split_by("(a")},
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
    "around it what is not there": {"post_processor": template_processor([999])},
    "around it nothing": {"post_processor": template_processor([])},
    "another text around it": {"post_processor": template_processor([3], {"Sequence": {"id": "B", "type_id": 0}})},
    "chunks of nothing": {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
    "letters changed by garbage": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
    "deep": {"normalizer": json.loads('{"type":"Sequence","normalizers":[' * 90 + "]}" * 90)},
    "a number for a token": {"added_tokens": [{"id": "x", "content": 3}]},
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_file_is_refused_by_name_or_harmless(tmp_path: Path, case: str) -> None:
    tokenizer_json(tmp_path, **HOSTILE[case])
    trouble = ""
    try:
        tokenizer = Tokenizer.load(tmp_path)
        rows = tokenizer.encode(["a" * 60 + "!", "", "abc"])
        tokenizer.encodings([("a", "b"), ("", "")])
        tokenizer.decode(rows)
    except ValueError as error:
        trouble = str(error)
    harmless = case in ("around it nothing", "deep")
    assert str(tmp_path / "tokenizer.json") in trouble or (harmless and not trouble)


def test_len_is_one_more_than_the_largest_id(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(tokenizer_json(tmp_path, model=bpe({"a": 3, "b": 4_000_000_000})))
    assert len(tokenizer) == 4_000_000_001, "a model with fewer rows refuses it"
    assert tokenizer.convert_ids_to_tokens([3, 4, 4_000_000_000]) == ["a", "", "b"]


def test_truncation_and_padding_of_a_file_are_ignored_and_saved(tmp_path: Path) -> None:
    padding = {
        "strategy": {"Fixed": 9},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 2,
        "pad_type_id": 0,
    }
    truncation = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    tokenizer_json(tmp_path, padding=padding | {"pad_token": "<pad>"}, truncation=truncation)
    content = (tmp_path / "tokenizer.json").read_bytes()
    tokenizer = Tokenizer.load(tmp_path)
    assert [len(row) for row in tokenizer.encode(["abcdefgh", "ab", ""])] == [8, 2, 0]
    assert [len(row) for row in tokenizer.encode(["abcdefgh", "ab", ""], 5)] == [5, 2, 0]
    for name in "one", "two":
        (tmp_path / name).mkdir()
        tokenizer.save(tmp_path / name)
        assert (tmp_path / name / "tokenizer.json").read_bytes() == content
        assert [file.name for file in (tmp_path / name).iterdir()] == ["tokenizer.json"]
        tokenizer = Tokenizer.load(tmp_path / name)


@pytest.mark.parametrize(("limit", "length"), [(6, 6), (6.0, 6), (1e30, 7), (None, 7), (10**30, 7)])
def test_model_max_length_limits_truncation(tmp_path: Path, limit: Any, length: int) -> None:
    tokenizer_json(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": limit}))
    tokenizer = Tokenizer.load(tmp_path)
    assert [len(row) for row in tokenizer.encode(["abcdefgh"])] == [8], "truncation needs max_length"
    assert [len(row) for row in tokenizer.encode(["abcdefgh"], 7)] == [length]
    assert [len(row) for row in tokenizer.encode(["abcdefgh"], 3)] == [3]


ROLE_CONFIG = {
    "eos_token": "a",
    "unk_token": {"content": "b", "lstrip": False},
    "pad_token": {"__type": "AddedToken", "content": "c"},
}


@pytest.mark.parametrize(
    ("config", "special_map", "roles"),
    [
        (ROLE_CONFIG, {}, {"eos_token": "a", "unk_token": "b", "pad_token": "c"}),
        ({}, ROLE_CONFIG, {"eos_token": "a", "unk_token": "b", "pad_token": "c"}),
        (
            {"eos_token": "d", "bos_token": "e"},
            ROLE_CONFIG,
            {"bos_token": "e", "eos_token": "a", "unk_token": "b", "pad_token": "c"},
        ),
        ({"eos_token": "d", "added_tokens_decoder": {}}, ROLE_CONFIG, {"eos_token": "d"}),
        ({"eos_token": "d", "pad_token": None, "mask_token": "[nowhere]"}, {}, {"eos_token": "d"}),
        ({}, {}, {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}),
    ],
)
def test_roles_are_read_from_either_file_in_either_format(
    tmp_path: Path, config: Any, special_map: Any, roles: Any
) -> None:
    tokenizer_json(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(special_map))
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.roles == roles
    assert tokenizer.convert_ids_to_tokens([tokenizer.pad_token_id]) == [roles.get("pad_token", roles["eos_token"])]
    assert tokenizer.eos_token_id not in tokenizer.suppress_tokens
    special_ids = [*dict.fromkeys(roles.values())]
    assert tokenizer.decode([tokenizer.all_special_ids]) == [""], "special tokens are not decoded"
    assert (
        tokenizer.convert_ids_to_tokens(tokenizer.encode(["".join(special_ids)])[0]) == [*"".join(special_ids)]
        or "</s>" in special_ids
    )


def test_bos_is_the_first_template_token(tmp_path: Path) -> None:
    tokenizer_json(tmp_path, post_processor=template_processor([4]))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "a", "bos_token": "b"}))
    tokenizer = Tokenizer.load(tmp_path)
    assert (tokenizer.template_ids, tokenizer.bos_token_id, tokenizer.eos_token_id) == ([4], 4, 3)
    tokenizer_json(tmp_path)
    assert Tokenizer.load(tmp_path).bos_token_id == 3, "bos_token is not in the template"


def test_exists_in(tmp_path: Path) -> None:
    assert not Tokenizer.exists_in(tmp_path)
    (tmp_path / "vocab.json").write_text("{}")
    assert not Tokenizer.exists_in(tmp_path)
    (tmp_path / "merges.txt").write_text("")
    assert Tokenizer.exists_in(tmp_path)
    (tmp_path / "own").mkdir()
    train_tokenizer(TEXTS, TokenizerOptions()).save(tmp_path / "own")
    assert Tokenizer.exists_in(tmp_path / "own")


def test_targets_are_encoded_as_sources_without_a_second_model(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode_targets(TEXTS[:5]) == tokenizer.encode(TEXTS[:5])


@given(
    st.lists(st.sampled_from(["the cat", "a mat", "sat", "[SEP]", "é", "dog dog dog"]), max_size=9),
    st.lists(st.sampled_from(["on", "the mat", "x"]), max_size=9),
    st.integers(3, 20),
)
@settings(max_examples=40)
def test_truncation_equals_longest_first_of_the_library(
    trained: dict[Any, Tokenizer], first: list[str], second: list[str], n: int
) -> None:
    """The library truncates by the state of a backend, which threads cannot share."""
    for kind in ALGORITHMS:
        tokenizer = trained["reading", kind]
        reference = Backend.from_str(tokenizer.backend_tokenizer.to_str())
        reference.encode_special_tokens = True
        reference.enable_truncation(n, strategy="longest_first")
        texts = [" ".join(first), (" ".join(first), " ".join(second)), (" ".join(second), " ".join(first))]
        assert tokenizer.encode(texts, n) == [encoding.ids for encoding in reference.encode_batch(texts)]


def run_concurrently(monkeypatch: pytest.MonkeyPatch, request: Callable[[], object]) -> list[object]:
    """Run a request of another thread completely before the next call of the backend."""
    answers: list[object] = []
    started: list[bool] = []
    backend_errors = hf_tokenizers.backend_errors

    @contextmanager
    def interrupted(*args: Any) -> Iterator[None]:
        if not started:
            started.append(True)
            thread = Thread(target=lambda: answers.append(request()))
            thread.start()
            thread.join()
        with backend_errors(*args):
            yield

    monkeypatch.setattr(hf_tokenizers, "backend_errors", interrupted)
    return answers


USER_TEXT = "the [SEP] cat [CLS] sat [PAD] on"


def test_encode_with_mask_does_not_affect_other_threads(
    trained: dict[Any, Tokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = trained["reading", "bpe"]
    [reference] = tokenizer.encode([USER_TEXT])
    marked = tokenizer.encode_with_mask("the [MASK] sat")
    answers = run_concurrently(monkeypatch, lambda: tokenizer.encode([USER_TEXT])[0])
    assert tokenizer.encode_with_mask("the [MASK] sat") == marked
    assert answers == [reference]


def test_truncation_does_not_affect_other_threads(
    trained: dict[Any, Tokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = trained["reading", "bpe"]
    short, full = tokenizer.encode(TEXTS[5:7], 6), tokenizer.encode(TEXTS[5:7])
    answers = run_concurrently(monkeypatch, lambda: tokenizer.encode(TEXTS[5:7], 6))
    assert tokenizer.encode(TEXTS[5:7]) == full
    assert answers == [short]


@pytest.mark.parametrize("kind", ALGORITHMS)
def test_encode_with_mask_keeps_only_the_mask_special(trained: dict[Any, Tokenizer], kind: str) -> None:
    tokenizer = trained["reading", kind]
    ids = tokenizer.encode_with_mask(f"{USER_TEXT} [MASK] mat")
    control = {number for number in tokenizer.all_special_ids if tokenizer.convert_ids_to_tokens([number]) != ["[UNK]"]}
    assert [number for number in ids[1:-1] if number in control] == [tokenizer.mask_token_id]
    assert tokenizer.encode_with_mask(USER_TEXT) == tokenizer.encode([USER_TEXT])[0], "without a mask it equals encode"
