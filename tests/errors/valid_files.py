"""Small valid files of every format that a task reads; other modules break them."""

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

from regard.models import MODELS
from regard.options import option_flag
from regard.tasks import TASKS
from regard.tasks.compatibility import fitting_modalities
from regard.training.settings import default_size, options

COUNT = 12  # examples per file
BROKEN = 4  # index of the row to break; of a sentence, its first word
COLOURS = ("red", "green", "blue")
NOUNS = ("cat", "dog", "fish", "bird")
TINY: dict[str, Any] = {
    "dim": 8, "layers": 1, "encoder_layers": 1, "decoder_layers": 1, "stages": 2, "heads": 2, "kv_heads": 1,
    "hidden": 12, "context": 64, "patch_size": 4, "image_dim": 8, "image_layers": 1, "image_heads": 2,
    "projection_dim": 8, "tokenizer": "characters", "device": "cpu", "batch_tokens": 400, "steps": 1, "evals": 1,
    "mels": 8,
}  # fmt: skip


@dataclass(frozen=True)
class Table:
    """Rows of cells; a row without cells is an empty line."""

    rows: list[list[str]]
    separator: str = "\t"
    header_lines: int = 0

    def content(self) -> bytes:
        if self.separator != ",":
            return "".join(f"{self.separator.join(row)}\n" for row in self.rows).encode()
        csv.writer(buffer := io.StringIO(), lineterminator="\n").writerows(self.rows)
        return buffer.getvalue().encode()


@dataclass(frozen=True)
class Objects:
    """One JSON object per line."""

    rows: list[dict[str, Any]]

    def content(self) -> bytes:
        return "".join(f"{json.dumps(row)}\n" for row in self.rows).encode()


@dataclass(frozen=True)
class Blob:
    """Bytes without lines: an image, arrays, a gzip file."""

    buffer: bytes

    def content(self) -> bytes:
        return self.buffer


Part = Table | Objects | Blob


class Form(NamedTuple):
    task: str
    model: str
    parts: dict[str, Part]  # by file name
    data: tuple[str, ...]  # files or folder for --data
    other_modality: str = ""  # than the one that the model is made for

    @property
    def modality(self) -> str:
        return self.other_modality or default_modality(self.task, self.model)


def noun(i: int) -> str:
    return NOUNS[i % 4]


def text(i: int) -> str:
    return f"the {COLOURS[i % 3]} {noun(i)} sleeps {i}"


def smiles(i: int) -> str:
    return "C" * (i + 1) + "ONF"[i % 3]


def table(cells: Callable[[int], list[str]], separator: str = "\t", header_lines: list[str] | None = None) -> Table:
    return Table(
        [header_lines or []] * bool(header_lines) + [cells(i) for i in range(COUNT)], separator, int(bool(header_lines))
    )


def objects(row: Callable[[int], dict[str, Any]]) -> Objects:
    return Objects([row(i) for i in range(COUNT)])


def sentences(cells: Callable[[int, str, str], list[str]], separator: str) -> Table:
    """Sentences of two words, each ended by an empty line."""
    return Table(
        [row for i in range(COUNT) for row in (cells(1, noun(i), "N"), cells(2, f"runs{i}", "V"), [])], separator
    )


def fasta(letters: Callable[[int], str]) -> Table:
    return Table([row for i in range(COUNT) for row in ([f">p{i}"], [letters(i)])])


def png(i: int) -> bytes:
    pixels = np.random.default_rng(i).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(buffer := io.BytesIO(), "PNG")
    return buffer.getvalue()


def wav(i: int) -> bytes:
    with wave.open(buffer := io.BytesIO(), "wb") as out:
        out.setparams((1, 2, 8000, 0, "NONE", ""))
        out.writeframes(np.random.default_rng(i).integers(-9000, 9000, 900 + 40 * i).astype("<i2").tobytes())
    return buffer.getvalue()


def arrays(grey: bool) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    shape = (COUNT, 8, 8) if grey else (COUNT, 8, 8, 3)
    return draw.integers(0, 256, shape, dtype=np.uint8), np.arange(COUNT, dtype=np.uint8) % 3


def npz() -> bytes:
    images, labels = arrays(grey=False)
    np.savez(buffer := io.BytesIO(), images=images, labels=labels)
    return buffer.getvalue()


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def question(i: int) -> dict[str, Any]:
    answers = {"text": [COLOURS[i % 3]], "answer_start": [4]}
    return {"question": f"Which {noun(i)}?", "context": text(i), "answers": answers}


