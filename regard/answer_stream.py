"""The answer to one input while a model generates it: sequences to decode go out, events of their tokens come in, and
pieces of text and at last the predictions follow.

    Decoding (of the task)  ─requests─▶  a batch  ─TokenEvent, FinishEvent─▶  AnswerStream  ─▶  Token ... Token, Done
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from regard.decode_request import DecodeEvent, DecodeRequest, FailEvent, Hypothesis, TokenEvent
from regard.streaming import TextStream
from regard.tasks.decoding import GeneratingTask, resume
from regard.tasks.task import Prediction


class Token(NamedTuple):
    """A token of the answer. `text` is what it completes: empty while a word, or maybe a stop text, is unfinished."""

    id: int
    logprob: float
    text: str


class Done(NamedTuple):
    """All predictions, best first; or the vector of an input that was embedded."""

    predictions: list[Prediction]
    finish_reasons: list[str]  # of each prediction: "stop" or "length"
    prompt_tokens: int
    completion_tokens: int
    vector: list[float] | None = None


class DecodeExecutor(Protocol):
    """Decodes requests, several at a time: `ContinuousBatch` or `DynamicBatch`."""

    def __len__(self) -> int: ...

    @property
    def slots_in_use(self) -> int: ...

    def has_room(self, requests: Sequence[DecodeRequest]) -> bool:
        """Whether requests could join at the next step, or must wait for others to leave."""

    def add(self, request: DecodeRequest) -> None: ...

    def cancel(self, request: DecodeRequest) -> None: ...

    def step(self) -> list[DecodeEvent]: ...


class AnswerStream:
    """Turns the events of one input into pieces of its answer."""

    def __init__(self, task: GeneratingTask, raw: str, options: object, context: int):
        [self.decoding] = task.decodings([raw], options, context)
        self.task = task
        self.stream = TextStream(getattr(options, "stop", ()))
        self.streams = getattr(options, "num_return", 1) == 1
        self.requests: list[DecodeRequest] = []  # that are decoded now
        self.hypotheses: dict[DecodeRequest, list[Hypothesis]] = {}  # of those of them that are finished
        self.tokens: dict[DecodeRequest, list[int]] = {}
        self.prompt_tokens = 0
        self.done: Done | None = None
        self.resume(None)

    def resume(self, hypotheses: list[list[Hypothesis]] | None) -> list[DecodeRequest]:
        """The next sequences to decode; none if the answer is complete."""
        try:
            self.requests = resume(self.decoding, hypotheses)
        except StopIteration as stop:
            predictions: list[Prediction] = stop.value
            tokens = sum(prediction.tokens for prediction in predictions)
            reasons = [prediction.finish_reason for prediction in predictions]
            self.requests, self.done = [], Done(predictions, reasons, self.prompt_tokens, tokens)
        if hypotheses is None:
            self.prompt_tokens = sum(map(input_tokens, self.requests))
            self.done = self.done and self.done._replace(prompt_tokens=self.prompt_tokens)
        self.tokens = {request: [] for request in self.requests}
        return self.requests

    def handle(self, event: DecodeEvent) -> tuple[list[Token | Done], list[DecodeRequest]]:
        """The events of the answer, and further sequences to decode."""
        if isinstance(event, FailEvent):
            raise event.error
        if isinstance(event, TokenEvent):
            self.tokens[event.request].append(event.token)
            return [Token(event.token, event.logprob, self.next_piece())], []
        self.hypotheses[event.request] = event.hypotheses
        self.tokens[event.request] = event.hypotheses[0].ids
        if len(self.hypotheses) < len(self.requests):
            return [], []
        new = self.resume([self.hypotheses.pop(request) for request in self.requests])
        return [*self.last_events()], new

    def text_so_far(self) -> str:
        """The text up to the first sequence that is not finished."""
        text = ""
        for request in self.requests:
            if request.text is not None:
                text += request.before + request.text(self.tokens[request])
            if request not in self.hypotheses:
                break
        return text

    def next_piece(self) -> str:
        return self.stream.update(self.text_so_far()) if self.streams else ""

    def last_events(self) -> Iterator[Token | Done]:
        if self.done is None:
            return
        if self.streams and (rest := self.stream.finish(self.task.answer(self.done.predictions[0]))):
            yield Token(self.task.end, 0.0, rest)
        yield self.done


def input_tokens(request: DecodeRequest) -> int:
    return int(request.source.length) if request.source else len(request.history) + len(request.prompt)


def stream_answer(
    executor: DecodeExecutor, task: GeneratingTask, raw: str, options: object, context: int
) -> Iterator[Token | Done]:
    """The events of one answer, which an executor of its own decodes. Closing the iterator cancels the rest."""
    answer = AnswerStream(task, raw, options, context)
    for request in answer.requests:
        executor.add(request)
    if answer.done is not None:
        yield from answer.last_events()
    while len(executor):
        for event in executor.step():
            events, requests = answer.handle(event)
            for request in requests:
                executor.add(request)
            yield from events
