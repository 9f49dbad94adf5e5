"""What every task must do with every model that fits it. A new entry of TASKS or MODELS is tested by being there."""

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

from regard.cli import main
from regard.data.episodes import video, write_episodes
from regard.data.files import Files
from regard.data.text import fold
from regard.hub.folder import read_json
from regard.load import load
from regard.models import MODELS, ability_for
from regard.tasks import TASKS
from regard.tasks.task import Answer
from regard.training.run import tensors_of
from regard.training.settings import follows, options, options_of, settle, start, words_of
from regard.training.train import Job, carry_out, planned, prepare, save, train

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
import threads  # noqa: E402

SIDE, RATE = 8, 8000
SMALL: dict[str, Any] = {
    "dim": 16, "layers": 1, "encoder_layers": 1, "decoder_layers": 1, "stages": 2, "heads": 2, "kv_heads": 1,
    "hidden": 12, "context": 64, "patch": 4, "image_dim": 16, "image_layers": 1, "image_heads": 2, "joint": 8,
    "pieces": "characters", "device": "cpu", "batch_tokens": 400,
    "mels": 8, "stride": 4,
    "shift": 0, "tempo": 0.0, "tract": 0.0, "pitch": 0.0, "colour": 0.0, "noise": -100.0, "masks": 0.0,
}  # fmt: skip
COLOURS = {"red": (220, 20, 20), "green": (20, 200, 30), "blue": (10, 30, 230), "grey": (90, 90, 90)}
THINGS, DEEDS = ("cat", "dog", "fish", "bird"), ("runs", "sleeps", "eats")


class Scene(NamedTuple):
    """One example, from which every task makes its own."""

    colour: str
    thing: str
    deed: str
    number: int

    @property
    def words(self) -> list[str]:
        return ["the", self.colour, self.thing, self.deed]

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
    def film(self) -> np.ndarray:
        """A picture that is moved step by step."""
        return np.stack([np.roll(self.pixels[..., 0], step, 1) for step in range(5 + self.number % 3)])

    @property
    def episode(self) -> dict[str, Any]:
        draw = np.random.default_rng(self.number)
        seen, done = (
            draw.normal(size=(5 + self.number % 3, 3)).cumsum(0),
            [0, 2, *draw.integers(0, 3, 2 + self.number % 3)],
        )
        rewards = [float(x) for x in seen[1:, 0]]
        return {"observations": seen.tolist(), "actions": [*map(int, done)], "rewards": rewards, "ended": True}

    @property
    def residues(self) -> str:
        """The letters of its text, most of which stand for an amino acid, and the others for none in particular."""
        return "".join(self.words).upper()

    @property
    def labels(self) -> str:
        return "".join("-" if i % 5 == 4 else "H" if letter in "AE" else "C" for i, letter in enumerate(self.residues))

    @property
    def samples(self) -> np.ndarray:
        """A pitch for each thing, a length for each deed, and a hiss of its own."""
        hertz, count = 300 * 1.7 ** THINGS.index(self.thing), 400 + 100 * DEEDS.index(self.deed)
        hiss = np.random.default_rng(self.number).normal(0, 300, count)
        return (8000 * np.sin(np.arange(count) * 2 * np.pi * hertz / RATE) + hiss).astype(np.int16)

    @property
    def question(self) -> dict[str, Any]:
        answer = {"text": [self.colour], "answer_start": [4]}
        return {"question": f"Which {self.thing}?", "context": self.text, "answers": answer}

    @property
    def smiles(self) -> str:
        """As many carbon atoms as the colour says, a group for what it does, and one atom for what it is."""
        group = {"runs": "C", "sleeps": "C(=O)", "eats": "C(F)"}[self.deed]
        return "C" * (2 + [*COLOURS].index(self.colour)) + group + dict(zip(THINGS, "ONSF", strict=True))[self.thing]


SCENES = [Scene(*made, i) for i, made in enumerate((c, t, d) for d in DEEDS for t in THINGS for c in COLOURS)]
TRAIN, VALID = SCENES[:36], SCENES[36:]


def lines(file: Path, some: list[str]) -> list[str]:
    file.write_text("".join(f"{line}\n" for line in some), encoding="utf-8")
    return [str(file)]


def zipped(file: Path, some: list[str]) -> list[str]:
    with gzip.open(file, "wt", encoding="utf-8") as stream:
        stream.writelines(f"{line}\n" for line in some)
    return [str(file)]


def as_json(file: Path, rows: list[dict[str, Any]]) -> list[str]:
    return lines(file, [json.dumps(row) for row in rows])


def conllu(number: int, word: str, tag: str) -> str:
    return "\t".join([str(number), word, "_", tag, *"______"])


def both(one: list[str], other: list[str]) -> list[str]:
    return one + other


def png(file: Path, scene: Scene) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(scene.pixels).save(file)
    return file


def class_folders(folder: Path, some: list[Scene]) -> list[str]:
    for scene in some:
        png(folder / scene.colour / f"{scene.number}.png", scene)
    return [str(folder)]


def npz(file: Path, some: list[Scene]) -> list[str]:
    np.savez(file, images=np.stack([s.pixels for s in some]), labels=np.array([s.colour for s in some]))
    return [str(file)]


