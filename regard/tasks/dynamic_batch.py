"""Dynamic batching on plain modules: requests that wait are decoded in one batch, which none joins before its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from regard.decode_request import DecodeEvent, DecodeRequest, TokenEvent
from regard.parts.heads import Model
from regard.tasks.decoding import GeneratingTask


class DynamicBatch:
    """Decodes requests on any model, with the calls of `ContinuousBatch`."""

    def __init__(self, model: Model, task: GeneratingTask, max_batch_size: int = 64):
        self.model, self.task, self.max_batch_size = model, task, max_batch_size
        self.waiting: list[DecodeRequest] = []
        self.running: set[DecodeRequest] = set()
        self.events: Iterator[list[DecodeEvent]] = iter(())

    def __len__(self) -> int:
        return len(self.waiting) + len(self.running)

    @property
    def slots_in_use(self) -> int:
        return 0

    def has_room(self, requests: Sequence[DecodeRequest]) -> bool:
        return not self.waiting or len(self.waiting) + len(requests) <= self.max_batch_size

    def add(self, request: DecodeRequest) -> None:
        self.waiting.append(request)

    def cancel(self, request: DecodeRequest) -> None:
        """Drop a request; its batch ends early if no other is left in it."""
        if request in self.waiting:
            self.waiting.remove(request)
        self.running.discard(request)

    def step(self) -> list[DecodeEvent]:
        """One step of the running batch, or of the next one."""
        if not self.running and self.waiting:
            first, *_ = self.waiting
            batch = next(batch for batch in self.task.batches(self.waiting) if first in batch)
            at = batch.index(first)
            batch = batch[max(0, at + 1 - self.max_batch_size) :][: self.max_batch_size]
            self.waiting = [request for request in self.waiting if request not in batch]
            self.running = {*batch}
            self.events = self.task.decode(self.model, batch)
        events = [event for event in next(self.events, ()) if event.request in self.running]
        self.running -= {event.request for event in events if not isinstance(event, TokenEvent)}
        return events
