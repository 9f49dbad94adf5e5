"""Documents and token corpus: units, exact round trip, caching, and windows that tile the text."""

import gzip
import json
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.data import token_corpus, tokenization
from regard.data.document_files import TextChunk, read_text_file
from regard.data.documents import (
    DocumentOptions,
    DocumentStream,
    documents_from_files,
    documents_from_memory,
    read_documents,
    slice_stream,
    split_stream,
)
from regard.data.splits import Data, DataOptions
from regard.data.token_corpus import TokenCorpus, TokenWindows, document_mask
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_train import BERT_LAYOUT, GPT_LAYOUT, TokenizerOptions, train_tokenizer
from regard.modalities.protocols import ReadOptions, Target
from regard.modalities.text.modality import TextModality
from regard.options import OptionGroups
from regard.parts.document_mask import DocumentMask, as_tensor

TEXT = "The cat sat.\n\nOn a mat, it sat.\nAnd slept.\n\n\nThe end: é 我\n"
DOCUMENTS = [f"document {i} says {'so ' * (i % 5)}much" for i in range(200)]
LETTERS = sorted({*TEXT, *"".join(DOCUMENTS)})


@pytest.fixture(scope="module")
def writer() -> Tokenizer:
    return train_tokenizer(["\n".join([TEXT, *DOCUMENTS])], TokenizerOptions("characters"), GPT_LAYOUT)


@pytest.fixture(scope="module")
def reader() -> Tokenizer:
    return train_tokenizer([TEXT, *DOCUMENTS], TokenizerOptions("characters"), BERT_LAYOUT)


def write_text(folder: Path, text: str = TEXT, name: str = "text.txt") -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def open_documents(files: Iterable[str], unit: str, cache: Path | None = None, **options: Any) -> DocumentStream:
    return documents_from_files(files, partial(read_text_file, unit=unit, **options), cache)


def read(files: DataOptions, cache: Path, unit: Any = None) -> Data:
    groups = OptionGroups(DocumentOptions(unit, str(cache)))
    return TextModality().read_sets(files, ReadOptions(Target.NEXT, files.fields, files.dialect, groups=groups))


def text_of(texts: DocumentStream) -> str:
    return "".join(chunk.text for chunk in texts)


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("files", [TEXT]),
        ("paragraphs", ["The cat sat.\n", "On a mat, it sat.\nAnd slept.\n", "The end: é 我\n"]),
        ("lines", ["The cat sat.", "On a mat, it sat.", "And slept.", "The end: é 我"]),
    ],
)
def test_a_document_is_a_file_a_paragraph_or_a_line(tmp_path: Path, unit: str, expected: list[str]) -> None:
    plain, crlf = write_text(tmp_path), write_text(tmp_path, TEXT.replace("\n", "\r\n"), "windows.txt")
    with gzip.open(tmp_path / "packed.gz", "wb") as stream:
        stream.write(TEXT.encode())
    for file in plain, crlf, tmp_path / "packed.gz":
        assert [*open_documents([str(file)], unit)] == [TextChunk(text, True) for text in expected]
    assert [chunk.text for chunk in open_documents([plain, plain], unit)] == expected * 2


@pytest.mark.parametrize("field", ["text", "body"])
@pytest.mark.parametrize("name", ["some.jsonl", "some.json", "SOME.JSONL"])
def test_each_json_line_is_a_document(tmp_path: Path, field: str, name: str) -> None:
    file = write_text(
        tmp_path, "\n".join(json.dumps({field: text, "id": 3}) for text in (TEXT, "b\n\nc")) + "\n\n", name
    )
    for unit in "files", "paragraphs", "lines":
        assert [*open_documents([file], unit, field=field)] == [TextChunk(TEXT, True), TextChunk("b\n\nc", True)]


