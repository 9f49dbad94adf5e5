"""Where the fused attention kernel pays in training: forward and backward of it and of the spelled-out twin, by length.

    python benchmarks/attention.py

`attend` takes the twin below the length where the two cross (parts/attention.py, SHORT), on a CPU, with gradients.
"""

from __future__ import annotations

import time
from statistics import median

import torch

from regard.parts import attention
from regard.parts.attention import attend, attend_openly

TOKENS, HEADS, WIDTH = 4096, 4, 32


def seconds(run: object, *inputs: torch.Tensor) -> float:
    began = time.perf_counter()
    run(*inputs, causal=True).sum().backward()  # type: ignore[operator]
    return time.perf_counter() - began


def main() -> None:
    attention.SHORT = 0  # the kernel, always
    print(f"{TOKENS} tokens, {HEADS} heads of {WIDTH}, causal, {torch.get_num_threads()} threads; milliseconds")
    print(f"{'length':>8}{'fused':>10}{'open':>10}{'ratio':>10}")
    for length in (8, 16, 32, 64, 128, 256, 512):
        q, k, v = (torch.randn(TOKENS // length, HEADS, length, WIDTH, requires_grad=True) for _ in range(3))
        turns = [(seconds(attend, q, k, v), seconds(attend_openly, q, k, v)) for _ in range(15)][3:]
        fused, spelled = (median(times) * 1000 for times in zip(*turns, strict=True))
        print(f"{length:>8}{fused:>10.2f}{spelled:>10.2f}{fused / spelled:>10.2f}")


if __name__ == "__main__":
    main()
