"""What tasks that generate text share: an input becomes sequences to decode, their hypotheses become predictions.

A `Decoding` is a generator: it yields requests, receives their hypotheses, may yield further requests (a text that
outgrows the context), and returns the predictions. Whoever runs it decides what is decoded together: `predict` here,
the batch of a server elsewhere.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.beams import find_candidates
from regard.data.batches import batched, split_by_budget
from regard.decode_request import DecodeEvent, DecodeRequest, Hypothesis
from regard.generate import Step, decode_steps, hypotheses_of
from regard.modalities.protocols import EncodedInputs, Inputs, Preprocessor
from regard.parts.cache import Cache
from regard.parts.heads import Model
from regard.tasks.inference import context_of
from regard.tasks.task import Prediction, Predictions, Task

EMPTY = Prediction("")
Decoding = Generator[list[DecodeRequest], list[list[Hypothesis]], list[Prediction]]


@dataclass
class GeneratingTask(Task):
    generates = True
    window: ClassVar[int]  # requests that `predict` reads at a time

    @property
    def end(self) -> int:
        return self.tokenizer.eos_token_id

    def decodings(self, raw: Sequence[str], options: Any, context: int, first: int = 0) -> list[Decoding]:
        """One decoding for each input; `first` is the number of the first one, which seeds its random stream."""
        raise NotImplementedError

    def batches(self, requests: Sequence[DecodeRequest]) -> list[list[DecodeRequest]]:
        """The requests in batches, of which the caches of plain modules can hold one."""
        raise NotImplementedError

    def prefill(self, model: Model, requests: Sequence[DecodeRequest]) -> list[Cache]:
        """The caches of a batch, with the sources and the prompts, but for the last tokens of these."""
        raise NotImplementedError

    def constrain(self, logits: Tensor) -> None:
        """Forbid, in place, what this model never generates."""
        raise NotImplementedError

    def answer(self, prediction: Prediction) -> str:
        """The text of a prediction that was generated."""
        return prediction.text

    def echo(self, raw: str) -> str:
        """The text of a prediction that was not generated."""
        return ""

    def step_fn(self, model: Model) -> Step:
        def step(ids: Tensor, caches: list[Cache]) -> Tensor:
            logits = model.next_logits(ids, caches)
            self.constrain(logits)
            return logits

        return step

    def decode(self, model: Model, requests: Sequence[DecodeRequest]) -> Iterator[list[DecodeEvent]]:
        """The events of every step of one of `batches`."""
        with torch.inference_mode():
            caches = self.prefill(model, requests)
        device, find = next(model.parameters()).device, getattr(model, "find_candidates", find_candidates)
        return decode_steps(self.step_fn(model), caches, requests, self.end, device, find)

    def predict(self, model: Model, raw: Iterable[str], options: Any = None, first: int = 0) -> Predictions:
        """The best predictions of each request, in order. Reads `window` requests at a time, so they may be endless."""
        options = self.decode_options() if options is None else options
        for number, window in enumerate(batched(raw, self.window)):
            yield from self.run(model, self.decodings(window, options, context_of(model), first + number * self.window))

    def run(self, model: Model, decodings: Sequence[Decoding]) -> list[list[Prediction]]:
        """Run decodings to their ends, all requests that they yield at a time in common batches."""
        results: dict[DecodeRequest, list[Hypothesis]] = {}
        predictions: dict[int, list[Prediction]] = {}
        waiting: dict[int, list[DecodeRequest] | None] = dict.fromkeys(range(len(decodings)))
        while waiting:
            for i, requests in [*waiting.items()]:
                try:
                    hypotheses = None if requests is None else [results[request] for request in requests]
                    waiting[i] = resume(decodings[i], hypotheses)
                except StopIteration as stop:
                    predictions[i] = stop.value
                    del waiting[i]
            results = {}
            for batch in self.batches([request for requests in waiting.values() for request in requests or ()]):
                results |= hypotheses_of(self.decode(model, batch))
        return [predictions[i] for i in range(len(decodings))]


def resume(decoding: Decoding, hypotheses: list[list[Hypothesis]] | None) -> list[DecodeRequest]:
    """The next requests of a decoding, given the hypotheses of the last ones; None to begin. StopIteration has the
    predictions."""
    return next(decoding) if hypotheses is None else decoding.send(hypotheses)


class EncodedPrompt(str):
    """A text whose tokens are known: a tokenizer would read the special tokens of a chat template as plain text."""

    ids: list[int]


class SourceRow(NamedTuple):
    """One of the encoded inputs that a decoder attends to."""

    inputs: EncodedInputs
    row: int

    @property
    def length(self) -> int:
        return int(self.inputs.lengths[self.row, 0])


def source_batches(requests: Sequence[DecodeRequest], budget: int) -> list[list[DecodeRequest]]:
    """Batches of one kind of search, with sources of similar length: at most `budget` tokens, times the beams."""
    groups: dict[tuple[int, bool], list[DecodeRequest]] = {}
    for request in sorted(requests, key=lambda request: -request.source.length):
        groups.setdefault((request.rows, request.options.temperature > 0), []).append(request)
    batches = []
    for (width, _), group in groups.items():
        lengths = np.array([request.source.length for request in group])
        batches += [group[a:b] for a, b in split_by_budget(lengths, max(1, budget // width))]
    return batches


def collate_sources(preprocessor: Preprocessor, requests: Sequence[DecodeRequest]) -> Inputs:
    """The sources of requests, which need not have been encoded together."""
    sources: list[SourceRow] = [request.source for request in requests]
    inputs, rows = sources[0].inputs, np.array([source.row for source in sources])
    if all(source.inputs is inputs for source in sources):
        return preprocessor.collate(inputs, rows, training=False)
    if (joined := inputs.join(sources)) is not None:
        return preprocessor.collate(joined, np.arange(len(sources)), training=False)
    parts = [preprocessor.collate(inputs, np.array([row]), training=False) for inputs, row in sources]
    return Inputs(pad_stack([part.x for part in parts]), pad_stack([part.mask for part in parts], 3))


def pad_stack(parts: Sequence[Tensor | None], dim: int = 1) -> Tensor:
    """Tensors (1,...) of different sizes in one dimension as one batch, padded with zeros."""
    tensors = [part for part in parts if part is not None]
    size = max(tensor.size(dim) for tensor in tensors)
    shapes = [[0, 0] * (tensor.dim() - 1 - dim) + [0, size - tensor.size(dim)] for tensor in tensors]
    return torch.cat([F.pad(tensor, shape) for tensor, shape in zip(tensors, shapes, strict=True)])


def join_predictions(parts: list[tuple[list[Prediction], str]]) -> list[Prediction]:
    """Prediction i of a request joins prediction i of each part, with the space after it."""
    count = max((len(predictions) for predictions, _ in parts), default=0)
    joined = [EMPTY] * max(1, count)
    for predictions, space in parts:
        for i, old in enumerate(joined):
            new = predictions[min(i, len(predictions) - 1)] if predictions else EMPTY
            reason = max(old.finish_reason, new.finish_reason, key=("stop", "length").index)
            text, tokens = old.text + new.text + space, old.tokens + new.tokens
            joined[i] = Prediction(text, old.logprob + new.logprob, old.score + new.score, {}, reason, tokens)
    return joined
