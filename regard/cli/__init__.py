"""The command: one file a verb, and nothing is imported before a verb needs it."""

from __future__ import annotations

import io
import os
import resource
import sys
from importlib import import_module
from typing import Any

from regard.choose import choose

VERBS = {
    "train": "train a model on your files: regard train translate --data train.en train.de",
    "run": 'use a model: regard run MODEL "Tea and water please"',
    "imitate": "act so that nobody can tell it from an expert: regard imitate --data episodes.npz --env CartPole-v1",
    "score": "measure a model on a file of pairs: regard score MODEL test.en test.de",
    "check": "examine a model, and tell what is wrong with it: regard check MODEL",
    "bench": "how fast a model is on this machine, beside other programs: regard bench MODEL",
    "look": 'see what happens inside of a model, as a page: regard look MODEL "Tea and water please"',
    "lab": "the claims of the lectures as experiments: regard lab party",
    "models": "what there is: every model with its sizes, and the tasks it meets",
    "tasks": "what can be done: every task, what it reads, and the models that fit",
    "demo": "see it all on the bundled phrasebook, in three minutes",
}
LEAST_MEMORY = 700 << 20  # bytes of addresses; importing PyTorch takes 625 MB of them
USAGE = "usage: regard VERB ...          regard VERB --help tells the rest"


def main(argv: list[str] | None = None) -> int:
    """0 done, 2 wrong input, 3 a number that is no number, 130 interrupted."""
    args = sys.argv[1:] if argv is None else argv
    if argv is None:
        make_streams_safe(stops=args[:1] == ["run"])
    if not args or args[0] in ("-h", "--help", "help"):
        print("regard: the Transformer family, on your own files\n")
        print(USAGE + "\n")
        print("\n".join(f"  {verb:<9}{what}" for verb, what in VERBS.items()))
        return 0
    if args[0] in ("-V", "--version"):
        from regard import __version__

        print(f"regard {__version__}")
        return 0
    try:
        must_be_utf8(args)
        choose("verb", args[0], VERBS)
        if 0 <= limit() < LEAST_MEMORY:
            raise MemoryError("loading PyTorch takes more")  # it would abort, with a message or without
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
            return complain_of_memory(error)
        return complain(f"{error.filename or ''}: {error.strerror or error}".removeprefix(": "), 2)
    except KeyboardInterrupt:
        return complain("interrupted", 130)
    except (ImportError, MemoryError, RuntimeError) as error:
        if not lacks_memory(error):
            raise
        return complain_of_memory(error)


def complain(message: str, code: int) -> int:
    print(f"regard: {message}", file=sys.stderr)
    return code


def complain_of_memory(error: Exception) -> int:
    remedy = "take a smaller model or batch"
    if limit() >= 0:
        remedy = f"raise the limit of {limit() >> 20:,} MB (ulimit -v), {LEAST_MEMORY >> 20} is the least; or {remedy}"
    return complain(f"out of memory ({' '.join(str(error).split()) or 'MemoryError':.200}): {remedy}", 2)


def limit() -> int:
    """Bytes of addresses that this process may use; negative if as many as it likes."""
    return resource.getrlimit(resource.RLIMIT_AS)[0]


def lacks_memory(error: Exception) -> bool:
    """PyTorch and the loader of libraries have no error of their own for it."""
    words = ("failed to map segment", "allocate memory", "bad_alloc", "out of memory")
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)


def must_be_utf8(args: list[str]) -> None:
    """Python hides a byte that is no text in half a character, which nothing can print or encode."""
    for number, arg in enumerate(args, 1):
        raw = os.fsencode(arg)
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            place = f"not UTF-8 at byte {error.start + 1}"
            raise ValueError(
                f"argument {number} is {place}: {raw!r:.99}; convert the text or rename the file"
            ) from None


class Unbroken(io.FileIO):
    """A standard stream whose reader may leave: the work goes on, and what it says is dropped."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            return memoryview(data).nbytes


def make_streams_safe(stops: bool) -> None:
    """A stream that is closed from the start (>&-) is empty, and no other file gets its number. Unless the command
    `stops` when its reader leaves (| head -1), it goes on in silence."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream: Any = getattr(sys, name)
        if stream is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False, encoding="utf-8"))  # noqa: SIM115
        elif number and not stops and isinstance(stream, io.TextIOWrapper):
            raw = io.BufferedWriter(Unbroken(number, "w", closefd=False))
            how = {name: getattr(stream, name) for name in ("encoding", "errors", "line_buffering", "write_through")}
            setattr(sys, name, io.TextIOWrapper(raw, **how))
