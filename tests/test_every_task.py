"""Contracts of every task with every compatible model. A new entry of TASKS or MODELS is tested automatically."""

import copy
import gzip
import json
import math
import re
import shutil
import sys
import threading
import wave
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from regard.check.run_checks import check_folder
from regard.cli import main
from regard.data.episodes import observed
from regard.data.rows import normalize_text
from regard.json_files import read_json
from regard.load import load
from regard.modalities import MODALITIES
from regard.modalities.trajectory.episode_files import write_episodes
from regard.models import MODELS
from regard.options import choices_of, options_of
from regard.parts.dropout import Dropout
from regard.tasks import TASKS
from regard.tasks.compatibility import default_model, find_fit, fitting_modalities
from regard.tasks.task import Prediction
from regard.training.estimate import StepEstimator, state_bytes
from regard.training.file_job import FileJob, read_data
from regard.training.loop import num_parameters
from regard.training.passes import find_blocks, mixed_precision, recompute_blocks
from regard.training.settings import input_groups, options, resolve, task_fields
from regard.training.start import make_settings
from regard.training.train import train
from regard.training.training_state import state_slices

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
import threads  # noqa: E402

SIDE, RATE = 8, 8000
SMALL: dict[str, Any] = {
    "dim": 16, "layers": 1, "encoder_layers": 1, "decoder_layers": 1, "stages": 2, "heads": 2, "kv_heads": 1,
    "hidden": 12, "context": 64, "patch_size": 4, "image_dim": 16, "image_layers": 1, "image_heads": 2,
    "projection_dim": 8, "tokenizer": "characters", "device": "cpu", "batch_tokens": 400,
    "mels": 8, "stride": 4,
    "shift": 0, "tempo": 0.0, "vtlp": 0.0, "pitch": 0.0, "random_eq": 0.0, "noise": -100.0, "spec_augment": 0.0,
}  # fmt: skip
COLOURS = {"red": (220, 20, 20), "green": (20, 200, 30), "blue": (10, 30, 230), "grey": (90, 90, 90)}
ANIMALS, VERBS = ("cat", "dog", "fish", "bird"), ("runs", "sleeps", "eats")


class Scene(NamedTuple):
    """The example from which every task derives its own."""

    colour: str
    animal: str
    verb: str
    number: int

    @property
    def words(self) -> list[str]:
        return ["the", self.colour, self.animal, self.verb]

    @property
    def text(self) -> str:
        return " ".join(self.words)

    @property
    def tags(self) -> list[str]:
        return ["O", "O", "B-animal", "O"]

    @property
    def pixels(self) -> np.ndarray:
        noise = np.random.default_rng(self.number).integers(-10, 11, (SIDE, SIDE, 3))
        return np.clip(np.array(COLOURS[self.colour]) + noise, 0, 255).astype(np.uint8)

    @property
    def video_frames(self) -> np.ndarray:
        """An image that is shifted step by step."""
        return np.stack([np.roll(self.pixels[..., 0], step, 1) for step in range(5 + self.number % 3)])

    @property
    def episode(self) -> dict[str, Any]:
        rng = np.random.default_rng(self.number)
        observations, actions = (
            rng.normal(size=(5 + self.number % 3, 3)).cumsum(0),
            [0, 2, *rng.integers(0, 3, 2 + self.number % 3)],
        )
        rewards = [float(x) for x in observations[1:, 0]]
        return {
            "observations": observations.tolist(),
            "actions": [*map(int, actions)],
            "rewards": rewards,
            "terminated": True,
        }

    @property
    def residues(self) -> str:
        """The letters of the text; most of them stand for an amino acid."""
        return "".join(self.words).upper()

    @property
    def labels(self) -> str:
        return "".join("-" if i % 5 == 4 else "H" if letter in "AE" else "C" for i, letter in enumerate(self.residues))

    @property
    def samples(self) -> np.ndarray:
        """A pitch for each animal, a length for each verb, and noise of its own."""
        hertz, count = 300 * 1.7 ** ANIMALS.index(self.animal), 400 + 100 * VERBS.index(self.verb)
        hiss = np.random.default_rng(self.number).normal(0, 300, count)
        return (8000 * np.sin(np.arange(count) * 2 * np.pi * hertz / RATE) + hiss).astype(np.int16)

    @property
    def series(self) -> np.ndarray:
        """A period for each animal, a length for each verb, and noise of its own."""
        time = np.arange(10 + 3 * VERBS.index(self.verb))
        noise = np.random.default_rng(self.number).normal(0, 0.1, len(time))
        return np.sin(2 * np.pi * time / (3 + ANIMALS.index(self.animal))).round(3) + noise.round(3)

    def numbers(self, separator: str = "\t") -> str:
        return separator.join(f"{value:.3f}" for value in self.series)

    @property
    def question(self) -> dict[str, Any]:
        answers = {"text": [self.colour], "answer_start": [4]}
        return {"question": f"Which {self.animal}?", "context": self.text, "answers": answers}

    @property
    def smiles(self) -> str:
        """Carbon atoms by colour, a group by verb, and one atom by animal."""
        group = {"runs": "C", "sleeps": "C(=O)", "eats": "C(F)"}[self.verb]
        return "C" * (2 + [*COLOURS].index(self.colour)) + group + dict(zip(ANIMALS, "ONSF", strict=True))[self.animal]


SCENES = [Scene(*values, i) for i, values in enumerate((c, t, d) for d in VERBS for t in ANIMALS for c in COLOURS)]
TRAIN, VALID = SCENES[:36], SCENES[36:]


def write_lines(file: Path, texts: list[str]) -> list[str]:
    file.write_text("".join(f"{line}\n" for line in texts), encoding="utf-8")
    return [str(file)]


def gzip_lines(file: Path, texts: list[str]) -> list[str]:
    with gzip.open(file, "wt", encoding="utf-8") as stream:
        stream.writelines(f"{line}\n" for line in texts)
    return [str(file)]


def json_lines(file: Path, rows: list[dict[str, Any]]) -> list[str]:
    return write_lines(file, [json.dumps(row) for row in rows])


def conllu(number: int, word: str, tag: str) -> str:
    return "\t".join([str(number), word, "_", tag, *"______"])


def both(first: list[str], second: list[str]) -> list[str]:
    return first + second


def png(file: Path, scene: Scene) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(scene.pixels).save(file)
    return file


def class_folders(folder: Path, scenes: list[Scene]) -> list[str]:
    for scene in scenes:
        png(folder / scene.colour / f"{scene.number}.png", scene)
    return [str(folder)]