def idx(folder: Path, some: list[Scene]) -> list[str]:
    """Grey pictures, as MNIST's."""
    folder.mkdir()
    arrays = [np.stack([s.pixels[..., 0] for s in some]), np.array([[*COLOURS].index(s.colour) for s in some])]
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


def sound_folders(folder: Path, some: list[Scene]) -> list[str]:
    for scene in some:
        wav(folder / scene.thing / f"{scene.number}.wav", scene)
    return [str(folder)]


def sound_names(folder: Path, some: list[Scene]) -> list[str]:
    for scene in some:
        wav(folder / f"{scene.thing}_{scene.colour}_{scene.number}.wav", scene)
    return [str(folder)]


def sound_list(folder: Path, some: list[Scene]) -> list[str]:
    return lines(folder / "list.tsv", [f"{wav(folder / f'{s.number}.wav', s).name}\t{s.thing} {s.deed}" for s in some])


def captions(folder: Path, some: list[Scene]) -> list[str]:
    table = [f"{png(folder / f'{s.number}.png', s).name}\ta {s.colour} {s.thing}" for s in some]
    lines(folder / "captions.tsv", table)
    return [str(folder)]


def films(file: Path, some: list[Scene]) -> list[str]:
    write_episodes(file, [video(scene.film, "made", line) for line, scene in enumerate(some, 1)])
    return [str(file)]


def acted(file: Path, some: list[Scene]) -> list[str]:
    rows = [scene.episode for scene in some]
    arrays = {name: np.concatenate([row[name] for row in rows]) for name in ("observations", "actions", "rewards")}
    steps, ended = [len(row["actions"]) for row in rows], [row["ended"] for row in rows]
    np.savez(file, **arrays, steps=np.array(steps), ended=np.array(ended))
    return [str(file)]


