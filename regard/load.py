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
from regard.hub.folder import read_config, read_weights
from regard.models import MODELS, ability_for
from regard.parts.heads import Model
from regard.purpose import read_task
from regard.tasks import TASKS
from regard.tasks.task import Answer, Task


class Loaded:
    """Model and task of a folder, together."""

    def __init__(self, model: Model, task: Task):
        self.model, self.task = model, task

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
        yield from self.task.predict(self.model, texts, ways(**how))

    def embed(self, texts: Iterable[str]) -> Iterator[list[float]]:
        """One vector for each text or picture: the mean of what the body makes of it."""
        yield from self.task.embed(self.model, texts)

    def rows(self, paths: Iterable[str], fields: tuple[str, ...] | None = None, skip_bad: bool = False) -> Any:
        """Files as the task scores them: `loaded.task.score(loaded.model, loaded.rows(["test.tsv"]))`."""
        model = next(name for name, family in MODELS.items() if isinstance(self.model.body.config, family.config))
        kind = next(name for name, task in TASKS.items() if type(self.task) is task)
        return self.task.read_one(tuple(paths), fields, ability_for(model, kind, self.task.asks), skip_bad)


def load(folder: str | Path, device: str = "auto") -> Loaded:
    folder = Path(folder)
    names, config = read_config(folder)
    task = read_task(folder)
    name = next(name for name, kind in TASKS.items() if type(task) is kind)
    for field, value in task.sizes().items():
        if getattr(config, field, value) != value:
            raise ValueError(
                f"{folder}: the data of the task has {field} {value}, but the model {getattr(config, field)}"
            )
    body = MODELS[names.model].bodies[ability_for(names.model, name, task.asks)]
    model = task.head(body(config))
    read_weights(folder / "model.safetensors", names, model)
    return Loaded(model.to(pick_device(device)).eval(), task)
