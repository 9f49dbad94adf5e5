"""How long a translation takes: the shape of the OPUS-MT models (6 + 6 layers of 512, 58,101 tokens), random weights.

    python benchmarks/marian.py [--threads 1 2] [--seconds 40] [--sentences 1000]

English sentences of Multi30k, one by one and in batches of 32 of like length, greedily and with beam 4. All make the
same number of steps: as many as the longest source of a batch has tokens. Ours asks the model once more, for the end,
so it is given one token less. The file is for int8 only, CTranslate2's also with a worker for each thread.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from corpus import some_pairs
from decode import refuse_others
from peer_tables import Tables, options, runners_of
from shapes import folder_of

from regard.bench.backend import Backend
from regard.bench.timing import time_rounds
from regard.bench.workload import GenerationWorkload
from regard.load import load

BATCH = 32
ALONE = 4  # sentences that are translated one by one


def batches(rows: list[list[int]], size: int) -> list[list[list[int]]]:
    rows = sorted(rows, key=len)
    return [rows[i : i + size] for i in range(0, len(rows), size)]


def act(runner: Backend, parts: list[list[list[int]]], beam: int) -> Callable[[], object]:
    write: Any = runner.generate
    return lambda: [write(rows, len(rows[-1]) - runner.extra_steps, beam) for rows in parts]


def workers(room: Path, count: int, pieces: Any, parts: list[Any], beam: int) -> Callable[[], object]:
    """CTranslate2 with a worker for each thread: batches side by side."""
    import ctranslate2

    model = str(room / "ctranslate2-int8")
    translator = ctranslate2.Translator(model, compute_type="int8", inter_threads=count, intra_threads=1)

    def all_of_them() -> list[Any]:
        promised = []
        for rows in parts:
            how = {"beam_size": beam, "min_decoding_length": len(rows[-1]), "max_decoding_length": len(rows[-1])}
            given = [pieces(row) for row in rows]
            promised += translator.translate_batch(given, max_batch_size=BATCH, asynchronous=True, **how)
        return [one.result() for one in promised]

    return all_of_them


def main() -> None:
    parser = options(str(__doc__), 40.0)
    parser.set_defaults(peers=["transformers", "CTranslate2"])
    parser.add_argument("--sentences", type=int, default=1000, help="of the file")
    parser.add_argument("--works", nargs="+", default=["greedy", "beam", "batch", "file"], help="which of the four")
    said = parser.parse_args()
    name, pairs = some_pairs()
    print(name)
    folder = folder_of("marian", said.out, (side for pair in pairs for side in pair))
    tokenizer = load(folder, "cpu").tokenizer
    rows = tokenizer.encode([english for english, _ in islice(pairs, said.sentences)])
    few = [row for row in rows if 10 <= len(row) <= 20]
    whole = batches(rows, BATCH)
    works = {
        "greedy": (f"greedy, {ALONE} sentences one by one", [[row] for row in few[:ALONE]], 1),
        "beam": (f"beam 4, {ALONE} sentences one by one", [[row] for row in few[:ALONE]], 4),
        "batch": (f"greedy, {BATCH} sentences at once", [whole[len(whole) // 2]], 1),
        "file": (f"beam 4, a file of {len(rows)} sentences", whole, 4),
    }
    tables = Tables()
    for threads in said.threads:
        tables.machine(threads)
        with TemporaryDirectory() as room:
            runners = runners_of(folder, threads, Path(room), said.peers)
            refuse_others(runners, GenerationWorkload(whole[len(whole) // 2][:8], 16))
            for work in said.works:
                title, parts, beam = works[work]
                acts = {r.title: act(r, parts, beam) for r in runners if work != "file" or r.precision == "int8"}
                if work == "file" and threads > 1 and "CTranslate2 int8" in acts:
                    args = (Path(room), threads, tokenizer.pieces, parts, beam)
                    acts[f"CTranslate2 x{threads} int8"] = workers(*args)
                    torch.set_num_threads(threads)  # its workers have one each, and it tells everyone
                costs = time_rounds(acts, said.seconds)
                count = sum(map(len, parts))
                tables.add(f"Marian's shape, {title}", "ms a sentence", costs, lambda s, n=count: 1000 * s / n, {})
    tables.rows("marian")


if __name__ == "__main__":
    main()
