"""A job of the scheduler: one submitted request, its events, the limits, and the reasons for which it ends early."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from typing import NamedTuple

from regard.answer_stream import AnswerStream, Done, Token
from regard.decode_request import BatchLimits
from regard.validate import check_minimum


class Failed(NamedTuple):
    """The job failed: ValueError is a fault of the input, Cancelled and DeadlineExceeded end it early."""

    error: Exception


Event = Token | Done | Failed
Listener = Callable[[Event], None]


class QueueFull(Exception):
    """More tokens wait than the queue may hold. Try again after `retry_after` seconds."""

    def __init__(self, retry_after: int):
        super().__init__(f"the queue is full: try again in {retry_after} s")
        self.retry_after = retry_after


class Cancelled(Exception):
    """The client cancelled the job, or the scheduler was closed."""


class DeadlineExceeded(Exception):
    """The job was not finished before its deadline."""


@dataclass(frozen=True)
class SchedulerOptions:
    """Limits of the queue and of the batches."""

    max_queue_tokens: int = 65_536  # tokens of all waiting requests, with those they may generate; more are refused
    max_batch_tokens: int = 16_384  # tokens of all running requests, which the KV cache holds
    max_batch_size: int = 64  # sequences that are decoded at the same time
    prefill_tokens: int = 128  # prompt tokens that a step adds to those it decodes

    def __post_init__(self) -> None:
        check_minimum(self, 1, "max_queue_tokens", "max_batch_tokens", "max_batch_size", "prefill_tokens")

    @property
    def batch_limits(self) -> BatchLimits:
        return BatchLimits(self.max_batch_tokens, self.max_batch_size, self.prefill_tokens)


class SchedulerStats(NamedTuple):
    """A snapshot for metrics."""

    waiting: int  # jobs in the queue
    waiting_tokens: int
    running: int  # jobs in the batch
    kv_slots: int  # slots of the KV cache that running jobs use
    cached_slots: int  # slots that hold prefixes for later jobs
    finished: int  # jobs since the start
    cancelled: int
    prompt_tokens: int  # of finished jobs
    completion_tokens: int


class ScheduledJob:
    """A submitted request. Iterate over it for its events, or call `result`."""

    def __init__(self, raw: str, options: object, embed: bool, deadline: float | None, listener: Listener | None):
        self.raw, self.options, self.embed, self.deadline = raw, options, embed, deadline
        self.answer: AnswerStream | None = None  # of a model that generates
        self.is_cancelled = False
        self.prompt_tokens = self.tokens = 0  # of the input; with those of the answer, at most
        self.submitted = time.monotonic()
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._listener: Listener = listener or self._events.put

    @property
    def answer_tokens(self) -> int:
        """Tokens that the job may generate, in all its beams."""
        return sum(request.rows * request.limit for request in self.answer.requests) if self.answer else 0

    def emit(self, event: Event) -> None:
        try:
            self._listener(event)
        except Exception:  # nobody listens any more
            self.is_cancelled = True

    def cancel(self) -> None:
        """Stop at the next step; the job ends with Failed(Cancelled()). Does nothing if it has ended."""
        self.is_cancelled = True

    def interruption(self) -> Exception | None:
        """Why the job must end now, if it must."""
        if self.is_cancelled:
            return Cancelled("the request was cancelled")
        if self.deadline is not None and time.monotonic() > self.deadline:
            return DeadlineExceeded("the request took longer than its deadline allows")
        return None

    def __iter__(self) -> Iterator[Event]:
        """The events, up to Done; a failure is raised. Not for a job with a listener."""
        while True:
            event = self._events.get()
            if isinstance(event, Failed):
                raise event.error
            yield event
            if isinstance(event, Done):
                return

    def result(self) -> Done:
        """Wait for the end of the job."""
        *_, done = self
        assert isinstance(done, Done)
        return done
