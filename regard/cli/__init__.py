"""The command line: one file per verb, imported only when its verb runs."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable
from importlib import import_module

from regard.cli.process import check_memory_limit, check_utf8, is_memory_error, make_streams_safe, memory_message
from regard.validate import ModelWarning, TrackingWarning, check_choice

VERBS = {
    "train": "train a model on your files: regard train translate --data train.en train.de",
    "plan": "say what a run costs before it starts: regard plan write --data corpus.txt --gpus 8xH100",
    "run": 'run a model: regard run MODEL "Tea and water please"',
    "serve": "serve models over HTTP (OpenAI, LibreTranslate and TEI APIs, a page): regard serve MODEL",
    "verify": "replay an answer of a reproducible server from its receipt: regard verify receipt.json",
    "imitate": "imitate an expert by GAIL: regard imitate --data episodes.npz --env CartPole-v1",
    "score": "score a model on test files: regard score MODEL test.en test.de",
    "check": "check a model for defects, with advice for each: regard check MODEL",
    "bench": "measure the speed of a model and of other backends on this machine: regard bench MODEL",
    "look": 'show attention and activations of a model on an HTML page: regard look MODEL "Tea and water please"',
    "lab": "run an experiment that tests a claim of the lectures: regard lab party",
    "log": "send the metrics of a run to TensorBoard, W&B, MLflow or Trackio: regard log RUN --to tensorboard",
    "models": "list all models, their sizes and the tasks that they fit",
    "tasks": "list all tasks, the files that they read and the models that fit",
    "demo": "train a translator on the bundled phrasebook, in three minutes",
}
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # control characters other than tab and newline
USAGE = "usage: regard VERB ...          regard VERB --help lists its options"


def main(argv: list[str] | None = None) -> int:
    """Exit codes: 0 success, 1 a failed check or claim, 2 wrong input, 3 a NaN or infinite number, 130 interrupted."""
    args = sys.argv[1:] if argv is None else argv
    if argv is None:
        make_streams_safe(stops=args[:1] == ["run"])
    if not args or args[0] in ("-h", "--help") or args == ["help"]:
        print("regard: the Transformer family, on your own files\n")
        print(USAGE + "\n")
        print("\n".join(f"  {verb:<9}{summary}" for verb, summary in VERBS.items()))
        return 0
    if args[0] in ("-V", "--version"):
        from regard import __version__

        print(f"regard {__version__}")
        return 0
    # OpenMP threads that spin for long while they wait are several times slower beside another busy process.
    os.environ.setdefault("GOMP_SPINCOUNT", "700")
    if args[0] == "help":
        args = [args[1], "--help"]
    try:
        check_utf8(args)
        check_choice("verb", args[0], (*VERBS, "--version"))
        if args[1:] in (["-h"], ["--help"]):
            help_code: int = import_module("regard.cli.help").show_help(args[0])
            return help_code
        check_memory_limit()
        with warnings.catch_warnings():
            warnings.simplefilter("always", ModelWarning)
            warnings.simplefilter("always", TrackingWarning)
            warnings.showwarning = notices_in_one_line(warnings.showwarning)
            code: int = import_module(f"regard.cli.{args[0]}").main(args[1:])
        return code
    except ValueError as error:
        return print_error(str(error), 2)
    except FloatingPointError as error:
        return print_error(str(error), 3)
    except OSError as error:
        if isinstance(error, BrokenPipeError):  # the reader of our output has exited
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        if is_memory_error(error):
            return print_error(memory_message(error), 2)
        return print_error(f"{error.filename or ''}: {error.strerror or error}".removeprefix(": "), 2)
    except KeyboardInterrupt:
        return print_error("interrupted", 130)
    except (ImportError, MemoryError, RuntimeError) as error:
        if not is_memory_error(error):
            raise
        return print_error(memory_message(error), 2)


def notices_in_one_line(fallback: Callable[..., None]) -> Callable[..., None]:
    """Print our own warnings as one line; `fallback` prints all others."""

    def show(message: Warning | str, category: type[Warning], *args: object, **kwargs: object) -> None:
        if issubclass(category, ModelWarning | TrackingWarning):
            print(f"regard: {message}", file=sys.stderr)
        else:
            fallback(message, category, *args, **kwargs)

    return show


def print_error(message: str, code: int) -> int:
    print(f"regard: {escape_control(message)}", file=sys.stderr)
    return code


def escape_control(text: str) -> str:
    """Escape control characters, which a terminal obeys, except newline and tab: labels and texts may be hostile."""
    return CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)
