"""Translation latency: the shape of the OPUS-MT models (6 + 6 layers of 512, 58,101 tokens) with random weights.

    python benchmarks/marian.py [--threads 1 2] [--seconds 40] [--sentences 1000]

English sentences of Multi30k, one by one and in batches of 32 of similar length, greedy and with beam 4. All backends
decode the same number of steps: the length of the longest source of a batch. regard runs one more step, for </s>, so
its limit is one token lower. The file is for int8 only; CTranslate2 also runs it with one worker per thread.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from corpus import translation_pairs
from decode import check_agreement
from peer_tables import SpeedTables, make_parser, open_backends
from shapes import model_folder

from regard.bench.backend import Backend
from regard.bench.timing import time_rounds
from regard.bench.workload import GenerationWorkload
from regard.load import load

BATCH = 32
SINGLE = 4  # sentences translated one by one


def sorted_batches(rows: list[list[int]], size: int) -> list[list[list[int]]]:
    rows = sorted(rows, key=len)
    return [rows[i : i + size] for i in range(0, len(rows), size)]


def translate_call(backend: Backend, batches: list[list[list[int]]], num_beams: int) -> Callable[[], object]:
    generate: Any = backend.generate
    return lambda: [generate(rows, len(rows[-1]) - backend.extra_steps, num_beams) for rows in batches]


def ctranslate2_workers(
    scratch: Path, count: int, pieces: Any, batches: list[Any], num_beams: int
) -> Callable[[], object]:
    """CTranslate2 with one worker per thread: batches in parallel."""
    import ctranslate2

    model = str(scratch / "ctranslate2-int8")
    translator = ctranslate2.Translator(model, compute_type="int8", inter_threads=count, intra_threads=1)

    def translate_all() -> list[Any]:
        futures = []
        for rows in batches:
            options = {
                "beam_size": num_beams,
                "min_decoding_length": len(rows[-1]),
                "max_decoding_length": len(rows[-1]),
            }
            tokens = [pieces(row) for row in rows]
            futures += translator.translate_batch(tokens, max_batch_size=BATCH, asynchronous=True, **options)
        return [future.result() for future in futures]

    return translate_all


def main() -> None:
    parser = make_parser(str(__doc__), 40.0)
    parser.set_defaults(peers=["transformers", "CTranslate2"])
    parser.add_argument("--sentences", type=int, default=1000, help="sentences of the file")
    parser.add_argument("--workloads", nargs="+", default=["greedy", "beam", "batch", "file"], help="of the four")
    args = parser.parse_args()
    name, pairs = translation_pairs()
    print(name)
    folder = model_folder("marian", args.output_dir, (side for pair in pairs for side in pair))
    tokenizer = load(folder, "cpu").tokenizer
    rows = tokenizer.encode([english for english, _ in islice(pairs, args.sentences)])
    short = [[row] for row in rows if 10 <= len(row) <= 20][:SINGLE]
    file = sorted_batches(rows, BATCH)
    workloads = {
        "greedy": (f"greedy, {SINGLE} sentences one by one", short, 1),
        "beam": (f"beam 4, {SINGLE} sentences one by one", short, 4),
        "batch": (f"greedy, a batch of {BATCH} sentences", [file[len(file) // 2]], 1),
        "file": (f"beam 4, a file of {len(rows)} sentences", file, 4),
    }
    tables = SpeedTables()
    for threads in args.threads:
        tables.set_num_threads(threads)
        with TemporaryDirectory() as scratch:
            backends = open_backends(folder, threads, Path(scratch), args.peers)
            check_agreement(backends, GenerationWorkload(file[len(file) // 2][:8], 16))
            for workload in args.workloads:
                title, batches, num_beams = workloads[workload]
                usable = [b for b in backends if workload != "file" or b.precision == "int8"]
                calls = {b.title: translate_call(b, batches, num_beams) for b in usable}
                if workload == "file" and threads > 1 and "CTranslate2 int8" in calls:
                    calls[f"CTranslate2 x{threads} int8"] = ctranslate2_workers(
                        Path(scratch), threads, tokenizer.convert_ids_to_tokens, batches, num_beams
                    )
                    torch.set_num_threads(threads)  # CTranslate2 has set OpenMP's global number of threads to 1
                costs = time_rounds(calls, args.seconds)
                count = sum(map(len, batches))
                tables.add(f"Marian shape, {title}", "ms per sentence", costs, lambda s, n=count: 1000 * s / n, {})
    tables.print_rows("marian")


if __name__ == "__main__":
    main()
