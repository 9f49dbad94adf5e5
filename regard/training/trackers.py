"""Experiment trackers: a run folder as a run of TensorBoard, Weights & Biases, MLflow or Trackio.

A tracker gets complete steps, in their order. `last_step` is the last one that it holds, so that a run that resumes, or
is sent again, continues there. A library is imported when its tracker is opened. None uses the network unless the user
configured it: TensorBoard's files are in the run folder, W&B is offline without a login, MLflow and Trackio write to
the local stores of their own.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree
from time import sleep, time
from typing import Any, Literal, NamedTuple, Protocol

from regard.atomic import write_json
from regard.json_files import lexists, read_json

TrackerName = Literal["tensorboard", "wandb", "mlflow", "trackio"]
PROJECT = "regard"  # unless a variable of the library names another
TRACKING_FILE = "tracking.json"  # of a run folder: its id in the trackers
LOGGED_EVERY_STEP = "train/epoch"
MAX_MLFLOW_METRICS, MAX_MLFLOW_PARAMS, MAX_MLFLOW_VALUE = 1000, 100, 6000  # of a request; characters of a value


class LoggedStep(NamedTuple):
    """All that metrics.jsonl holds of one step."""

    number: int
    scalars: dict[str, float]
    samples: list[dict[str, object]]  # inputs and predictions of an evaluation


@dataclass(frozen=True)
class TrackedRun:
    """What a tracker needs to open its run."""

    folder: Path
    id: str  # the same for a run that resumes
    settings: Mapping[str, object]  # of train.json
    last_step: int  # in metrics.jsonl when the tracker is opened: later steps are not those of this run

    @classmethod
    def open(cls, folder: Path, last_step: int) -> TrackedRun:
        settings = read_json(folder / "train.json") if lexists(folder / "train.json") else {}
        settings.pop("requested_options", None)
        return cls(folder, tracking_id(folder), settings, last_step)

    @property
    def name(self) -> str:
        return self.folder.resolve().name


def tracking_id(folder: Path) -> str:
    """The id in tracking.json, which is written when the run is tracked first."""
    file = folder / TRACKING_FILE
    if not lexists(file):
        write_json(file, {"id": secrets.token_hex(4)})
    run_id = read_json(file).get("id")
    if not isinstance(run_id, str) or not re.fullmatch(r"\w{1,64}", run_id):
        raise ValueError(f"{file}: id must be a word of at most 64 letters and digits: remove the file")
    return run_id


class ExperimentTracker(Protocol):
    """A run of a tracker, new or continued. Only one thread uses it."""

    last_step: int  # that it holds; 0 if it holds none
    location: str  # where the user finds the run

    def __init__(self, run: TrackedRun): ...
    def write(self, steps: Sequence[LoggedStep]) -> None: ...
    def close(self) -> None: ...


class TensorBoard:
    """Event files in RUN/tensorboard. What a killed process wrote too much is marked as purged."""

    def __init__(self, run: TrackedRun):
        folder = run.folder / "tensorboard"
        last = last_event_step(folder)  # of which a killed process may have written a part
        self.last_step = max(0, min(last - 1, run.last_step))
        self.location = f"tensorboard --logdir {run.folder}"
        if last:
            sleep(1.0)  # event files are read in the order of the second in their names
        writer = import_module("torch.utils.tensorboard").SummaryWriter
        self._writer = writer(str(folder), purge_step=self.last_step + 1 if last else None)
        if not last:
            self._writer.add_text("settings", as_table([{"option": n, "value": v} for n, v in run.settings.items()]))

    def write(self, steps: Sequence[LoggedStep]) -> None:
        for step in steps:
            for name, value in step.scalars.items():
                self._writer.add_scalar(name, value, step.number)
            if step.samples:
                self._writer.add_text("samples", as_table(step.samples), step.number)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def last_event_step(folder: Path) -> int:
    """The last step in the event files of a folder; a file may end in the middle of an event."""
    loader = import_module("tensorboard.backend.event_processing.event_file_loader").EventFileLoader
    files = folder.glob("events.out.tfevents.*")
    return max((event.step for file in files for event in loader(str(file)).Load()), default=0)


class WandB:
    """A run of Weights & Biases. Offline its files are in RUN/wandb, and `wandb sync` uploads them. wandb loses the end
    of a file whose process is killed, so an offline run that resumes is written again from its first step."""

    def __init__(self, run: TrackedRun):
        wandb = import_module("wandb")
        is_configured = "WANDB_MODE" in os.environ or wandb.login(prompt=False)
        folder = os.environ.get("WANDB_DIR", str(run.folder))
        self._table = wandb.Table
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            id=run.id,
            name=run.name,
            dir=folder,
            mode=None if is_configured else "offline",
            resume="allow",
            reinit="create_new",  # not the run that a program of the user has open
            config={**run.settings},
            settings=wandb.Settings(console="off"),
        )
        self.last_step = self._run.starting_step - 1
        self.location = self._run.url or f"wandb sync {folder}/wandb/offline-run-*-{run.id}"
        if self._run.offline:
            for earlier in Path(folder, "wandb").glob(f"offline-run-*-{run.id}"):
                if earlier != Path(self._run.dir).parent:
                    rmtree(earlier, ignore_errors=True)

    def write(self, steps: Sequence[LoggedStep]) -> None:
        for step in steps:
            self._run.log({**step.scalars, **self._samples(step.samples)}, step=step.number)

    def _samples(self, samples: Sequence[Mapping[str, object]]) -> dict[str, object]:
        columns = column_names(samples)
        rows = [[str(sample.get(name, "")) for name in columns] for sample in samples]
        return {"samples": self._table(columns=columns, data=rows)} if samples else {}

    def close(self) -> None:
        self._run.finish()


class MLflow:
    """A run of MLflow, in the store of MLFLOW_TRACKING_URI or in mlflow.db of the working directory."""

    def __init__(self, run: TrackedRun):
        mlflow = import_module("mlflow")
        self._entities, self._client = mlflow.entities, mlflow.MlflowClient()
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        experiment = self._client.get_experiment_by_name(name)
        experiment_id = experiment.experiment_id if experiment else self._client.create_experiment(name)
        runs = self._client.search_runs([experiment_id], f"tags.regard_id = '{run.id}'")
        if runs:
            self._id = runs[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
        else:
            self._id = self._client.create_run(experiment_id, tags={"regard_id": run.id}, run_name=run.name).info.run_id
        history = self._client.get_metric_history(self._id, LOGGED_EVERY_STEP)
        self.last_step = max((metric.step for metric in history), default=0)
        self.location = f"MLflow run {self._id} in {mlflow.get_tracking_uri()}"
        params = [mlflow.entities.Param(name, str(value)[:MAX_MLFLOW_VALUE]) for name, value in run.settings.items()]
        for part in chunks(params if not runs else [], MAX_MLFLOW_PARAMS):
            self._client.log_batch(self._id, params=part)

    def write(self, steps: Sequence[LoggedStep]) -> None:
        now, metric = int(time() * 1000), self._entities.Metric
        size = max(1, MAX_MLFLOW_METRICS // max(len(step.scalars) for step in steps))  # whole steps in a transaction
        for part in chunks(steps, size):
            metrics = [metric(name, value, now, step.number) for step in part for name, value in step.scalars.items()]
            self._client.log_batch(self._id, metrics=metrics)
        for step in steps:
            if step.samples:
                self._client.log_text(self._id, as_table(step.samples), f"samples/step-{step.number}.md")

    def close(self) -> None:
        self._client.set_terminated(self._id)


class Trackio:
    """A run of Trackio, in its local store unless TRACKIO_SPACE_ID or TRACKIO_SERVER_URL is set."""

    def __init__(self, run: TrackedRun):
        trackio = import_module("trackio")
        project, name = os.environ.get("TRACKIO_PROJECT", PROJECT), f"{run.name}-{run.id}"
        self._markdown = trackio.Markdown
        self._run = trackio.init(project, name, config={**run.settings}, resume="allow", embed=False)
        self.last_step = self._run._next_step - 1  # no public name has it
        self.location = f"trackio show --project {project}"

    def write(self, steps: Sequence[LoggedStep]) -> None:
        for step in steps:
            samples = {"samples": self._markdown(as_table(step.samples))} if step.samples else {}
            self._run.log({**step.scalars, **samples}, step=step.number)

    def close(self) -> None:
        self._run.finish()


TRACKERS: dict[str, type[ExperimentTracker]] = {
    "tensorboard": TensorBoard,
    "wandb": WandB,
    "mlflow": MLflow,
    "trackio": Trackio,
}


def check_trackers(names: Sequence[str]) -> None:
    """Raise ValueError for a tracker whose library is not installed."""
    for name in names:
        if find_spec(name) is None:
            raise ValueError(f'{name} is not installed: pip install "regard[{name}]"')


def column_names(samples: Sequence[Mapping[str, object]]) -> list[str]:
    return [*dict.fromkeys(name for sample in samples for name in sample)]


def as_table(samples: Sequence[Mapping[str, object]]) -> str:
    """A Markdown table. A cell must not end its row, or the table."""
    columns = column_names(samples)
    rows = [columns, ["---"] * len(columns), *([str(sample.get(name, "")) for name in columns] for sample in samples)]
    cells = ([text.replace("|", "\\|").replace("\n", " ") for text in row] for row in rows)
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def chunks(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (items[i : i + size] for i in range(0, len(items), size))
