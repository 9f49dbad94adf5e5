"""The model argument of a command: a folder, or a repository on the Hugging Face hub, downloaded only on request."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from os.path import exists, isfile, join
from pathlib import Path
from typing import TypeVar

from regard.cli.options import parse
from regard.hub.remote import REPO_NAME, find_model
from regard.options import make, options_of

T = TypeVar("T")


@dataclass
class FetchOptions:
    """Use of the network."""

    download: bool = False  # download the model if it is not on this machine
    offline: bool = False  # never use the network, and do not ask
    update: bool = False  # download the newest revision of the model


def fetch_model(name: str, options: FetchOptions) -> Path:
    if options.offline and (options.download or options.update):
        raise ValueError("choose one of --offline and --download or --update")
    interactive = sys.stdin.isatty() and sys.stderr.isatty()
    download = False if options.offline else options.download or None
    return find_model(name, download, confirm if interactive else None, update=options.update)


def parse_command(verb: str, args: list[str], kind: type[T]) -> tuple[T, Path]:
    """The options of a command on a model, and the folder of the model."""
    values = parse(f"regard {verb}", args, options_of(kind) | options_of(FetchOptions))
    options = make(kind, values)
    return options, fetch_model(values["model"], make(FetchOptions, values))


def confirm(question: str) -> bool:
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def model_in_args(args: list[str]) -> Path | None:
    """The first argument that names a model: its task determines the other options, before they are parsed."""
    options = FetchOptions(**{word: f"--{word}" in args for word in ("download", "offline", "update")})
    folders = [arg for arg in args if isfile(join(arg, "config.json"))]  # a text may be no valid path
    names = [arg for arg in args if REPO_NAME.fullmatch(arg) and not exists(arg)]
    first = [arg for arg in args[:1] if not arg.startswith("-")]  # if it is no model, that is reported first
    return fetch_model((folders + names + first)[0], options) if folders or names or first else None
