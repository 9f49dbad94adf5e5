"""A corpus larger than memory: peak memory of training on it, kills while it is tokenised, threads beside processes.

    python benchmarks/large_corpus.py --megabytes 2000        # text and Parquet; needs 3.5 times the disk space

For each format `regard train write` learns a tokenizer from a sample, tokenises the corpus and trains 50 steps; its
peak resident memory is that of the process tree. The same command is then killed with SIGKILL while it tokenises, and
repeated: its tokens must be those of the run that was not killed.
"""

import argparse
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from hashlib import blake2b, file_digest
from pathlib import Path

import numpy as np

SYLLABLES = [a + b + c for a in "bdfgklmnprstvwz" for b in "aeiou" for c in ("", "n", "r", "s")]
MODEL = "--dim 64 --layers 2 --heads 2 --kv-heads 2 --hidden 128 --context 128 --vocab-size 8192 --batch-tokens 4096"
LIMIT = 1000  # MB
KILLS = 3
REGARD = """
import sys
from regard.cli import main
from regard.data import token_shards
token_shards.SHARD_TOKENS = int(sys.argv[1])
sys.exit(main(sys.argv[2:]))
"""


def documents(megabytes: int, seed: int = 0) -> Iterator[str]:
    """Documents of random sentences over 30,000 words, whose frequencies fall as in a language."""
    rng = np.random.default_rng(seed)
    vocabulary = np.array(["".join(rng.choice(SYLLABLES, rng.integers(1, 5))) for _ in range(30_000)])
    written = 0
    while written < megabytes * 10**6:
        ranks = np.minimum((rng.pareto(0.9, 20_000) * 20).astype(int), len(vocabulary) - 1)
        words = vocabulary[ranks].tolist()
        for start in range(0, len(words), 400):
            sentences = (" ".join(words[i : i + 13]) + ".\n" for i in range(start, start + 400, 13))
            text = "".join(sentences)
            written += len(text)
            yield text


def write_text(file: Path, megabytes: int) -> None:
    with file.open("w", encoding="utf-8") as stream:
        stream.writelines(documents(megabytes))


def write_parquet(file: Path, megabytes: int) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    schema = pa.schema({"id": pa.int64(), "text": pa.string()})
    with parquet.ParquetWriter(file, schema) as writer:
        batch: list[dict[str, object]] = []
        for number, text in enumerate(documents(megabytes)):
            batch.append({"id": number, "text": text})
            if len(batch) == 20_000:
                writer.write_table(pa.Table.from_pylist(batch, schema))
                batch = []
        if batch:
            writer.write_table(pa.Table.from_pylist(batch, schema))


def tree_memory(pid: int) -> float:
    """Resident memory of a process and its descendants, in MB."""
    total, pids = 0, [pid]
    while pids:
        process = Path(f"/proc/{pids.pop()}")
        try:
            total += int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            pids += [
                int(child) for task in (process / "task").iterdir() for child in (task / "children").read_text().split()
            ]
        except OSError:  # it has ended
            continue
    return total / 1e6