def nested() -> Objects:
    questions = [
        {"question": f"Which {i}?", "answers": [{"text": COLOURS[i % 3], "answer_start": 4}]} for i in range(COUNT)
    ]
    paragraphs = [{"context": text(i), "qas": [questions[i]]} for i in range(COUNT)]
    return Objects([{"data": [{"paragraphs": paragraphs}]}])


def episode(i: int) -> dict[str, Any]:
    observations = [[i + step / 2, -step] for step in range(5)]
    return {"observations": observations, "actions": [0, 1, 1, i % 2], "rewards": [1, 1, 0.5, i], "terminated": True}


def videos() -> bytes:
    np.savez(buffer := io.BytesIO(), videos=np.random.default_rng(0).integers(0, 256, (COUNT, 4, 8, 8), np.uint8))
    return buffer.getvalue()


def channels(i: int) -> list[str]:
    return [f"2024-01-{i + 1:02}", f"{i % 3 + i / 8}", str(-i)]


def numbers(i: int) -> list[str]:
    return [str(value) for value in np.random.default_rng(i).integers(0, 9, 8 + i % 2)]


def npy(i: int) -> bytes:
    np.save(buffer := io.BytesIO(), np.random.default_rng(i).normal(size=(9 + i, 2)))
    return buffer.getvalue()


def pair_object(i: int) -> dict[str, Any]:
    return {"source": text(i), "target": noun(i)}


def single_file(task: str, model: str, name: str, part: Part, other_modality: str = "") -> Form:
    return Form(task, model, {name: part}, (name,), other_modality)


def image_folder(folder: str) -> dict[str, Part]:
    return {f"{folder}/{COLOURS[i % 3]}/{i}.png": Blob(png(i)) for i in range(COUNT)}


def audio_folder(folder: str) -> dict[str, Part]:
    return {f"{folder}/{COLOURS[i % 3]}/{i}.wav": Blob(wav(i)) for i in range(COUNT)}


def transcribed_audio() -> dict[str, Part]:
    rows = table(lambda i: [f"{i}.wav", f"{COLOURS[i % 3]} {noun(i)}"])
    return {"spoken/list.tsv": rows} | {f"spoken/{i}.wav": Blob(wav(i)) for i in range(COUNT)}


def captions() -> dict[str, Part]:
    rows = table(lambda i: [f"{i}.png", f"a {COLOURS[i % 3]} {noun(i)}"])
    return {"photos/captions.tsv": rows} | {f"photos/{i}.png": Blob(png(i)) for i in range(COUNT)}


