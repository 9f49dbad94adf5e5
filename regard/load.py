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
from regard.data.tokens import Tokenizer
from regard.device import pick_device
from regard.generate import Decoding
from regard.hub.folder import read_config, read_json, read_weights
from regard.models import MODELS
from regard.parts.heads import Model
from regard.tasks import TASKS
from regard.tasks.passages import Answer


class Loaded:
    """Model, tokenizer and task of a folder, together."""

    def __init__(self, model: Model, task: Any):
        self.model, self.task, self.tokenizer = model, task, task.tokenizer

    @overload
    def __call__(self, text: str, **how: Any) -> str: ...
    @overload
    def __call__(self, text: Iterable[str], **how: Any) -> list[str]: ...
    def __call__(self, text: str | Iterable[str], **how: Any) -> str | list[str]:
        """The best answer; `how` takes the fields of Decoding: beam, length_penalty, temperature ..."""
        one = isinstance(text, str)
        answers = [best[0].text for best in self.answers([text] if isinstance(text, str) else text, **how)]
        return answers[0] if one else answers

    def answers(self, texts: Iterable[str], window: int = 1024, **how: Any) -> Iterator[list[Answer]]:
        """The best answers to each text with their joint log-probabilities, in order, as they are found."""
        for name in how:
            choose("way of decoding", name, [field.name for field in fields(Decoding)])
        yield from self.task.predict(self.model, texts, Decoding(**how), window)


def load(folder: str | Path, device: str = "auto") -> Loaded:
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(
            f"{folder} is not a folder; a model folder holds config.json, model.safetensors and tokenizer.json"
        )
    names, config = read_config(folder)
    told: dict[str, Any] = read_json(folder / "task.json") if (folder / "task.json").exists() else {"task": "translate"}
    choose(f"task (in {folder / 'task.json'})", told.get("task"), TASKS)
    kind = TASKS[told.pop("task")]
    known = {field.name for field in fields(kind)}
    tokenizer = Tokenizer.load(folder)
    if len(tokenizer) != config.vocab:
        raise ValueError(f"{folder}: the tokenizer has {len(tokenizer)} pieces, but the model {config.vocab}")
    task = kind(**{name: value for name, value in told.items() if name in known}, tokenizer=tokenizer)
    model = task.head(MODELS[names.model].body(config))
    read_weights(folder / "model.safetensors", names, model)
    return Loaded(model.to(pick_device(device)).eval(), task)
