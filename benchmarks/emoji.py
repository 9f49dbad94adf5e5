"""Emoji: contrastive training of images and captions from scratch; recall on unseen styles and unseen emoji.

    python benchmarks/emoji.py [--minutes 25] [--only style] [-o runs/emoji] [options of regard train match]

style      trained on two drawing styles of every emoji; tested on images of the third style against all captions.
           Baseline: the caption of the nearest training image, by pixels.
concepts   trained on a part of the emoji in all styles; tested on images of new emoji against all new captions.
           Baseline: TF-IDF of the captions of the nearest training images, weighted by their similarity.
"""

from __future__ import annotations

import csv
import io
import math
import random
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from corpus import SHARED
from PIL import Image
from recipes import describe_machine, parse_args, train_or_load, training_seconds

from regard.loaded_model import LoadedModel
from regard.metrics import recall_at

DATA = SHARED / "emoji"
STYLES = ("openmoji", "twemoji", "noto")
NEW_STYLE = "noto"
SIDE = 24  # pixels of an image for nearest neighbours
NEIGHBOURS = 10
PARTIAL_CAPTIONS = 6  # per emoji, for generalisation to new emoji
Floats = npt.NDArray[np.float64]
RECIPE = {
    "--image-size": 24, "--patch-size": 8, "--conv-stem": True, "--image-dim": 96, "--image-layers": 1,
    "--image-heads": 3, "--image-hidden": 192, "--dim": 96, "--layers": 1, "--heads": 3, "--hidden": 192,
    "--projection-dim": 128, "--context": 32, "--vocab-size": 1500, "--batch-tokens": 16384, "--lr": 0.005,
    "--evals": 6,
    "--shift": 2, "--rotate": 10, "--zoom": 0.15, "--color-jitter": 0.2, "--dropout": 0.1, "--weight-decay": 0.1,
}  # fmt: skip
Drawing = tuple[str, str]  # code point and style


class Emoji:
    """Every emoji: its name and tags, its split, and its images, one file per style."""

    def __init__(self, folder: Path):
        with (DATA / "captions.tsv").open(encoding="utf-8") as stream:
            self.rows = {row["hexcode"]: row for row in csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)}
        self.files: dict[tuple[str, str], Path] = {}
        for style in STYLES:
            (folder / style).mkdir(parents=True, exist_ok=True)
            with zipfile.ZipFile(DATA / f"{style}_72.zip") as archive:
                for name in archive.namelist():
                    code = Path(name).stem
                    if name.endswith(".png") and code in self.rows:
                        self.files[code, style] = folder / style / f"{code}.png"
                        self.files[code, style].write_bytes(archive.read(name))
        self.folder = folder

    def caption(self, code: str) -> str:
        row = self.rows[code]
        return ", ".join(filter(None, (row["annotation"], row["tags"]))).lower()

    def partial_captions(self, code: str) -> list[str]:
        """The name alone, and random subsets of name and tags in random order: the same for all images of an emoji."""
        row, rng = self.rows[code], random.Random(code)
        words = [word for word in (row["annotation"], *row["tags"].split(", ")) if word]
        subsets = [rng.sample(words, rng.randint(1, len(words))) for _ in range(PARTIAL_CAPTIONS)]
        return [words[0].lower(), *(", ".join(subset).lower() for subset in subsets)]

    def write_table(self, name: str, drawings: list[Drawing], partial: bool = False) -> Path:
        """A table of image file and caption; with `partial`, also with the partial captions."""
        file = self.folder / f"{name}.tsv"
        lines = [
            f"{self.files[code, style].relative_to(self.folder)}\t{text}\n"
            for code, style in drawings
            for text in (self.caption(code), *(self.partial_captions(code) if partial else ()))
        ]
        file.write_text("".join(lines), encoding="utf-8")
        return file

    def pixels(self, drawing: Drawing) -> Floats:
        """A small image as a centred unit vector."""
        image = Image.open(io.BytesIO(self.files[drawing].read_bytes())).convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        small = Image.alpha_composite(white, image).convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        flat = np.asarray(small, np.float64).ravel()
        flat = flat - flat.mean()
        return flat / (np.linalg.norm(flat) + 1e-9)


def tf_idf(captions: list[str]) -> Floats:
    words = [caption.replace(",", " ").split() for caption in captions]
    columns = {word: i for i, word in enumerate(sorted({w for caption in words for w in caption}))}
    document_counts = Counter(word for caption in words for word in set(caption))
    table = np.zeros((len(captions), len(columns)))
    for i, caption in enumerate(words):
        for word, count in Counter(caption).items():
            table[i, columns[word]] = count * math.log(len(captions) / document_counts[word])
    return table / (np.linalg.norm(table, axis=1, keepdims=True) + 1e-9)


