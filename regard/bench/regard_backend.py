"""Our own model, as a runner: the tokens that `regard run` would give, without the text around them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.bench.backend import Rows, Runner
from regard.check.compare import model_outputs
from regard.check.probes import ModelInputs
from regard.data.batches import Ragged
from regard.generate import Decoding, generate
from regard.load import Loaded, load
from regard.speed.saved import holds_int8
from regard.tasks.translate import Translate
from regard.tasks.write import Write

SPEEDS = ("exact", "int8")


def speeds_of(folder: Path) -> tuple[str, ...]:
    """What was rounded is never exact again."""
    return ("int8",) if holds_int8(folder) else SPEEDS


def open_ours(folder: Path, speed: str) -> Loaded:
    return load(folder, device="cpu", speed=speed)


def ours(loaded: Loaded, speed: str) -> Runner:
    def translate(rows: Rows, tokens: int, beam: int) -> list[list[int]]:
        how = Decoding(beam=beam, shortest=tokens, longest=tokens)
        task: Any = loaded.task
        found = task.search(loaded.model, Ragged(rows), np.arange(len(rows)), how)
        return [best[0].ids for best in found]

    @torch.inference_mode()
    def write(rows: Rows, tokens: int, beam: int) -> list[list[int]]:
        how = Decoding(beam=beam, shortest=tokens, longest=tokens)
        task: Any = loaded.task
        model, ids = loaded.model, torch.tensor(rows)
        caches = model.body.caches()
        if ids.size(1) > 1:
            model.body(ids[:, :-1], cache=caches)
        every = torch.arange(len(rows))
        limits = torch.full_like(every, tokens)
        found = generate(task.step(model), caches, ids[:, -1], task.tokenizer.end, limits, how, every)
        return [best[0].ids for best in found]

    def read(given: ModelInputs) -> Tensor:
        return model_outputs(loaded, given)

    if isinstance(loaded.task, Translate | Write):
        # At its limit an answer only ends, which takes a step as well.
        return Runner("regard", speed, translate if isinstance(loaded.task, Translate) else write, extra=1)
    return Runner("regard", speed, read=read)
