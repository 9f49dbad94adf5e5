"""Attention of packed documents: time and memory of a forward and backward pass of one layer, with the compact mask and
with one of T x T booleans, by the length of a row.

    python benchmarks/packed_documents.py

Each measurement is a process of its own. Memory is the peak above that before the first pass. Documents have random
lengths with a mean of 300 tokens; a batch has at least 4,096 tokens.
"""

from __future__ import annotations

import os
import re
import sys
import time
from multiprocessing import get_context
from pathlib import Path
from statistics import median

import numpy as np
import torch

from regard.parts.attention import SelfAttention
from regard.parts.document_mask import DocumentMask

LENGTHS, TOKENS, MEAN = (256, 512, 1024, 2048, 4096, 8192, 16384), 4096, 300
DIM, HEADS, KV_HEADS = 256, 4, 2
ROUNDS = 5


def memory(name: str) -> float:
    """MB of this process: VmRSS now, VmHWM at its peak."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    [kilobytes] = re.findall(rf"{name}:\s+(\d+)", status)
    return int(kilobytes) / 1024


def packed_rows(T: int) -> DocumentMask:
    rng, rows = np.random.default_rng(T), []
    for _ in range(max(1, TOKENS // T)):
        ends = np.cumsum(1 + rng.exponential(MEAN, T).astype(int))
        rows.append(np.searchsorted(ends, np.arange(T), side="right"))
    return DocumentMask(torch.from_numpy(np.stack(rows)))


def measure(T: int, kind: str) -> tuple[float, float]:
    """Seconds of a pass, and MB."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    mixer, mask = SelfAttention(DIM, HEADS, KV_HEADS, causal=True), packed_rows(T)
    x = torch.randn(*mask.document.shape, DIM, requires_grad=True)
    seconds: list[float] = []
    before = memory("VmRSS")
    for _ in range(ROUNDS + 1 if T < 8192 else 2):
        start = time.perf_counter()
        if kind == "dense":
            mixer(x, mask.dense()).sum().backward()
        else:
            mixer(x, DocumentMask(mask.document)).sum().backward()  # a new mask, as every batch has
        seconds.append(time.perf_counter() - start)
    return median(seconds[1:]), memory("VmHWM") - before


def main() -> None:
    heads = ("dense ms", "compact ms", "ratio", "dense MB", "compact MB", "ratio")
    print(f"{'T':>6}{'rows':>6}" + "".join(f"{head:>12}" for head in heads))
    for T in map(int, sys.argv[1:]) if len(sys.argv) > 1 else LENGTHS:
        results = []
        for kind in ("dense", "compact"):
            with get_context("spawn").Pool(1) as pool:
                results.append(pool.apply(measure, (T, kind)))
        (dense_time, dense_memory), (compact_time, compact_memory) = results
        times = f"{1000 * dense_time:>12.1f}{1000 * compact_time:>12.1f}{dense_time / compact_time:>12.1f}"
        sizes = f"{dense_memory:>12.0f}{compact_memory:>12.0f}{dense_memory / compact_memory:>12.1f}"
        print(f"{T:>6}{max(1, TOKENS // T):>6}{times}{sizes}", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
