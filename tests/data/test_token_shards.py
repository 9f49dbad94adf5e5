"""Token shards: the same tokens in any number of files, damage that is noticed, writers that share and are killed."""

import json
import multiprocessing
import os
import random
import re
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data import cache_lock, token_corpus, token_shards, tokenization
from regard.data.cache_lock import CacheLock
from regard.data.document_files import TextChunk, read_text_file
from regard.data.documents import DocumentStream, documents_from_files, split_stream
from regard.data.permutation import Permutation
from regard.data.token_corpus import TokenCorpus, TokenWindows
from regard.data.token_shards import DocumentLengths, ShardFolder
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_train import BERT_LAYOUT, GPT_LAYOUT, TokenizerOptions, train_tokenizer

LINES = [f"line {i} says {'so ' * (i % 7)}much" for i in range(300)]
LETTERS = ["".join(sorted({*"".join(LINES)}))]
LAYOUTS = {"writer": GPT_LAYOUT, "reader": BERT_LAYOUT}


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    return {name: train_tokenizer(LETTERS, TokenizerOptions("characters"), layout) for name, layout in LAYOUTS.items()}


@pytest.fixture
def writer(tokenizers: dict[str, Tokenizer]) -> Tokenizer:
    return tokenizers["writer"]


def stream_of(chunks: list[TextChunk], cache: Path | None = None) -> DocumentStream:
    return DocumentStream(lambda: iter(chunks), "memory", cache)


def corpus_folder(cache: Path) -> Path:
    [folder] = (path for path in cache.iterdir() if path.name != "summaries")
    return folder


@pytest.mark.parametrize("layout", [*LAYOUTS])
@given(
    texts=st.lists(st.tuples(st.sampled_from(LINES), st.booleans()), min_size=1, max_size=12),
    shard=st.integers(3, 90),
    batch=st.integers(1, 60),
)
@settings(max_examples=15, deadline=None)
def test_shards_are_the_same_sequence(
    tokenizers: dict[str, Tokenizer],
    tmp_path_factory: pytest.TempPathFactory,
    layout: str,
    texts: list[tuple[str, bool]],
    shard: int,
    batch: int,
) -> None:
    chunks, tokenizer = [TextChunk(*text) for text in texts], tokenizers[layout]
    expected = TokenCorpus.from_documents(stream_of(chunks), tokenizer)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_shards, "SHARD_TOKENS", shard)
        patch.setattr(tokenization, "BATCH_CHARACTERS", batch)
        cache = tmp_path_factory.mktemp("cache")
        corpus = TokenCorpus.from_documents(stream_of(chunks, cache), tokenizer)
    assert np.array_equal(corpus[:], expected.ids)
    assert corpus.size == expected.size == sum(len(chunk.text.encode()) for chunk in chunks)
    files = sorted(corpus_folder(cache).glob("*.tokens"))
    assert [file.stat().st_size // 2 for file in files[:-1]] == [shard] * (len(files) - 1)
    assert 0 < files[-1].stat().st_size // 2 <= shard
    begin = tokenizer.bos_token_id
    assert corpus.longest_document(begin) == expected.longest_document(begin) == longest(expected.ids, begin)
    assert not [*corpus_folder(cache).glob("*lock*")]


def longest(ids: np.ndarray, begin: int) -> int:
    starts = np.flatnonzero(ids == begin)
    return int(np.diff(starts, append=len(ids)).max()) if len(starts) > 1 else len(ids)


@given(ids=st.lists(st.integers(0, 2), min_size=1, max_size=30), cuts=st.lists(st.integers(0, 30), max_size=4))
@settings(max_examples=80)
def test_the_longest_document_does_not_depend_on_blocks(ids: list[int], cuts: list[int]) -> None:
    tokens, lengths = np.array(ids, np.uint16), DocumentLengths(0)
    for block in np.split(tokens, sorted(cuts)):
        lengths = lengths.add(block)
    assert lengths.maximum == longest(tokens, 0)
    assert lengths.total == len(ids)


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    starts=st.lists(st.integers(0, 50), min_size=1, max_size=9),
    length=st.integers(1, 12),
)
@settings(max_examples=80)
def test_windows_cross_the_borders_of_shards(sizes: list[int], starts: list[int], length: int) -> None:
    ids = np.arange(sum(sizes), dtype=np.uint16)
    parts = np.split(ids, np.cumsum(sizes)[:-1])
    corpus = TokenCorpus(sizes, lambda i: parts[i], 0, None)
    length = min(length, len(ids))
    places = np.array([start % (len(ids) - length + 1) for start in starts])
    assert np.array_equal(corpus.take(places, length), ids[places[:, None] + np.arange(length)])
    for place in places.tolist():
        assert np.array_equal(corpus[place:], ids[place:])


