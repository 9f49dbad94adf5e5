"""regard run MODEL: texts in, answers out, each printed when it is ready."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from queue import Queue
from threading import Thread
from typing import Annotated, Any, BinaryIO, Literal

import numpy as np
import tyro

from regard.choose import must
from regard.cli.model import Fetching, found, named_in
from regard.cli.options import parse
from regard.data.lines import Bad, Lines
from regard.device import use_threads
from regard.load import Loaded, load
from regard.purpose import task_of
from regard.reproducible import reproducible
from regard.tasks import TASKS
from regard.tasks.task import Answer
from regard.tasks.write import TURN, Write
from regard.training.settings import options_of

WINDOW = 1024  # texts held at once


@dataclass
class Use:
    """What to run, and on what."""

    model: Annotated[str, tyro.conf.Positional]  # a model folder, or the name of one on the hub: owner/repo
    text: Annotated[tuple[str, ...], tyro.conf.Positional] = ()  # the texts; from the file or standard input if none
    file: str | None = None  # a file of texts, one a line, plain or gzip
    json: bool = False  # answers as JSON lines, with their log-probabilities
    embed: bool = False  # instead of answers, one vector for each input, as JSON lines
    npy: str | None = None  # with --embed: all vectors as one array, in this .npy file
    play: bool = False  # tell an interactive story: you type, the model answers
    device: str = "auto"  # cpu, cuda or mps; the best there is if auto
    speed: Literal["exact", "int8"] = "exact"  # the same tokens as ever, or weights of 8 bits: sooner, almost the same
    threads: int | None = None  # processor threads; all cores unless given
    reproducible: bool = False  # the same bits whatever else is asked with a text; on the CPU, and slower

    def __post_init__(self) -> None:
        must(
            self,
            threads=(self.threads is None or self.threads >= 1, "at least 1"),
            speed=(not self.reproducible or self.speed == "exact", "exact with --reproducible"),
            npy=(not self.npy or (self.embed and self.npy.endswith(".npy")), "a .npy file, and goes with --embed"),
        )


def main(args: list[str]) -> int:
    folder = named_in(args)
    ways = TASKS[task_of(folder) if folder else "translate"].ways
    given = parse("regard run", args, options_of(Use) | options_of(Fetching) | options_of(ways))
    use = Use(**{name: given.pop(name) for name in options_of(Use)})
    how_found = Fetching(**{name: given.pop(name) for name in options_of(Fetching)})
    if use.text and use.file:
        raise ValueError("give the texts on the command line or in --file, not both")
    if use.threads:
        use_threads(use.threads)
    how = ways(**given)
    loaded = load(found(use.model, how_found), use.device, speed=None if use.reproducible else use.speed)
    with reproducible(loaded.model) if use.reproducible else nullcontext():
        return answer(loaded, use, how)


def answer(loaded: Loaded, use: Use, how: Any) -> int:
    if use.play:
        return play(loaded, how, " ".join(use.text))
    if use.embed:
        return embed(loaded, use)
    number = 0
    for some in windows(use):
        for source, best in zip(some, loaded.task.predict(loaded.model, some, how, first=number), strict=True):
            show(number, source, best, use.json, how)
            number += 1
    return 0


def play(loaded: Loaded, how: Any, story: str) -> int:
    """The model tells, the user acts; an empty line or the end of the input ends it. Old turns slide out of sight."""
    if not isinstance(loaded.task, Write):
        raise ValueError("--play is for models that write: train one with regard train write")
    story = loaded.task.play(loaded.model, story, "", how, 0)
    print(story.strip(), flush=True)
    for turn, said in enumerate(asked(), 1):
        before = f"{story.rstrip()}{TURN}{said}\n"
        story = loaded.task.play(loaded.model, story, said, how, turn)
        print(story[len(before) :].strip(), flush=True)
    return 0


def asked() -> Iterator[str]:
    while True:
        try:
            said = input("> " if sys.stdin.isatty() else "")
        except EOFError:
            return
        if not said.strip():
            return
        yield said.strip()


def embed(loaded: Loaded, use: Use) -> int:
    number, kept = 0, []
    for some in windows(use):
        for source, vector in zip(some, loaded.embed(some), strict=True):
            if use.npy:
                kept.append(vector)
                continue
            print(json.dumps({"number": number, "source": source, "vector": vector}, ensure_ascii=False), flush=True)
            number += 1
    if use.npy:
        np.save(use.npy, np.array(kept, np.float32))
        print(f"{len(kept)} vectors are in {use.npy}")
    return 0


def show(number: int, source: str, best: list[Answer], as_json: bool, how: Any) -> None:
    if as_json:
        rows = [{"text": a.text, "logp": a.logp, "score": a.score, **a.more} for a in best]
        print(json.dumps({"number": number, "source": source, "answers": rows}, ensure_ascii=False), flush=True)
    else:
        for answer in best:
            told = answer.more.get("cosine", answer.logp)
            print(answer.text if how.n_best == 1 else f"{told:.4f}\t{answer.text}", flush=True)


def windows(use: Use) -> Iterator[list[str]]:
    if use.text:
        return iter([list(use.text)])
    if use.file is None:
        return as_they_come(sys.stdin.buffer)
    lines = from_file(use.file)
    return iter(lambda: list(islice(lines, WINDOW)), [])


def from_file(file: str) -> Iterator[str]:
    try:
        for line in Lines(file):
            if isinstance(line, Bad):
                raise ValueError(f"{line.file}:{line.line}: {line.why}, {line.detail}; convert it with iconv")
            yield line
    except FileNotFoundError:
        raise ValueError(f"{file}: no such file") from None


def as_they_come(stream: BinaryIO) -> Iterator[list[str]]:
    """All lines that are there: one at a time from a person at a terminal, whole windows from a full pipe."""
    queue: Queue[bytes | None] = Queue(WINDOW)

    def feed() -> None:
        for line in stream:
            queue.put(line)
        queue.put(None)

    Thread(target=feed, daemon=True).start()
    number, more = 0, True
    while more:
        some: list[Any] = [queue.get()]
        while some[-1] is not None and len(some) < WINDOW and not queue.empty():
            some.append(queue.get())
        more = some[-1] is not None
        yield [decoded(line, number + i) for i, line in enumerate(some if more else some[:-1], 1)]
        number += len(some)


def decoded(line: bytes, number: int) -> str:
    try:
        return line.removesuffix(b"\n").removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        where = f"standard input, line {number}"
        raise ValueError(f"{where}: not UTF-8 at byte {error.start + 1}; convert it with iconv") from None
