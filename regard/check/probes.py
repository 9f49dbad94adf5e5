"""Probes: what checks and benchmarks feed a model: requests of a user, or synthetic rows of its modality.

forward   batches of inputs; if the body reads more than `Inputs`, batches of the task
loss      batches of the task, with made-up targets where the rows have none
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from regard.data.batches import Examples, Ints
from regard.data.rows import Row
from regard.loaded_model import LoadedModel
from regard.modalities import MODALITIES
from regard.modalities.protocols import Inputs, Target
from regard.tasks.inference import context_of
from regard.tasks.task import Batch, Task

PROBE_COUNT = 6  # rows
MAX_TOKENS = 32  # of a row, if it can be cut
REQUEST_WORDS = 6
SHORT = 12  # characters of a short text
INPUT_STRUCTURES = {"pooled", "encoder", "decoder"}  # whose bodies read `Inputs` and nothing else
ProbeRow = Row[object, object]
B = TypeVar("B")
E = TypeVar("E")


class InputBatch(NamedTuple):
    """A batch without targets."""

    inputs: Inputs


@dataclass(frozen=True)
class ForwardBatches:
    collate: Callable[[Ints], Batch]
    lengths: Ints  # (N,) tokens of each row; 0 if rows need not be sorted

    def __len__(self) -> int:
        return len(self.lengths)

    def batch(self, *rows: int) -> Batch:
        """Of these rows, or of all."""
        return self.collate(np.array(rows or range(len(self))))


class Probes(NamedTuple):
    texts: list[str]  # that a tokenizer encodes, if there is one
    requests: list[str]  # of a user; none if a request would have to be a file
    forward: ForwardBatches
    examples: Examples | None  # of the task; None if it cannot be trained on this modality
    numbers: Ints  # the rows of `examples` to use

    def loss_batch(self, task: Task) -> Batch:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return task.collate(self.examples, self.numbers, training=False)


def build_probes(loaded: LoadedModel, lines: Sequence[str] | None = None) -> Probes:
    task = loaded.task
    rows = read_rows(task, lines, PROBE_COUNT, "check the model", task.target)
    context = context_of(loaded.model)
    examples, numbers = None, np.arange(0)
    if task.target in MODALITIES[task.preprocessor.modality].formats:
        examples = encode_examples(task, rows, context, MAX_TOKENS)
        numbers = examples.sequential()[:PROBE_COUNT]
    texts = request_texts(task, rows)
    starts = [" ".join(text.split()[:REQUEST_WORDS]) for text in texts]
    requests = [task.request(start, text_target(row)) for start, row in zip(starts, rows, strict=False)]
    forward = forward_batches(task, rows, context, MAX_TOKENS, short_text=True)
    if task.output is not None:
        texts = [target for row in rows if (target := text_target(row)) is not None]
    return Probes(texts, requests, forward, examples, numbers)


def read_rows(task: Task, lines: Sequence[str] | None, count: int, purpose: str, target: Target) -> Sequence[ProbeRow]:
    """Rows of a user's requests, each with a target after a tab if there is one; or synthetic rows."""
    if lines is None:
        return task.preprocessor.probes(count, target)
    parsed = (parse_line(task, line) for line in lines if line.partition("\t")[0].strip())
    rows = [*islice((row for row in parsed if task.preprocessor.check(row) is None), count)]
    if not rows:
        raise ValueError(f"there is no {task.preprocessor.modality} to {purpose} with: give a file that has some")
    return rows


def parse_line(task: Task, line: str) -> ProbeRow:
    if task.target is Target.SPAN:  # a question and a document
        return task.preprocessor.parse(task.request(line), task.target)
    source, *targets = line.split("\t")
    target = targets[0].strip() if targets else None
    row: ProbeRow = task.preprocessor.parse(source.strip(), task.target)
    return row._replace(target=target or None)


def text_target(row: ProbeRow) -> str | None:
    return row.target if isinstance(row.target, str) else None


def encode_examples(task: Task, rows: Sequence[ProbeRow], context: int, max_tokens: int) -> Examples:
    def encode(rows: Sequence[ProbeRow], context: int) -> Examples:
        return task.encode(task.probe_rows(rows), context)

    return encode_fitting(encode, task, rows, context, max_tokens)


def encode_fitting(
    encode: Callable[[Sequence[ProbeRow], int], E], task: Task, rows: Sequence[ProbeRow], context: int, max_tokens: int
) -> E:
    """Rows cut to `max_tokens`; if some are refused because they are longer, all rows that fit the context."""
    with suppress(ValueError):
        return encode(rows, min(context, max_tokens))
    fitting = []
    for row in rows:
        with suppress(ValueError):
            encode([row], context)
            fitting.append(row)
    if not fitting:
        unit = task.preprocessor.modality
        raise ValueError(f"no {unit} fits this model's context of {context} tokens: give shorter ones")
    return encode(fitting, context)


def forward_batches(
    task: Task, rows: Sequence[ProbeRow], context: int, max_tokens: int, short_text: bool = False
) -> ForwardBatches:
    """With `short_text`, inputs of tokens have a short one more, so that there is padding."""
    if not reads_inputs_only(task):
        examples = encode_examples(task, rows, context, max_tokens)
        numbers = examples.sequential()[: len(rows)]
        lengths = np.zeros(len(numbers), np.int64)
        return ForwardBatches(lambda chosen: task.collate(examples, numbers[chosen], training=False), lengths)
    preprocessor = task.preprocessor
    whole = [preprocessor.parse(text, Target.MASKED) for text in request_texts(task, rows)]
    if short_text and whole and preprocessor.tokenizer is not None:
        whole.append(preprocessor.parse(whole[0].key[: min(SHORT, max(1, len(whole[0].key) // 3))], Target.MASKED))
    encoded = encode_fitting(preprocessor.encode, task, whole or rows, context, max_tokens)
    lengths = encoded.lengths[:, 0]
    return ForwardBatches(lambda rows: InputBatch(preprocessor.collate(encoded, rows, training=False)), lengths)


def reads_inputs_only(task: Task) -> bool:
    return {*task.structures} <= INPUT_STRUCTURES


def request_texts(task: Task, rows: Sequence[ProbeRow]) -> list[str]:
    """The rows as requests; none if these would have to be files."""
    return [text for row in rows if (text := task.preprocessor.as_request(row)) is not None]


def map_tensors(batch: B, function: Callable[[Tensor], Tensor]) -> B:
    """Apply a function to every tensor of a batch."""
    if isinstance(batch, Tensor):
        return function(batch)  # type: ignore[return-value]
    return batch if batch is None else type(batch)(*(map_tensors(part, function) for part in batch))  # type: ignore


def select(batch: B, rows: slice) -> B:
    return map_tensors(batch, lambda x: x[rows])
