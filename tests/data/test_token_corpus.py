"""A corpus: what a document is, that no letter is lost, that tokens are made once, and that windows tile the text."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.documents import (
    DocumentStream,
    Piece,
    documents_from_files,
    documents_from_memory,
    part,
    read_documents,
    train_valid_split,
)
from regard.data.splits import DataOptions
from regard.data.token_corpus import TokenCorpus, TokenWindows, document_mask
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_train import BERT_LAYOUT, GPT_LAYOUT, TokenizerOptions, train_tokenizer

TEXT = "The cat sat.\n\nOn a mat, it sat.\nAnd slept.\n\n\nThe end: é 我\n"
MANY = [f"document {i} says {'so ' * (i % 5)}much" for i in range(200)]
LETTERS = sorted({*TEXT, *"".join(MANY)})


@pytest.fixture(scope="module")
def writer() -> Tokenizer:
    return train_tokenizer(["\n".join([TEXT, *MANY])], TokenizerOptions("characters"), GPT_LAYOUT)


@pytest.fixture(scope="module")
def reader() -> Tokenizer:
    return train_tokenizer([TEXT, *MANY], TokenizerOptions("characters"), BERT_LAYOUT)


def file_of(folder: Path, text: str = TEXT, name: str = "text.txt") -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def reading(cache: Path, by: str | None = None) -> dict[str, Any]:
    return {"documents": by, "cache": str(cache)}


def text_of(texts: DocumentStream) -> str:
    return "".join(piece.text for piece in texts)


@pytest.mark.parametrize(
    ("by", "wanted"),
    [
        ("files", [TEXT]),
        ("paragraphs", ["The cat sat.\n", "On a mat, it sat.\nAnd slept.\n", "The end: é 我\n"]),
        ("lines", ["The cat sat.", "On a mat, it sat.", "And slept.", "The end: é 我"]),
    ],
)
def test_a_document_is_a_file_a_paragraph_or_a_line(tmp_path: Path, by: str, wanted: list[str]) -> None:
    plain, crlf = file_of(tmp_path), file_of(tmp_path, TEXT.replace("\n", "\r\n"), "windows.txt")
    with gzip.open(tmp_path / "packed.gz", "wb") as stream:
        stream.write(TEXT.encode())
    for file in plain, crlf, tmp_path / "packed.gz":
        assert [*documents_from_files([str(file)], by)] == [Piece(text, True) for text in wanted]
    assert [piece.text for piece in documents_from_files([plain, plain], by)] == wanted * 2


@pytest.mark.parametrize("field", ["text", "body"])
@pytest.mark.parametrize("name", ["some.jsonl", "some.json", "SOME.JSONL"])
def test_each_line_of_json_is_a_document_with_its_line_breaks(tmp_path: Path, field: str, name: str) -> None:
    file = file_of(tmp_path, "\n".join(json.dumps({field: text, "id": 3}) for text in (TEXT, "b\n\nc")) + "\n\n", name)
    for by in "files", "paragraphs", "lines":
        assert [*documents_from_files([file], by, field=field)] == [Piece(TEXT, True), Piece("b\n\nc", True)]


@pytest.mark.parametrize("block", [1, 10, 10_000])
def test_a_long_file_comes_in_pieces_that_end_where_lines_do(tmp_path: Path, block: int, monkeypatch: Any) -> None:
    monkeypatch.setattr("regard.data.documents.BLOCK", block)
    long = "".join(f"{line}\n" for line in MANY)
    pieces = [*documents_from_files([file_of(tmp_path, long)], "files")]
    assert "".join(piece.text for piece in pieces) == long
    assert [piece.ends for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert all(piece.text.endswith("\n") for piece in pieces)
    assert max(len(piece.text) for piece in pieces) <= block + 2 * max(map(len, MANY))
    assert (len(pieces) > 1) is (block < len(long))


@given(
    texts=st.lists(st.text("abc\n", min_size=1, max_size=9), min_size=1, max_size=6),
    cut=st.floats(0, 1),
    more=st.floats(0, 1),
)
@settings(max_examples=60)
def test_a_part_holds_exactly_the_letters_asked_for(texts: list[str], cut: float, more: float) -> None:
    all_of_it = documents_from_memory(texts, "memory")
    whole = "".join(texts)
    begin = int(cut * len(whole))
    end = begin + int(more * (len(whole) - begin))
    pieces = [*part(all_of_it, begin, end)]
    assert "".join(piece.text for piece in pieces) == whole[begin:end]
    assert all(piece.text for piece in pieces)
    assert not pieces or pieces[-1].ends
    assert text_of(all_of_it.beginning(end)) == whole[:end]
    assert all_of_it.characters == len(whole)


def test_the_last_share_of_a_file_is_held_out() -> None:
    whole = "".join(f"{line}\n" for line in MANY)
    kept, held = train_valid_split(
        DocumentStream(lambda: iter([Piece(whole[:50], False), Piece(whole[50:], True)]), "x"), 0.1, "files"
    )
    assert text_of(kept) + text_of(held) == whole
    assert len(text_of(held)) == pytest.approx(0.1 * len(whole), abs=1)


@pytest.mark.parametrize("by", ["lines", "paragraphs"])
def test_documents_are_held_out_by_what_they_say_wherever_they_stand(by: str) -> None:
    kept, held = train_valid_split(documents_from_memory(MANY, "x"), 0.2, by)
    sides = [{piece.text for piece in side} for side in (kept, held)]
    assert sides[0] | sides[1] == {*MANY}
    assert not sides[0] & sides[1]
    assert 0.1 < len(sides[1]) / len(MANY) < 0.3
    again = train_valid_split(documents_from_memory(MANY[::-2] + ["another"], "x"), 0.2, by)
    assert {piece.text for piece in again[1]} - {"another"} == sides[1] & {*MANY[::-2]}


@pytest.mark.parametrize("by", ["files", "lines"])
def test_too_little_text_to_hold_out_is_refused_with_what_to_do(by: str) -> None:
    with pytest.raises(ValueError, match=r"x: too little text to hold out 0.01 of it; give --valid"):
        train_valid_split(documents_from_memory(["."], "x"), 0.01, by)


def test_sets_are_those_that_were_named_or_held_out(tmp_path: Path) -> None:
    files = [file_of(tmp_path, text, f"{i}.txt") for i, text in enumerate(("\n".join(MANY), "validate\n", "test\n"))]
    held = read_documents(DataOptions(data=(files[0],)), reading(tmp_path), dict).sets
    named = read_documents(DataOptions((files[0],), (files[1],), (files[2],)), reading(tmp_path), dict).sets
    assert text_of(held["train"]) + text_of(held["valid"]) == "\n".join(MANY) + "\n"
    assert {name: text_of(texts) for name, texts in named.items()} == {
        "train": "\n".join(MANY) + "\n",
        "valid": "validate\n",
        "test": "test\n",
    }


def test_every_set_of_json_is_read_by_the_same_field(tmp_path: Path) -> None:
    rows = [{"body": text, "text": "no", "valid": "no"} for text in MANY]
    file = file_of(tmp_path, "".join(json.dumps(row) + "\n" for row in rows), "a.jsonl")
    sets = read_documents(DataOptions((file,), (file,), (file,), fields=("body",)), reading(tmp_path), dict).sets
    assert [[piece.text for piece in texts] for texts in sets.values()] == [MANY] * 3
    held = read_documents(DataOptions((file,), fields=("body",)), reading(tmp_path), dict).sets
    assert sorted(piece.text for texts in held.values() for piece in texts) == sorted(MANY), "each line by itself"


def test_without_files_the_bundled_documents_are_taken(tmp_path: Path) -> None:
    made = {"train": ["a", "b"], "valid": ["c"], "test": ["d"]}
    sets = read_documents(DataOptions(), reading(tmp_path), lambda: made).sets
    assert {name: [piece.text for piece in texts] for name, texts in sets.items()} == made
    assert {texts.cache for texts in sets.values()} == {None}


def test_the_fingerprint_is_that_of_the_text_and_not_of_its_place(tmp_path: Path) -> None:
    def mark(text: str, name: str, by: str = "lines") -> str:
        files = DataOptions((file_of(tmp_path, text, name),), (file_of(tmp_path, "valid\n", "valid.txt"),))
        return read_documents(files, reading(tmp_path, by), dict).fingerprint

    first = mark("a\nb\n", "one.txt")
    assert first == mark("a\nb\n", "other.txt")
    assert len({first, mark("a\nc\n", "x.txt"), mark("ab\n", "x.txt"), mark("a\nb\n", "x.txt", "files")}) == 4


@pytest.mark.parametrize(
    ("content", "name", "says"),
    [
        (b"a\nb\xff\nc\n", "a.txt", r"a\.txt:2: bad UTF-8, byte 0xff"),
        (b'{"text": "a"}\n{"text": \n', "a.jsonl", r"a\.jsonl:2: not JSON"),
        (b'{"text": "a"}\n\n{"body": "b"}\n', "a.jsonl", r"a\.jsonl:3: .*'text'.* with --fields"),
        (b'{"text": "a"}\n["text"]\n', "a.jsonl", r"a\.jsonl:2: wrong type"),
        (b'{"text": "a"}\n{"text": 5}\n', "a.jsonl", r"a\.jsonl:2: .*'text' is a int"),
    ],
)
def test_a_bad_line_is_named_or_skipped(tmp_path: Path, content: bytes, name: str, says: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=says) as error:
        [*documents_from_files([str(tmp_path / name)], "lines")]
    assert [word in str(error.value) for word in ("--skip-bad", "--encoding")] == [
        b"\xff" not in content,
        b"\xff" in content,
    ]
    left = [piece.text for piece in documents_from_files([str(tmp_path / name)], "lines", skip_bad=True)]
    assert left == (["a"] if name.endswith("l") else ["a", "c"])


def test_what_is_no_text_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="none.txt: no such file"):
        documents_from_files([str(tmp_path / "none.txt")], "lines")
    with pytest.raises(ValueError, match="this is a folder"):
        documents_from_files([str(tmp_path)], "lines")
    full, blank = file_of(tmp_path), file_of(tmp_path, "\n \n\n", "blank.txt")
    for how in (
        DataOptions((blank,), (full,)),
        DataOptions((full,), (blank,)),
        DataOptions((full,), (full,), (blank,)),
    ):
        with pytest.raises(ValueError, match="blank.txt: there is no text"):
            read_documents(how, reading(tmp_path, "lines"), dict)


def test_an_end_opens_the_corpus_and_closes_every_document(writer: Tokenizer) -> None:
    made = TokenCorpus.from_documents(documents_from_memory(MANY[:3], "x"), writer)
    parts = np.split(made.ids, np.flatnonzero(made.ids == writer.end))
    assert [writer.decode([some.tolist()])[0] for some in parts] == ["", *MANY[:3], ""]
    assert made.size == sum(len(text.encode()) for text in MANY[:3])


def test_a_text_to_be_read_stands_between_its_own_marks(reader: Tokenizer) -> None:
    made = TokenCorpus.from_documents(documents_from_memory(MANY[:3], "x"), reader)
    assert made.ids.tolist() == [i for row in reader.encode(MANY[:3]) for i in row]
    assert (made.ids == reader.begin).sum() == (made.ids == reader.end).sum() == 3


@given(texts=st.lists(st.text(LETTERS, min_size=1, max_size=20), min_size=1, max_size=8), kind=st.sampled_from("cb"))
@settings(max_examples=40)
def test_no_letter_is_lost_on_the_way(texts: list[str], kind: str) -> None:
    tokenizer = train_tokenizer(
        ["\n".join([TEXT, *MANY])], TokenizerOptions("characters" if kind == "c" else "bytes"), GPT_LAYOUT
    )
    made = TokenCorpus.from_documents(documents_from_memory(texts, "x"), tokenizer)
    assert tokenizer.decode([made.ids.tolist()]) == ["".join(texts)]
    assert made.size == len("".join(texts).encode())


def test_a_document_in_pieces_is_still_one(tmp_path: Path, writer: Tokenizer, monkeypatch: Any) -> None:
    file = file_of(tmp_path, "".join(f"{line}\n" for line in MANY))
    whole = TokenCorpus.from_documents(documents_from_files([file], "files"), writer)
    monkeypatch.setattr("regard.data.documents.BLOCK", 30)
    monkeypatch.setattr(corpus, "TOGETHER", 240)
    assert np.array_equal(TokenCorpus.from_documents(documents_from_files([file], "files"), writer).ids, whole.ids)
    assert (whole.ids == writer.end).sum() == 2


def test_tokens_are_made_once_for_a_text_and_a_tokenizer(tmp_path: Path, writer: Tokenizer, monkeypatch: Any) -> None:
    file, cache = file_of(tmp_path), tmp_path / "deep" / "cache"
    in_memory = TokenCorpus.from_documents(documents_from_files([file], "lines"), writer)
    first = TokenCorpus.from_documents(documents_from_files([file], "lines", cache=cache), writer)
    assert isinstance(first.ids, np.memmap)
    assert np.array_equal(first.ids, in_memory.ids)
    assert first.ids.dtype == in_memory.ids.dtype == np.uint16
    assert first.size == in_memory.size
    assert len([*cache.iterdir()]) == 2, "the tokens and the facts, and nothing half done"
    before = {at: at.stat().st_mtime_ns for at in cache.iterdir()}
    with monkeypatch.context() as never:
        never.setattr(corpus, "encoded", lambda *_: pytest.fail("made again"))
        again = TokenCorpus.from_documents(
            documents_from_files([file_of(tmp_path, name="copy.txt")], "lines", cache=cache), writer
        )
    assert np.array_equal(again.ids, first.ids)
    assert before == {at: at.stat().st_mtime_ns for at in cache.iterdir()}
    for other in (
        TokenCorpus.from_documents(documents_from_files([file], "files", cache=cache), writer),
        TokenCorpus.from_documents(
            documents_from_files([file_of(tmp_path, TEXT + "more")], "lines", cache=cache), writer
        ),
        TokenCorpus.from_documents(
            documents_from_files([file], "lines", cache=cache),
            train_tokenizer([TEXT], TokenizerOptions("bytes"), GPT_LAYOUT),
        ),
    ):
        assert not np.array_equal(other.ids, first.ids)


def test_tokens_of_a_run_that_was_stopped_are_made_again(tmp_path: Path, writer: Tokenizer) -> None:
    file, cache = file_of(tmp_path), tmp_path / "cache"
    whole = np.array(TokenCorpus.from_documents(documents_from_files([file], "files", cache=cache), writer).ids)
    [facts], [tokens] = cache.glob("*.json"), cache.glob("*.tokens")
    facts.unlink()
    tokens.write_bytes(tokens.read_bytes()[:-7])
    assert np.array_equal(
        TokenCorpus.from_documents(documents_from_files([file], "files", cache=cache), writer).ids, whole
    )


IDS = st.integers(2, 80).map(lambda n: TokenCorpus(np.arange(n, dtype=np.uint16), n))


@given(
    made=IDS, length=st.integers(1, 100), budget=st.integers(1, 200), seed=st.integers(0, 9), epoch=st.integers(0, 5)
)
@settings(max_examples=100)
def test_the_windows_of_an_epoch_tile_the_text(
    made: TokenCorpus, length: int, budget: int, seed: int, epoch: int
) -> None:
    windows = TokenWindows(made, length)
    batches = windows.epoch(budget, seed, epoch)
    assert windows.length == min(length, len(made.ids))
    assert all(len(batch) <= max(1, budget // windows.length) for batch in batches)
    starts = sorted(np.concatenate(batches).tolist())
    assert starts[0] < windows.length
    assert set(np.diff(starts)) <= {windows.length}
    assert len(made.ids) - windows.length < starts[-1] + windows.length <= len(made.ids)
    for batch in batches:
        ids = windows.take(batch)
        assert ids.dtype == torch.int64
        assert ids.tolist() == [[*range(start, start + windows.length)] for start in batch.tolist()]


def test_every_epoch_cuts_elsewhere_and_is_a_function_of_seed_and_epoch() -> None:
    windows = TokenWindows(TokenCorpus(np.arange(500), 500), 20)
    orders = [np.concatenate(windows.epoch(60, seed, epoch)).tolist() for seed, epoch in [(1, 0), (1, 1), (2, 0)]]
    assert orders[0] == np.concatenate(windows.epoch(60, 1, 0)).tolist()
    assert len({order[0] % 20 for order in orders}) == 3
    assert orders[0] != sorted(orders[0])


@pytest.mark.parametrize("count", [0, 1])
def test_no_text_to_learn_from_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match="no text to learn from"):
        TokenWindows(TokenCorpus(np.arange(count), count), 5)


@given(rows=st.lists(st.lists(st.integers(0, 3), min_size=7, max_size=7), min_size=1, max_size=4))
@settings(max_examples=100)
def test_a_token_sees_its_own_document_only(rows: list[list[int]]) -> None:
    begin, ids = 0, torch.tensor(rows)
    mask = document_mask(ids, begin)
    numbers = [[sum(i == begin for i in row[: t + 1]) for t in range(7)] for row in rows]
    together = torch.tensor([[[a == b for b in row] for a in row] for row in numbers])
    if together.all():
        assert mask is None
    else:
        assert mask is not None
        assert torch.equal(mask[:, 0], together)