def npz(file: Path, scenes: list[Scene]) -> list[str]:
    np.savez(file, images=np.stack([s.pixels for s in scenes]), labels=np.array([s.colour for s in scenes]))
    return [str(file)]


def idx(folder: Path, scenes: list[Scene]) -> list[str]:
    """Greyscale images, as in MNIST."""
    folder.mkdir()
    arrays = [np.stack([s.pixels[..., 0] for s in scenes]), np.array([[*COLOURS].index(s.colour) for s in scenes])]
    for array, name in zip(arrays, ("images-idx3-ubyte", "labels-idx1-ubyte"), strict=True):
        head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
        (folder / name).write_bytes(head + array.astype(np.uint8).tobytes())
    return [str(folder)]


def wav(file: Path, scene: Scene) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(file), "wb") as out:
        out.setparams((1, 2, RATE, len(scene.samples), "NONE", ""))
        out.writeframes(scene.samples.tobytes())
    return file


def audio_folders(folder: Path, scenes: list[Scene]) -> list[str]:
    for scene in scenes:
        wav(folder / scene.animal / f"{scene.number}.wav", scene)
    return [str(folder)]


def audio_names(folder: Path, scenes: list[Scene]) -> list[str]:
    for scene in scenes:
        wav(folder / f"{scene.animal}_{scene.colour}_{scene.number}.wav", scene)
    return [str(folder)]


def audio_list(folder: Path, scenes: list[Scene]) -> list[str]:
    return write_lines(
        folder / "list.tsv", [f"{wav(folder / f'{s.number}.wav', s).name}\t{s.animal} {s.verb}" for s in scenes]
    )


def write_captions(folder: Path, scenes: list[Scene]) -> list[str]:
    table = [f"{png(folder / f'{s.number}.png', s).name}\ta {s.colour} {s.animal}" for s in scenes]
    write_lines(folder / "captions.tsv", table)
    return [str(folder)]


def write_videos(file: Path, scenes: list[Scene]) -> list[str]:
    write_episodes(file, [observed(scene.video_frames) for scene in scenes])
    return [str(file)]


def write_npz_episodes(file: Path, scenes: list[Scene]) -> list[str]:
    rows = [scene.episode for scene in scenes]
    arrays = {name: np.concatenate([row[name] for row in rows]) for name in ("observations", "actions", "rewards")}
    steps, terminated = [len(row["actions"]) for row in rows], [row["terminated"] for row in rows]
    np.savez(file, **arrays, steps=np.array(steps), terminated=np.array(terminated))
    return [str(file)]


def series_file(file: Path, scene: Scene) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    return write_lines(file, ["time,x", *(f"2020-01-{i:02d},{value}" for i, value in enumerate(scene.series, 1))])[0]


def series_files(folder: Path, scenes: list[Scene]) -> list[str]:
    return [series_file(folder / f"{scene.number}.csv", scene) for scene in scenes]


def series_folders(folder: Path, scenes: list[Scene]) -> list[str]:
    for scene in scenes:
        series_file(folder / scene.animal / f"{scene.number}.csv", scene)
    return [str(folder)]


def series_array(file: Path, scenes: list[Scene]) -> list[str]:
    shortest = min(len(scene.series) for scene in scenes)
    np.save(file, np.stack([scene.series[:shortest, None] for scene in scenes]))
    return [str(file)]


