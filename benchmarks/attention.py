"""Where the fused attention kernel pays in training: target tokens per second of the whole loop, with the kernel
always, and with its spelled-out twin below some number of weights a head (parts/attention.py, SHORT).

    python benchmarks/attention.py

The loops take turns. Timing attention alone misleads: what counts is its memory beside that of all other parts.
"""

from __future__ import annotations

from statistics import median

import torch
from corpus import some_pairs
from train_speed import ours, turn

from regard.data.pieces import Pieces, learn
from regard.parts import attention
from regard.tasks.translate import Translate

LIMITS = (0, 16 * 16, 32 * 32, 64 * 64, 128 * 128)
TURNS, SECONDS = 6, 6.0


def main() -> None:
    name, pairs = some_pairs()
    task = Translate(tokenizer=learn((text for pair in pairs for text in pair), Pieces()))
    examples = task.encode(pairs)
    loops = {limit: ours(task, examples, dropout=0.3) for limit in LIMITS}
    speeds: dict[int, list[float]] = {limit: [] for limit in LIMITS}
    for number in range(TURNS):
        for limit, steps in loops.items():
            attention.SHORT = limit
            speed = turn(steps, SECONDS)
            if number:  # the first turn warms up
                speeds[limit].append(speed)
    print(
        f"transformer tiny on {name}, {torch.get_num_threads()} threads; target tokens/s, medians of {TURNS - 1} turns"
    )
    for limit, measured in speeds.items():
        print(f"spelled out up to {limit:>6} weights a head{median(measured):>10,.0f}")


if __name__ == "__main__":
    main()
