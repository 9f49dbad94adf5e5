"""The workload of a benchmark: prompts or batches from a user's requests or synthetic rows; and its FLOPs.

weights of a step = FLOPs of a step / 2          one multiplication and one addition for each weight
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from regard.bench.backend import Backend
from regard.check.causality import is_seq2seq
from regard.check.compare import model_outputs
from regard.check.probes import ForwardBatches, forward_batches, read_rows, reads_inputs_only, request_texts
from regard.data.batches import Ints
from regard.loaded_model import LoadedModel
from regard.modalities.protocols import EncodedInputs, Inputs, Target
from regard.modalities.token_preprocessor import TokenIds
from regard.tasks.inference import context_of
from regard.tasks.task import Batch

PROMPT_TOKENS, NEW_TOKENS = 64, 32
PROMPT_TEXTS = 8  # synthetic ones, of which prompts are pieces
INPUTS = 128
PURPOSE = "measure"


class GenerationWorkload(NamedTuple):
    """For generative tasks: prompts of one length, or inputs to translate."""

    rows: list[list[int]]  # token ids; or the number of one of the sources
    new_tokens: int  # to generate for each row
    sources: EncodedInputs | None = None  # inputs that are not tokens

    @property
    def prompt_tokens(self) -> int:
        """Of the first row."""
        return len(self.rows[0]) if self.sources is None else int(self.sources.lengths[0, 0])


@dataclass(frozen=True)
class ForwardWorkload:
    """For all other tasks."""

    forward: ForwardBatches
    order: Ints  # of the rows, the longest last

    def __len__(self) -> int:
        return len(self.order)

    def batches(self, size: int) -> Iterator[Batch]:
        for i in range(0, len(self), size):
            yield self.forward.collate(self.order[i : i + size])


def build_workload(loaded: LoadedModel, texts: Sequence[str] | None) -> GenerationWorkload | ForwardWorkload:
    task, context = loaded.task, context_of(loaded.model)
    if task.generates:
        return inputs_to_translate(loaded, texts) if is_seq2seq(task) else prompts(loaded, texts)
    target = Target.MASKED if reads_inputs_only(task) else task.target  # whole inputs, the same for many tasks
    forward = forward_batches(task, read_rows(task, texts, INPUTS, PURPOSE, target), context, context)
    return ForwardWorkload(forward, np.argsort(forward.lengths, kind="stable"))


def inputs_to_translate(loaded: LoadedModel, texts: Sequence[str] | None) -> GenerationWorkload:
    task: Any = loaded.task
    sources: EncodedInputs = task.encode_sources(read_rows(task, texts, INPUTS, PURPOSE, task.target))
    context = context_of(loaded.model)
    new_tokens = min(NEW_TOKENS, context // 2)
    if isinstance(sources, TokenIds):
        rows = [sources.ids[i][:context].tolist() for i in range(sources.units)]
        return GenerationWorkload((rows * INPUTS)[:INPUTS], new_tokens)
    return GenerationWorkload([[i % sources.units] for i in range(INPUTS)], new_tokens, sources)


def prompts(loaded: LoadedModel, texts: Sequence[str] | None) -> GenerationWorkload:
    """Consecutive pieces of all texts, which are repeated if they are too short."""
    count = PROMPT_TEXTS if texts is None else len(texts)
    rows = read_rows(loaded.task, texts, count, PURPOSE, loaded.task.target)
    ids = [token for row in loaded.task.tokenizer.encode(request_texts(loaded.task, rows)) for token in row]
    context = context_of(loaded.model)
    length = max(1, min(PROMPT_TOKENS, context // 2))
    stream = ids * (INPUTS * length // len(ids) + 2)
    pieces = [stream[i * length : (i + 1) * length] for i in range(INPUTS)]
    return GenerationWorkload(pieces, max(2, min(NEW_TOKENS, context - length - 1)))


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
            for batch in workload.batches(1):
                model_outputs(loaded, batch._replace(inputs=batch.inputs._replace(mask=None)))
        return FlopCounts(prefill_count.get_total_flops())
    inputs = Inputs(torch.tensor(workload.rows[:1]))
    if workload.sources is not None:
        inputs = loaded.task.preprocessor.collate(workload.sources, np.array([0]), training=False)
    with FlopCounterMode(display=False) as prefill_count:
        if is_seq2seq(loaded.task):
            caches, step = model.body.decoder_caches(*inputs.arguments), model.body.decode
        else:
            caches, step = model.body.caches(), model.body
            model.body(inputs.x, cache=caches)
    with FlopCounterMode(display=False) as step_count:
        model.head(step(torch.zeros(1, 1, dtype=torch.long), cache=caches)[:, -1])
    return FlopCounts(prefill_count.get_total_flops(), step_count.get_total_flops())
