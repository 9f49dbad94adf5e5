"""The command: one file a verb, and nothing is imported before a verb needs it."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

from regard.cli.process import about_memory, lacks_memory, make_streams_safe, must_be_utf8, must_have_memory
from regard.validate import ModelWarning, check_choice

VERBS = {
    "train": "train a model on your files: regard train translate --data train.en train.de",
    "run": 'use a model: regard run MODEL "Tea and water please"',
    "imitate": "imitate an expert by GAIL: regard imitate --data episodes.npz --env CartPole-v1",
    "score": "measure a model on a file of pairs: regard score MODEL test.en test.de",
    "check": "check a model for defects, with advice for each: regard check MODEL",
    "bench": "measure a model's speed on this machine, beside other backends: regard bench MODEL",
    "look": 'see what happens inside of a model, as a page: regard look MODEL "Tea and water please"',
    "lab": "the claims of the lectures as experiments: regard lab party",
    "models": "what there is: every model with its sizes, and the tasks it meets",
    "tasks": "what can be done: every task, what it reads, and the models that fit",
    "demo": "see it all on the bundled phrasebook, in three minutes",
}
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all control characters but tabs and ends of lines
USAGE = "usage: regard VERB ...          regard VERB --help tells the rest"


def main(argv: list[str] | None = None) -> int:
    """0 done, 2 wrong input, 3 a number that is no number, 130 interrupted."""
    args = sys.argv[1:] if argv is None else argv
    if argv is None:
        make_streams_safe(stops=args[:1] == ["run"])
    if not args or args[0] in ("-h", "--help") or args == ["help"]:
        print("regard: the Transformer family, on your own files\n")
        print(USAGE + "\n")
        print("\n".join(f"  {verb:<9}{what}" for verb, what in VERBS.items()))
        return 0
    if args[0] in ("-V", "--version"):
        from regard import __version__

        print(f"regard {__version__}")
        return 0
    # Threads that spin for long while they wait for each other are several times slower beside another busy process.
    os.environ.setdefault("GOMP_SPINCOUNT", "700")
    if args[0] == "help":
        args = [args[1], "--help"]
    try:
        must_be_utf8(args)
        check_choice("verb", args[0], (*VERBS, "--version"))
        if args[1:] in (["-h"], ["--help"]):
            shown: int = import_module("regard.cli.help").show(args[0])
            return shown
        must_have_memory()
        with warnings.catch_warnings():
            warnings.simplefilter("always", ModelWarning)
            warnings.showwarning = in_one_line(warnings.showwarning)
            code: int = import_module(f"regard.cli.{args[0]}").main(args[1:])
        return code
    except ValueError as error:
        return complain(str(error), 2)
    except FloatingPointError as error:
        return complain(str(error), 3)
    except OSError as error:
        if isinstance(error, BrokenPipeError):  # the reader of our output has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        if lacks_memory(error):
            return complain(about_memory(error), 2)
        return complain(f"{error.filename or ''}: {error.strerror or error}".removeprefix(": "), 2)
    except KeyboardInterrupt:
        return complain("interrupted", 130)
    except (ImportError, MemoryError, RuntimeError) as error:
        if not lacks_memory(error):
            raise
        return complain(about_memory(error), 2)


def in_one_line(otherwise: Callable[..., None]) -> Callable[..., None]:
    """Our own warnings as one line; those of others as ever."""

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, ModelWarning):
            print(f"regard: {message}", file=sys.stderr)
        else:
            otherwise(message, category, *where, **more)

    return show


def complain(message: str, code: int) -> int:
    print(f"regard: {printable(message)}", file=sys.stderr)
    return code


def printable(text: str) -> str:
    """Without what would control a terminal: labels and texts may come from strangers. Lines and tabs stay."""
    return CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
