"""The model that a command line names: a folder, or a name on the hub, which is fetched only with the user's word."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from os.path import exists, isfile, join
from pathlib import Path

from regard.hub.remote import NAME, find


@dataclass
class FetchOptions:
    """What may be fetched."""

    download: bool = False  # fetch a model that is not here
    offline: bool = False  # never use the network, nor ask to
    update: bool = False  # take the newest state of a model on the hub


def found(name: str, how: FetchOptions) -> Path:
    if how.offline and (how.download or how.update):
        raise ValueError("choose one of --offline and --download or --update")
    here = sys.stdin.isatty() and sys.stderr.isatty()
    return find(name, False if how.offline else how.download or None, asked if here else None, update=how.update)


def asked(question: str) -> bool:
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def named_in(args: list[str]) -> Path | None:
    """The first argument that is a model: what else may be asked follows from it, before all else is read."""
    how = FetchOptions(**{word: f"--{word}" in args for word in ("download", "offline", "update")})
    folders = [arg for arg in args if isfile(join(arg, "config.json"))]  # a text may be no path at all
    names = [arg for arg in args if NAME.fullmatch(arg) and not exists(arg)]
    first = [arg for arg in args[:1] if not arg.startswith("-")]  # no model: said before its options are
    return found((folders + names + first)[0], how) if folders or names or first else None