def ranks_of(similarity: Floats, targets: list[int]) -> npt.NDArray[np.int64]:
    """The rank, from 1, of the target column of each row; ties count against it."""
    target_similarity = similarity[np.arange(len(targets)), targets][:, None]
    return (similarity >= target_similarity).sum(1)


def model_similarity(loaded: LoadedModel, emoji: Emoji, drawings: list[Drawing], codes: list[str]) -> Floats:
    task: Any = loaded.task
    rows = [task.preprocessor.parse(str(emoji.files[drawing]), task.target) for drawing in drawings]
    images = task.embed_inputs(loaded.model, rows)
    texts = task.embed_texts(loaded.model, [emoji.caption(code) for code in codes])
    return (images @ texts.T).double().numpy()


def print_recall(name: str, method: str, ranks: npt.NDArray[np.int64]) -> None:
    recalls = "  ".join(f"R@{k} {recall_at(ranks, k):5.1f}" for k in (1, 10))
    print(f"{name:<10}{method:<28}{recalls}", flush=True)


def style(emoji: Emoji, folder: Path, recipe: dict[str, Any], extra: list[str]) -> None:
    codes = [code for code in emoji.rows if all((code, style) in emoji.files for style in STYLES)]
    train = [
        (code, style) for code in emoji.rows for style in STYLES if style != NEW_STYLE and (code, style) in emoji.files
    ]
    test = [(code, NEW_STYLE) for code in codes]
    targets = list(range(len(codes)))
    train_pixels = np.stack([emoji.pixels(drawing) for drawing in train])
    similarity = np.stack([emoji.pixels(drawing) for drawing in test]) @ train_pixels.T
    columns = {code: [i for i, drawing in enumerate(train) if drawing[0] == code] for code in codes}
    by_code = np.stack([similarity[:, columns[code]].max(1) for code in codes], 1)
    print_recall("style", "nearest image by pixels", ranks_of(by_code, targets))
    files = {"--data": [emoji.write_table("style-train", train)], "--valid-share": 0.03}
    loaded = train_or_load("match", folder, recipe | files, extra)
    ranks = ranks_of(model_similarity(loaded, emoji, test, codes), targets)
    print_recall("style", f"regard, {training_seconds(folder) / 60:.1f} minutes", ranks)


def concepts(emoji: Emoji, folder: Path, recipe: dict[str, Any], extra: list[str]) -> None:
    def split(name: str) -> list[Drawing]:
        return [drawing for drawing in emoji.files if emoji.rows[drawing[0]]["split"] == name]

    train, test = split("train"), split("test")
    new = sorted({code for code, _ in test})
    targets = [new.index(code) for code, _ in test]
    train_pixels = np.stack([emoji.pixels(drawing) for drawing in train])
    similarity = np.stack([emoji.pixels(drawing) for drawing in test]) @ train_pixels.T
    words = tf_idf([emoji.caption(code) for code, _ in train] + [emoji.caption(code) for code in new])
    threshold = np.sort(similarity, 1)[:, -NEIGHBOURS][:, None]
    expected = np.where(similarity >= threshold, np.maximum(similarity, 0), 0) @ words[: len(train)]
    print_recall("concepts", "TF-IDF of nearest images", ranks_of(expected @ words[len(train) :].T, targets))
    valid = emoji.write_table("concepts-valid", split("val"))
    files = {"--data": [emoji.write_table("concepts-train", train, partial=True)], "--valid": [valid]}
    loaded = train_or_load("match", folder, recipe | files, extra)
    ranks = ranks_of(model_similarity(loaded, emoji, test, new), targets)
    print_recall("concepts", f"regard, {training_seconds(folder) / 60:.1f} minutes", ranks)


SPLITS = {"style": style, "concepts": concepts}


def main() -> None:
    args, extra = parse_args(str(__doc__), 25, "runs/emoji", only=list(SPLITS))
    emoji = Emoji(args.output_dir / "data")
    print(f"{describe_machine()}, seed {args.seed}, {args.minutes:g} minutes each")
    for name in args.only:
        recipe = RECIPE | {"--minutes": args.minutes, "--seed": args.seed}
        SPLITS[name](emoji, args.output_dir / name, recipe, extra)


if __name__ == "__main__":
    main()