Writer = Callable[[Path, list[Scene]], list[str]]  # (path without suffix, examples) -> values of --data
LABELLED: dict[str, Writer] = {
    "tsv": lambda at, scenes: write_lines(at.with_suffix(".tsv"), [f"{s.text}\t{s.animal}" for s in scenes]),
    "pairs.tsv": lambda at, scenes: write_lines(
        at.with_suffix(".tsv"), [f"{s.text}\t{s.verb}\t{s.animal}" for s in scenes]
    ),
    "csv": lambda at, scenes: write_lines(
        at.with_suffix(".csv"), ["text,label", *(f'"{s.text}",{s.animal}' for s in scenes)]
    ),
    "jsonl": lambda at, scenes: json_lines(
        at.with_suffix(".jsonl"), [{"text": s.text, "pair": s.verb, "label": s.animal} for s in scenes]
    ),
    "parallel": lambda at, scenes: both(
        write_lines(at.with_suffix(".texts"), [s.text for s in scenes]),
        write_lines(at.with_suffix(".labels"), [s.animal for s in scenes]),
    ),
}
REGRESSION: dict[str, Writer] = {
    "tsv": lambda at, scenes: write_lines(at.with_suffix(".tsv"), [f"{s.text}\t{len(s.text)}" for s in scenes]),
    "csv": lambda at, scenes: write_lines(
        at.with_suffix(".csv"), ["value,text", *(f"{s.number},{s.text}" for s in scenes)]
    ),
    "jsonl": lambda at, scenes: json_lines(
        at.with_suffix(".jsonl"), [{"text": s.text, "text2": s.verb, "value": s.number / 7} for s in scenes]
    ),
    "parallel": lambda at, scenes: both(
        write_lines(at.with_suffix(".texts"), [s.text for s in scenes]),
        write_lines(at.with_suffix(".values"), [str(-s.number) for s in scenes]),
    ),
}
TAGGED: dict[str, Writer] = {
    "conll": lambda at, scenes: write_lines(
        at.with_suffix(".conll"),
        [line for s in scenes for line in (*map(" ".join, zip(s.words, s.tags, strict=True)), "")],
    ),
    "conllu": lambda at, scenes: write_lines(
        at.with_suffix(".conllu"),
        [line for s in scenes for line in (*map(conllu, (1, 2, 3, 4), s.words, s.tags), "")],
    ),
    "jsonl": lambda at, scenes: json_lines(
        at.with_suffix(".jsonl"), [{"tokens": s.words, "ner_tags": s.tags} for s in scenes]
    ),
    "parallel": lambda at, scenes: both(
        write_lines(at.with_suffix(".words"), [s.text for s in scenes]),
        write_lines(at.with_suffix(".tags"), [" ".join(s.tags) for s in scenes]),
    ),
}
TEXTS: dict[str, Writer] = {
    "txt": lambda at, scenes: write_lines(at.with_suffix(".txt"), [f"{s.text}." for s in scenes]),
    "txt.gz": lambda at, scenes: gzip_lines(at.with_suffix(".txt.gz"), [f"{s.text}." for s in scenes]),
    "jsonl": lambda at, scenes: json_lines(
        at.with_suffix(".jsonl"), [{"text": f"{s.text}.\n\nThe end."} for s in scenes]
    ),
}
PROTEINS: dict[str, Writer] = {
    "fasta": lambda at, scenes: write_lines(
        at.with_suffix(".fasta"), [f">s{s.number} a {s.animal}\n{s.residues}" for s in scenes]
    ),
    "fa.gz": lambda at, scenes: gzip_lines(
        at.with_suffix(".fa.gz"), [f">s{s.number}\n{s.residues[:4]}\n{s.residues[4:].lower()}*\n" for s in scenes]
    ),
}
PROTEINS_TAGGED: dict[str, Writer] = {
    form: lambda at, scenes, write=write: both(
        write(at, scenes),
        write_lines(at.with_suffix(".labels.fasta"), [f">s{s.number}\n{s.labels}" for s in reversed(scenes)]),
    )
    for form, write in PROTEINS.items()
}
PAIRS: dict[str, Writer] = {
    "tsv": lambda at, scenes: write_lines(at.with_suffix(".tsv"), [f"{s.text}\t{s.text.upper()}" for s in scenes]),
    "jsonl": lambda at, scenes: json_lines(
        at.with_suffix(".jsonl"), [{"source": s.text, "target": " ".join(s.words[::-1])} for s in scenes]
    ),
    "parallel": lambda at, scenes: both(
        write_lines(at.with_suffix(".en"), [s.text for s in scenes]),
        write_lines(at.with_suffix(".de"), [s.verb for s in scenes]),
    ),
}
IMAGES: dict[str, Writer] = {
    "folder": class_folders,
    "npz": lambda at, scenes: npz(at.with_suffix(".npz"), scenes),
    "idx": idx,
}
QUESTIONS: dict[str, Writer] = {
    "jsonl": lambda at, scenes: json_lines(at.with_suffix(".jsonl"), [s.question for s in scenes]),
    "json": lambda at, scenes: json_lines(
        at.with_suffix(".json"),
        [{"data": [{"paragraphs": [{"context": s.text, "qas": [{**s.question, "answers": []}]} for s in scenes]}]}],
    ),
}
AUDIO: dict[str, Writer] = {"folder": audio_folders, "names": audio_names}
SPEECH: dict[str, Writer] = {"tsv": audio_list, "joined": audio_names}
CAPTIONED: dict[str, Writer] = {
    "folder": write_captions,
    "tsv": lambda at, scenes: [str(Path(write_captions(at, scenes)[0]) / "captions.tsv")],
}
EPISODES: dict[str, Writer] = {
    "videos.npz": lambda at, scenes: write_videos(at.with_suffix(".npz"), scenes),
    "npz": lambda at, scenes: write_npz_episodes(at.with_suffix(".npz"), scenes),
    "jsonl": lambda at, scenes: json_lines(at.with_suffix(".jsonl"), [s.episode for s in scenes]),
}
MOLECULES: dict[str, Writer] = {
    "csv": lambda at, scenes: write_lines(
        at.with_suffix(".csv"), ["smiles,label", *(f"{s.smiles},{s.animal}" for s in scenes)]
    ),
    "tsv": lambda at, scenes: write_lines(at.with_suffix(".tsv"), [f"{s.smiles}\t{s.animal}" for s in scenes]),
    "jsonl": lambda at, scenes: json_lines(
        at.with_suffix(".jsonl"), [{"smiles": s.smiles, "label": s.animal} for s in scenes]
    ),
}
MOLECULE_VALUES: dict[str, Writer] = {
    "csv": lambda at, scenes: write_lines(
        at.with_suffix(".csv"), ["value,smiles", *(f"{s.number},{s.smiles}" for s in scenes)]
    ),
    "parallel": lambda at, scenes: both(
        write_lines(at.with_suffix(".smiles"), [s.smiles for s in scenes]),
        write_lines(at.with_suffix(".values"), [str(-s.number) for s in scenes]),
    ),
}
SERIES: dict[str, Writer] = {
    "csv": series_files,
    "npy": lambda at, scenes: series_array(at.with_suffix(".npy"), scenes),
}
SERIES_LABELLED: dict[str, Writer] = {
    "folder": series_folders,
    "tsv": lambda at, scenes: write_lines(at.with_suffix(".tsv"), [f"{s.numbers(' ')}\t{s.animal}" for s in scenes]),
    "ucr.txt": lambda at, scenes: write_lines(at.with_suffix(".txt"), [f"{s.animal}\t{s.numbers()}" for s in scenes]),
}
SERIES_VALUES: dict[str, Writer] = {
    "csv": lambda at, scenes: write_lines(
        at.with_suffix(".csv"), ["value,series", *(f"{s.number},{s.numbers(' ')}" for s in scenes)]
    ),
    "ucr.tsv": lambda at, scenes: write_lines(at.with_suffix(".tsv"), [f"{s.number}\t{s.numbers()}" for s in scenes]),
}
FORMS: dict[tuple[str, str], dict[str, Writer]] = {  # by task and modality; all models use the first
    ("translate", "text"): PAIRS,
    ("write", "text"): TEXTS,
    ("fill", "text"): TEXTS,
    ("fill", "protein"): PROTEINS,
    ("classify", "text"): LABELLED,
    ("classify", "image"): IMAGES,
    ("classify", "molecule"): MOLECULES,
    ("regress", "text"): REGRESSION,
    ("tag", "text"): TAGGED,
    ("tag", "protein"): PROTEINS_TAGGED,
    ("regress", "molecule"): MOLECULE_VALUES,
    ("answer", "text"): QUESTIONS,
    ("embed", "text"): PAIRS,
    ("match", "image"): CAPTIONED,
    ("predict", "trajectory"): EPISODES,
    ("decide", "trajectory"): {form: EPISODES[form] for form in ("npz", "jsonl")},
    ("classify", "audio"): AUDIO,
    ("translate", "audio"): SPEECH,
    ("classify", "series"): SERIES_LABELLED,
    ("regress", "series"): SERIES_VALUES,
    ("predict", "series"): SERIES,
}
INPUTS: dict[tuple[str, str], Callable[[Scene, Path], str]] = {
    ("fill", "text"): lambda s, at: f"the [MASK] {s.animal} [MASK]",
    ("fill", "protein"): lambda s, at: f"{s.residues[:3]}[MASK]{s.residues[4:]}[MASK]",
    ("tag", "protein"): lambda s, at: s.residues,
    ("classify", "molecule"): lambda s, at: s.smiles,
    ("regress", "molecule"): lambda s, at: s.smiles,
    ("classify", "image"): lambda s, at: str(png(at / "input_key" / f"{s.number}.png", s)),
    ("classify", "audio"): lambda s, at: str(wav(at / "input_key" / f"{s.number}.wav", s)),
    ("translate", "audio"): lambda s, at: str(wav(at / "input_key" / f"{s.number}.wav", s)),
    ("embed", "text"): lambda s, at: f"{s.text}\t{s.verb}\tthe {s.animal}",
    ("answer", "text"): lambda s, at: f"Which {s.animal}?\t{s.text}",
    ("predict", "trajectory"): lambda s, at: write_videos(at / f"{s.number}.npz", [s])[0],
    ("match", "image"): lambda s, at: f"{png(at / 'inputs' / f'{s.number}.png', s)}\t{s.colour}\tpink\ta {s.animal}",
    ("decide", "trajectory"): lambda s, at: json.dumps(s.episode),
    ("classify", "series"): lambda s, at: json.dumps(s.series.tolist()),
    ("regress", "series"): lambda s, at: s.numbers(" "),
    ("predict", "series"): lambda s, at: series_file(at / f"{s.number}.csv", s),
}


