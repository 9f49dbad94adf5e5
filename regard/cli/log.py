"""regard log RUN --to TRACKER: send the metrics of a run to experiment trackers, each step once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from regard.cli.options import parse
from regard.options import Positional, make, options_of
from regard.training.run_folder import RunLock
from regard.training.trackers import TrackerName, check_trackers
from regard.training.tracking import send


@dataclass(frozen=True)
class LogOptions:
    """A run, and where its history goes."""

    run: Annotated[str, Positional]  # run folder; its metrics.jsonl is enough
    to: tuple[TrackerName, ...] = ()  # trackers to send the metrics to: tensorboard, wandb, mlflow, trackio

    def __post_init__(self) -> None:
        if not self.to:
            raise ValueError("name a tracker: --to tensorboard")
        check_trackers(self.to)


def main(args: list[str]) -> int:
    options = make(LogOptions, parse("regard log", args, options_of(LogOptions)))
    folder = Path(options.run)
    if not (folder / "metrics.jsonl").is_file():
        raise ValueError(f"{folder} has no metrics.jsonl: name the folder of a run")
    lock = RunLock(folder)  # a run that trains sends its metrics itself
    try:
        for name in options.to:
            try:
                step, location = send(folder, name)
            except (ValueError, OSError):
                raise
            except Exception as error:  # of a foreign library, or of its server
                raise ValueError(f"{name} did not take the metrics: {type(error).__name__}: {error}") from error
            print(f"{name} holds the run up to step {step:,}: {location}")
    finally:
        lock.release()
    return 0
