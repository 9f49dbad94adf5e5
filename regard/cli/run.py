"""regard run MODEL: texts in, answers out, each printed when it is ready."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import tyro

from regard.cli.options import parse
from regard.generate import Decoding
from regard.load import load
from regard.training.settings import options_of


@dataclass
class Use:
    """What to run, and on what."""

    model: Annotated[str, tyro.conf.Positional]  # a model folder
    text: Annotated[tuple[str, ...], tyro.conf.Positional] = ()  # the texts; from the file or standard input if none
    file: str | None = None  # a file of texts, one a line
    json: bool = False  # answers as JSON lines, with their log-probabilities
    device: str = "auto"  # cpu, cuda or mps; the best there is if auto
    threads: int | None = None  # processor threads; all cores unless given


def main(args: list[str]) -> int:
    given = parse("regard run", args, options_of(Use) | options_of(Decoding))
    use = Use(**{name: given.pop(name) for name in ("model", "text", "file", "json", "device", "threads")})
    if use.text and use.file:
        raise ValueError("give the texts on the command line or in --file, not both")
    if use.threads:
        import torch

        torch.set_num_threads(use.threads)
    how = Decoding(**given)
    loaded = load(use.model, use.device)
    asked: list[str] = []
    at_once = not use.text and not use.file and sys.stdin.isatty()  # a person waits for each line
    answers = loaded.task.predict(loaded.model, texts(use, asked), how, window=1 if at_once else 1024)
    for number, best in enumerate(answers):
        source = asked.pop(0)
        if use.json:
            rows = [{"text": a.text, "logp": a.logp, "score": a.score} for a in best]
            print(json.dumps({"number": number, "source": source, "answers": rows}, ensure_ascii=False), flush=True)
        else:
            for answer in best:
                print(answer.text if how.n_best == 1 else f"{answer.logp:.4f}\t{answer.text}", flush=True)
    return 0


def texts(use: Use, asked: list[str]) -> Iterator[str]:
    for text in use.text or lines(use.file):
        asked.append(text)
        yield text


def lines(file: str | None) -> Iterator[str]:
    """A line ends at a line break and nowhere else."""
    name = file or "standard input"
    with open(file, "rb") if file else sys.stdin.buffer as stream:
        for number, line in enumerate(stream, 1):
            try:
                yield line.removesuffix(b"\n").removesuffix(b"\r").decode()
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{name}:{number}: not UTF-8 at byte {error.start + 1}; convert it with iconv"
                ) from None
