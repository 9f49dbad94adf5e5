"""Small files of every form that a task reads, as their parts: what is whole here is broken elsewhere."""

from __future__ import annotations

import csv
import gzip
import io
import json
import wave
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from regard.models import MODELS, ability_for
from regard.tasks import TASKS
from regard.training.settings import options

COUNT = 12  # examples
BROKEN = 4  # the number of the row that is broken; where a sentence has two, its first
COLOURS = ("red", "green", "blue")
THINGS = ("cat", "dog", "fish", "bird")
SMALL: dict[str, Any] = {
    "dim": 8, "layers": 1, "encoder_layers": 1, "decoder_layers": 1, "stages": 2, "heads": 2, "kv_heads": 1,
    "hidden": 12, "context": 64, "patch": 4, "image_dim": 8, "image_layers": 1, "image_heads": 2, "joint": 8,
    "pieces": "characters", "device": "cpu", "batch_tokens": 400, "steps": 1, "evals": 1, "mels": 8,
}  # fmt: skip


@dataclass(frozen=True)
class Table:
    """Rows of cells. One without cells is an empty line."""

    rows: list[list[str]]
    between: str = "\t"
    head: int = 0  # lines that name the columns

    def content(self) -> bytes:
        if self.between != ",":
            return "".join(f"{self.between.join(row)}\n" for row in self.rows).encode()
        csv.writer(made := io.StringIO(), lineterminator="\n").writerows(self.rows)
        return made.getvalue().encode()


@dataclass(frozen=True)
class Objects:
    """One JSON object a line."""

    rows: list[dict[str, Any]]

    def content(self) -> bytes:
        return "".join(f"{json.dumps(row)}\n" for row in self.rows).encode()


@dataclass(frozen=True)
class Blob:
    """Bytes that have no lines: a picture, arrays, something packed."""

    made: bytes

    def content(self) -> bytes:
        return self.made


Part = Table | Objects | Blob


class Form(NamedTuple):
    task: str
    model: str
    parts: dict[str, Part]  # by the names of files
    data: tuple[str, ...]  # which of them, or which folder, --data names


def thing(i: int) -> str:
    return THINGS[i % 4]


def text(i: int) -> str:
    return f"the {COLOURS[i % 3]} {thing(i)} sleeps {i}"


def smiles(i: int) -> str:
    return "C" * (i + 1) + "ONF"[i % 3]


def table(cells: Callable[[int], list[str]], between: str = "\t", head: list[str] | None = None) -> Table:
    return Table([head or []] * bool(head) + [cells(i) for i in range(COUNT)], between, int(bool(head)))


def objects(row: Callable[[int], dict[str, Any]]) -> Objects:
    return Objects([row(i) for i in range(COUNT)])


def sentences(cells: Callable[[int, str, str], list[str]], between: str) -> Table:
    """Of two words each: the empty line ends one."""
    return Table(
        [row for i in range(COUNT) for row in (cells(1, thing(i), "N"), cells(2, f"runs{i}", "V"), [])], between
    )


def chains(letters: Callable[[int], str]) -> Table:
    return Table([row for i in range(COUNT) for row in ([f">p{i}"], [letters(i)])])


def png(i: int) -> bytes:
    pixels = np.random.default_rng(i).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(made := io.BytesIO(), "PNG")
    return made.getvalue()


def wav(i: int) -> bytes:
    with wave.open(made := io.BytesIO(), "wb") as out:
        out.setparams((1, 2, 8000, 0, "NONE", ""))
        out.writeframes(np.random.default_rng(i).integers(-9000, 9000, 900 + 40 * i).astype("<i2").tobytes())
    return made.getvalue()


def arrays(grey: bool) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    shape = (COUNT, 8, 8) if grey else (COUNT, 8, 8, 3)
    return draw.integers(0, 256, shape, dtype=np.uint8), np.arange(COUNT, dtype=np.uint8) % 3


def npz() -> bytes:
    images, labels = arrays(grey=False)
    np.savez(made := io.BytesIO(), images=images, labels=labels)
    return made.getvalue()


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def question(i: int) -> dict[str, Any]:
    answers = {"text": [COLOURS[i % 3]], "answer_start": [4]}
    return {"question": f"Which {thing(i)}?", "context": text(i), "answers": answers}


