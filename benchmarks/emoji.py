"""Emoji: pictures and their names in one space, trained from scratch, tested where there is something new.

    python benchmarks/emoji.py [--minutes 25] [--only style] [--out runs/emoji] [any other option of regard train match]

style      trained on two drawing styles of every emoji; a picture in the third style must find its name among all.
           Beside it: the name of the nearest training picture, by pixels.
concepts   trained on some emoji in all styles; a picture of a new emoji must find its name among all new ones.
           Beside it: names compared, by TF-IDF, with those of the nearest training pictures, weighted by nearness.
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
from recipes import machine, options, seconds, trained

from regard.data.images import open_picture
from regard.load import LoadedModel
from regard.metrics import recall_at

DATA = SHARED / "emoji"
STYLES = ("openmoji", "twemoji", "noto")
NEW_STYLE = "noto"
SIDE = 24  # pixels, for nearest neighbours
NEAREST = 10
PARTS = 6  # of a caption, for things never seen
Floats = npt.NDArray[np.float64]
RECIPE = {
    "side": 24, "patch": 8, "convolution": True, "image-dim": 96, "image-layers": 1, "image-heads": 3,
    "image-hidden": 192, "dim": 96, "layers": 1, "heads": 3, "hidden": 192, "joint": 128, "context": 32, "vocab": 1500,
    "batch-tokens": 16384, "rate": 0.005, "checks": 6,
    "shift": 2, "turn": 10, "zoom": 0.15, "tint": 0.2, "dropout": 0.1, "weight-decay": 0.1,
}  # fmt: skip


class Emoji:
    """Every concept: its name with its tags, its split, and a picture in some styles."""

    def __init__(self, folder: Path):
        with (DATA / "captions.tsv").open(encoding="utf-8") as stream:
            self.rows = {row["hexcode"]: row for row in csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)}
        self.files: dict[tuple[str, str], Path] = {}
        for style in STYLES:
            (folder / style).mkdir(parents=True, exist_ok=True)
            with zipfile.ZipFile(DATA / f"{style}_72.zip") as packed:
                for name in packed.namelist():
                    code = Path(name).stem
                    if name.endswith(".png") and code in self.rows:
                        self.files[code, style] = folder / style / f"{code}.png"
                        self.files[code, style].write_bytes(packed.read(name))
        self.folder = folder

    def caption(self, code: str) -> str:
        row = self.rows[code]
        return ", ".join(filter(None, (row["annotation"], row["tags"]))).lower()

    def parts(self, code: str) -> list[str]:
        """The name alone, and some of its tags with or without it, in any order: the same for all its pictures."""
        row, luck = self.rows[code], random.Random(code)
        words = [word for word in (row["annotation"], *row["tags"].split(", ")) if word]
        some = [luck.sample(words, luck.randint(1, len(words))) for _ in range(PARTS)]
        return [words[0].lower(), *(", ".join(few).lower() for few in some)]

    def table(self, name: str, chosen: list[tuple[str, str]], parts: bool = False) -> Path:
        """A file that regard reads: picture, tab, caption; each picture with its caption, and with parts of it."""
        file = self.folder / f"{name}.tsv"
        lines = [
            f"{self.files[code, style].relative_to(self.folder)}\t{text}\n"
            for code, style in chosen
            for text in (self.caption(code), *(self.parts(code) if parts else ()))
        ]
        file.write_text("".join(lines), encoding="utf-8")
        return file

    def pixels(self, one: tuple[str, str]) -> Floats:
        picture = Image.open(io.BytesIO(self.files[one].read_bytes())).convert("RGBA")
        white = Image.new("RGBA", picture.size, "white")
        small = Image.alpha_composite(white, picture).convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        flat = np.asarray(small, np.float64).ravel()
        flat = flat - flat.mean()
        return flat / (np.linalg.norm(flat) + 1e-9)


def tf_idf(captions: list[str]) -> Floats:
    words = [caption.replace(",", " ").split() for caption in captions]
    places = {word: i for i, word in enumerate(sorted({w for some in words for w in some}))}
    seen = Counter(word for some in words for word in set(some))
    table = np.zeros((len(captions), len(places)))
    for i, some in enumerate(words):
        for word, count in Counter(some).items():
            table[i, places[word]] = count * math.log(len(captions) / seen[word])
    return table / (np.linalg.norm(table, axis=1, keepdims=True) + 1e-9)


def places_of(similarity: Floats, right: list[int]) -> npt.NDArray[np.int64]:
    """At which place, from 1, each row finds its right column; ties count against it."""
    wanted = similarity[np.arange(len(right)), right][:, None]
    return (similarity >= wanted).sum(1)


def ours(loaded: LoadedModel, emoji: Emoji, asked: list[tuple[str, str]], codes: list[str]) -> Floats:
    task: Any = loaded.task
    pictures = task.embed_pictures(loaded.model, [open_picture(emoji.files[one]) for one in asked])
    texts = task.embed_texts(loaded.model, [emoji.caption(code) for code in codes])
    return (pictures @ texts.T).double().numpy()


def told(name: str, who: str, places: npt.NDArray[np.int64]) -> None:
    shares = "  ".join(f"R@{k} {recall_at(places, k):5.1f}" for k in (1, 10))
    print(f"{name:<10}{who:<28}{shares}", flush=True)


def style(emoji: Emoji, out: Path, recipe: dict[str, Any], more: list[str]) -> None:
    codes = [code for code in emoji.rows if all((code, style) in emoji.files for style in STYLES)]
    old = [
        (code, style) for code in emoji.rows for style in STYLES if style != NEW_STYLE and (code, style) in emoji.files
    ]
    asked = [(code, NEW_STYLE) for code in codes]
    right = list(range(len(codes)))
    known = np.stack([emoji.pixels(one) for one in old])
    near = np.stack([emoji.pixels(one) for one in asked]) @ known.T
    owners = {code: [i for i, one in enumerate(old) if one[0] == code] for code in codes}
    by_code = np.stack([near[:, owners[code]].max(1) for code in codes], 1)
    told("style", "nearest picture by pixels", places_of(by_code, right))
    files = {"data": [emoji.table("style-train", old)], "held-out": 0.03}
    loaded = trained("match", out, recipe | files, more)
    told("style", f"ours, {seconds(out) / 60:.1f} minutes", places_of(ours(loaded, emoji, asked, codes), right))


def concepts(emoji: Emoji, out: Path, recipe: dict[str, Any], more: list[str]) -> None:
    def split(name: str) -> list[tuple[str, str]]:
        return [one for one in emoji.files if emoji.rows[one[0]]["split"] == name]

    train, test = split("train"), split("test")
    new = sorted({code for code, _ in test})
    right = [new.index(code) for code, _ in test]
    known = np.stack([emoji.pixels(one) for one in train])
    near = np.stack([emoji.pixels(one) for one in test]) @ known.T
    words = tf_idf([emoji.caption(code) for code, _ in train] + [emoji.caption(code) for code in new])
    least = np.sort(near, 1)[:, -NEAREST][:, None]
    guess = np.where(near >= least, np.maximum(near, 0), 0) @ words[: len(train)]
    told("concepts", "TF-IDF of nearest pictures", places_of(guess @ words[len(train) :].T, right))
    valid = emoji.table("concepts-valid", split("val"))
    files = {"data": [emoji.table("concepts-train", train, parts=True)], "valid": [valid]}
    loaded = trained("match", out, recipe | files, more)
    told("concepts", f"ours, {seconds(out) / 60:.1f} minutes", places_of(ours(loaded, emoji, test, new), right))


SETS = {"style": style, "concepts": concepts}


def main() -> None:
    given, more = options(str(__doc__), 25, "runs/emoji", only=list(SETS))
    emoji = Emoji(Path(given.out) / "data")
    print(f"{machine()}, seed {given.seed}, {given.minutes:g} minutes each")
    for name in given.only:
        SETS[name](emoji, Path(given.out) / name, RECIPE | {"minutes": given.minutes, "seed": given.seed}, more)


if __name__ == "__main__":
    main()