def own_modality(task: str, model: str) -> str:
    """The modality that a model is made for."""
    return fitting_modalities(TASKS[task], model)[0].name


FITS = [(t, m, modality.name) for t, kind in TASKS.items() for m in MODELS for modality in fitting_modalities(kind, m)]
COMPATIBLE = [*dict.fromkeys((task, model) for task, model, _ in FITS)]
DEFAULTS = [(task, kind.default) for task, kind in TASKS.items()]
IMAGE_TASKS = [("classify", "resnet"), ("classify", "vit")]
MOLECULE_TASKS = [("classify", "graphormer"), ("regress", "graphormer")]
AUDIO_TASKS = [("classify", "audio_encoder"), ("translate", "speech2text")]
EPISODES_FORM = ("predict", "world_model", "jsonl")  # with rewards and ends, which the first form lacks
every_triple = pytest.mark.parametrize(
    ("task", "model", "modality", "form"), [*((*fit, None) for fit in FITS), (*EPISODES_FORM[:2], None, "jsonl")]
)
every_fit = pytest.mark.parametrize(("task", "model"), COMPATIBLE)
every_fit_and_form = pytest.mark.parametrize(
    ("task", "model", "form"), [*((*fit, None) for fit in COMPATIBLE), EPISODES_FORM]
)
every_task = pytest.mark.parametrize(("task", "model"), [*DEFAULTS, *IMAGE_TASKS, *AUDIO_TASKS])


def small_options(task: str, model: str, modality: str | None = None) -> dict[str, Any]:
    available = options(task, model, next(iter(MODELS[model].sizes)), modality)
    return {"model": model, "modality": modality or own_modality(task, model)} | {
        name: value for name, value in SMALL.items() if name in available
    }


def files(
    task: str, model: str, at: Path, form: str | None = None, modality: str | None = None
) -> dict[str, list[str]]:
    forms = FORMS[task, modality or own_modality(task, model)]
    write = forms[form or next(iter(forms))]
    return {"data": write(at / "train", TRAIN), "valid": write(at / "valid", VALID)}


def raw(task: str, model: str, at: Path, form: str | None = None, modality: str | None = None) -> list[str]:
    make_input = INPUTS.get((task, modality or own_modality(task, model)), lambda s, at: s.text)
    if form == "jsonl":  # of predict, whose first form has no actions
        make_input = lambda s, at: json_lines(at / f"{s.number}.jsonl", [s.episode])[0]  # noqa: E731
    return [make_input(scene, at) for scene in (VALID[3], VALID[0], TRAIN[5], VALID[7])]


def job_of(
    task: str, model: str, at: Path, form: str | None = None, modality: str | None = None, **overrides: Any
) -> FileJob:
    """A run that is ready to start in `at`/run."""
    at.mkdir(exist_ok=True)
    cache = {"cache": str(at / "cache")} if "cache" in options(task, model, next(iter(MODELS[model].sizes))) else {}
    arguments = small_options(task, model, modality) | files(task, model, at, form, modality) | cache
    arguments |= {"output_dir": str(at / "run"), "steps": 2, "evals": 1} | overrides
    return FileJob.open(make_settings(task, **arguments)).plan()


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep the user's home folder clean."""
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[FileJob, Path]]:
    """A finished job and the folder of its files and its run; each combination is trained once."""
    finished_jobs: dict[Any, tuple[FileJob, Path]] = {}

    def finish(task: str, model: str, form: str | None = None, modality: str | None = None) -> tuple[FileJob, Path]:
        key = task, model, form, modality or own_modality(task, model)
        if key not in finished_jobs:
            at = tmp_path_factory.mktemp(f"{task}-{model}")
            job = job_of(task, model, at, form, modality)
            assert [step.number for step in job.train()] == [1, 2]
            finished_jobs[key] = job, at
        return finished_jobs[key]

    return finish


def assert_same_predictions(actual: list[list[Prediction]], expected: list[list[Prediction]]) -> None:
    for best, expected_best in zip(actual, expected, strict=True):
        assert [prediction.text for prediction in best] == [prediction.text for prediction in expected_best]
        assert [prediction.logprob for prediction in best] == pytest.approx(
            [prediction.logprob for prediction in expected_best], abs=1e-4
        )


def short_options(job: FileJob) -> dict[str, Any]:
    """Decode options that limit the output."""
    return (
        {"max_new_tokens": 12} if "max_new_tokens" in {field.name for field in fields(job.task.decode_options)} else {}
    )


def numbers(scores: dict[str, Any]) -> dict[str, float]:
    return {name: value for name, value in scores.items() if isinstance(value, float)}


def scores_as_in_the_last_eval(job: FileJob) -> bool:
    """Whether a folder scores its validation files as the run did."""
    loaded = load(job.run.folder)
    scores = loaded.task.score(loaded.model, loaded.rows(read_json(job.run.folder / "train.json")["valid"]))
    return numbers(scores) == pytest.approx(
        {name: v for name, v in job.best_scores.items() if name != "step"}, rel=1e-4
    )


def test_every_task_has_test_files() -> None:
    assert {(task, modality) for task, _, modality in FITS} == {*FORMS}