Writer = Callable[[Path, list[Scene]], list[str]]  # (a path without an ending, examples) -> what --data names
LABELLED: dict[str, Writer] = {
    "tsv": lambda at, some: lines(at.with_suffix(".tsv"), [f"{s.text}\t{s.thing}" for s in some]),
    "pairs.tsv": lambda at, some: lines(at.with_suffix(".tsv"), [f"{s.text}\t{s.deed}\t{s.thing}" for s in some]),
    "csv": lambda at, some: lines(at.with_suffix(".csv"), ["text,label", *(f'"{s.text}",{s.thing}' for s in some)]),
    "jsonl": lambda at, some: as_json(
        at.with_suffix(".jsonl"), [{"text": s.text, "pair": s.deed, "label": s.thing} for s in some]
    ),
    "parallel": lambda at, some: both(
        lines(at.with_suffix(".texts"), [s.text for s in some]),
        lines(at.with_suffix(".labels"), [s.thing for s in some]),
    ),
}
MEASURED: dict[str, Writer] = {
    "tsv": lambda at, some: lines(at.with_suffix(".tsv"), [f"{s.text}\t{len(s.text)}" for s in some]),
    "csv": lambda at, some: lines(at.with_suffix(".csv"), ["value,text", *(f"{s.number},{s.text}" for s in some)]),
    "jsonl": lambda at, some: as_json(
        at.with_suffix(".jsonl"), [{"text": s.text, "text2": s.deed, "value": s.number / 7} for s in some]
    ),
    "parallel": lambda at, some: both(
        lines(at.with_suffix(".texts"), [s.text for s in some]),
        lines(at.with_suffix(".values"), [str(-s.number) for s in some]),
    ),
}
TAGGED: dict[str, Writer] = {
    "conll": lambda at, some: lines(
        at.with_suffix(".conll"),
        [line for s in some for line in (*map(" ".join, zip(s.words, s.tags, strict=True)), "")],
    ),
    "conllu": lambda at, some: lines(
        at.with_suffix(".conllu"),
        [line for s in some for line in (*map(conllu, (1, 2, 3, 4), s.words, s.tags), "")],
    ),
    "jsonl": lambda at, some: as_json(
        at.with_suffix(".jsonl"), [{"tokens": s.words, "ner_tags": s.tags} for s in some]
    ),
    "parallel": lambda at, some: both(
        lines(at.with_suffix(".words"), [s.text for s in some]),
        lines(at.with_suffix(".tags"), [" ".join(s.tags) for s in some]),
    ),
}
TEXTS: dict[str, Writer] = {
    "txt": lambda at, some: lines(at.with_suffix(".txt"), [f"{s.text}." for s in some]),
    "txt.gz": lambda at, some: zipped(at.with_suffix(".txt.gz"), [f"{s.text}." for s in some]),
    "jsonl": lambda at, some: as_json(at.with_suffix(".jsonl"), [{"text": f"{s.text}.\n\nThe end."} for s in some]),
}
CHAINS: dict[str, Writer] = {
    "fasta": lambda at, some: lines(
        at.with_suffix(".fasta"), [f">s{s.number} a {s.thing}\n{s.residues}" for s in some]
    ),
    "fa.gz": lambda at, some: zipped(
        at.with_suffix(".fa.gz"), [f">s{s.number}\n{s.residues[:4]}\n{s.residues[4:].lower()}*\n" for s in some]
    ),
}
CHAINS_TAGGED: dict[str, Writer] = {
    form: lambda at, some, write=write: both(
        write(at, some),
        lines(at.with_suffix(".labels.fasta"), [f">s{s.number}\n{s.labels}" for s in reversed(some)]),
    )
    for form, write in CHAINS.items()
}
TRANSLATED: dict[str, Writer] = {
    "tsv": lambda at, some: lines(at.with_suffix(".tsv"), [f"{s.text}\t{s.text.upper()}" for s in some]),
    "jsonl": lambda at, some: as_json(
        at.with_suffix(".jsonl"), [{"source": s.text, "target": " ".join(s.words[::-1])} for s in some]
    ),
    "parallel": lambda at, some: both(
        lines(at.with_suffix(".en"), [s.text for s in some]), lines(at.with_suffix(".de"), [s.deed for s in some])
    ),
}
PICTURES: dict[str, Writer] = {
    "folder": class_folders,
    "npz": lambda at, some: npz(at.with_suffix(".npz"), some),
    "idx": idx,
}
ASKED: dict[str, Writer] = {
    "jsonl": lambda at, some: as_json(at.with_suffix(".jsonl"), [s.question for s in some]),
    "json": lambda at, some: as_json(
        at.with_suffix(".json"),
        [{"data": [{"paragraphs": [{"context": s.text, "qas": [{**s.question, "answers": []}]} for s in some]}]}],
    ),
}
SOUNDS: dict[str, Writer] = {"folder": sound_folders, "names": sound_names}
SPOKEN: dict[str, Writer] = {"tsv": sound_list, "joined": sound_names}
CAPTIONED: dict[str, Writer] = {
    "folder": captions,
    "tsv": lambda at, some: [str(Path(captions(at, some)[0]) / "captions.tsv")],
}
EPISODES: dict[str, Writer] = {
    "videos.npz": lambda at, some: films(at.with_suffix(".npz"), some),
    "npz": lambda at, some: acted(at.with_suffix(".npz"), some),
    "jsonl": lambda at, some: as_json(at.with_suffix(".jsonl"), [s.episode for s in some]),
}
BONDED: dict[str, Writer] = {
    "csv": lambda at, some: lines(at.with_suffix(".csv"), ["smiles,label", *(f"{s.smiles},{s.thing}" for s in some)]),
    "tsv": lambda at, some: lines(at.with_suffix(".tsv"), [f"{s.smiles}\t{s.thing}" for s in some]),
    "jsonl": lambda at, some: as_json(at.with_suffix(".jsonl"), [{"smiles": s.smiles, "label": s.thing} for s in some]),
}
WEIGHED: dict[str, Writer] = {
    "csv": lambda at, some: lines(at.with_suffix(".csv"), ["value,smiles", *(f"{s.number},{s.smiles}" for s in some)]),
    "parallel": lambda at, some: both(
        lines(at.with_suffix(".smiles"), [s.smiles for s in some]),
        lines(at.with_suffix(".values"), [str(-s.number) for s in some]),
    ),
}
FORMS: dict[tuple[str, str], dict[str, Writer]] = {  # by task and ability; the first one is used by all models
    ("translate", "translates"): TRANSLATED,
    ("write", "writes"): TEXTS,
    ("fill", "fills"): TEXTS,
    ("fill", "spells"): CHAINS,
    ("classify", "reads"): LABELLED,
    ("classify", "gathers"): LABELLED,
    ("classify", "sees"): PICTURES,
    ("classify", "bonds"): BONDED,
    ("regress", "reads"): MEASURED,
    ("regress", "gathers"): MEASURED,
    ("tag", "reads"): TAGGED | CHAINS_TAGGED,
    ("tag", "spells"): CHAINS_TAGGED,
    ("regress", "bonds"): WEIGHED,
    ("answer", "reads"): ASKED,
    ("embed", "reads"): TRANSLATED,
    ("embed", "gathers"): TRANSLATED,
    ("match", "matches"): CAPTIONED,
    ("predict", "foresees"): EPISODES,
    ("decide", "foresees"): {form: EPISODES[form] for form in ("npz", "jsonl")},
    ("classify", "hears"): SOUNDS,
    ("translate", "transcribes"): SPOKEN,
}
INPUTS: dict[tuple[str, str], Callable[[Scene, Path], str]] = {
    ("fill", "fills"): lambda s, at: f"the [MASK] {s.thing} [MASK]",
    ("fill", "spells"): lambda s, at: f"{s.residues[:3]}[MASK]{s.residues[4:]}[MASK]",
    ("tag", "spells"): lambda s, at: s.residues,
    ("classify", "bonds"): lambda s, at: s.smiles,
    ("regress", "bonds"): lambda s, at: s.smiles,
    ("classify", "sees"): lambda s, at: str(png(at / "asked" / f"{s.number}.png", s)),
    ("classify", "hears"): lambda s, at: str(wav(at / "asked" / f"{s.number}.wav", s)),
    ("translate", "transcribes"): lambda s, at: str(wav(at / "asked" / f"{s.number}.wav", s)),
    ("embed", "reads"): lambda s, at: f"{s.text}\t{s.deed}\tthe {s.thing}",
    ("embed", "gathers"): lambda s, at: f"{s.text}\t{s.deed}\tthe {s.thing}",
    ("answer", "reads"): lambda s, at: f"Which {s.thing}?\t{s.text}",
    ("predict", "foresees"): lambda s, at: films(at / f"{s.number}.npz", [s])[0],
    ("match", "matches"): lambda s, at: f"{png(at / 'asked' / f'{s.number}.png', s)}\t{s.colour}\tpink\ta {s.thing}",
    ("decide", "foresees"): lambda s, at: json.dumps(s.episode),
}


