"""A folder becomes a model that answers.

translate = load("runs/demo")
translate("Tea and water please")            'Tee und Wasser bitte'
translate(["Good morning", "Thank you"])     a list for a list
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, overload

from regard.choose import choose
from regard.device import pick_device
from regard.hub.folder import Origin, read_config, read_weights, write_config, write_weights
from regard.hub.remote import find
from regard.models import MODELS, ability_for
from regard.parts.heads import Model
from regard.purpose import agreed, answers_of, read_task, write_task
from regard.speed.fast import fast
from regard.speed.int8 import is_rounded
from regard.speed.room import unfilled
from regard.speed.saved import holds_int8, read_int8, write_int8
from regard.tasks import TASKS
from regard.tasks.task import Answer, Task


class Loaded:
    """Model and task of a folder, together. `model` answers; `plain` is it in plain modules, if that differs."""

    def __init__(self, model: Model, task: Task, origin: Origin | None = None, plain: Model | None = None):
        self.model, self.task, self.origin = model, task, origin
        self.plain = model if plain is None else plain

    @property
    def tokenizer(self) -> Any:
        return getattr(self.task, "tokenizer", None)

    @overload
    def __call__(self, text: str, **how: Any) -> str: ...
    @overload
    def __call__(self, text: Iterable[str], **how: Any) -> list[str]: ...
    def __call__(self, text: str | Iterable[str], **how: Any) -> str | list[str]:
        """The best answer; `how` takes the task's ways of answering: beam, temperature, n_best ..."""
        one = isinstance(text, str)
        answers = [best[0].text for best in self.answers([text] if isinstance(text, str) else text, **how)]
        return answers[0] if one else answers

    def answers(self, texts: Iterable[str], **how: Any) -> Iterator[list[Answer]]:
        """The best answers to each text with their joint log-probabilities, in order, as they are found."""
        ways: Any = self.task.ways
        for name in how:
            choose("way of answering", name, [field.name for field in fields(ways)])
        usual = self.task.way_defaults(getattr(self.task, "generation", None))
        yield from self.task.predict(self.model, texts, ways(**{**usual, **how}))

    def embed(self, texts: Iterable[str]) -> Iterator[list[float]]:
        """One vector for each text or picture: the mean of what the body makes of it."""
        return self.task.embed(self.model, texts)

    def save(self, folder: str | Path) -> None:
        """As it came: in the same type of numbers, with all that the folder it came from said."""
        folder = Path(folder)
        if folder.exists() and any(folder.iterdir()):
            raise ValueError(f"{folder} is there already, and not empty: choose another folder")
        folder.mkdir(parents=True, exist_ok=True)
        if is_rounded(self.plain):
            write_int8(folder, self.plain, self.origin)
            return write_task(folder, self.task)
        write_config(folder, self.plain, answers_of(self.task), self.origin)
        write_task(folder, self.task)
        return write_weights(folder / "model.safetensors", self.plain, self.origin)

    def rows(self, paths: Iterable[str], fields: tuple[str, ...] | None = None, skip_bad: bool = False) -> Any:
        """Files as the task scores them: `loaded.task.score(loaded.model, loaded.rows(["test.tsv"]))`."""
        model = next(name for name, family in MODELS.items() if isinstance(self.model.body.config, family.config))
        kind = next(name for name, task in TASKS.items() if type(self.task) is task)
        return self.task.read_one(tuple(paths), fields, ability_for(model, kind, self.task.asks), skip_bad)


def load(name: str | Path, device: str = "auto", download: bool | None = None, speed: str | None = None) -> Loaded:
    """A model folder, or a name on the hub, which is fetched only if `download` says so.

    `speed` "exact" gives the same tokens sooner, "int8" rounds the weights; without it, all is there to be looked at.
    """
    folder = find(str(name), download)
    rounded = holds_int8(folder)
    with unfilled():
        names, config = read_config(folder, weights=not rounded)
        task = read_task(folder)
        kind = next(name for name, kind in TASKS.items() if type(task) is kind)
        config = agreed(config, task, folder)
        body = MODELS[names.model].bodies[ability_for(names.model, kind, task.asks)]
        model = task.head(body(config))
    if rounded:
        origin, plain = read_int8(folder, model)
        return Loaded(fast(plain, "int8")[0], task, origin, plain)
    with unfilled():
        origin = read_weights(folder, names, model)
    plain = model.to(pick_device(device)).eval()
    model, plain = fast(plain, speed) if speed else (plain, plain)
    return Loaded(model, task, origin, plain)
