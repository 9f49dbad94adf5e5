"""The public `regard.train`: one function for runs of every kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from os import PathLike
from typing import Any

from regard.tasks.predict import EnvOptions
from regard.training.file_job import FileJob
from regard.training.job import Job
from regard.training.loop import Step
from regard.training.rank_checks import check_alone
from regard.training.ranks import SINGLE, Ranks, join_ranks
from regard.training.settings import Settings
from regard.training.start import make_settings
from regard.training.tracking import track

Names = str | PathLike[str] | Sequence[str | PathLike[str]]  # of one file or several


def train(
    task: str = "translate",
    *,
    model: str | None = None,
    size: str | None = None,
    modality: str | None = None,
    data: Names | None = None,
    valid: Names | None = None,
    test: Names | None = None,
    fields: Sequence[str] | None = None,
    output_dir: str | PathLike[str] | None = None,
    from_: str | PathLike[str] | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    minutes: float | None = None,
    batch_tokens: int | None = None,
    lr: float | None = None,
    seed: int | None = None,
    evals: int | None = None,
    patience: int | None = None,
    device: str | None = None,
    threads: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    **options: Any,
) -> Iterator[Step]:
    """Train from files, or with `env` in an environment, and yield every step; the run folder is complete after the
    last one.

        for step in regard.train("tag", data="train.conllu", size="mini", epochs=20):
            print(step.number, step.loss, step.scores)

    task           translate, write, fill, classify, regress, tag, answer, embed, match, predict or decide
    model, size    the model and its named size; `regard models` lists them. Each task has a default
    modality       the kind of input; default: that of the model, or of the files
    data           training file or files; default: the data that ships with the task
    valid, test    validation files (default: a share of the data), and test files for the finished model
    fields         columns or keys to read: the inputs, then the target
    output_dir     the run folder; default runs/TASK
    from_          initialise from this model: a folder, or a name on the hub
    steps, epochs, minutes     length of the training: one of the three; default 3 minutes
    batch_tokens, lr, seed     tokens of a batch, the peak learning rate, the random seed
    evals, patience            number of validations; how many without improvement stop the training
    device, threads            cpu, cuda or mps; processor threads, default all cores
    resume, overwrite          resume the run in `output_dir`, or replace it

    `options` are all others of the task and the model, by the names that `regard train TASK --help` lists, with _ for
    each -. None leaves an option at its default. A wrong name or value raises ValueError at once.

    Processes that a launcher as torchrun starts train together: all of them iterate over the same steps, and the first
    writes the run folder.
    """
    arguments = {name: value for name, value in locals().items() if name != "options"}
    explicit = {name: value for name, value in arguments.items() if value is not None and value is not False}
    ranks = join_ranks()
    settings = ranks.first(lambda: make_settings(**explicit, **options))
    return track(open_job(settings, ranks).plan())


def open_job(settings: Settings, ranks: Ranks = SINGLE) -> Job:
    """A job that trains from files or, with --env, in an environment."""
    if not settings.input_options[EnvOptions].env:
        return FileJob.open(settings, ranks)
    ranks.first(lambda: check_alone(ranks))
    rl = import_module("regard.rl.dyna_job")  # rl/ imports training/, so its import waits until it is needed
    job: Job = rl.DynaJob.open(settings)
    return job