@pytest.mark.parametrize("chunk_size", [1, 10, 10_000])
def test_chunks_of_a_long_file_end_at_lines(tmp_path: Path, chunk_size: int, monkeypatch: Any) -> None:
    monkeypatch.setattr("regard.data.document_files.CHUNK_CHARACTERS", chunk_size)
    long = "".join(f"{line}\n" for line in DOCUMENTS)
    chunks = [*open_documents([write_text(tmp_path, long)], "files")]
    assert "".join(chunk.text for chunk in chunks) == long
    assert [chunk.is_last for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert all(chunk.text.endswith("\n") for chunk in chunks)
    assert max(len(chunk.text) for chunk in chunks) <= chunk_size + 2 * max(map(len, DOCUMENTS))
    assert (len(chunks) > 1) is (chunk_size < len(long))


@given(
    texts=st.lists(st.text("abc\n", min_size=1, max_size=9), min_size=1, max_size=6),
    begin_share=st.floats(0, 1),
    length_share=st.floats(0, 1),
)
@settings(max_examples=60)
def test_a_slice_has_exactly_its_characters(texts: list[str], begin_share: float, length_share: float) -> None:
    stream = documents_from_memory(texts, "memory")
    full_text = "".join(texts)
    begin = int(begin_share * len(full_text))
    end = begin + int(length_share * (len(full_text) - begin))
    chunks = [*slice_stream(stream, begin, end)]
    assert "".join(chunk.text for chunk in chunks) == full_text[begin:end]
    assert all(chunk.text for chunk in chunks)
    assert not chunks or chunks[-1].is_last
    assert text_of(stream.prefix(end)) == full_text[:end]
    assert stream.characters == len(full_text)


def test_the_last_share_of_a_file_is_held_out() -> None:
    full_text = "".join(f"{line}\n" for line in DOCUMENTS)
    train, valid = split_stream(
        DocumentStream(lambda: iter([TextChunk(full_text[:50], False), TextChunk(full_text[50:], True)]), "x"),
        0.1,
        "files",
    )
    assert text_of(train) + text_of(valid) == full_text
    assert len(text_of(valid)) == pytest.approx(0.1 * len(full_text), abs=1)


@pytest.mark.parametrize("unit", ["lines", "paragraphs"])
def test_documents_are_split_by_content(unit: str) -> None:
    train, valid = split_stream(documents_from_memory(DOCUMENTS, "x"), 0.2, unit)
    sides = [{chunk.text for chunk in side} for side in (train, valid)]
    assert sides[0] | sides[1] == {*DOCUMENTS}
    assert not sides[0] & sides[1]
    assert 0.1 < len(sides[1]) / len(DOCUMENTS) < 0.3
    reordered = split_stream(documents_from_memory(DOCUMENTS[::-2] + ["another"], "x"), 0.2, unit)
    assert {chunk.text for chunk in reordered[1]} - {"another"} == sides[1] & {*DOCUMENTS[::-2]}


@pytest.mark.parametrize("unit", ["files", "lines"])
def test_too_little_text_to_split_is_refused_with_a_remedy(unit: str) -> None:
    with pytest.raises(ValueError, match=r"x: too little text to hold out 0.01 of it; use --valid"):
        split_stream(documents_from_memory(["."], "x"), 0.01, unit)


def test_sets_are_named_files_or_a_split(tmp_path: Path) -> None:
    files = [
        write_text(tmp_path, text, f"{i}.txt") for i, text in enumerate(("\n".join(DOCUMENTS), "validate\n", "test\n"))
    ]
    valid = read(DataOptions(data=(files[0],)), tmp_path).sets
    named = read(DataOptions((files[0],), (files[1],), (files[2],)), tmp_path).sets
    assert text_of(valid["train"]) + text_of(valid["valid"]) == "\n".join(DOCUMENTS) + "\n"
    assert {name: text_of(texts) for name, texts in named.items()} == {
        "train": "\n".join(DOCUMENTS) + "\n",
        "valid": "validate\n",
        "test": "test\n",
    }


def test_every_json_set_uses_the_same_field(tmp_path: Path) -> None:
    rows = [{"body": text, "text": "no", "valid": "no"} for text in DOCUMENTS]
    file = write_text(tmp_path, "".join(json.dumps(row) + "\n" for row in rows), "a.jsonl")
    sets = read(DataOptions((file,), (file,), (file,), fields=("body",)), tmp_path).sets
    assert [[chunk.text for chunk in texts] for texts in sets.values()] == [DOCUMENTS] * 3
    valid = read(DataOptions((file,), fields=("body",)), tmp_path).sets
    assert sorted(chunk.text for texts in valid.values() for chunk in texts) == sorted(DOCUMENTS), "each line by itself"


def test_synthetic_documents_are_the_default() -> None:
    corpus = {"train": ["a", "b"], "valid": ["c"], "test": ["d"]}
    sets = read_documents(DataOptions(), lambda _: pytest.fail("files were read"), lambda: corpus, "files").sets
    assert {name: [chunk.text for chunk in texts] for name, texts in sets.items()} == corpus
    assert {texts.cache for texts in sets.values()} == {None}


def test_the_fingerprint_depends_on_the_text_only(tmp_path: Path) -> None:
    def fingerprint(text: str, name: str, unit: str = "lines") -> str:
        files = DataOptions((write_text(tmp_path, text, name),), (write_text(tmp_path, "valid\n", "valid.txt"),))
        return read(files, tmp_path, unit).fingerprint

    first = fingerprint("a\nb\n", "one.txt")
    assert first == fingerprint("a\nb\n", "other.txt")
    assert (
        len(
            {
                first,
                fingerprint("a\nc\n", "x.txt"),
                fingerprint("ab\n", "x.txt"),
                fingerprint("a\nb\n", "x.txt", "files"),
            }
        )
        == 4
    )


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (b"a\nb\xff\nc\n", "a.txt", r"a\.txt:2: bad UTF-8, byte 0xff"),
        (b'{"text": "a"}\n{"text": \n', "a.jsonl", r"a\.jsonl:2: not JSON"),
        (b'{"text": "a"}\n\n{"body": "b"}\n', "a.jsonl", r"a\.jsonl:3: .*'text'.* with --fields"),
        (b'{"text": "a"}\n["text"]\n', "a.jsonl", r"a\.jsonl:2: wrong type"),
        (b'{"text": "a"}\n{"text": 5}\n', "a.jsonl", r"a\.jsonl:2: .*'text' is a int"),
    ],
)
def test_a_bad_line_is_named_or_skipped(tmp_path: Path, content: bytes, name: str, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        [*open_documents([str(tmp_path / name)], "lines")]
    assert [word in str(error.value) for word in ("--skip-bad", "--encoding")] == [
        b"\xff" not in content,
        b"\xff" in content,
    ]
    texts_left = [chunk.text for chunk in open_documents([str(tmp_path / name)], "lines", skip_bad=True)]
    assert texts_left == (["a"] if name.endswith("l") else ["a", "c"])


def test_files_without_text_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="none.txt: no such file"):
        open_documents([str(tmp_path / "none.txt")], "lines")
    with pytest.raises(ValueError, match="this is a folder"):
        open_documents([str(tmp_path)], "lines")
    full, blank = write_text(tmp_path), write_text(tmp_path, "\n \n\n", "blank.txt")
    for options in (
        DataOptions((blank,), (full,)),
        DataOptions((full,), (blank,)),
        DataOptions((full,), (full,), (blank,)),
    ):
        with pytest.raises(ValueError, match="blank.txt: the file contains no text"):
            read(options, tmp_path, "lines")


