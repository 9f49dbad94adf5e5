"""The scheduler: runs the requests of many clients on one model, several at a time. No HTTP here.

    submit(...) ─▶ queue, bounded by tokens ─▶ batches, in a thread of the scheduler ─▶ events of every job

    Token(id, logprob, text)                    one token of a greedy or sampled answer, as soon as it is chosen
    Done(predictions, finish_reasons, ...)      the last event of a job
    Failed(error)                               or this one

Models that generate decode continuously in the engine, where an answer has the same bits alone and in any batch; models
that the engine does not support decode in dynamic batches. All other tasks run in batches with a budget of tokens.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from regard.answer_stream import AnswerStream, DecodeExecutor, Done, Token
from regard.batch_invariant import reproducible
from regard.decode_request import DecodeEvent, DecodeRequest
from regard.engine.executors import batch_invariant_engine, make_executor
from regard.loaded_model import LoadedModel, weights_in_errors
from regard.modalities.protocols import Target
from regard.scheduler_job import (
    Cancelled,
    DeadlineExceeded,
    Event,
    Failed,
    Listener,
    QueueFull,
    ScheduledJob,
    SchedulerOptions,
    SchedulerStats,
)
from regard.tasks.decoding import EncodedPrompt, GeneratingTask
from regard.tasks.inference import BUDGET, context_of
from regard.validate import InputTooLong, check_texts

__all__ = [
    "Cancelled", "DeadlineExceeded", "Done", "Event", "Failed", "InputTooLong", "QueueFull", "ScheduledJob",
    "Scheduler", "SchedulerOptions", "SchedulerStats", "Token",
]  # fmt: skip
RATE_DECAY = 0.9  # of the mean tokens per second, at every finished job


class Scheduler:
    """Runs the jobs of one model in a thread of its own.

    Args:
        loaded: the model.
        options: the limits.
        is_reproducible: models that do not generate in the engine, too, give an answer with the same bits in any batch.
        lock: held during every step; schedulers of several models share one, so that their steps alternate.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        options: SchedulerOptions = SchedulerOptions(),  # noqa: B008  it is frozen
        is_reproducible: bool = False,
        lock: AbstractContextManager[object] | None = None,
    ):
        self.task = loaded.task if isinstance(loaded.task, GeneratingTask) else None
        engine = batch_invariant_engine(loaded.reference) if self.task else None
        self.uses_reproducible_mode = is_reproducible and engine is None
        if self.uses_reproducible_mode:
            loaded = LoadedModel(loaded.reference, loaded.task, loaded.origin)
        self.loaded, self.model, self.options = loaded, engine or loaded.model, options
        self.lock, self.context = lock or nullcontext(), context_of(loaded.model)
        self.executor: DecodeExecutor | None = None
        loaded.check_weights()
        self._waiting: deque[ScheduledJob] = deque()
        self._running: dict[DecodeRequest, ScheduledJob] = {}  # requests that are decoded, of generating jobs
        self._batch: list[ScheduledJob] = []  # jobs of all other tasks that run now
        self._changed = threading.Condition()
        self._is_closed = False
        self._counts = dict.fromkeys(("finished", "cancelled", "prompt_tokens", "completion_tokens"), 0)
        self._tokens_per_second = self._last_end = 0.0
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)
        self._thread.start()

    def submit(
        self,
        raw: str,
        options: object = None,
        *,
        embed: bool = False,
        deadline: float | None = None,
        listener: Listener | None = None,
    ) -> ScheduledJob:
        """Queue one request.

        Args:
            raw: the input, as `LoadedModel.generate` takes it.
            options: what `LoadedModel.make_options` returns; None for the defaults.
            embed: embed the input instead of predicting.
            deadline: `time.monotonic()` at which the job fails if it is not finished.
            listener: called with every event, from the scheduler's thread; without one, iterate over the job.

        Raises:
            ValueError: the input is invalid, or too long (InputTooLong).
            QueueFull: too many tokens wait already.
        """
        [raw] = check_texts([raw])
        options = self.loaded.make_options() if options is None else options
        job = ScheduledJob(raw, options, embed, deadline, listener)
        if self.task is None or embed or not self.task.splits_long_inputs:  # else the answer has counted them
            job.prompt_tokens = self.count_tokens(raw)
        if self.task is not None and not embed:
            job.answer = AnswerStream(self.task, raw, options, self.context)
            job.prompt_tokens = job.answer.prompt_tokens
        job.tokens = job.prompt_tokens + job.answer_tokens
        with self._changed:
            if self._is_closed:
                raise Cancelled("the server is shutting down")
            waiting = sum(other.tokens for other in self._waiting)
            if self._waiting and waiting + job.tokens > self.options.max_queue_tokens:
                seconds = waiting / self._tokens_per_second if self._tokens_per_second else 1.0
                raise QueueFull(math.ceil(max(1.0, min(60.0, seconds))))
            self._waiting.append(job)
            self._changed.notify_all()
        return job

    def count_tokens(self, raw: str) -> int:
        """Tokens of an input. Raises InputTooLong where the model would read only the beginning of it."""
        task, tokenizer = self.loaded.task, self.loaded.task.preprocessor.tokenizer
        texts: list[str | tuple[str, str]] = [raw] if task.generates else [*raw.split("\t")]
        if len(texts) > 1 and task.target in (Target.LABELS, Target.NUMBER):  # two texts are read together
            first, _, second = raw.partition("\t")
            texts = [(first, second)]
        lengths = [len(ids) for ids in tokenizer.encode(texts)] if tokenizer is not None else [1]
        if isinstance(raw, EncodedPrompt):
            lengths = [len(raw.ids)]
        if self.context and max(lengths) > self.context and not task.splits_long_inputs:
            raise InputTooLong(max(lengths), self.context)
        return sum(lengths)

    def stats(self) -> SchedulerStats:
        with self._changed:
            waiting = sum(job.tokens for job in self._waiting)
            running = len({*self._running.values()}) + len(self._batch)
            executor = self.executor  # the other thread may replace it
            prefixes = getattr(executor, "prefixes", ())
            slots = executor.slots_in_use if executor is not None and self._running else 0
            return SchedulerStats(len(self._waiting), waiting, running, slots, len(prefixes), **self._counts)

    def close(self, drain: bool = True) -> None:
        """Refuse new jobs; finish those that were accepted, or cancel them; then end the thread."""
        with self._changed:
            self._is_closed = True
            for job in () if drain else (*self._waiting, *self._running.values()):
                job.cancel()
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._running and not self._is_closed:
                    self._changed.wait()
                if not self._waiting and not self._running:
                    return
            try:
                self._interrupt_jobs()
                self._start_jobs()
                with self.lock:
                    if self._batch:
                        self._run_batch()
                    if self._running:
                        self._step()
            except Exception as error:  # nothing is known about the state of the batch
                self.executor = None
                for job in {*self._running.values(), *self._batch} or [*self._waiting][:1]:
                    self._end(job, Failed(error))
                self._batch = []

    def _interrupt_jobs(self) -> None:
        """End jobs that were cancelled, or are too late."""
        with self._changed:
            jobs = dict.fromkeys((*self._waiting, *self._running.values()))
        for job in jobs:
            if error := job.interruption():
                self._end(job, Failed(error))

    def _start_jobs(self) -> None:
        """Take jobs from the queue: for a model that generates, as long as its batch has room; else those with the
        options of the first one, up to a budget of tokens."""
        budget = BUDGET
        while self._waiting:
            job = self._waiting[0]
            if job.answer is not None:
                if self.executor is None:
                    self.executor = make_executor(self.model, job.answer.task, self.options.batch_limits)
                if not self.executor.has_room(job.answer.requests):
                    return
                self._start_decoding(job, job.answer)
            else:
                first = self._batch[0] if self._batch else job
                budget -= job.tokens
                if (job.embed, job.options) != (first.embed, first.options) or (self._batch and budget < 0):
                    return
                with self._changed:
                    self._batch.append(self._waiting.popleft())

    def _start_decoding(self, job: ScheduledJob, answer: AnswerStream) -> None:
        with self._changed:
            self._waiting.popleft()
            self._running.update(dict.fromkeys(answer.requests, job))
        if answer.done is not None:  # nothing to decode
            self._emit_all(job, [*answer.last_events()])
        self._add(answer.requests)

    def _add(self, requests: Sequence[DecodeRequest]) -> None:
        for request in requests:
            assert self.executor is not None
            self.executor.add(request)

    def _step(self) -> None:
        """One step of all jobs that generate."""
        executor = self.executor
        assert executor is not None
        with self._mode(), weights_in_errors(self.loaded.reference):
            events = executor.step()
        for event in events:
            if event.request in self._running:
                self._handle(self._running[event.request], event)

    def _handle(self, job: ScheduledJob, event: DecodeEvent) -> None:
        assert job.answer is not None
        try:
            with weights_in_errors(self.loaded.reference):
                events, requests = job.answer.handle(event)
        except Exception as error:
            self._end(job, Failed(error))
            return
        if requests:
            with self._changed:
                self._running.update(dict.fromkeys(requests, job))
            self._add(requests)
        self._emit_all(job, events)

    def _run_batch(self) -> None:
        """One batch of a task that does not generate. If it fails, each input runs alone, so that only the faulty ones
        fail."""
        try:
            results = self._answers(self._batch)
        except Exception:
            results = []
            for job in self._batch:
                try:
                    results += self._answers([job])
                except Exception as error:
                    results.append(Failed(error))
        for job, result in zip(self._batch, results, strict=True):
            self._end(job, result)
        with self._changed:
            self._batch = []

    def _answers(self, jobs: Sequence[ScheduledJob]) -> list[Done | Failed]:
        raws, options = [job.raw for job in jobs], jobs[0].options
        with self._mode():
            if jobs[0].embed:
                vectors = zip(jobs, self.loaded.embed(raws), strict=True)
                return [Done([], [], job.prompt_tokens, 0, vector) for job, vector in vectors]
            answers = zip(jobs, self.loaded.predict(raws, options), strict=True)
            return [Done(best, ["stop"] * len(best), job.prompt_tokens, 0) for job, best in answers]

    def _mode(self) -> AbstractContextManager[object]:
        return reproducible(self.loaded.model) if self.uses_reproducible_mode else nullcontext()

    def _emit_all(self, job: ScheduledJob, events: Sequence[Token | Done]) -> None:
        for event in events:
            if isinstance(event, Done):
                self._end(job, event)
            else:
                job.emit(event)

    def _end(self, job: ScheduledJob, event: Done | Failed) -> None:
        """Forget a job and emit its last event."""
        with self._changed:
            if job in self._waiting:
                self._waiting.remove(job)
            for request in [request for request, other in self._running.items() if other is job]:
                del self._running[request]
                if isinstance(event, Failed) and self.executor is not None:
                    self.executor.cancel(request)
            if isinstance(event, Done):
                now = time.monotonic()
                rate, self._last_end = job.tokens / max(now - max(self._last_end, job.submitted), 1e-3), now
                self._tokens_per_second += (1 - RATE_DECAY) * (rate - self._tokens_per_second)
                self._counts["finished"] += 1
                self._counts["prompt_tokens"] += event.prompt_tokens
                self._counts["completion_tokens"] += event.completion_tokens
            else:
                self._counts["cancelled"] += 1
        job.emit(event)