def nested() -> Objects:
    asked = [
        {"question": f"Which {i}?", "answers": [{"text": COLOURS[i % 3], "answer_start": 4}]} for i in range(COUNT)
    ]
    paragraphs = [{"context": text(i), "qas": [asked[i]]} for i in range(COUNT)]
    return Objects([{"data": [{"paragraphs": paragraphs}]}])


def episode(i: int) -> dict[str, Any]:
    seen = [[i + step / 2, -step] for step in range(5)]
    return {"observations": seen, "actions": [0, 1, 1, i % 2], "rewards": [1, 1, 0.5, i], "ended": True}


def videos() -> bytes:
    np.savez(made := io.BytesIO(), videos=np.random.default_rng(0).integers(0, 256, (COUNT, 4, 8, 8), np.uint8))
    return made.getvalue()


def both(i: int) -> dict[str, Any]:
    return {"source": text(i), "target": thing(i)}


def one(task: str, model: str, name: str, part: Part) -> Form:
    return Form(task, model, {name: part}, (name,))


def pictures(folder: str) -> dict[str, Part]:
    return {f"{folder}/{COLOURS[i % 3]}/{i}.png": Blob(png(i)) for i in range(COUNT)}


def sounds(folder: str) -> dict[str, Part]:
    return {f"{folder}/{COLOURS[i % 3]}/{i}.wav": Blob(wav(i)) for i in range(COUNT)}


def recordings() -> dict[str, Part]:
    rows = table(lambda i: [f"{i}.wav", f"{COLOURS[i % 3]} {thing(i)}"])
    return {"spoken/list.tsv": rows} | {f"spoken/{i}.wav": Blob(wav(i)) for i in range(COUNT)}


def captions() -> dict[str, Part]:
    rows = table(lambda i: [f"{i}.png", f"a {COLOURS[i % 3]} {thing(i)}"])
    return {"photos/captions.tsv": rows} | {f"photos/{i}.png": Blob(png(i)) for i in range(COUNT)}