def ability(task: str, model: str) -> str:
    return ability_for(model, task, TASKS[task].asks)


FIT = [(task, model) for task, kind in TASKS.items() for model, f in MODELS.items() if {*kind.asks} & {*f.bodies}]
DEFAULTS = [(task, kind.default) for task, kind in TASKS.items()]
SEES = [("classify", "convolution"), ("classify", "vit")]
BONDS = [("classify", "graph"), ("regress", "graph")]
HEARS = [("classify", "listener"), ("translate", "transcriber")]
ACTS = ("predict", "world", "jsonl")  # it learns rewards and ends too, of which its first form has none
every_fit = pytest.mark.parametrize(("task", "model"), FIT)
every_fit_and_form = pytest.mark.parametrize(("task", "model", "form"), [*((*fit, None) for fit in FIT), ACTS])
every_task = pytest.mark.parametrize(("task", "model"), [*DEFAULTS, *SEES, *HEARS])


def how_small(task: str, model: str) -> dict[str, Any]:
    known = options(task, model, next(iter(MODELS[model].sizes)))
    return {"model": model} | {name: value for name, value in SMALL.items() if name in known}


def files(task: str, model: str, at: Path, form: str | None = None) -> dict[str, list[str]]:
    forms = FORMS[task, ability(task, model)]
    write = forms[form or next(iter(forms))]
    return {"data": write(at / "train", TRAIN), "valid": write(at / "valid", VALID)}


def raw(task: str, model: str, at: Path, form: str | None = None) -> list[str]:
    ask = INPUTS.get((task, ability(task, model)), lambda s, at: s.text)
    if form == "jsonl":  # of predict, whose first form has nobody who acts
        ask = lambda s, at: as_json(at / f"{s.number}.jsonl", [s.episode])[0]  # noqa: E731
    return [ask(scene, at) for scene in (VALID[3], VALID[0], TRAIN[5], VALID[7])]


