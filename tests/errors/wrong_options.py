"""Every option of every command, with every value that it should not have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, get_args
from unittest.mock import patch

import tyro
from telling import fault, no_training, told
from valid import FIT, cached, form_for, small, written

from regard.cli.check import CheckOptions
from regard.cli.demo import Demo
from regard.cli.lab import Lab
from regard.cli.look import Look
from regard.cli.model import Fetching
from regard.cli.run import Use
from regard.cli.score import Measure
from regard.lab import EXPERIMENTS, experiment, options_class
from regard.models import MODELS
from regard.tasks import TASKS
from regard.training.settings import options, options_of, words_of
from regard.validate import Option

NO_NUMBER = {"a wrong kind": "x", "nothing": "", "no number": "nan", "endless": "inf", "below all": "-inf"}
WRONG: dict[type, dict[str, str]] = {
    int: NO_NUMBER | {"half": "1.5", "below": "-1", "zero": "0", "many": "100000000", "huge": "9" * 40, "hex": "0x10"},
    float: NO_NUMBER | {"below": "-1", "zero": "0", "one": "1", "huge": "1e308"},
    str: {"nothing": "", "long": "x" * 300, "no place": "no/such/place"},
    bool: {"a value": "7"},
}
NEVER = (*NO_NUMBER, "half", "hex", "a value")  # may be accepted
LASTING = ("steps", "epochs", "minutes")  # options of which there is one


class Wrong(NamedTuple):
    option: str  # as it is typed
    how: str
    typed: tuple[str, ...]
    refused: bool  # it must be; otherwise it may be


def wrong(name: str, option: Option) -> Iterator[Wrong]:
    typed, words, kind = flag(name), words_of(option.kind), kind_of(option.kind)
    if tyro.conf.Positional in get_args(option.kind):
        return
    for how, value in {"no such word": f"{words[0]}x", "nothing": ""}.items() if words else WRONG[kind].items():
        yield Wrong(typed, how, (f"{typed}={value}",), bool(words) or may_never(how, kind, option))
    if kind is not bool and "tuple" not in str(option.kind):
        yield Wrong(typed, "no value", (typed,), True)
    yield Wrong(f"{typed}x", "no such option", (f"{typed}x", "1"), True)


def flag(name: str) -> str:
    return f"--{name.rstrip('_').replace('_', '-')}"


def may_never(how: str, kind: type, option: Option) -> bool:
    return how in NEVER and (kind is not str or option.default != "")


def kind_of(kind: Any) -> type:
    """What an option is, whatever stands around it: optional, several ..."""
    inside = [kind] if isinstance(kind, type) else [kind_of(part) for part in get_args(kind) if part is not Ellipsis]
    return next((one for one in (bool, int, float, str) if one in inside), str)


class Command(NamedTuple):
    """A command that would do, and the options that it has."""

    name: str
    args: list[str]
    options: Mapping[str, Option]


def training(folder: Path, pairs: list[tuple[str, str]] = FIT) -> Iterator[Command]:
    for task, model in pairs:
        at = folder / f"{task}-{model}"
        data = written(form_for(task, model), at)
        files = ["--data", *data, "--valid", *data, "--out", str(at / "run"), "--overwrite", *cached(task, at)]
        known = options(task, model, next(iter(MODELS[model].sizes)))
        yield Command(f"train {task} --model {model}", ["train", task, *small(task, model), *files], known)


def others(model: str, task: str, text: str, data: list[str], folder: Path) -> Iterator[Command]:
    """All verbs but train, of a model that answers this text."""
    fetching, ways = options_of(Fetching), options_of(TASKS[task].ways)
    yield Command(f"run, {task}", ["run", model, text], options_of(Use) | fetching | ways)
    yield Command(f"score, {task}", ["score", model, *data], options_of(Measure) | fetching | ways)
    yield Command(f"look, {task}", ["look", model, text, "--out", str(folder / "a.html")], options_of(Look) | fetching)
    yield Command(f"check, {task}", ["check", model, "--no-peers"], options_of(CheckOptions) | fetching)


def plays(folder: Path) -> Iterator[Command]:
    out = ["--out", str(folder / "lab")]
    for name in EXPERIMENTS:
        yield Command(f"lab {name}", ["lab", name, *out], options_of(options_class(name)) | options_of(Lab))
    yield Command("lab --all", ["lab", "--all", *out], options_of(Lab))
    yield Command("demo", ["demo", *out], options_of(Demo))


@contextmanager
def nothing_done() -> Iterator[None]:
    """Commands that take long stop where they would begin; what they were told has been looked at by then."""
    with ExitStack() as stack:
        stack.enter_context(no_training())
        for place in ("check.check_folder", "lab.run_all", "demo.ready"):
            stack.enter_context(patch(f"regard.cli.{place}", lambda *_: exit(0)))
        for name in EXPERIMENTS:
            stack.enter_context(patch.object(experiment(name), "run", lambda *_: exit(0)))
        yield


def tried(command: Command, one: Wrong) -> tuple[str, str]:
    """What became of it: refused or accepted; and what is wrong with that, if anything is."""
    said = told([*without(command.args, one.option), *one.typed])
    if said.code == 0:
        return "accepted", "it was accepted" if one.refused else ""
    unsuited = ("no attention to look at", "regard look shows", "has no page yet")  # come before what to look for
    wrong = fault(said, [*named(one), *unsuited])
    return "refused", f"{wrong}: {said.err[-500:]}" if wrong else ""


def without(args: list[str], option: str) -> list[str]:
    """The same command without what it says about an option, or about the length of a run if that is what it is."""
    dropped = [flag(name) for name in LASTING] if option.removeprefix("--") in LASTING else [option]
    kept, skip = [], False
    for arg in args:
        skip = arg in dropped if arg.startswith("--") else skip
        if not skip:
            kept.append(arg)
    return kept


def named(one: Wrong) -> list[str]:
    """A refusal names the option, or the thing that it was given."""
    value, bare = one.typed[0].partition("=")[2], one.option.removeprefix("--")
    told = len(value) > 2 or (one.how == "a value")
    return [bare.removesuffix("x") if one.how == "no such option" else bare, *([value] if told else [])]