def test_the_order_of_a_large_corpus_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    windows = TokenWindows(TokenCorpus.from_ids(np.arange(5000, dtype=np.uint16), 5000), 20)
    stored = windows.epoch(60, 1, 0)
    assert isinstance(stored.order, np.ndarray)
    monkeypatch.setattr(token_corpus, "STORED_WINDOWS", 10)
    computed = [windows.epoch(60, seed, epoch) for seed, epoch in ((1, 0), (1, 1), (2, 0))]
    for batches in computed:
        assert isinstance(batches.order, Permutation)
        starts = np.sort(np.concatenate(batches[:]))
        assert set(np.diff(starts)) == {20}
        assert (len(batches), starts[0] % 20) == (len(batches[:]), batches.first)
    assert len({np.concatenate(batches[:]).tobytes() for batches in computed}) == 3
    assert np.array_equal(computed[0][-1], computed[0][len(computed[0]) - 1])
    assert [batch.tolist() for batch in computed[0][2:5]] == [computed[0][i].tolist() for i in (2, 3, 4)]
    with pytest.raises(IndexError):
        computed[0][len(computed[0])]


def test_an_epoch_of_a_trillion_tokens_costs_no_memory() -> None:
    corpus = TokenCorpus([1 << 26] * (1 << 14), lambda i: np.zeros(0, np.uint16), 0, None)
    batches = TokenWindows(corpus, 1000).epoch(8000, 1, 0)
    assert len(batches) == (1 << 40) // 1000 // 8 + 1
    assert len({start for number in (0, 1, 10**6, -1) for start in batches[number].tolist()}) >= 25


