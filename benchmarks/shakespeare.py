"""tinyshakespeare by characters: nanoGPT's recipe for a CPU, written plainly, and ours in parts of its time.

    python benchmarks/shakespeare.py [--shares 0.125 0.25 1] [--rounds 1] [--output-dir runs/shakespeare]

Both are measured in the same way: mean loss over the whole last tenth of the text, in windows of 64 characters. The
time is that of the training steps alone, of both.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import plain_gpt
import torch
import torch.nn.functional as F
from corpus import SHARED
from recipes import machine, seconds
from torch import Tensor

import regard

WINDOW = 64
RECIPE = {"pieces": "characters", "context": 64, "model": "nano", "dim": 128, "heads": 4, "warmup_steps": 20}
# The shorter the time, the smaller the model and its batches.
SHORT = {"layers": 2, "hidden": 512, "batch_tokens": 768, "lr": 0.006, "ema": 0.98}
LONG = {"layers": 4, "hidden": 384, "batch_tokens": 1024, "lr": 0.005, "ema": 0.99}
TRIAL = 60  # steps, to know how long one takes


def loss_of(logits: Callable[[Tensor], Tensor], ids: Tensor) -> float:
    """(B,T) ids to (B,T,V) logits; the mean over all windows."""
    total = count = 0.0
    with torch.inference_mode():
        for rows in ids[: (len(ids) - 1) // WINDOW * WINDOW + 1].unfold(0, WINDOW + 1, WINDOW).split(64):
            total += F.cross_entropy(logits(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten(), reduction="sum").item()
            count += rows[:, 1:].numel()
    return total / count


def peer(train: str, valid: str, seed: int) -> tuple[float, float]:
    letters = {letter: i for i, letter in enumerate(sorted(set(train)))}
    model, took = plain_gpt.train(torch.tensor([letters[c] for c in train]), len(letters), seed)
    return took, loss_of(model.eval(), torch.tensor([letters[c] for c in valid]))


def ours(
    files: dict[str, Path], valid: str, budget: float, size: dict[str, float], output_dir: Path, seed: int
) -> tuple[float, float]:
    """Trained for `budget` seconds, as near as can be planned."""
    how = RECIPE | size | {"data": files["train"], "valid": files["valid"], "overwrite": True, "evals": 1, "seed": seed}
    trial = [step.seconds for step in regard.train("write", **how, steps=TRIAL, output_dir=output_dir)]
    steps = int(budget / np.median(trial))
    for _ in regard.train("write", **how, steps=steps, output_dir=output_dir):
        pass
    loaded = regard.load(output_dir)
    ids = torch.tensor(loaded.tokenizer.encode([valid])[0])
    return seconds(output_dir), loss_of(lambda x: loaded.model.head(loaded.model.body(x)), ids)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.125, 0.25, 1.0], help="of the peer's time")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--output-dir", type=Path, default=Path("runs/shakespeare"))
    given = parser.parse_args()
    text = (SHARED / "tinyshakespeare" / "input.txt").read_text()
    train, valid = text[: int(0.9 * len(text))], text[int(0.9 * len(text)) :]
    files = {"train": given.output_dir / "train.txt", "valid": given.output_dir / "valid.txt"}
    given.output_dir.mkdir(parents=True, exist_ok=True)
    files["train"].write_text(train)
    files["valid"].write_text(valid)
    print(machine())
    for seed in range(1, given.rounds + 1):
        took, loss = peer(train, valid, seed)
        print(f"seed {seed}: plain GPT, nanoGPT's recipe: loss {loss:.3f} after {took:.1f} s of training", flush=True)
        for share in given.shares:
            mine, better = ours(
                files, valid, took * share, SHORT if share <= 0.5 else LONG, given.output_dir / f"run-{share:g}", seed
            )
            print(f"seed {seed}: ours, {share:g} of that time: loss {better:.3f} after {mine:.1f} s", flush=True)


if __name__ == "__main__":
    main()
