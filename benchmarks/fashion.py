"""Fashion-MNIST: test accuracy of a small ViT with a convolutional stem.

    python benchmarks/fashion.py [--minutes 15] [-o runs/fashion] [options of regard train classify]

Published (the data set's own list): MLP 88.3, two convolutions 92.5, ResNet18 94.9; people 83.5.
The last 5,000 of the 60,000 training images are the validation set; the test set is only scored.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from corpus import SHARED
from recipes import describe_machine, parse_args, train_or_load, training_seconds

from regard.data.arrays import read_idx

DATA = SHARED / "fashion_mnist"
VALID_IMAGES = 5_000


def write_data(folder: Path) -> dict[str, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    files = {split: folder / f"{split}.npz" for split in ("train", "valid", "test")}
    for split, file in files.items():
        source = "t10k" if split == "test" else "train"
        images = read_idx(DATA / f"{source}-images-idx3-ubyte.gz")
        labels = read_idx(DATA / f"{source}-labels-idx1-ubyte.gz")
        rows = {"train": slice(None, -VALID_IMAGES), "valid": slice(-VALID_IMAGES, None), "test": slice(None)}[split]
        np.savez(file, images=images[rows], labels=labels[rows])
    return files


def main() -> None:
    args, extra = parse_args(str(__doc__), 15, "runs/fashion")
    files = write_data(args.output_dir.parent / "fashion-data")
    recipe = {
        "--data": [files["train"]], "--valid": [files["valid"]],
        "--model": "vit", "--conv-stem": True, "--patch-size": 8, "--layers": 2, "--lr": 0.0035, "--shift": 1,
        "--flip": True, "--label-smoothing": 0.1, "--batch-tokens": 1600, "--minutes": args.minutes,
        "--seed": args.seed,
    }  # fmt: skip
    loaded = train_or_load("classify", args.output_dir, recipe, extra)
    scores = loaded.task.score(loaded.model, loaded.rows([str(files["test"])]))
    minutes = training_seconds(args.output_dir) / 60
    print(f"{describe_machine()}, seed {args.seed}")
    print(f"test accuracy {scores['accuracy']:.2f} after {minutes:.1f} minutes")


if __name__ == "__main__":
    main()
