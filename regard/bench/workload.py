"""What a model is asked while it is timed: rows of tokens from your text or from what ships, or pictures.

weights of a step = operations of a step / 2          each weight is multiplied once, and added
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from regard.bench.backend import Runner
from regard.check.compare import model_outputs
from regard.check.probes import ModelInputs
from regard.data.batches import Ragged, padding_mask
from regard.data.bundled import phrasebook, shapes, stories
from regard.load import Loaded
from regard.tasks.translate import Translate
from regard.tasks.write import Write

PROMPT, NEW = 64, 32  # tokens
READ = 128  # texts or pictures


class Written(NamedTuple):
    """Work for what writes: prompts of one length, or sentences to translate."""

    rows: list[list[int]]
    new: int  # tokens to write after each


class Read(NamedTuple):
    """Work for what reads: texts as tokens, the longest last, or pictures."""

    rows: list[list[int]]
    pictures: torch.Tensor | None
    pad: int

    def __len__(self) -> int:
        return len(self.rows) if self.pictures is None else len(self.pictures)

    def batches(self, size: int) -> Iterator[ModelInputs]:
        if self.pictures is not None:
            yield from (ModelInputs(some) for some in self.pictures.split(size))
            return
        for i in range(0, len(self.rows), size):
            table = Ragged(self.rows[i : i + size])
            ids = table.padded(np.arange(len(table)), self.pad)
            yield ModelInputs(ids, padding_mask(table.lengths, ids.size(1)))


def work_for(loaded: Loaded, texts: Sequence[str] | None) -> Written | Read:
    task: Any = loaded.task
    if isinstance(task, Write):
        return prompts(loaded, [*stories.stories(8)] if texts is None else texts)
    if getattr(task, "sounds", None) is not None:
        raise ValueError("regard bench measures models that read, write or see, and this one hears")
    if getattr(task, "pictures", None) is not None:
        scenes = shapes.shapes(READ)
        pixels = torch.from_numpy(task.pictures.prepare([scene.pixels for scene in scenes]))
        return Read([], task.pictures.normal(pixels), 0)
    if loaded.tokenizer is None:
        raise ValueError("regard bench measures models of texts and of pictures, and this one reads neither")
    texts = [phrase.english for phrase in phrasebook.phrases(READ)] if texts is None else texts
    context = loaded.model.body.config.context
    rows = task.encode(texts) if isinstance(task, Translate) else loaded.tokenizer.encode(texts)
    rows = [row[:context] for row in rows[:READ] if row]
    if not rows:
        raise ValueError("there is no text to measure with: give a file that has some")
    if isinstance(task, Translate):
        return Written((rows * READ)[:READ], min(NEW, context // 2))
    return Read(sorted(rows, key=len), None, loaded.tokenizer.pad)


def prompts(loaded: Loaded, texts: Sequence[str]) -> Written:
    """Parts of one long text, read again from the start where it is too short."""
    ids = [number for row in loaded.tokenizer.encode(texts) for number in row]
    if not ids:
        raise ValueError("there is no text to measure with: give a file that has some")
    context = loaded.model.body.config.context
    length = max(1, min(PROMPT, context // 2))
    long = ids * (READ * length // len(ids) + 2)
    return Written([long[i * length : (i + 1) * length] for i in range(READ)], max(2, min(NEW, context - length - 1)))


def once(runner: Runner, work: Written | Read) -> None:
    """All that one answer needs."""
    if isinstance(work, Written):
        assert runner.write is not None
        runner.write(work.rows[:1], work.new, 1)
    else:
        assert runner.read is not None
        runner.read(next(work.batches(8)))


class Cost(NamedTuple):
    prompt: float  # operations for the first row, or for all texts
    step: float = 0.0  # for one more token


def cost(loaded: Loaded, work: Written | Read) -> Cost:
    """Of the plain model, without padding."""
    model = loaded.model.requires_grad_(False)  # what counts looks for gradients otherwise
    if isinstance(work, Read):
        with FlopCounterMode(display=False) as count:
            for given in work.batches(1):
                model_outputs(loaded, ModelInputs(given.x))
        return Cost(count.get_total_flops())
    ids = torch.tensor(work.rows[:1])
    with FlopCounterMode(display=False) as count:
        if isinstance(loaded.task, Translate):
            caches, step = model.body.read(ids, None), model.body.decode
        else:
            caches, step = model.body.caches(), model.body
            model.body(ids, cache=caches)
    with FlopCounterMode(display=False) as one:
        model.head(step(ids[:, -1:], cache=caches)[:, -1])
    return Cost(count.get_total_flops(), one.get_total_flops())
