"""Fused attention in training: target tokens per second of the whole training loop, by the number of attention weights
per head up to which the unfused implementation is used (SHORT of parts/attention.py).

    python benchmarks/attention.py

The loops are interleaved. Timing attention alone misleads: its memory traffic beside that of all other parts counts.
"""

from __future__ import annotations

from statistics import median

import torch
from corpus import text_rows, translation_pairs
from train_speed import measure_speed, regard_loop

from regard.data.tokenizer_train import TokenizerOptions, train_tokenizer
from regard.modalities.text.preprocessor import TextPreprocessor
from regard.parts import attention
from regard.tasks.translate import Translate

LIMITS = (0, 16 * 16, 32 * 32, 64 * 64, 128 * 128)
ROUNDS, SECONDS = 6, 6.0


def main() -> None:
    name, pairs = translation_pairs()
    tokenizer = train_tokenizer((text for pair in pairs for text in pair), TokenizerOptions())
    task = Translate(preprocessor=TextPreprocessor(tokenizer))
    examples = task.encode(text_rows(pairs))
    loops = {limit: regard_loop(task, examples, dropout=0.3) for limit in LIMITS}
    speeds: dict[int, list[float]] = {limit: [] for limit in LIMITS}
    for number in range(ROUNDS):
        for limit, steps in loops.items():
            attention.UNFUSED_LIMIT = limit
            speed = measure_speed(steps, SECONDS)
            if number:  # the first round warms up
                speeds[limit].append(speed)
    print(
        f"transformer tiny on {name}, {torch.get_num_threads()} threads; "
        f"target tokens/s, medians of {ROUNDS - 1} rounds"
    )
    for limit, measured in speeds.items():
        print(f"unfused up to {limit:>6} weights per head{median(measured):>10,.0f}")


if __name__ == "__main__":
    main()
