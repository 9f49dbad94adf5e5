"""A training job: a run folder that is opened, resumed, saved and released in one way, whatever the model learns from.

    job = open_job(settings)        reads the data, and builds the model or restores its checkpoint; writes nothing yet
    job.plan()                      sets the number of steps, and writes the files that never change
    for step in job.train(): ...    trains, evaluates and saves; the folder is complete after the last step

training/file_job.py     trains on files
rl/dyna_job.py           trains in an environment
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from regard.device import set_num_threads
from regard.tasks.task import Task
from regard.training.checkpoint import Files
from regard.training.loop import NonFiniteError, Progress, Step
from regard.training.provenance import Provenance, check_provenance, collect_provenance, comparable_settings
from regard.training.ranks import SINGLE, Ranks
from regard.training.run_folder import DESCRIPTION_FILES, RunFolder, RunLock
from regard.training.settings import Settings


class NoLock(RunLock):
    """Of a rank whose run the first rank has locked."""

    def __init__(self) -> None:
        pass

    def release(self) -> None:
        pass


class Job(ABC):
    """A run that is ready to start or to resume. Several ranks do everything together; the first one writes."""

    task: Task
    progress: Progress
    fixed_files: tuple[str, ...] = DESCRIPTION_FILES  # files of the folder that a resumed run must find unchanged

    def __init__(self, settings: Settings, run: RunFolder, lock: RunLock):
        self.settings, self.run, self.lock, self.ranks = settings, run, lock, run.ranks
        self.requested_options = comparable_settings(settings.to_dict())  # before the run planned them
        self.provenance: Provenance = {}
        self.damaged_saves: list[str] = []  # checkpoints that could not be used

    @classmethod
    def open(cls, settings: Settings, ranks: Ranks = SINGLE) -> Self:
        """Read the data, and build the model or restore its checkpoint. A new run writes nothing yet."""
        ranks = ranks.agree(lambda: replace(ranks, shards=settings.run_options.shards))
        run, lock = ranks.agree(lambda: open_folder(settings, ranks))
        try:
            if settings.run_options.threads:
                set_num_threads(settings.run_options.threads)
            job = cls(settings, run, lock)
            job.prepare()
        except BaseException:
            lock.release()
            if ranks.is_first:
                run.remove_if_empty()
            raise
        return job

    @abstractmethod
    def prepare(self) -> None:
        """Set `task` and `progress`."""

    def plan(self) -> Self:
        """Set the number of steps, and write the files of a new run that never change."""
        if not self.is_resumed:
            self.describe()
        return self

    @abstractmethod
    def steps_to_end(self) -> Iterator[Step]: ...

    @abstractmethod
    def save(self) -> Path:
        """Write a checkpoint of the last complete step, from which the run resumes."""

    @property
    def is_resumed(self) -> bool:
        return self.settings.run_options.resume

    @property
    def is_finished(self) -> bool:
        return self.is_resumed and self.run.is_finished

    def train(self) -> Generator[Step]:
        """Train to the end, and yield every step."""
        try:
            if not self.is_finished:
                yield from self.steps_to_end()
        except NonFiniteError as error:
            raise self.explain(error) from None
        finally:
            self.lock.release()

    def explain(self, error: NonFiniteError) -> Exception:
        return FloatingPointError(f"{error}: take a smaller --lr")

    def stored_settings(self) -> dict[str, object]:
        return self.settings.to_dict() | {"resume": False, "overwrite": False}

    def current_provenance(self) -> Provenance:
        return collect_provenance(self.stored_settings(), self.run.folder, self.fixed_files)

    def describe(self) -> None:
        """Write the files of a new run that never change."""
        stored = self.stored_settings() | {"requested_options": self.requested_options}

        def write() -> None:
            self.run.clear()
            self.run.describe(self.progress.model, self.task, stored)

        self.ranks.first(write)
        self.provenance = self.current_provenance()

    def open_checkpoint(self) -> tuple[Path, dict[str, Any]]:
        """The newest intact checkpoint of a run that resumes, and its state; it must have the same provenance."""
        checkpoint, state, self.damaged_saves = self.run.newest_checkpoint()
        self.provenance = self.current_provenance()
        stored, allow_changed = state.get("provenance", self.provenance), self.settings.run_options.allow_changed
        self.ranks.agree(lambda: check_provenance(checkpoint, stored, self.provenance, allow_changed))
        return checkpoint, state

    def write_checkpoint(self, state: Mapping[str, object], keep: int, files: Files | None = None) -> Path:
        """Progress, state and further files as one folder."""
        state = {"provenance": self.provenance, **state}
        with self.progress.lock:
            return self.ranks.agree(lambda: self.run.save(self.progress, state, keep, files or {}))


def open_folder(settings: Settings, ranks: Ranks) -> tuple[RunFolder, RunLock]:
    """The run folder, which the first rank locks and, for a new run, creates."""
    run_options, folder = settings.run_options, settings.folder
    if not ranks.is_first:
        return RunFolder(folder, ranks), NoLock()
    run = RunFolder(folder, ranks) if run_options.resume else RunFolder.new(folder, run_options.overwrite, ranks)
    return run, RunLock(folder)