def job_of(task: str, model: str, at: Path, form: str | None = None, **how: Any) -> Job:
    """A run that is about to start in `at`/run."""
    at.mkdir(exist_ok=True)
    cache = {"cache": str(at / "cache")} if "cache" in options(task, model, next(iter(MODELS[model].sizes))) else {}
    given = how_small(task, model) | files(task, model, at, form) | cache
    given |= {"out": str(at / "run"), "steps": 2, "checks": 1} | how
    return planned(prepare(start(task, **given)))


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is left in the folder of who runs the tests."""
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Job, Path]]:
    """A job that is done, and the folder that its files and its run are in; each is done only once."""
    done: dict[Any, tuple[Job, Path]] = {}

    def finish(task: str, model: str, form: str | None = None) -> tuple[Job, Path]:
        if (task, model, form) not in done:
            at = tmp_path_factory.mktemp(f"{task}-{model}")
            job = job_of(task, model, at, form)
            assert [step.number for step in carry_out(job)] == [1, 2]
            done[task, model, form] = job, at
        return done[task, model, form]

    return finish


def same_answers(one: list[list[Answer]], other: list[list[Answer]]) -> None:
    assert [[answer.text for answer in best] for best in one] == [[answer.text for answer in best] for best in other]
    for best, again in zip(one, other, strict=True):
        assert [answer.logp for answer in best] == pytest.approx([answer.logp for answer in again], abs=1e-4)


def how_of(job: Job) -> dict[str, Any]:
    """A way of answering that soon comes to an end."""
    return {"longest": 12} if "longest" in {field.name for field in fields(job.task.ways)} else {}


def numbers(scores: dict[str, Any]) -> dict[str, float]:
    return {name: value for name, value in scores.items() if isinstance(value, float)}


def scored_as_in_the_last_check(job: Job) -> bool:
    """A folder scores its files as the run did."""
    loaded = load(job.run.folder)
    scores = loaded.task.score(loaded.model, loaded.rows(read_json(job.run.folder / "train.json")["valid"]))
    return numbers(scores) == pytest.approx({name: v for name, v in job.best.items() if name != "step"}, rel=1e-4)


def test_every_task_has_files_to_be_tested_with() -> None:
    assert {(task, ability(task, model)) for task, model in FIT} == {*FORMS}


@every_fit_and_form
def test_a_folder_answers_as_the_model_in_memory(task: str, model: str, form: str | None, finished: Any) -> None:
    job, at = finished(task, model, form)
    loaded = load(job.run.folder)
    asked, how = raw(task, model, at, form), how_of(job)
    in_memory = list(job.task.predict(job.progress.model.eval(), asked, job.task.ways(**how)))
    same_answers(list(loaded.answers(asked, **how)), in_memory)
    assert loaded(asked[0], **how) == in_memory[0][0].text
    assert loaded(asked, **how) == [best[0].text for best in in_memory]


@every_fit_and_form
def test_a_batch_is_answered_in_order_and_as_one_by_one(task: str, model: str, form: str | None, finished: Any) -> None:
    job, at = finished(task, model, form)
    asked, how, trained = raw(task, model, at, form), job.task.ways(**how_of(job)), job.progress.model.eval()
    together = list(job.task.predict(trained, iter(asked), how))
    assert len(together) == len(asked)
    alone = [best for i, text in enumerate(asked) for best in job.task.predict(trained, [text], how, first=i)]
    same_answers(together, alone)
    assert list(job.task.predict(trained, [], how)) == []
    for best in together:
        assert best
        assert all(isinstance(answer, Answer) for answer in best)
        assert all(np.isfinite([answer.logp, answer.score]).all() for answer in best)
        assert json.dumps([answer._asdict() for answer in best])


@pytest.mark.parametrize("speed", threads.SPEEDS)
@pytest.mark.parametrize(("task", "model"), threads.MODELS)
def test_eight_threads_are_answered_as_one(task: str, model: str, speed: str | None, finished: Any) -> None:
    """A small version of benchmarks/threads.py, which `make prove` runs."""
    job, at = finished(task, model)
    loaded = load(job.run.folder, "cpu", speed=speed)
    asks = threads.build_requests(loaded, raw(task, model, at), how_of(job))
    assert threads.find_differences(asks, calls=16, threads=8) == []


def test_the_threads_ask_of_every_task() -> None:
    assert {task for task, _ in threads.MODELS} == {*TASKS}


def test_an_answer_of_another_request_is_noticed() -> None:
    """A mutant of the proof with threads: a switch that all requests share, turned in the middle of each."""
    shared, both = [0], threading.Barrier(2)

    def ask(number: int) -> list[Answer]:
        shared[0] = number
        if threading.current_thread() is not threading.main_thread():
            both.wait()  # now the other one has turned it too
            both.wait()
        return [Answer(str(shared[0]))]

    found = threads.find_differences([lambda: ask(0), lambda: ask(1)], calls=2, threads=2)
    assert len(found) == 1


def poisoned(folder: Path, into: Path, name: str, value: float) -> Path:
    """The same folder with another value everywhere in one tensor."""
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
def test_nan_weights_are_an_error_and_no_answer(
    task: str, model: str, speed: str | None, finished: Any, tmp_path: Path
) -> None:
    """Of a norm, and of queries, whose NaN some attention kernels make numbers of."""
    job, at = finished(task, model)
    names = load_file(job.run.folder / "model.safetensors").keys()
    asked = next(name for name in sorted(names) if re.search(r"q_proj|query|c_attn|\.q\.", name) and "bias" not in name)
    normed = [name for name in sorted(names) if "norm" in name.lower() or "ln_" in name][-1:]
    for number, name in enumerate([asked, *normed]):
        folder = poisoned(job.run.folder, tmp_path / str(number), name, math.nan)
        with pytest.raises(FloatingPointError, match=r"of (its|the) weights is (NaN|not finite)"):
            list(load(folder, "cpu", speed=speed).answers(raw(task, model, at)[:1], **how_of(job)))


LAST_NORM = {"transformer": "model.decoder.layer_norm.weight", "gpt": "ln_f.weight", "bert": "output.LayerNorm.weight"}


@pytest.mark.parametrize("speed", threads.SPEEDS)
@pytest.mark.parametrize(("task", "model"), [(task, model) for task, model in threads.MODELS if model in LAST_NORM])
def test_numbers_that_become_too_large_are_an_error(
    task: str, model: str, speed: str | None, finished: Any, tmp_path: Path
) -> None:
    """All weights are finite, but the products of such are not."""
    job, at = finished(task, model)
    names = load_file(job.run.folder / "model.safetensors").keys()
    [name] = [name for name in names if name.endswith(LAST_NORM[model]) and "attention" not in name]
    folder = poisoned(job.run.folder, tmp_path / "large", name, 3e38)
    with pytest.raises(FloatingPointError, match="gives no finite numbers: all its weights are finite"):
        list(load(folder, "cpu", speed=speed).answers(raw(task, model, at)[:1], **how_of(job)))


def test_the_command_tells_which_weights_are_nan(finished: Any, tmp_path: Path, capsys: Any) -> None:
    job, at = finished("fill", "bert")
    name = "bert.encoder.layer.0.attention.self.key.weight"
    folder = poisoned(job.run.folder, tmp_path / "nan", name, math.nan)
    for more in ([], ["--json"], ["--embed"]):
        assert main(["run", str(folder), raw("fill", "bert", at)[0], *more]) == 3
        said = capsys.readouterr()
        assert said.out == ""
        assert "body.blocks.0.mixer.inner.key.weight of its weights is NaN" in said.err
    assert main(["score", str(folder), *files("fill", "bert", tmp_path)["valid"]]) == 3


def test_every_filler_has_a_probability(finished: Any, capsys: Any) -> None:
    """JSON has no -Infinity, and a special token fills nothing."""
    job, at = finished("fill", "bert")
    assert main(["run", str(job.run.folder), raw("fill", "bert", at)[0], "--n-best", "9999", "--json"]) == 0
    said = json.loads(capsys.readouterr().out, parse_constant=lambda word: pytest.fail(word))
    assert len(said["answers"]) == len(job.task.tokenizer) - len({*job.task.tokenizer.special})


@every_fit_and_form
def test_scores_are_numbers_answers_and_samples(task: str, model: str, form: str | None, finished: Any) -> None:
    job, _ = finished(task, model, form)
    rows = job.data.sets["valid"]
    scores = job.task.score(job.progress.model.eval(), rows)
    assert numbers(scores)["loss"] > 0
    assert all(np.isfinite(value) for value in numbers(scores).values())
    rank = job.task.rank(numbers(scores))
    assert isinstance(rank, tuple)
    assert all(isinstance(value, float) for value in rank)
    assert not job.task.rank(numbers(scores)) > rank, "as good is not better"
    assert job.task.rank(numbers(scores) | {"loss": 1e9}) <= rank
    assert all(isinstance(answer, str) for answer in scores["answers"])
    assert len(scores["answers"]) == (len(rows) if isinstance(rows, list) else 1)
    assert all({*sample} == {"source", "wanted", "answer"} for sample in scores["samples"])
    assert scores["samples"]


@every_fit
def test_an_empty_input_is_answered_or_refused(task: str, model: str, finished: Any) -> None:
    job, _ = finished(task, model)
    with suppress(ValueError):
        [best] = job.task.predict(job.progress.model.eval(), [""], job.task.ways(**how_of(job)))
        assert np.isfinite(best[0].logp)
        assert "nan" not in best[0].text


@every_fit
def test_files_are_scored_as_they_were_in_the_last_check(task: str, model: str, finished: Any) -> None:
    assert scored_as_in_the_last_check(finished(task, model)[0])


FORMS_LEFT = [
    (task, next(m for t, m in [*DEFAULTS, *FIT] if t == task and ability(t, m) == able), form)
    for (task, able), forms in FORMS.items()
    for form in [*forms][1:]
    if task in TASKS
]


@pytest.mark.parametrize(("task", "model", "form"), FORMS_LEFT)
def test_every_form_of_data_is_read(task: str, model: str, form: str, finished: Any) -> None:
    assert scored_as_in_the_last_check(finished(task, model, form)[0])


def switches(task: str, model: str) -> Iterator[dict[str, Any]]:
    """Each switch of a task and of its input turned, and each of their words chosen, one at a time."""
    for group in (TASKS[task], *TASKS[task].groups(ability(task, model))):
        for name, option in options_of(group).items():
            if not follows(group, name):
                others = [not option.default] if option.kind is bool else words_of(option.kind)
                unfit = "unigram" if task == "write" else "bytes"
                yield from ({name: value} for value in others if value not in (option.default, unfit))


SWITCHES = [(task, model, how) for task, model in [*DEFAULTS, SEES[0], *BONDS] for how in switches(task, model)]


@pytest.mark.parametrize(("task", "model", "how"), SWITCHES, ids=str)
def test_a_folder_remembers_every_switch(task: str, model: str, how: dict[str, Any], tmp_path: Path) -> None:
    job = job_of(task, model, tmp_path, **how)
    assert [step.number for step in carry_out(job)] == [1, 2]
    assert scored_as_in_the_last_check(job)
    asked, ways = raw(task, model, tmp_path), how_of(job)
    in_memory = list(job.task.predict(job.progress.model.eval(), asked, job.task.ways(**ways)))
    same_answers(list(load(job.run.folder).answers(asked, **ways)), in_memory)


@pytest.mark.parametrize(("task", "model"), [*DEFAULTS, *HEARS])
def test_the_command_trains_answers_and_scores(task: str, model: str, tmp_path: Path, capsys: Any) -> None:
    given = how_small(task, model) | {"steps": 1, "checks": 1}
    paths = files(task, model, tmp_path)
    typed = [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    named = [word for name, some in paths.items() for word in (f"--{name}", *some)]
    run = str(tmp_path / "run")
    assert main(["train", task, *named, "--test", *paths["valid"], "--out", run, *typed]) == 0
    assert f"regard run {run}" in capsys.readouterr().out
    asked = raw(task, model, tmp_path)
    assert main(["run", run, "--json", *asked]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["source"] for line in told] == asked
    assert main(["score", run, *paths["valid"], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["loss"] > 0
    assert "| loss |" in (tmp_path / "run" / "README.md").read_text()


OTHERS = [*SEES, *HEARS, *BONDS, ("write", "recurrent"), ("translate", "recurrent")]


@pytest.mark.parametrize(("task", "model", "form"), [*((*one, None) for one in [*DEFAULTS, *OTHERS]), ACTS])
def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(
    task: str, model: str, form: str | None, tmp_path: Path
) -> None:
    known = options(task, model, next(iter(MODELS[model].sizes)))
    how = {"steps": 4, "checks": 2} | {
        name: value
        for name, value in {"dropout": 0.2, "shift": 1, "turn": 20.0, "tint": 0.2, "tempo": 0.2, "noise": -9.0}.items()
        if name in known
    }
    whole = job_of(task, model, tmp_path / "whole", form, **how)
    losses = [step.loss for step in carry_out(whole)]
    stopped = job_of(task, model, tmp_path / "stopped", form, **how)
    steps = carry_out(stopped)
    assert [next(steps).loss for _ in range(3)] == losses[:3]
    save(stopped)
    steps.close()
    assert [step.loss for step in train(task, resume=True, out=str(stopped.run.folder))] == losses[3:]
    for file in ("model.safetensors", "step-4/state.safetensors", "step-4/state.json", "task.json", "config.json"):
        assert (stopped.run.folder / file).read_bytes() == (whole.run.folder / file).read_bytes(), file


@pytest.mark.parametrize(("task", "model"), [*DEFAULTS, *SEES, *HEARS, *BONDS])
def test_a_number_that_is_none_stops_the_run_and_its_examples_are_named(
    task: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the third step the loss is none: neither weights nor averages move, and the batch can be looked at."""
    job = job_of(task, model, tmp_path, steps=5, checks=5)
    steps = carry_out(job)
    next(steps), next(steps)
    before = {name: tensor.clone() for name, tensor in tensors_of(job.progress).items()}
    right = job.task.loss
    monkeypatch.setattr(job.task, "loss", lambda *args: replace(right(*args), total=right(*args).total * math.nan))
    with pytest.raises(FloatingPointError, match=r"step 3: the loss is nan .*step-2\. --skip-nonfinite") as error:
        next(steps)
    for name, tensor in tensors_of(job.progress).items():
        assert torch.equal(tensor, before[name]), name
    lines = [json.loads(line) for line in (job.run.folder / "bad-batch.jsonl").read_text().splitlines()]
    assert lines
    assert f"{lines[0]['file']}:{lines[0]['line']}" in str(error.value)
    for line in lines:
        assert (line["step"], line["alone"]) == (3, "no number")
        assert line["text"]
    assert [one.get("step") for one in job.run.metrics() if "loss" in one] == [1, 2], "no line hides it"


