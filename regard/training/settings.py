"""Settings: the fields of a few dataclasses, each option in exactly one of them, under one flat set of names.

They come from three places, in order: defaults, the named size, and what the user says. An unknown name is refused with
the nearest known one. The comment beside a field is its documentation.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from regard.choose import choose, must
from regard.data.tokens import Pieces
from regard.hub.folder import read_json
from regard.models import MODELS
from regard.tasks import TASKS
from regard.training.loop import Plan


@dataclass(frozen=True)
class Files:
    """What to learn from."""

    data: tuple[str, ...] = ()  # one file of pairs (.tsv, .jsonl) or two parallel ones; the bundled data if none
    valid: tuple[str, ...] = ()  # files to validate on; a share of the data is held out if none
    test: tuple[str, ...] = ()  # files to score the finished model on
    fields: tuple[str, str] | None = None  # columns or keys of source and target
    held_out: float = 0.02  # share of the sentences held out to validate on, if there are no files for it
    longest: int = 250  # words of a sentence above which it is a bad line
    skip_bad: bool = False  # go on without the bad lines

    def __post_init__(self) -> None:
        must(
            self,
            held_out=(0 < self.held_out < 1, "above 0 and below 1"),
            longest=(self.longest >= 1, "at least 1"),
        )


@dataclass(frozen=True)
class Keeping:
    """What is kept of a run, and where it runs."""

    out: str | None = None  # the run folder; runs/TASK unless given
    resume: bool = False  # go on with the run in that folder, from its newest whole save
    overwrite: bool = False  # start again in that folder
    checks: int = 10  # how often to validate and save, over the whole run
    check_pairs: int = 500  # sentences translated at each check
    keep: int = 2  # newest saves kept
    patience: int = 0  # stop after this many checks without a better one; 0 for never
    average_last: int = 0  # also try the mean of the last saves at the end; 0 for no
    device: str = "auto"  # cpu, cuda or mps; the best there is if auto
    threads: int | None = None  # processor threads; all cores unless given
    compile: bool = False  # compile the model first: half a minute, for long runs

    def __post_init__(self) -> None:
        must(
            self,
            checks=(self.checks >= 1, "at least 1"),
            check_pairs=(self.check_pairs >= 1, "at least 1"),
            keep=(self.keep >= 1, "at least 1"),
            patience=(self.patience >= 0, "0 or more"),
            average_last=(self.average_last >= 0, "0 or more"),
            threads=(self.threads is None or self.threads >= 1, "at least 1"),
        )


@dataclass(frozen=True)
class Settings:
    task: str
    model: str
    size: str
    files: Files
    pieces: Pieces
    body: dict[str, Any]  # fields of the model's config
    aim: dict[str, Any]  # fields of the task
    plan: Plan
    keeping: Keeping

    def flat(self) -> dict[str, Any]:
        """As train.json keeps them, and as `settle` takes them again."""
        groups = (self.files, self.pieces, self.plan, self.keeping)
        return {
            "task": self.task,
            "model": self.model,
            "size": self.size,
            **self.body,
            **self.aim,
            **{name: value for group in groups for name, value in asdict(group).items()},
        }


HIDDEN = {"vocab", "pad", "tokenizer", "seen"}  # of config and task: they follow from the data


class Option(NamedTuple):
    kind: Any  # its type
    default: Any  # MISSING if it must be given
    help: str


def options_of(group: Any) -> dict[str, Option]:
    """The fields of a dataclass, with what stands beside each."""
    kinds = get_type_hints(group, include_extras=True)
    lines = re.finditer(r"^    (\w+): [^#\n]*  # (.*)$", inspect.getsource(group), re.MULTILINE)
    helps = {line[1]: line[2] for line in lines}
    return {f.name: Option(kinds[f.name], f.default, helps.get(f.name, "")) for f in fields(group)}


def options(task: str, model: str, size: str) -> dict[str, Option]:
    """Every option there is for this task and model, by name."""
    found = {name: o for group in (Files, Plan, Keeping, Pieces) for name, o in options_of(group).items()}
    for group in (TASKS[task], MODELS[model].config):
        for name, option in options_of(group).items():
            if name not in HIDDEN:
                assert name not in found, f"two options are named {name}"
                found[name] = option._replace(default=MODELS[model].sizes[size].get(name, option.default))
    return found


def settle(task: str, model: str = "transformer", size: str = "tiny", **given: Any) -> Settings:
    choose("task", task, TASKS)
    choose("model", model, MODELS)
    choose(f"size of {model}", size, MODELS[model].sizes)
    for name in given:
        choose("option", name, options(task, model, size))

    def of(group: Any) -> dict[str, Any]:
        return {field.name: given[field.name] for field in fields(group) if field.name in given}

    config, aim = MODELS[model].config, TASKS[task]
    body = defaults(config) | MODELS[model].sizes[size] | {n: v for n, v in of(config).items() if n not in HIDDEN}
    files = of(Files) | {name: paths(given[name]) for name in ("data", "valid", "test") if name in given}
    if files.get("fields"):
        files["fields"] = tuple(files["fields"])
    groups = (
        Files(**files),
        Pieces(**of(Pieces)),
        body,
        defaults(aim) | of(aim),
        Plan(**of(Plan)),
        Keeping(**of(Keeping)),
    )
    return Settings(task, model, size, *groups)


def start(task: str, model: str = "transformer", size: str = "tiny", **given: Any) -> Settings:
    """Settings as the user gives them; of a run that is resumed, those that it began with."""
    if given.get("resume"):
        return resumed(task, **given)
    if sum(given.get(name) is not None for name in ("steps", "epochs", "minutes")) > 1:
        raise ValueError("choose one of --steps, --epochs and --minutes")
    return settle(task, model, size, **given)


MAY_CHANGE = ("resume", "out", "device", "threads")


def resumed(task: str, **given: Any) -> Settings:
    for name in given:
        if name not in MAY_CHANGE:
            raise ValueError(
                f"a resumed run keeps its settings: leave out --{name.replace('_', '-')}, or start a new run"
            )
    file = Path(given.get("out") or f"runs/{task}") / "train.json"
    kept = read_json(file)
    kept.pop("fingerprint", None)
    try:
        return settle(**{**kept, **given})
    except (TypeError, KeyError) as error:
        raise ValueError(f"{file} is not what a run wrote: {error}") from None


def paths(given: Any) -> tuple[str, ...]:
    """One path or several, as text."""
    return (str(given),) if isinstance(given, str | Path) else tuple(map(str, given))


def defaults(group: Any) -> dict[str, Any]:
    return {f.name: f.default for f in fields(group) if f.name not in HIDDEN and f.default is not MISSING}