GREY = arrays(grey=True)
FORMS: dict[str, Form] = {
    "pairs": single_file("translate", "transformer", "a.tsv", table(lambda i: [text(i), text(i).upper()])),
    "pair objects": single_file("translate", "transformer", "a.jsonl", objects(pair_object)),
    "parallel": Form(
        "translate", "transformer",
        {"a.en": table(lambda i: [text(i)]), "a.de": table(lambda i: [text(i).upper()])}, ("a.en", "a.de"),
    ),
    "writings": single_file("write", "nanochat", "a.txt", table(lambda i: [f"{text(i)}."])),
    "writing objects": single_file("write", "nanochat", "a.jsonl", objects(lambda i: {"text": f"{text(i)}."})),
    "texts": single_file("fill", "bert", "a.txt", table(lambda i: [f"{text(i)}."])),
    "labels": single_file("classify", "bert", "a.tsv", table(lambda i: [text(i), noun(i)])),
    "label pairs": single_file("classify", "pooled", "a.tsv", table(lambda i: [text(i), f"it runs {i}", noun(i)])),
    "label table": single_file(
        "classify", "bert", "a.csv", table(lambda i: [text(i), noun(i)], ",", ["text", "label"])
    ),
    "label objects": single_file(
        "classify", "bert", "a.jsonl", objects(lambda i: {"text": text(i), "pair": f"it {i}", "label": noun(i)})
    ),
    "labels beside": Form(
        "classify", "bert", {"a.texts": table(lambda i: [text(i)]), "a.labels": table(lambda i: [noun(i)])},
        ("a.texts", "a.labels"),
    ),
    "values": single_file("regress", "bert", "a.tsv", table(lambda i: [text(i), str(i / 7)])),
    "value table": single_file("regress", "bert", "a.csv", table(lambda i: [text(i), str(i)], ",", ["text", "value"])),
    "value objects": single_file("regress", "bert", "a.jsonl", objects(lambda i: {"text": text(i), "value": i / 7})),
    "columns": single_file("tag", "bert", "a.conll", sentences(lambda number, word, tag: [word, tag], " ")),
    "conllu": single_file(
        "tag", "bert", "a.conllu", sentences(lambda number, word, tag: [str(number), word, "_", tag, *"______"], "\t")
    ),
    "tag objects": single_file(
        "tag", "bert", "a.jsonl", objects(lambda i: {"tokens": ["the", noun(i), str(i)], "tags": ["O", "N", "O"]})
    ),
    "tags beside": Form(
        "tag", "bert",
        {"a.words": table(lambda i: ["the", noun(i), str(i)], " "), "a.tags": table(lambda i: ["O", "N", "O"], " ")},
        ("a.words", "a.tags"),
    ),
    "chains": Form(
        "tag", "protein_encoder", {"a.fasta": fasta(lambda i: "MKTAYIWE"), "b.fasta": fasta(lambda i: "CHHHEE-C")},
        ("a.fasta", "b.fasta"),
    ),
    "sequences": single_file("fill", "protein_encoder", "a.fasta", fasta(lambda i: f"MKTAYI{'ACDEFGHIKLMN'[i]}")),
    "questions": single_file("answer", "bert", "a.jsonl", objects(question)),
    "nested": single_file("answer", "bert", "a.json", nested()),
    "likenesses": single_file("embed", "bert", "a.tsv", table(lambda i: [text(i), text(i).upper()])),
    "molecules": single_file(
        "regress", "graphormer", "a.csv", table(lambda i: [smiles(i), str(i)], ",", ["smiles", "value"])
    ),
    "molecule objects": single_file(
        "classify", "graphormer", "a.jsonl", objects(lambda i: {"smiles": smiles(i), "label": noun(i)})
    ),
    "folders": Form("classify", "vit", image_folder("photos"), ("photos",)),
    "npz": single_file("classify", "vit", "a.npz", Blob(npz())),
    "idx": Form(
        "classify", "resnet",
        {"a-idx3-ubyte": Blob(idx(GREY[0])), "b-idx1-ubyte": Blob(idx(GREY[1]))}, ("a-idx3-ubyte", "b-idx1-ubyte"),
    ),
    "sounds": Form("classify", "audio_encoder", audio_folder("photos"), ("photos",)),
    "recordings": Form("translate", "speech2text", transcribed_audio(), ("spoken/list.tsv",)),
    "captions": Form("match", "clip", captions(), ("photos",)),
    "episodes": single_file("predict", "world_model", "a.jsonl", objects(episode)),
    "videos": single_file("predict", "world_model", "a.npz", Blob(videos())),
    "decisions": single_file("decide", "world_model", "a.jsonl", objects(episode)),
    "waves": single_file("classify", "audio_encoder", "a.tsv", table(lambda i: [noun(i), *numbers(i)]), "series"),
    "wave values": single_file(
        "regress", "audio_encoder", "a.csv",
        table(lambda i: [" ".join(numbers(i)), str(i / 7)], ",", ["series", "value"]), "series",
    ),
    "wave folders": Form(
        "classify", "audio_encoder", {f"photos/{noun(i)}/{i}.npy": Blob(npy(i)) for i in range(COUNT)}, ("photos",),
        "series",
    ),
    "channels": single_file(
        "predict", "world_model", "a.csv", table(channels, ",", ["date", "sold", "price"]), "series"
    ),
    "arrays": single_file("predict", "world_model", "a.npy", Blob(npy(0)), "series"),
    "gzip": single_file(
        "classify", "bert", "a.tsv.gz", Blob(gzip.compress(table(lambda i: [text(i), noun(i)]).content()))
    ),
}  # fmt: skip
TRIPLES = [
    (task, model, modality.name)
    for task, kind in TASKS.items()
    for model in MODELS
    for modality in fitting_modalities(kind, model)
]


def default_modality(task: str, model: str) -> str:
    """The modality that the model reads for this task, if it is not named."""
    return fitting_modalities(TASKS[task], model)[0].name


def form_for(task: str, modality: str) -> Form:
    """The first form of this task and modality."""
    return next(form for form in FORMS.values() if (form.task, form.modality) == (task, modality))


def write_form(form: Form, folder: Path) -> list[str]:
    """Write the files to a folder; returns the arguments of --data."""
    for name, part in form.parts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(part.content())
    return [str(folder / name) for name in form.data]


def tiny_options(task: str, model: str, modality: str) -> list[str]:
    """Options of a tiny model."""
    available = options(task, model, default_size(model), modality)
    values = {"model": model, "modality": modality}
    values |= {name: value for name, value in TINY.items() if name in available}
    return [word for name, value in values.items() for word in (option_flag(name), str(value))]


def cache_options(task: str, folder: Path) -> list[str]:
    """Options that keep the cache out of the home folder."""
    return ["--cache", str(folder / "cache")] if task in ("write", "fill") else []