# In one all other pairs of a batch are wrong answers, in the other another token is hidden each time.
ADDS_UP = [(task, model, None) for task, model in FIT if task not in ("match", "embed", "fill")]


@pytest.mark.parametrize(("task", "model", "form"), [*ADDS_UP, ACTS])
def test_parts_of_a_batch_add_up_to_the_whole(task: str, model: str, form: str | None, finished: Any) -> None:
    job, _ = finished(task, model, form)
    twin = copy.deepcopy(job.progress.model).double().eval()
    [rows] = job.examples.epoch(10**6, 1, 0)

    def sums(*parts: Any) -> tuple[float, int, list[torch.Tensor]]:
        twin.zero_grad()
        losses = [job.task.loss(twin, doubled(job.task.batch(job.examples, part))) for part in parts]
        sum(loss.total for loss in losses).backward()
        grads = [w.grad.clone() for w in twin.parameters() if w.grad is not None]
        return sum(loss.total.item() for loss in losses), sum(loss.count for loss in losses), grads

    total, count, grads = sums(rows)
    added, counted, accumulated = sums(rows[::2], rows[1::2])
    assert (added, counted) == (pytest.approx(total, rel=1e-10), count)
    for one, other in zip(grads, accumulated, strict=True):
        assert (one - other).abs().max() <= 1e-10 * max(1.0, one.abs().max().item())