@every_triple
def test_a_folder_predicts_as_the_model_in_memory(
    task: str, model: str, modality: str | None, form: str | None, finished: Any
) -> None:
    job, at = finished(task, model, form, modality)
    loaded = load(job.run.folder)
    assert loaded.modality.name == modality or form
    inputs, overrides = raw(task, model, at, form, modality), short_options(job)
    in_memory = list(job.task.predict(job.progress.model.eval(), inputs, job.task.decode_options(**overrides)))
    assert_same_predictions(list(loaded.generate(inputs, **overrides)), in_memory)
    assert loaded(inputs[0], **overrides) == in_memory[0][0].text
    assert loaded(inputs, **overrides) == [best[0].text for best in in_memory]


@every_triple
def test_a_batch_is_predicted_in_order_and_as_single_inputs(
    task: str, model: str, modality: str | None, form: str | None, finished: Any
) -> None:
    job, at = finished(task, model, form, modality)
    inputs, trained = raw(task, model, at, form, modality), job.progress.model.eval()
    overrides = job.task.decode_options(**short_options(job))
    together = list(job.task.predict(trained, iter(inputs), overrides))
    assert len(together) == len(inputs)
    alone = [best for i, text in enumerate(inputs) for best in job.task.predict(trained, [text], overrides, first=i)]
    assert_same_predictions(together, alone)
    assert list(job.task.predict(trained, [], overrides)) == []
    for best in together:
        assert best
        assert all(isinstance(prediction, Prediction) for prediction in best)
        assert all(np.isfinite([prediction.logprob, prediction.score]).all() for prediction in best)
        assert json.dumps([prediction._asdict() for prediction in best])


@pytest.mark.parametrize("speed", threads.SPEEDS)
@pytest.mark.parametrize(("task", "model"), threads.MODELS)
def test_eight_threads_predict_as_one(task: str, model: str, speed: str | None, finished: Any) -> None:
    """A small version of benchmarks/threads.py, which `make prove` runs."""
    job, at = finished(task, model)
    loaded = load(job.run.folder, "cpu", speed=speed)
    requests = threads.build_requests(loaded, raw(task, model, at), short_options(job))
    assert threads.find_differences(requests, calls=16, threads=8) == []


def test_the_thread_benchmark_covers_every_task() -> None:
    assert {task for task, _ in threads.MODELS} == {*TASKS}


def test_the_thread_benchmark_detects_a_mixed_up_prediction() -> None:
    """A mutant: all requests share a variable, which each changes while another runs."""
    shared, both = [0], threading.Barrier(2)

    def request(number: int) -> list[Prediction]:
        shared[0] = number
        if threading.current_thread() is not threading.main_thread():
            both.wait()  # now the other thread has changed it too
            both.wait()
        return [Prediction(str(shared[0]))]

    differences = threads.find_differences([lambda: request(0), lambda: request(1)], calls=2, threads=2)
    assert len(differences) == 1


def fill_tensor(folder: Path, into: Path, name: str, value: float) -> Path:
    """A copy of a folder in which one tensor is constant."""
    into.mkdir()
    for file in folder.iterdir():
        if file.is_file():
            shutil.copy(file, into)
    tensors = load_file(folder / "model.safetensors")
    tensors[name] = torch.full_like(tensors[name], value)
    save_file(tensors, into / "model.safetensors", metadata={"format": "pt"})
    return into


@pytest.mark.parametrize("speed", threads.SPEEDS)
@pytest.mark.parametrize(("task", "model"), threads.MODELS)
def test_nan_weights_raise_an_error(task: str, model: str, speed: str | None, finished: Any, tmp_path: Path) -> None:
    """In a norm, and in queries, whose NaN some attention kernels hide."""
    job, at = finished(task, model)
    names = load_file(job.run.folder / "model.safetensors").keys()
    query = next(name for name in sorted(names) if re.search(r"q_proj|query|c_attn|\.q\.", name) and "bias" not in name)
    normed = [name for name in sorted(names) if "norm" in name.lower() or "ln_" in name][-1:]
    for number, name in enumerate([query, *normed]):
        folder = fill_tensor(job.run.folder, tmp_path / str(number), name, math.nan)
        with pytest.raises(FloatingPointError, match=r"of (its|the) weights is (NaN|not finite)"):
            list(load(folder, "cpu", speed=speed).generate(raw(task, model, at)[:1], **short_options(job)))


LAST_NORM = {"transformer": "model.decoder.layer_norm.weight", "gpt": "ln_f.weight", "bert": "output.LayerNorm.weight"}


@pytest.mark.parametrize("speed", threads.SPEEDS)
@pytest.mark.parametrize(("task", "model"), [(task, model) for task, model in threads.MODELS if model in LAST_NORM])
def test_overflow_raises_an_error(task: str, model: str, speed: str | None, finished: Any, tmp_path: Path) -> None:
    """All weights are finite, but their products are not."""
    job, at = finished(task, model)
    names = load_file(job.run.folder / "model.safetensors").keys()
    [name] = [name for name in names if name.endswith(LAST_NORM[model]) and "attention" not in name]
    folder = fill_tensor(job.run.folder, tmp_path / "large", name, 3e38)
    with pytest.raises(FloatingPointError, match="gives no finite numbers: all its weights are finite"):
        list(load(folder, "cpu", speed=speed).generate(raw(task, model, at)[:1], **short_options(job)))


def test_the_command_names_the_nan_weights(finished: Any, tmp_path: Path, capsys: Any) -> None:
    job, at = finished("fill", "bert")
    name = "bert.encoder.layer.0.attention.self.key.weight"
    folder = fill_tensor(job.run.folder, tmp_path / "nan", name, math.nan)
    for more in ([], ["--json"], ["--embed"]):
        assert main(["run", str(folder), raw("fill", "bert", at)[0], *more]) == 3
        output = capsys.readouterr()
        assert output.out == ""
        assert "body.blocks.0.mixer.inner.key.weight of its weights is NaN" in output.err
    assert main(["score", str(folder), *files("fill", "bert", tmp_path)["valid"]]) == 3


def test_every_filler_has_a_finite_probability(finished: Any, capsys: Any) -> None:
    """JSON has no -Infinity, and special tokens are no fillers."""
    job, at = finished("fill", "bert")
    assert main(["run", str(job.run.folder), raw("fill", "bert", at)[0], "--num-return", "9999", "--json"]) == 0
    output = json.loads(capsys.readouterr().out, parse_constant=lambda word: pytest.fail(word))
    assert len(output["predictions"]) == len(job.task.tokenizer) - len({*job.task.tokenizer.all_special_ids})