@pytest.fixture
def shards(tmp_path: Path, writer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> tuple[DocumentStream, Path]:
    """A text in several shards."""
    monkeypatch.setattr(token_shards, "SHARD_TOKENS", 800)
    texts = stream_of([TextChunk(line, True) for line in LINES], tmp_path)
    TokenCorpus.from_documents(texts, writer)
    folder = corpus_folder(tmp_path)
    assert len([*folder.glob("*.tokens")]) > 5
    return texts, folder


@pytest.mark.parametrize("damage", ["cut", "missing", "longer"])
def test_a_wrong_size_is_noticed_at_once(shards: tuple[DocumentStream, Path], writer: Tokenizer, damage: str) -> None:
    texts, folder = shards
    file = folder / "00003.tokens"
    content = file.read_bytes()
    file.unlink() if damage == "missing" else file.write_bytes(content[:-2] if damage == "cut" else content + b"12")
    with pytest.raises(ValueError, match=r"00003\.tokens: [\d,]+ bytes, where its index has 1,600; delete ") as error:
        TokenCorpus.from_documents(texts, writer)
    assert str(folder) in str(error.value)


def test_a_wrong_byte_is_noticed_at_its_first_use(
    shards: tuple[DocumentStream, Path], writer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts, folder = shards
    file = folder / "00003.tokens"
    content = bytearray(file.read_bytes())
    content[77] ^= 1
    stat = file.stat()
    file.write_bytes(content)
    corpus = TokenCorpus.from_documents(texts, writer)
    assert len(corpus[:2400]) == 2400, "the shards before it are whole"
    with pytest.raises(ValueError, match=r"00003\.tokens: differs from its checksum; delete "):
        corpus[2400:2401]
    monkeypatch.setattr(token_shards, "ALWAYS_HASHED", 0)
    with pytest.raises(ValueError, match="differs from its checksum"):  # its time stamp is new
        TokenCorpus.from_documents(texts, writer)[2400:2401]
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert len(TokenCorpus.from_documents(texts, writer)[2400:2401]) == 1, "a large file is not hashed every time"
    with pytest.raises(ValueError, match=r"00003\.tokens"):
        ShardFolder(folder, np.uint16).verify()


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"format": 9}'])
def test_a_damaged_index_is_named(shards: tuple[DocumentStream, Path], writer: Tokenizer, content: str) -> None:
    (shards[1] / "index.json").write_text(content)
    with pytest.raises(ValueError, match=r"index\.json: damaged .*; delete "):
        TokenCorpus.from_documents(shards[0], writer)


class Killed(BaseException):
    pass


@pytest.mark.parametrize("layout", [*LAYOUTS])
def test_tokenising_continues_after_the_last_whole_shard(
    tokenizers: dict[str, Tokenizer], tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped after every number of chunks, in the middle of documents."""
    chunks, tokenizer = [TextChunk(line, i % 3 == 0) for i, line in enumerate(LINES[:60])], tokenizers[layout]
    monkeypatch.setattr(token_shards, "SHARD_TOKENS", 100)
    monkeypatch.setattr(tokenization, "BATCH_CHARACTERS", 40)
    whole = TokenCorpus.from_documents(stream_of(chunks, tmp_path / "whole"), tokenizer)
    index = (corpus_folder(tmp_path / "whole") / "index.json").read_text()
    for stop in range(0, 60, 11):
        texts = stream_of(chunks, tmp_path / str(stop))
        with monkeypatch.context() as patch:
            kill_at(chunks[stop].text, tokenizer, patch)
            with pytest.raises(Killed):
                TokenCorpus.from_documents(texts, tokenizer)
        folder = corpus_folder(tmp_path / str(stop))
        finished = {file: file.stat().st_mtime_ns for file in folder.glob("*.tokens")}
        with monkeypatch.context() as patch:
            encoded = count_encoded(tokenizer, patch)
            resumed = TokenCorpus.from_documents(texts, tokenizer)
        assert np.array_equal(resumed[:], whole[:])
        assert finished == {file: file.stat().st_mtime_ns for file in finished}, "finished shards are not written again"
        assert sum(encoded) < 60 or len(finished) < 2
        assert without_times((folder / "index.json").read_text()) == without_times(index)
        assert not (folder / "progress.json").exists()


def kill_at(text: str, tokenizer: Tokenizer, patch: pytest.MonkeyPatch) -> None:
    original = tokenizer.encode

    def encode(texts: list[str]) -> list[list[int]]:
        if text in texts:
            raise Killed
        return original(texts)

    patch.setattr(tokenizer, "encode", encode)


def count_encoded(tokenizer: Tokenizer, patch: pytest.MonkeyPatch) -> list[int]:
    original, counts = tokenizer.encode, list[int]()

    def encode(texts: list[str]) -> list[list[int]]:
        counts.append(len(texts))
        return original(texts)

    patch.setattr(tokenizer, "encode", encode)
    return counts


def without_times(index: str) -> object:
    content = json.loads(index)
    content["shards"] = [shard[:2] for shard in content["shards"]]
    return content


@pytest.mark.parametrize("fault", ["cut shard", "other library", "no json"])
def test_progress_that_is_not_whole_is_not_used(
    writer: Tokenizer, tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_shards, "SHARD_TOKENS", 500)
    texts = stream_of([TextChunk(line, True) for line in LINES], tmp_path)
    whole = TokenCorpus.from_documents(texts, writer)[:].copy()
    folder = corpus_folder(tmp_path)
    index = json.loads((folder / "index.json").read_text())
    (folder / "index.json").unlink()
    conditions = {"format": 1, "tokenizers": token_shards.tokenizers.__version__, "shard_tokens": 500}
    state = {"shards": index["shards"][:2], "place": {"chunks": 10**9, "skip": 0, "bytes": 0}}
    progress = conditions | state | {"lengths": {"begin": writer.bos_token_id}}
    if fault == "cut shard":
        (folder / "00001.tokens").write_bytes(b"12")
    if fault == "other library":
        progress["tokenizers"] = "0.1"
    (folder / "progress.json").write_text("{" if fault == "no json" else json.dumps(progress))
    assert np.array_equal(TokenCorpus.from_documents(texts, writer)[:], whole)


FORK = multiprocessing.get_context("fork")


@pytest.fixture
def text_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(token_shards, "SHARD_TOKENS", 6_000)
    monkeypatch.setattr(tokenization, "BATCH_CHARACTERS", 10_000)
    (tmp_path / "text.txt").write_text("".join(f"{line}\n" for line in LINES * 60))
    return tmp_path / "text.txt"


def tokenise(file: Path, tokenizer: Tokenizer) -> None:
    texts = documents_from_files([str(file)], partial(read_text_file, unit="lines"), file.parent / "cache", "lines")
    TokenCorpus.from_documents(texts, tokenizer)


def test_killed_writers_leave_the_same_tokens(text_file: Path, writer: Tokenizer) -> None:
    """SIGKILL at random moments; the last process completes the corpus."""
    rng, kills = random.Random(3), 0
    for _ in range(8):
        process = FORK.Process(target=tokenise, args=(text_file, writer))
        process.start()
        time.sleep(rng.uniform(0, 0.15))
        kills += process.is_alive()
        process.kill()
        process.join()
    tokenise(text_file, writer)
    assert kills, "a process was killed at work"
    expected = TokenCorpus.from_documents(stream_of([TextChunk(line, True) for line in LINES * 60]), writer)
    corpus = TokenCorpus.from_shards(ShardFolder(corpus_folder(text_file.parent / "cache"), np.uint16))
    assert np.array_equal(corpus[:], expected.ids)
    names = {file.name for file in corpus_folder(text_file.parent / "cache").iterdir()}
    assert all(re.fullmatch(r"\d{5}\.tokens|index\.json", name) for name in names), "no temporary file is left"


def test_processes_share_one_cache(text_file: Path, writer: Tokenizer) -> None:
    processes = [FORK.Process(target=tokenise, args=(text_file, writer)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    names = {file.name for file in corpus_folder(text_file.parent / "cache").iterdir()}
    assert all(re.fullmatch(r"\d{5}\.tokens|index\.json", name) for name in names)


def test_a_lock_is_held_by_one_of_many_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_lock, "POLL_SECONDS", 0.001)
    inside, most, done = 0, 0, [False]

    def work() -> None:
        nonlocal inside, most
        lock = CacheLock(tmp_path / "lock")
        if lock.acquire(lambda: done[0]):
            inside += 1
            most = max(most, inside)
            time.sleep(0.02)
            inside -= 1
            done[0] = True
            lock.release()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert not (tmp_path / "lock").exists()


@pytest.mark.parametrize("owner", ["dead", "silent", "alive"])
def test_the_lock_of_a_dead_or_silent_owner_is_taken_over(
    tmp_path: Path, owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_lock, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(cache_lock, "STALE_SECONDS", 0.3 if owner != "dead" else 60.0)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    host = cache_lock.socket.gethostname() if owner == "dead" else "another-machine"
    (tmp_path / "lock").write_text(f"{host}.{dead.pid}.1")
    waits: list[str] = []
    polls = 0

    def is_done() -> bool:
        nonlocal polls
        polls += 1
        if owner == "alive":
            os.utime(tmp_path / "lock")
        return polls > 60

    assert CacheLock(tmp_path / "lock").acquire(is_done, waits.append) is (owner != "alive")
    assert waits == ([] if owner == "dead" else [f"another-machine.{dead.pid}.1"])


def test_the_summary_of_a_text_is_taken_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later runs read no text for its length and its hash, until the file changes."""
    file = tmp_path / "text.txt"
    reads: list[str] = []

    def read_file(name: str) -> object:
        reads.append(name)
        return read_text_file(name)

    def summaries(content: str, age: float = 100.0) -> list[object]:
        file.write_text(content)
        os.utime(file, (0, time.time() - age))
        texts = documents_from_files([str(file)], read_file, tmp_path / "cache", "how")  # type: ignore[arg-type]
        train, valid = split_stream(texts, 0.1, "files")
        assert train.characters + valid.characters == texts.characters == len(content)
        reference = split_stream(documents_from_files([str(file)], read_text_file), 0.1, "files")
        assert [train.digest(), valid.digest()] == [part.digest() for part in reference]
        return [train.summary, valid.summary]

    text = "".join(f"{line}\n" for line in LINES)
    first = summaries(text)
    assert len(reads) == 2, "one pass for the length, one for the hashes of both parts"
    stamp = file.stat().st_mtime
    reads.clear()
    file.write_text(text)
    os.utime(file, (0, stamp))
    texts = documents_from_files([str(file)], read_file, tmp_path / "cache", "how")  # type: ignore[arg-type]
    assert [part.summary for part in split_stream(texts, 0.1, "files")] == first
    assert reads == []
    assert summaries(text + "more\n", 50.0) != first
    reads.clear()
    summaries(text + "else\n", 0.0)
    summaries(text + "them\n", 0.0)
    assert len(reads) == 4, "a file that was written just now may change without another time stamp"
