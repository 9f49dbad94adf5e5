"""Sending metrics.jsonl to trackers: while a run trains, by a thread for each tracker, or afterwards.

    for step in track(job): ...           trains like `job.train()`, with the trackers of --log
    send(folder, "tensorboard")           the whole history of a run

The job knows no tracker: a thread reads the lines that it appends. So a slow tracker delays no step, and one that fails
costs a warning. A step is sent when the next one has begun or the run has ended, as its evaluation comes after it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import groupby
from pathlib import Path
from threading import Event, Thread
from typing import Any

from regard.json_files import lexists
from regard.training.job import Job
from regard.training.loop import Step
from regard.training.run_folder import parse_metrics_line
from regard.training.trackers import TRACKERS, ExperimentTracker, LoggedStep, TrackedRun
from regard.validate import TrackingWarning, matches_type

POLL_SECONDS = 1.0  # between two looks at metrics.jsonl
CLOSE_SECONDS = 15.0  # that a tracker has to finish at the end
GROUPS = {"valid": "valid/", "test": "test/", "module_grad_norms": "grad_norm/"}  # objects in a line, and their prefix


class MetricsReader:
    """The steps of a metrics.jsonl that grows."""

    def __init__(self, file: Path):
        self.file, self.position, self.number = file, 0, 0
        self.lines: list[dict[str, Any]] = []  # of the newest step, which may get more

    def read(self, is_ended: bool) -> list[LoggedStep]:
        """The steps that were completed since the last call."""
        with self.file.open("rb") as stream:
            stream.seek(self.position)
            new = stream.read()
        new = new[: new.rfind(b"\n") + 1]  # the last line may not be whole
        self.position += len(new)
        for line in new.splitlines():
            self.number += 1
            self.lines.append(parse_metrics_line(line, f"{self.file}:{self.number}"))
        groups = [[*lines] for _, lines in groupby(self.lines, key=lambda line: line["step"])]
        self.lines = [] if is_ended or not groups else groups.pop()
        return [to_logged_step(lines) for lines in groups]


def to_logged_step(lines: Sequence[dict[str, Any]]) -> LoggedStep:
    scalars: dict[str, float] = {}
    for line in lines:
        prefix = "round/" if "round" in line else "train/"
        if "count" in line and line.get("seconds", 0) > 0:
            scalars["train/throughput"] = line["count"] / line["seconds"]
        for name, value in line.items():
            if name in GROUPS:
                scalars |= {f"{GROUPS[name]}{key}": float(number) for key, number in value.items()}
            elif isinstance(value, bool) or (matches_type(value, float) and name != "step"):
                scalars[f"{prefix}{name}"] = float(value)
    samples = [sample for line in lines for sample in line.get("samples", ()) if isinstance(sample, dict)]
    return LoggedStep(lines[0]["step"], scalars, samples)


def send_steps(tracker: ExperimentTracker, steps: Sequence[LoggedStep]) -> None:
    """Send the steps that the tracker does not hold."""
    if missing := [step for step in steps if step.number > tracker.last_step]:
        tracker.write(missing)
        tracker.last_step = missing[-1].number


def send(folder: Path, name: str) -> tuple[int, str]:
    """Send the history of a run to a tracker; returns the last step that it holds, and where the user finds it."""
    steps = MetricsReader(folder / "metrics.jsonl").read(is_ended=True)
    tracker = TRACKERS[name](TrackedRun.open(folder, steps[-1].number if steps else 0))
    try:
        send_steps(tracker, steps)
    finally:
        tracker.close()
    return tracker.last_step, tracker.location


class TrackerThread(Thread):
    """Sends the steps of a run that trains to one tracker."""

    def __init__(self, name: str, folder: Path):
        super().__init__(name=f"log-{name}", daemon=True)  # a server that does not answer must not keep the process
        self.tracker_name, self.folder = name, folder
        self.reader = MetricsReader(folder / "metrics.jsonl")
        self.stopped, self.is_complete = Event(), False

    def run(self) -> None:
        try:
            self.follow()
        except Exception as error:  # of a foreign library, its server, or the disk: the training goes on
            self.warn(f"{type(error).__name__}: {error}")

    def follow(self) -> None:
        while not lexists(self.reader.file) and not self.stopped.wait(POLL_SECONDS):
            pass
        if not lexists(self.reader.file):  # no step was completed
            return
        steps = self.reader.read(is_ended=False)
        newest = self.reader.lines[0]["step"] if self.reader.lines else 0
        tracker = TRACKERS[self.tracker_name](TrackedRun.open(self.folder, newest))
        try:
            send_steps(tracker, steps)
            is_last = False
            while not is_last:
                is_last = self.stopped.wait(POLL_SECONDS)
                send_steps(tracker, self.reader.read(is_ended=is_last and self.is_complete))
        finally:
            tracker.close()

    def end(self, is_complete: bool) -> None:
        """Send the rest. The newest step of a run that stops is sent when it resumes: it may still be evaluated."""
        self.is_complete = is_complete
        self.stopped.set()
        self.join(CLOSE_SECONDS)
        if self.is_alive():
            self.warn(f"it does not answer within {CLOSE_SECONDS:.0f} seconds")

    def warn(self, problem: str) -> None:
        command = f"regard log {self.folder} --to {self.tracker_name}"
        remedy = f"the run does not need it; when it has ended, send the rest with: {command}"
        warnings.warn(f"--log {self.tracker_name} stopped: {problem}; {remedy}", TrackingWarning, stacklevel=2)


@contextmanager
def running(threads: Sequence[TrackerThread]) -> Iterator[None]:
    is_complete = False
    for thread in threads:
        thread.start()
    try:
        yield
        is_complete = True
    finally:
        for thread in threads:
            thread.end(is_complete)


def track(job: Job) -> Iterator[Step]:
    """The steps of `job.train()`, sent to the trackers of --log."""
    is_finished = job.is_finished  # on every rank: they may have to agree
    names = job.settings.run_options.log if job.ranks.is_first and not is_finished else ()
    with closing(job.train()) as steps, running([TrackerThread(name, job.run.folder) for name in names]):
        for step in steps:  # noqa: UP028  `yield from` would end the job, and release its lock, before the threads
            yield step