def test_eos_opens_the_corpus_and_ends_every_document(writer: Tokenizer) -> None:
    corpus = TokenCorpus.from_documents(documents_from_memory(DOCUMENTS[:3], "x"), writer)
    parts = np.split(corpus.ids, np.flatnonzero(corpus.ids == writer.eos_token_id))
    assert [writer.decode([part.tolist()])[0] for part in parts] == ["", *DOCUMENTS[:3], ""]
    assert corpus.size == sum(len(text.encode()) for text in DOCUMENTS[:3])


def test_template_tokens_surround_every_document(reader: Tokenizer) -> None:
    corpus = TokenCorpus.from_documents(documents_from_memory(DOCUMENTS[:3], "x"), reader)
    assert corpus.ids.tolist() == [i for row in reader.encode(DOCUMENTS[:3]) for i in row]
    assert (corpus.ids == reader.bos_token_id).sum() == (corpus.ids == reader.eos_token_id).sum() == 3


@given(texts=st.lists(st.text(LETTERS, min_size=1, max_size=20), min_size=1, max_size=8), kind=st.sampled_from("cb"))
@settings(max_examples=40)
def test_decoding_a_corpus_restores_the_text(texts: list[str], kind: str) -> None:
    tokenizer = train_tokenizer(
        ["\n".join([TEXT, *DOCUMENTS])], TokenizerOptions("characters" if kind == "c" else "bytes"), GPT_LAYOUT
    )
    corpus = TokenCorpus.from_documents(documents_from_memory(texts, "x"), tokenizer)
    assert tokenizer.decode([corpus.ids.tolist()]) == ["".join(texts)]
    assert corpus.size == len("".join(texts).encode())


def test_chunking_does_not_change_the_tokens(tmp_path: Path, writer: Tokenizer, monkeypatch: Any) -> None:
    file = write_text(tmp_path, "".join(f"{line}\n" for line in DOCUMENTS))
    full_text = TokenCorpus.from_documents(open_documents([file], "files"), writer)
    monkeypatch.setattr("regard.data.document_files.CHUNK_CHARACTERS", 30)
    monkeypatch.setattr(tokenization, "BATCH_CHARACTERS", 240)
    assert np.array_equal(TokenCorpus.from_documents(open_documents([file], "files"), writer).ids, full_text.ids)
    assert (full_text.ids == writer.eos_token_id).sum() == 2