@every_triple
def test_scores_are_metrics_predictions_and_samples(
    task: str, model: str, modality: str | None, form: str | None, finished: Any
) -> None:
    job, _ = finished(task, model, form, modality)
    rows = job.data.sets["valid"]
    scores = job.task.score(job.progress.model.eval(), rows)
    assert numbers(scores)["loss"] > 0
    assert all(np.isfinite(value) for value in numbers(scores).values())
    rank = job.task.rank(numbers(scores))
    assert isinstance(rank, tuple)
    assert all(isinstance(value, float) for value in rank)
    assert not job.task.rank(numbers(scores)) > rank, "equal scores rank equally"
    assert job.task.rank(numbers(scores) | {"loss": 1e9}) <= rank
    assert all(isinstance(prediction, str) for prediction in scores["predictions"])
    assert len(scores["predictions"]) == (len(rows) if isinstance(rows, list) else 1)
    assert all({*sample} == {"source", "target", "prediction"} for sample in scores["samples"])
    assert scores["samples"]


@every_fit
def test_passes_keep_the_gradients_of_every_task(task: str, model: str, finished: Any) -> None:
    """Recomputed ones bit for bit, with dropout; those of bf16 approximately."""
    job, _ = finished(task, model)
    plain = copy.deepcopy(job.progress.model).train()
    for module in plain.modules():
        if isinstance(module, Dropout):
            module.p = 0.2
    losses, gradients = {}, {}
    [rows, *_] = job.examples.epoch(200, 1, 0)
    for name in ("plain", "recompute", "bf16"):
        subject = copy.deepcopy(plain)
        if name == "recompute" and any(find_blocks(subject.body)):
            recompute_blocks(subject)
        torch.manual_seed(1)
        with mixed_precision(torch.device("cpu"), "bf16" if name == "bf16" else "fp32"):
            loss = job.task.loss(subject, job.task.collate(job.examples, rows))
        loss.total.backward()
        losses[name] = loss.total
        gradients[name] = [weight.grad for weight in subject.parameters() if weight.grad is not None]
    assert torch.equal(losses["recompute"], losses["plain"])
    assert all(map(torch.equal, gradients["recompute"], gradients["plain"]))
    assert {tensor.dtype for tensor in (losses["bf16"], *gradients["bf16"])} == {torch.float32}
    assert losses["bf16"].item() == pytest.approx(losses["plain"].item(), rel=0.05)
    cosine = torch.cosine_similarity(*(torch.cat([g.flatten() for g in gradients[n]]) for n in ("bf16", "plain")), 0)
    assert cosine > 0.95


@every_fit
def test_an_empty_input_is_predicted_or_refused(task: str, model: str, finished: Any) -> None:
    job, _ = finished(task, model)
    with suppress(ValueError):
        [best] = job.task.predict(job.progress.model.eval(), [""], job.task.decode_options(**short_options(job)))
        assert np.isfinite(best[0].logprob)
        assert "nan" not in best[0].text


@every_triple
def test_files_are_scored_as_in_the_last_eval(
    task: str, model: str, modality: str | None, form: str | None, finished: Any
) -> None:
    assert scores_as_in_the_last_eval(finished(task, model, form, modality)[0])


@pytest.mark.parametrize(("task", "model", "modality"), FITS)
def test_every_folder_passes_its_checks(task: str, model: str, modality: str, finished: Any) -> None:
    job, _ = finished(task, model, None, modality)
    results = check_folder(job.run.folder, None, "cpu", no_peers=True)
    assert [result for result in results if result.status == "FAILS"] == []


OTHER_FORMS = [
    (task, default_model(TASKS[task], MODALITIES[modality]), modality, form)
    for (task, modality), forms in FORMS.items()
    for form in [*forms][1:]
]


@pytest.mark.parametrize(("task", "model", "modality", "form"), OTHER_FORMS)
def test_every_file_format_is_read(task: str, model: str, modality: str, form: str, finished: Any) -> None:
    assert scores_as_in_the_last_eval(finished(task, model, form, modality)[0])


def variants(task: str, model: str) -> Iterator[dict[str, Any]]:
    """Each flag and each choice of the options of a task and its input, set alone."""
    fit = find_fit(task, TASKS[task], model)
    for available in (task_fields(task), *map(options_of, input_groups(task, fit))):
        for name, option in available.items():
            if option.kind is bool or choices_of(option.kind):
                others = [not option.default] if option.kind is bool else choices_of(option.kind)
                unfit = "unigram" if task == "write" else "bytes"
                yield from ({name: value} for value in others if value not in (option.default, unfit))


VARIANTS = [
    (task, model, overrides)
    for task, model in [*DEFAULTS, IMAGE_TASKS[0], *MOLECULE_TASKS]
    for overrides in variants(task, model)
]


@pytest.mark.parametrize(("task", "model", "overrides"), VARIANTS, ids=str)
def test_a_folder_stores_every_option(task: str, model: str, overrides: dict[str, Any], tmp_path: Path) -> None:
    job = job_of(task, model, tmp_path, **overrides)
    assert [step.number for step in job.train()] == [1, 2]
    assert scores_as_in_the_last_eval(job)
    inputs, decode_options = raw(task, model, tmp_path), short_options(job)
    in_memory = list(job.task.predict(job.progress.model.eval(), inputs, job.task.decode_options(**decode_options)))
    assert_same_predictions(list(load(job.run.folder).generate(inputs, **decode_options)), in_memory)


@every_task
def test_a_run_is_estimated_without_building_its_model(task: str, model: str, finished: Any) -> None:
    job, _ = finished(task, model)
    estimator = StepEstimator(job.settings, job.task, job.examples)
    numbers = estimator.trace(job.progress.model.body.config, estimator.largest, None, recompute=False).tolist()
    parameters, batch_flops, _, *states, activations, _ = numbers
    assert parameters == num_parameters(job.progress.model)
    assert tuple(states) == state_bytes(job.progress)
    assert min(batch_flops, activations) > 0