GREY = arrays(grey=True)
FORMS: dict[str, Form] = {
    "pairs": one("translate", "transformer", "a.tsv", table(lambda i: [text(i), text(i).upper()])),
    "pair objects": one("translate", "transformer", "a.jsonl", objects(both)),
    "parallel": Form(
        "translate", "transformer",
        {"a.en": table(lambda i: [text(i)]), "a.de": table(lambda i: [text(i).upper()])}, ("a.en", "a.de"),
    ),
    "writings": one("write", "nano", "a.txt", table(lambda i: [f"{text(i)}."])),
    "writing objects": one("write", "nano", "a.jsonl", objects(lambda i: {"text": f"{text(i)}."})),
    "texts": one("fill", "bert", "a.txt", table(lambda i: [f"{text(i)}."])),
    "labels": one("classify", "bert", "a.tsv", table(lambda i: [text(i), thing(i)])),
    "label pairs": one("classify", "pooled", "a.tsv", table(lambda i: [text(i), f"it runs {i}", thing(i)])),
    "label table": one("classify", "bert", "a.csv", table(lambda i: [text(i), thing(i)], ",", ["text", "label"])),
    "label objects": one(
        "classify", "bert", "a.jsonl", objects(lambda i: {"text": text(i), "pair": f"it {i}", "label": thing(i)})
    ),
    "labels beside": Form(
        "classify", "bert", {"a.texts": table(lambda i: [text(i)]), "a.labels": table(lambda i: [thing(i)])},
        ("a.texts", "a.labels"),
    ),
    "values": one("regress", "bert", "a.tsv", table(lambda i: [text(i), str(i / 7)])),
    "value table": one("regress", "bert", "a.csv", table(lambda i: [text(i), str(i)], ",", ["text", "value"])),
    "value objects": one("regress", "bert", "a.jsonl", objects(lambda i: {"text": text(i), "value": i / 7})),
    "columns": one("tag", "bert", "a.conll", sentences(lambda number, word, tag: [word, tag], " ")),
    "conllu": one(
        "tag", "bert", "a.conllu", sentences(lambda number, word, tag: [str(number), word, "_", tag, *"______"], "\t")
    ),
    "tag objects": one(
        "tag", "bert", "a.jsonl", objects(lambda i: {"tokens": ["the", thing(i), str(i)], "tags": ["O", "N", "O"]})
    ),
    "tags beside": Form(
        "tag", "bert",
        {"a.words": table(lambda i: ["the", thing(i), str(i)], " "), "a.tags": table(lambda i: ["O", "N", "O"], " ")},
        ("a.words", "a.tags"),
    ),
    "chains": Form(
        "tag", "chain", {"a.fasta": chains(lambda i: "MKTAYIWE"), "b.fasta": chains(lambda i: "CHHHEE-C")},
        ("a.fasta", "b.fasta"),
    ),
    "sequences": one("fill", "chain", "a.fasta", chains(lambda i: f"MKTAYI{'ACDEFGHIKLMN'[i]}")),
    "questions": one("answer", "bert", "a.jsonl", objects(question)),
    "nested": one("answer", "bert", "a.json", nested()),
    "likenesses": one("embed", "bert", "a.tsv", table(lambda i: [text(i), text(i).upper()])),
    "molecules": one("regress", "graph", "a.csv", table(lambda i: [smiles(i), str(i)], ",", ["smiles", "value"])),
    "molecule objects": one(
        "classify", "graph", "a.jsonl", objects(lambda i: {"smiles": smiles(i), "label": thing(i)})
    ),
    "folders": Form("classify", "vit", pictures("photos"), ("photos",)),
    "npz": one("classify", "vit", "a.npz", Blob(npz())),
    "idx": Form(
        "classify", "convolution",
        {"a-idx3-ubyte": Blob(idx(GREY[0])), "b-idx1-ubyte": Blob(idx(GREY[1]))}, ("a-idx3-ubyte", "b-idx1-ubyte"),
    ),
    "sounds": Form("classify", "listener", sounds("photos"), ("photos",)),
    "recordings": Form("translate", "transcriber", recordings(), ("spoken/list.tsv",)),
    "captions": Form("match", "clip", captions(), ("photos",)),
    "episodes": one("predict", "world", "a.jsonl", objects(episode)),
    "videos": one("predict", "world", "a.npz", Blob(videos())),
    "decisions": one("decide", "world", "a.jsonl", objects(episode)),
    "packed": one("classify", "bert", "a.tsv.gz", Blob(gzip.compress(table(lambda i: [text(i), thing(i)]).content()))),
}  # fmt: skip
FIT = [(task, model) for task, kind in TASKS.items() for model, f in MODELS.items() if {*kind.asks} & {*f.bodies}]


APART = ("sees", "hears", "transcribes")  # abilities that read files of their own


def ability(task: str, model: str) -> str:
    return ability_for(model, task, TASKS[task].asks)


def no_text(task: str, model: str) -> str:
    """What it reads instead."""
    able = ability(task, model)
    return able if able in ("sees", "hears", "transcribes", "bonds", "spells") else ""


def form_for(task: str, model: str) -> Form:
    """The first form of what this model reads for this task."""
    return next(f for f in FORMS.values() if f.task == task and no_text(task, f.model) == no_text(task, model))


def written(form: Form, folder: Path) -> list[str]:
    """The files in a folder, and what --data names."""
    for name, part in form.parts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(part.content())
    return [str(folder / name) for name in form.data]


def small(task: str, model: str) -> list[str]:
    """Options of a model that is made in a moment."""
    known = options(task, model, next(iter(MODELS[model].sizes)))
    said = {name: value for name, value in SMALL.items() if name in known}
    return [
        "--model",
        model,
        *(word for name, value in said.items() for word in (f"--{name.replace('_', '-')}", str(value))),
    ]


def cached(task: str, folder: Path) -> list[str]:
    """Nothing is left in the folder of who runs this."""
    return ["--cache", str(folder / "cache")] if task in ("write", "fill") else []