def test_tokens_are_cached_by_text_and_tokenizer(tmp_path: Path, writer: Tokenizer, monkeypatch: Any) -> None:
    file, cache = write_text(tmp_path), tmp_path / "deep" / "cache"
    in_memory = TokenCorpus.from_documents(open_documents([file], "lines"), writer)
    first = TokenCorpus.from_documents(open_documents([file], "lines", cache=cache), writer)
    assert isinstance(first.ids, np.memmap)
    assert np.array_equal(first.ids, in_memory.ids)
    assert first.ids.dtype == in_memory.ids.dtype == np.uint16
    assert first.size == in_memory.size
    [folder] = cache.iterdir()
    assert {at.name for at in folder.iterdir()} == {"00000.tokens", "index.json"}, "no temporary file, no lock"
    before = {at: at.stat().st_mtime_ns for at in folder.iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr(tokenization, "encode_stream", lambda *_: pytest.fail("encoded again"))
        reordered = TokenCorpus.from_documents(
            open_documents([write_text(tmp_path, name="copy.txt")], "lines", cache=cache), writer
        )
    assert np.array_equal(reordered.ids, first.ids)
    assert before == {at: at.stat().st_mtime_ns for at in folder.iterdir()}
    for changed in (
        TokenCorpus.from_documents(open_documents([file], "files", cache=cache), writer),
        TokenCorpus.from_documents(open_documents([write_text(tmp_path, TEXT + "more")], "lines", cache=cache), writer),
        TokenCorpus.from_documents(
            open_documents([file], "lines", cache=cache),
            train_tokenizer([TEXT], TokenizerOptions("bytes"), GPT_LAYOUT),
        ),
    ):
        assert not np.array_equal(changed.ids, first.ids)


IDS = st.integers(2, 80).map(lambda n: TokenCorpus.from_ids(np.arange(n, dtype=np.uint16), n))


@given(
    corpus=IDS, length=st.integers(1, 100), budget=st.integers(1, 200), seed=st.integers(0, 9), epoch=st.integers(0, 5)
)
@settings(max_examples=100)
def test_the_windows_of_an_epoch_tile_the_text(
    corpus: TokenCorpus, length: int, budget: int, seed: int, epoch: int
) -> None:
    windows = TokenWindows(corpus, length)
    batches = windows.epoch(budget, seed, epoch)
    assert windows.length == min(length, len(corpus.ids))
    assert all(len(batch) <= max(1, budget // windows.length) for batch in batches)
    starts = sorted(np.concatenate(batches).tolist())
    assert starts[0] < windows.length
    assert set(np.diff(starts)) <= {windows.length}
    assert len(corpus.ids) - windows.length < starts[-1] + windows.length <= len(corpus.ids)
    for batch in batches:
        ids = windows.take(batch)
        assert ids.dtype == torch.int64
        assert ids.tolist() == [[*range(start, start + windows.length)] for start in batch.tolist()]


def test_offsets_and_order_depend_on_seed_and_epoch() -> None:
    windows = TokenWindows(TokenCorpus.from_ids(np.arange(500, dtype=np.uint16), 500), 20)
    orders = [np.concatenate(windows.epoch(60, seed, epoch)).tolist() for seed, epoch in [(1, 0), (1, 1), (2, 0)]]
    assert orders[0] == np.concatenate(windows.epoch(60, 1, 0)).tolist()
    assert len({order[0] % 20 for order in orders}) == 3
    assert orders[0] != sorted(orders[0])


@pytest.mark.parametrize("count", [0, 1])
def test_a_corpus_without_text_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match="no text to train on"):
        TokenWindows(TokenCorpus.from_ids(np.arange(count, dtype=np.uint16), count), 5)


@pytest.mark.parametrize("kind", [Tensor, DocumentMask], ids=["short rows", "long rows"])
@given(rows=st.lists(st.lists(st.integers(0, 3), min_size=7, max_size=7), min_size=1, max_size=4))
@settings(max_examples=100)
def test_the_document_mask_separates_documents(kind: type[object], rows: list[list[int]]) -> None:
    bos, ids = 0, torch.tensor(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_corpus, "DENSE_TOKENS", 7 if kind is Tensor else 6)
        mask = document_mask(ids, bos)
    numbers = [[sum(i == bos for i in row[: t + 1]) for t in range(7)] for row in rows]
    together = torch.tensor([[[a == b for b in row] for a in row] for row in numbers])
    if together.all():
        assert mask is None
    else:
        assert isinstance(mask, kind)
        assert torch.equal(as_tensor(mask)[:, 0], together)