@pytest.mark.parametrize(("task", "model"), [*DEFAULTS, *AUDIO_TASKS])
def test_the_command_trains_predicts_and_scores(task: str, model: str, tmp_path: Path, capsys: Any) -> None:
    arguments = small_options(task, model) | {"steps": 1, "evals": 1}
    paths = files(task, model, tmp_path)
    typed = [word for name, value in arguments.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    named = [word for name, values in paths.items() for word in (f"--{name}", *values)]
    run = str(tmp_path / "run")
    assert main(["train", task, *named, "--test", *paths["valid"], "--output-dir", run, *typed]) == 0
    assert f"regard run {run}" in capsys.readouterr().out
    inputs = raw(task, model, tmp_path)
    assert main(["run", run, "--json", *inputs]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["source"] for line in records] == inputs
    assert main(["score", run, *paths["valid"], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["loss"] > 0
    assert "| loss |" in (tmp_path / "run" / "README.md").read_text()


OTHER_MODELS = [*IMAGE_TASKS, *AUDIO_TASKS, *MOLECULE_TASKS, ("write", "recurrent"), ("translate", "recurrent")]


@pytest.mark.parametrize(
    ("task", "model", "form"), [*((*pair, None) for pair in [*DEFAULTS, *OTHER_MODELS]), EPISODES_FORM]
)
def test_a_resumed_run_equals_the_uninterrupted_one_bit_for_bit(
    task: str, model: str, form: str | None, tmp_path: Path
) -> None:
    available = options(task, model, next(iter(MODELS[model].sizes)))
    overrides = {"steps": 4, "evals": 2} | {
        name: value
        for name, value in {
            "dropout": 0.2,
            "shift": 1,
            "rotate": 20.0,
            "color_jitter": 0.2,
            "tempo": 0.2,
            "noise": -9.0,
        }.items()
        if name in available
    }
    whole = job_of(task, model, tmp_path / "whole", form, **overrides)
    losses = [step.loss for step in whole.train()]
    stopped = job_of(task, model, tmp_path / "stopped", form, **overrides)
    steps = stopped.train()
    assert [next(steps).loss for _ in range(3)] == losses[:3]
    stopped.save()
    steps.close()
    assert [step.loss for step in train(task, resume=True, output_dir=str(stopped.run.folder))] == losses[3:]
    for file in ("model.safetensors", "step-4/state.safetensors", "step-4/state.json", "task.json", "config.json"):
        assert (stopped.run.folder / file).read_bytes() == (whole.run.folder / file).read_bytes(), file


@pytest.mark.parametrize(("task", "model"), [*DEFAULTS, *IMAGE_TASKS, *AUDIO_TASKS, *MOLECULE_TASKS])
def test_a_nan_loss_stops_the_run_and_its_examples_are_named(
    task: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss of step 3 is NaN: neither weights nor averages change, and the batch is written to a file."""
    job = job_of(task, model, tmp_path, steps=5, evals=5)
    steps = job.train()
    next(steps), next(steps)
    before = {part.name: part.tensor.clone() for part in state_slices(job.progress)}
    right = job.task.loss
    monkeypatch.setattr(job.task, "loss", lambda *args: replace(right(*args), total=right(*args).total * math.nan))
    with pytest.raises(FloatingPointError, match=r"step 3: the loss is nan .*step-2\. --max-nonfinite") as error:
        next(steps)
    for part in state_slices(job.progress):
        assert torch.equal(part.tensor, before[part.name]), part.name
    records = [json.loads(line) for line in (job.run.folder / "bad-batch.jsonl").read_text().splitlines()]
    assert records
    assert f"{records[0]['file']}:{records[0]['line']}" in str(error.value)
    for line in records:
        assert (line["step"], line["alone"]) == (3, "nonfinite")
        assert line["text"]
    assert [line.get("step") for line in job.run.metrics() if "loss" in line] == [1, 2], "the NaN step is logged"


# match and embed take negatives from the whole batch, and fill draws its masks.
ADDITIVE = [(task, model, None) for task, model in COMPATIBLE if task not in ("match", "embed", "fill")]


@pytest.mark.parametrize(("task", "model", "form"), [*ADDITIVE, EPISODES_FORM])
def test_losses_of_parts_add_up_to_that_of_the_batch(task: str, model: str, form: str | None, finished: Any) -> None:
    job, _ = finished(task, model, form)
    twin = copy.deepcopy(job.progress.model).double().eval()
    [rows] = job.examples.epoch(10**6, 1, 0)

    def sums(*parts: Any) -> tuple[float, int, list[torch.Tensor]]:
        twin.zero_grad()
        losses = [job.task.loss(twin, to_double(job.task.collate(job.examples, part))) for part in parts]
        sum(loss.total for loss in losses).backward()
        grads = [w.grad.clone() for w in twin.parameters() if w.grad is not None]
        return sum(loss.total.item() for loss in losses), sum(loss.count for loss in losses), grads

    total, count, grads = sums(rows)
    added, counted, accumulated = sums(rows[::2], rows[1::2])
    assert (added, counted) == (pytest.approx(total, rel=1e-10), count)
    for expected, actual in zip(grads, accumulated, strict=True):
        assert (expected - actual).abs().max() <= 1e-10 * max(1.0, expected.abs().max().item())


def to_double(batch: Any) -> Any:
    if isinstance(batch, tuple):
        return type(batch)(*map(to_double, batch))
    return batch.double() if batch is not None and batch.is_floating_point() else batch


@pytest.mark.parametrize("task", TASKS)
def test_every_misfit_is_refused_with_the_models_that_fit(task: str) -> None:
    """A modality that the task does not read, a model of other inputs, or a model without the structure."""
    readable = {name for kind, _, name in FITS if kind == task}
    for model, modality in ((m, x) for m in MODELS for x in MODALITIES if (task, m, x) not in FITS):
        with pytest.raises(ValueError, match=f"^{task} ") as error:
            resolve(task, model, modality=modality)
        sentence, fitting = str(error.value).split(": choose --model ")
        unit, models = MODALITIES[modality].unit, fitting.split(" or ")
        if modality in readable:
            assert sentence.startswith(f"{task} of {unit} needs a model with ")
            assert f"{model} has " in sentence
            assert models == [name for kind, name, x in FITS if (kind, x) == (task, modality)]
        else:
            assert (
                sentence
                == f"{task} reads {', '.join(MODALITIES[x].unit for x in MODALITIES if x in readable)}, not {unit}"
            )
            assert {*models} == {default_model(TASKS[task], MODALITIES[x]) for x in readable}


@pytest.fixture(scope="module")
def synthetic() -> Iterator[Callable[[str, str], dict[str, list[str]]]]:
    """The inputs of each synthetic set. Each generator runs once, slow ones for a part."""
    from regard.modalities.synthetic import chains, paths, phrasebook, shapes

    with pytest.MonkeyPatch.context() as patch:
        part = {"phrases": 20_000, "paths": 4_000}
        for module, name in ((phrasebook, "phrases"), (shapes, "shapes"), (chains, "chains"), (paths, "paths")):
            values = list(getattr(module, name)(*([part[name]] if name in part else [])))
            patch.setattr(module, name, lambda values=values: values)

        def read_inputs(task: str, modality: str) -> dict[str, list[str]]:
            model = next(m for t, m, x in FITS if (t, x) == (task, modality))
            sets = read_data(resolve(task, model, modality=modality)).sets
            return {
                name: [normalize_text(getattr(row, "input_key", row[0])) for row in rows] for name, rows in sets.items()
            }

        yield read_inputs


@pytest.mark.parametrize(("task", "modality"), [*FORMS])
def test_synthetic_sets_share_no_inputs(task: str, modality: str, synthetic: Any) -> None:
    sets = synthetic(task, modality)
    assert {*sets} == {"train", "valid", "test"}
    train_set, valid_set, test_set = ({*inputs} for inputs in sets.values())
    assert min(map(len, (train_set, valid_set, test_set))) >= 100
    assert not train_set & valid_set
    assert not train_set & test_set
    assert not valid_set & test_set


FROM_BERT = [task for task, model in COMPATIBLE if model == "bert"]


@pytest.mark.parametrize("task", FROM_BERT)
def test_a_task_may_start_from_a_masked_lm(task: str, finished: Any, tmp_path: Path) -> None:
    filled = load(finished("fill", "bert")[0].run.folder)
    overrides = {
        name: value for name, value in small_options(task, "bert").items() if name in ("device", "batch_tokens")
    }
    cache = {"cache": str(tmp_path / "cache")} if task == "fill" else {}
    arguments = (
        files(task, "bert", tmp_path)
        | {"output_dir": str(tmp_path / "run"), "steps": 2, "evals": 1}
        | overrides
        | cache
    )
    job = FileJob.open(make_settings(task, from_=str(finished("fill", "bert")[0].run.folder), **arguments)).plan()
    for name, weight in filled.model.body.state_dict().items():
        assert torch.equal(weight, job.progress.model.body.state_dict()[name]), name
    assert job.task.tokenizer.roles == filled.tokenizer.roles
    assert job.task.tokenizer.backend_tokenizer.get_vocab() == filled.tokenizer.backend_tokenizer.get_vocab()
    assert [step.number for step in job.train()] == [1, 2]
    assert load(job.run.folder)(raw(task, "bert", tmp_path)[0]) is not None


@pytest.mark.parametrize(
    ("task", "of", "overrides", "message"),
    [
        ("classify", ("fill", "bert"), {"model": "gpt"}, "is a bert model, not gpt: leave out --model"),
        ("classify", ("fill", "bert"), {"dim": 32}, "has dim 16: leave out --dim"),
        ("tag", ("fill", "bert"), {"layers": 3}, "has layers 1: leave out --layers"),
        (
            "write",
            ("fill", "bert"),
            {},
            "write of texts needs a model with a decoder, and bert has an encoder of texts: choose --model .*nanochat",
        ),
        (
            "tag",
            ("classify", "pooled"),
            {},
            "tag of texts needs a model with .*, and pooled has one vector .*: choose --model .*bert",
        ),
        ("tag", ("write", "recurrent"), {}, r"lacks \d+ weights of this model: body\.blocks\.0\."),
        ("classify", ("translate", "recurrent"), {}, r"lacks \d+ weights of this model: body\.blocks\.0\."),
        ("fill", ("write", "recurrent"), {}, r"this tokenizer has no \[MASK\]: it was made for another kind"),
        (
            "write",
            ("tag", "gpt"),
            {},
            "adds special tokens .* start from a model that was trained to write",
        ),
    ],
)
def test_an_incompatible_start_is_refused(
    task: str, of: tuple[str, str], overrides: dict[str, Any], message: str, finished: Any, tmp_path: Path
) -> None:
    start_run = finished(*of)[0].run.folder
    model = of[1] if (task, of[1]) in COMPATIBLE else TASKS[task].default
    cache = {"cache": str(tmp_path / "cache")} if task in ("fill", "write") else {}
    arguments = files(task, model, tmp_path) | {"output_dir": str(tmp_path / "run"), "steps": 1} | cache | overrides
    with pytest.raises(ValueError, match=message):
        list(train(task, from_=str(start_run), **arguments))
    assert not (tmp_path / "run").exists(), "a refused run leaves a folder"


def test_a_resumed_run_does_not_need_its_start(finished: Any, tmp_path: Path) -> None:
    start_run = finished("fill", "bert")[0].run.folder
    arguments = files("classify", "bert", tmp_path) | {"output_dir": str(tmp_path / "run"), "steps": 4, "evals": 2}
    steps = train("classify", from_=str(start_run), batch_tokens=400, device="cpu", **arguments)
    assert [next(steps).number for _ in range(2)] == [1, 2]
    steps.close()
    records = read_json(tmp_path / "run" / "train.json")
    (tmp_path / "run" / "train.json").write_text(json.dumps(records | {"from_": str(tmp_path / "gone")}))
    out = str(tmp_path / "run")
    assert [step.number for step in train("classify", resume=True, output_dir=out)] == [3, 4]


@pytest.mark.parametrize("task", [task for task, model in COMPATIBLE if model == "nanochat"])
def test_a_task_may_start_from_a_causal_lm(task: str, finished: Any, tmp_path: Path) -> None:
    start_run = finished("write", "nanochat")[0]
    cache = {"cache": str(tmp_path / "cache")} if task == "write" else {}
    arguments = (
        files(task, "nanochat", tmp_path) | {"output_dir": str(tmp_path / "run"), "steps": 2, "evals": 1} | cache
    )
    settings = make_settings(task, from_=str(start_run.run.folder), device="cpu", batch_tokens=400, **arguments)
    job = FileJob.open(settings).plan()
    assert job.task.tokenizer.backend_tokenizer.get_vocab() == start_run.task.tokenizer.backend_tokenizer.get_vocab()
    assert [step.number for step in job.train()] == [1, 2]
    test_an_empty_input_is_predicted_or_refused(task, "nanochat", lambda *_: (job, tmp_path))


def test_fill_scores_with_its_own_random_generator(finished: Any) -> None:
    """Which tokens `fill` masks in an evaluation does not depend on draws of other threads."""
    job, _ = finished("fill", "bert")
    task, model, rows = job.task, job.progress.model.eval(), job.data.sets["valid"]
    expected, before = numbers(task.score(model, rows)), task.choose_positions
    task.choose_positions = lambda *arguments: [before(*arguments), torch.rand(3)][0]
    try:
        assert numbers(task.score(model, rows)) == expected
    finally:
        del task.choose_positions