def doubled(batch: Any) -> Any:
    return type(batch)(*(t.double() if t is not None and t.is_floating_point() else t for t in batch))


@pytest.mark.parametrize(
    ("task", "model"), [(t, m) for t in TASKS for m in MODELS if (t, m) not in FIT], ids=lambda name: name
)
def test_a_model_that_does_not_fit_is_refused_with_those_that_do(task: str, model: str) -> None:
    fit = [name for kind, name in FIT if kind == task]
    with pytest.raises(ValueError, match=f"{task} needs a model that .*, which {model} does not") as error:
        settle(task, model)
    assert str(error.value).endswith("take --model " + " or ".join(fit))


@pytest.fixture(scope="module")
def bundled() -> Iterator[Callable[[str, str], dict[str, list[str]]]]:
    """What each set that ships with the package asks. The generators are run once, those that take long for a part."""
    from regard.data.bundled import chains, paths, phrasebook, shapes

    with pytest.MonkeyPatch.context() as patch:
        part = {"phrases": 20_000, "paths": 4_000}
        for module, name in ((phrasebook, "phrases"), (shapes, "shapes"), (chains, "chains"), (paths, "paths")):
            made = list(getattr(module, name)(*([part[name]] if name in part else [])))
            patch.setattr(module, name, lambda made=made: iter(made))

        def asked(task: str, able: str) -> dict[str, list[str]]:
            kind, model = TASKS[task], next(m for t, m in FIT if t == task and ability(t, m) == able)
            settings = settle(task, model)
            if "bundled" in vars(kind):
                sets = kind.bundled(able, **settings.aim)
            else:
                sets = kind.read(Files(), able, settings.reading, **settings.aim).sets
            return {name: [fold(getattr(row, "asked", row[0])) for row in rows] for name, rows in sets.items()}

        yield asked


@pytest.mark.parametrize(("task", "able"), sorted({(task, ability(task, model)) for task, model in FIT}))
def test_what_ships_has_three_sets_that_share_nothing_they_ask(task: str, able: str, bundled: Any) -> None:
    sets = bundled(task, able)
    assert {*sets} == {"train", "valid", "test"}
    one, other, third = ({*asked} for asked in sets.values())
    assert min(map(len, (one, other, third))) >= 100
    assert not one & other
    assert not one & third
    assert not other & third