def start(file: Path, cache: Path, run: Path, shard_tokens: int) -> "subprocess.Popen[str]":
    command = [
        sys.executable,
        "-c",
        REGARD,
        str(shard_tokens),
        "train",
        "write",
        "--data",
        str(file),
        *MODEL.split(),
        "--steps",
        "50",
    ]
    command += ["--evals", "1", "--cache", str(cache), "--output-dir", str(run)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def measure(process: "subprocess.Popen[str]") -> tuple[float, float, str]:
    """Peak memory, seconds and output."""
    begin, peak = time.monotonic(), 0.0
    while process.poll() is None:
        peak = max(peak, tree_memory(process.pid))
        time.sleep(0.05)
    assert process.stdout
    output = process.stdout.read()
    if process.returncode:
        raise SystemExit(output)
    return peak, time.monotonic() - begin, output


def kill_while_tokenising(file: Path, cache: Path, run: Path, shard_tokens: int, shards: int) -> bool:
    """Send SIGKILL when the corpus has so many shards; False if it was finished before."""
    process = start(file, cache, run, shard_tokens)
    while process.poll() is None:
        if len([*cache.glob("*/*.tokens")]) >= shards:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            return not any(cache.glob("*/index.json"))
        time.sleep(0.01)
    return False


def digests(cache: Path) -> dict[str, str]:
    files = {str(file.relative_to(cache)): file for file in cache.glob("*/*.tokens")}
    return {name: file_digest(file.open("rb"), blake2b).hexdigest() for name, file in sorted(files.items())}


def train_and_kill(file: Path, folder: Path, shard_tokens: int) -> bool:
    size = file.stat().st_size / 1e6
    whole, killed = folder / "whole", folder / "killed"
    peak, seconds, output = measure(start(file, whole, folder / "run", shard_tokens))
    print(f"{file.suffix[1:]}: {size:,.0f} MB, {seconds:,.0f} s, peak memory {peak:,.0f} MB", flush=True)
    print("  " + next(line for line in output.splitlines() if line.startswith("ready after")), flush=True)
    again, seconds, _ = measure(start(file, whole, folder / "again", shard_tokens))
    print(f"  from the cache: {seconds:,.0f} s, peak memory {again:,.0f} MB", flush=True)
    shards = len(digests(whole))
    moments = range(1, shards - 1, max(1, (shards - 2) // KILLS))
    kills = sum(kill_while_tokenising(file, killed, folder / "killed-run", shard_tokens, count) for count in moments)
    peak_resumed, _, _ = measure(start(file, killed, folder / "killed-run", shard_tokens))
    same = digests(whole) == digests(killed)
    print(
        f"  killed {kills} times while tokenising; {shards} shards, tokens {'equal' if same else 'DIFFER'}", flush=True
    )
    return same and max(peak, again, peak_resumed) < LIMIT


def compare_threads(megabytes: int) -> None:
    """Tokenise the same text in the threads of the tokenizers library, and in forked processes."""
    from regard.data.document_files import TextChunk
    from regard.data.tokenization import chunk_batches, encode_ahead
    from regard.data.tokenizer_train import GPT_LAYOUT, TokenizerOptions, train_tokenizer

    text = "".join(documents(megabytes))
    chunks = [TextChunk(text[i : i + (1 << 18)], False) for i in range(0, len(text), 1 << 18)]
    tokenizer = train_tokenizer([text[: 4 << 20]], TokenizerOptions(vocab_size=8192), GPT_LAYOUT)
    batches = [*chunk_batches(chunks)]
    encode = {"processes": multiprocessing.get_context("fork").Pool(os.cpu_count())}  # before threads exist
    tokenizer.encode([text[:1000]])
    for name in ("processes", "threads"):
        begin = time.monotonic()
        if name == "threads":
            count = sum(len(row) for _, rows in encode_ahead(iter(batches), tokenizer) for row in rows)
        else:
            with encode[name] as pool:
                texts = ((tokenizer, [chunk.text for chunk in batch]) for batch in batches)
                count = sum(pool.imap(count_tokens, texts))
        seconds = time.monotonic() - begin
        print(f"{name}: {count:,} tokens, {len(text) / 1e6 / seconds:.1f} MB/s", flush=True)


def count_tokens(task: tuple[object, list[str]]) -> int:
    tokenizer, texts = task
    return sum(map(len, tokenizer.encode(texts)))  # type: ignore[attr-defined]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=2000, help="size of the text")
    parser.add_argument("--formats", nargs="+", default=["txt", "parquet"], choices=["txt", "parquet"])
    parser.add_argument(
        "--folder", help="where the files are written, and removed at the end; default: a temporary one"
    )
    parser.add_argument("--shard-tokens", type=int, default=1 << 26, help="tokens of a shard")
    arguments = parser.parse_args()
    compare_threads(20)
    good = True
    for name in arguments.formats:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            file = Path(folder) / f"corpus.{name}"
            (write_text if name == "txt" else write_parquet)(file, arguments.megabytes)
            good &= train_and_kill(file, Path(folder), arguments.shard_tokens)
    print("all within the limit, all tokens equal" if good else f"FAILED: over {LIMIT} MB, or other tokens")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
