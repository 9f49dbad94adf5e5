"""tinyshakespeare by characters: nanoGPT's recipe for a CPU in plain PyTorch, and regard in fractions of its time.

    python benchmarks/shakespeare.py [--fractions 0.125 0.25 1] [--rounds 1] [-o runs/shakespeare]

Both are measured alike: mean loss over the whole last tenth of the text, in windows of 64 characters. The time is that
of the training steps alone.
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
from recipes import describe_machine, keywords, training_seconds
from torch import Tensor

import regard

WINDOW = 64
RECIPE = {
    "--tokenizer": "characters", "--context": 64, "--model": "nanochat", "--dim": 128, "--heads": 4,
    "--warmup-steps": 20,
}  # fmt: skip
# The shorter the time, the smaller the model and its batches.
SHORT = {"--layers": 2, "--hidden": 512, "--batch-tokens": 768, "--lr": 0.006, "--ema": 0.98}
LONG = {"--layers": 4, "--hidden": 384, "--batch-tokens": 1024, "--lr": 0.005, "--ema": 0.99}
TRIAL_STEPS = 60  # to measure the time of a step


def mean_loss(logits: Callable[[Tensor], Tensor], ids: Tensor) -> float:
    """`logits` maps ids (B,T) to (B,T,V)."""
    total = count = 0.0
    with torch.inference_mode():
        for rows in ids[: (len(ids) - 1) // WINDOW * WINDOW + 1].unfold(0, WINDOW + 1, WINDOW).split(64):
            total += F.cross_entropy(logits(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten(), reduction="sum").item()
            count += rows[:, 1:].numel()
    return total / count


def train_peer(train: str, valid: str, seed: int) -> tuple[float, float]:
    """Seconds of training, and the validation loss."""
    ids = {char: i for i, char in enumerate(sorted(set(train)))}
    model, seconds = plain_gpt.train(torch.tensor([ids[c] for c in train]), len(ids), seed)
    return seconds, mean_loss(model.eval(), torch.tensor([ids[c] for c in valid]))


def train_regard(
    files: dict[str, Path], valid: str, budget: float, size: dict[str, float], folder: Path, seed: int
) -> tuple[float, float]:
    """Seconds of training, as near to `budget` as can be planned, and the validation loss."""
    data = {"--data": files["train"], "--valid": files["valid"], "--overwrite": True, "--evals": 1}
    options = keywords(RECIPE | size | data | {"--seed": seed, "--output-dir": folder})
    trial = [step.seconds for step in regard.train("write", **options, steps=TRIAL_STEPS)]
    for _ in regard.train("write", **options, steps=int(budget / np.median(trial))):
        pass
    loaded = regard.load(folder)
    ids = torch.tensor(loaded.tokenizer.encode([valid])[0])
    return training_seconds(folder), mean_loss(lambda x: loaded.model.head(loaded.model.body(x)), ids)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fractions", type=float, nargs="+", default=[0.125, 0.25, 1.0], help="of the peer's time")
    parser.add_argument("--rounds", type=int, default=1, help="number of seeds")
    parser.add_argument("-o", "--output-dir", type=Path, default=Path("runs/shakespeare"))
    args = parser.parse_args()
    text = (SHARED / "tinyshakespeare" / "input.txt").read_text()
    train, valid = text[: int(0.9 * len(text))], text[int(0.9 * len(text)) :]
    files = {"train": args.output_dir / "train.txt", "valid": args.output_dir / "valid.txt"}
    args.output_dir.mkdir(parents=True, exist_ok=True)
    files["train"].write_text(train)
    files["valid"].write_text(valid)
    print(describe_machine())
    for seed in range(1, args.rounds + 1):
        peer_seconds, peer_loss = train_peer(train, valid, seed)
        print(f"seed {seed}: plain GPT, nanoGPT's recipe: loss {peer_loss:.3f} after {peer_seconds:.1f} s", flush=True)
        for fraction in args.fractions:
            folder, size = args.output_dir / f"run-{fraction:g}", SHORT if fraction <= 0.5 else LONG
            seconds, loss = train_regard(files, valid, peer_seconds * fraction, size, folder, seed)
            print(f"seed {seed}: regard, {fraction:g} of that time: loss {loss:.3f} after {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