FROM_BERT = [task for task, model in FIT if model == "bert"]


@pytest.mark.parametrize("task", FROM_BERT)
def test_a_task_may_start_from_a_model_that_filled(task: str, finished: Any, tmp_path: Path) -> None:
    filled = load(finished("fill", "bert")[0].run.folder)
    how = {name: value for name, value in how_small(task, "bert").items() if name in ("device", "batch_tokens")}
    cache = {"cache": str(tmp_path / "cache")} if task == "fill" else {}
    given = files(task, "bert", tmp_path) | {"out": str(tmp_path / "run"), "steps": 2, "checks": 1} | how | cache
    job = planned(prepare(start(task, from_=str(finished("fill", "bert")[0].run.folder), **given)))
    for name, weight in filled.model.body.state_dict().items():
        assert torch.equal(weight, job.progress.model.body.state_dict()[name]), name
    assert job.task.tokenizer.roles == filled.tokenizer.roles
    assert job.task.tokenizer.engine.get_vocab() == filled.tokenizer.engine.get_vocab()
    assert [step.number for step in carry_out(job)] == [1, 2]
    assert load(job.run.folder)(raw(task, "bert", tmp_path)[0]) is not None


@pytest.mark.parametrize(
    ("task", "of", "how", "says"),
    [
        ("classify", ("fill", "bert"), {"model": "gpt"}, "is a bert, not a gpt: leave out --model"),
        ("classify", ("fill", "bert"), {"dim": 32}, "has dim 16: leave out --dim"),
        ("tag", ("fill", "bert"), {"layers": 3}, "has layers 1: leave out --layers"),
        ("write", ("fill", "bert"), {}, "write needs a model that .*, which bert does not: take --model .*nano"),
        ("tag", ("classify", "pooled"), {}, "tag needs a model that .*, which pooled does not: take --model .*bert"),
        ("tag", ("write", "recurrent"), {}, r"lacks \d+ weights of this model: body\.blocks\.0\."),
        ("classify", ("translate", "recurrent"), {}, r"lacks \d+ weights of this model: body\.blocks\.0\."),
        ("fill", ("write", "recurrent"), {}, r"this tokenizer has no \[MASK\]: it was made for another kind"),
        ("write", ("tag", "gpt"), {}, "puts marks around every text.* start from a model that was trained to write"),
    ],
)
def test_a_start_that_does_not_fit_is_refused_by_name(
    task: str, of: tuple[str, str], how: dict[str, Any], says: str, finished: Any, tmp_path: Path
) -> None:
    begun = finished(*of)[0].run.folder
    model = of[1] if {*TASKS[task].asks} & {*MODELS[of[1]].bodies} else TASKS[task].default
    cache = {"cache": str(tmp_path / "cache")} if task in ("fill", "write") else {}
    given = files(task, model, tmp_path) | {"out": str(tmp_path / "run"), "steps": 1} | cache | how
    with pytest.raises(ValueError, match=says):
        list(train(task, from_=str(begun), **given))
    assert not (tmp_path / "run").exists(), "nothing is left of what did not begin"


def test_a_run_that_started_from_another_goes_on_without_it(finished: Any, tmp_path: Path) -> None:
    begun = finished("fill", "bert")[0].run.folder
    given = files("classify", "bert", tmp_path) | {"out": str(tmp_path / "run"), "steps": 4, "checks": 2}
    steps = train("classify", from_=str(begun), batch_tokens=400, device="cpu", **given)
    assert [next(steps).number for _ in range(2)] == [1, 2]
    steps.close()
    told = read_json(tmp_path / "run" / "train.json")
    (tmp_path / "run" / "train.json").write_text(json.dumps(told | {"from_": str(tmp_path / "gone")}))
    out = str(tmp_path / "run")
    assert [step.number for step in train("classify", resume=True, out=out)] == [3, 4]


@pytest.mark.parametrize("task", [task for task, model in FIT if model == "nano"])
def test_a_task_may_start_from_a_model_that_wrote(task: str, finished: Any, tmp_path: Path) -> None:
    begun = finished("write", "nano")[0]
    cache = {"cache": str(tmp_path / "cache")} if task == "write" else {}
    given = files(task, "nano", tmp_path) | {"out": str(tmp_path / "run"), "steps": 2, "checks": 1} | cache
    job = planned(prepare(start(task, from_=str(begun.run.folder), device="cpu", batch_tokens=400, **given)))
    assert job.task.tokenizer.engine.get_vocab() == begun.task.tokenizer.engine.get_vocab()
    assert [step.number for step in carry_out(job)] == [1, 2]
    test_an_empty_input_is_answered_or_refused(task, "nano", lambda *_: (job, tmp_path))


def test_a_score_draws_from_numbers_of_its_own(finished: Any) -> None:
    """Which tokens `fill` hides in a check does not hang on what other threads draw meanwhile."""
    job, _ = finished("fill", "bert")
    task, model, rows = job.task, job.progress.model.eval(), job.data.sets["valid"]
    wanted, before = numbers(task.score(model, rows)), task.chosen
    task.chosen = lambda *given: [before(*given), torch.rand(3)][0]
    try:
        assert numbers(task.score(model, rows)) == wanted
    finally:
        del task.chosen
