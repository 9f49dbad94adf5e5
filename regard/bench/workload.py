"""The workload of a benchmark: prompts or batches from the user's or bundled texts, or images; and its FLOPs.

weights of a step = FLOPs of a step / 2          one multiplication and one addition for each weight
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from regard.bench.backend import Backend
from regard.check.compare import model_outputs
from regard.check.probes import ModelInputs
from regard.data.batches import Ragged, padding_mask
from regard.data.bundled import phrasebook, shapes, stories
from regard.load import LoadedModel
from regard.tasks.translate import Translate
from regard.tasks.write import Write

PROMPT_TOKENS, NEW_TOKENS = 64, 32
INPUTS = 128  # texts or images


class GenerationWorkload(NamedTuple):
    """For generative tasks: prompts of one length, or sentences to translate."""

    rows: list[list[int]]
    new_tokens: int  # to generate for each row


class ForwardWorkload(NamedTuple):
    """For all other tasks: texts as ids, the longest last, or images."""

    rows: list[list[int]]
    images: torch.Tensor | None
    pad: int

    def __len__(self) -> int:
        return len(self.rows) if self.images is None else len(self.images)

    def batches(self, size: int) -> Iterator[ModelInputs]:
        if self.images is not None:
            yield from (ModelInputs(batch) for batch in self.images.split(size))
            return
        for i in range(0, len(self.rows), size):
            table = Ragged(self.rows[i : i + size])
            ids = table.pad(np.arange(len(table)), self.pad)
            yield ModelInputs(ids, padding_mask(table.lengths, ids.size(1)))


def build_workload(loaded: LoadedModel, texts: Sequence[str] | None) -> GenerationWorkload | ForwardWorkload:
    task: Any = loaded.task
    if isinstance(task, Write):
        return prompts(loaded, [*stories.stories(8)] if texts is None else texts)
    if getattr(task, "feature_extractor", None) is not None:
        raise ValueError("regard bench measures models of texts and of images, and this one reads audio")
    if getattr(task, "image_processor", None) is not None:
        scenes = shapes.shapes(INPUTS)
        pixels = torch.from_numpy(task.image_processor.prepare([scene.pixels for scene in scenes]))
        return ForwardWorkload([], task.image_processor.normalize(pixels), 0)
    if loaded.tokenizer is None:
        raise ValueError("regard bench measures models of texts and of images, and this one reads neither")
    texts = [phrase.english for phrase in phrasebook.phrases(INPUTS)] if texts is None else texts
    context = loaded.model.body.config.context
    rows = task.encode_sources(texts) if isinstance(task, Translate) else loaded.tokenizer.encode(texts)
    rows = [row[:context] for row in rows[:INPUTS] if row]
    if not rows:
        raise ValueError("there is no text to measure with: give a file that has some")
    if isinstance(task, Translate):
        return GenerationWorkload((rows * INPUTS)[:INPUTS], min(NEW_TOKENS, context // 2))
    return ForwardWorkload(sorted(rows, key=len), None, loaded.tokenizer.pad_token_id)


def prompts(loaded: LoadedModel, texts: Sequence[str]) -> GenerationWorkload:
    """Consecutive pieces of all texts, which are repeated if they are too short."""
    ids = [token for row in loaded.tokenizer.encode(texts) for token in row]
    if not ids:
        raise ValueError("there is no text to measure with: give a file that has some")
    context = loaded.model.body.config.context
    length = max(1, min(PROMPT_TOKENS, context // 2))
    stream = ids * (INPUTS * length // len(ids) + 2)
    rows = [stream[i * length : (i + 1) * length] for i in range(INPUTS)]
    return GenerationWorkload(rows, max(2, min(NEW_TOKENS, context - length - 1)))


def run_once(backend: Backend, workload: GenerationWorkload | ForwardWorkload) -> None:
    """One generation of one row, or one forward of eight inputs."""
    if isinstance(workload, GenerationWorkload):
        assert backend.generate is not None
        backend.generate(workload.rows[:1], workload.new_tokens, 1)
    else:
        assert backend.forward is not None
        backend.forward(next(workload.batches(8)))


class FlopCounts(NamedTuple):
    prompt: float  # FLOPs of the first prompt, or of all inputs
    step: float = 0.0  # FLOPs of one decoding step


def count_flops(loaded: LoadedModel, workload: GenerationWorkload | ForwardWorkload) -> FlopCounts:
    """FLOPs of the plain model, without padding."""
    model = loaded.model.requires_grad_(False)  # else FlopCounterMode looks for gradients
    if isinstance(workload, ForwardWorkload):
        with FlopCounterMode(display=False) as prefill_count:
            for inputs in workload.batches(1):
                model_outputs(loaded, ModelInputs(inputs.x))
        return FlopCounts(prefill_count.get_total_flops())
    ids = torch.tensor(workload.rows[:1])
    with FlopCounterMode(display=False) as prefill_count:
        if isinstance(loaded.task, Translate):
            caches, step = model.body.decoder_caches(ids, None), model.body.decode
        else:
            caches, step = model.body.caches(), model.body
            model.body(ids, cache=caches)
    with FlopCounterMode(display=False) as step_count:
        model.head(step(ids[:, -1:], cache=caches)[:, -1])
    return FlopCounts(prefill_count.get_total_flops(), step_count.get_total_flops())
