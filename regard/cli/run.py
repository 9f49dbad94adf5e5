"""regard run MODEL: texts in, answers out, each printed when it is ready."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro

from regard.atomic import path_in_errors
from regard.batch_invariant import reproducible
from regard.cli import CONTROL, printable
from regard.cli.act import PlayOptions, play_policy, play_sequence_policy
from regard.cli.model import Fetching, found, named_in
from regard.cli.options import parse
from regard.cli.texts import must_be_short, windows
from regard.data.fasta import holds_fasta
from regard.data.lines import must_be_encoding
from regard.device import set_num_threads
from regard.hub.files import TEXT
from regard.load import LoadedModel, load
from regard.parts.heads import NOT_FINITE
from regard.purpose import task_of, way_defaults
from regard.rl.policy import is_policy
from regard.tasks import TASKS
from regard.tasks.decide import Decide
from regard.tasks.task import Answer
from regard.tasks.write import TURN, Write
from regard.training.changes import flag
from regard.training.settings import options_of
from regard.validate import Option, check_fields

ANSWERING = ("text", "file", "json", "embed", "num_return", "horizon", "ahead", "save")  # mean nothing to who acts


@dataclass
class Use:
    """What to run, and on what."""

    model: Annotated[str, tyro.conf.Positional]  # a model folder, or the name of one on the hub: owner/repo
    text: Annotated[tuple[str, ...], tyro.conf.Positional] = ()  # the texts; from the file or standard input if none
    file: str | None = None  # a file of texts, one a line, or of proteins (.fasta), plain or gzip
    encoding: str = "utf-8"  # of that file or of standard input: utf-8, cp1252, utf-16 ...
    json: bool = False  # answers as JSON lines, with their log-probabilities
    embed: bool = False  # instead of answers, one vector for each input, as JSON lines
    npy: str | None = None  # with --embed: all vectors as one array, in this .npy file
    play: bool = False  # a story told by you and the model in turn; or, if it acts or decides, let it act in a world
    device: str = "auto"  # cpu, cuda or mps; the best there is if auto
    speed: Literal["exact", "int8"] = "exact"  # the same tokens as ever, or weights of 8 bits: sooner, almost the same
    threads: int | None = None  # processor threads; all cores unless given
    reproducible: bool = False  # the same bits whatever else is asked with a text; on the CPU, and slower

    def __post_init__(self) -> None:
        must_be_encoding(self.encoding)
        check_fields(
            self,
            threads=(self.threads is None or self.threads >= 1, "at least 1"),
            speed=(not self.reproducible or self.speed == "exact", "exact with --reproducible"),
            npy=(not self.npy or (self.embed and self.npy.endswith(".npy")), "a .npy file, and goes with --embed"),
        )


def main(args: list[str]) -> int:
    folder = named_in(args)
    if folder and is_policy(folder):
        return act(folder, args)
    kind = TASKS[task_of(folder) if folder else "translate"]
    ways: Any = kind.ways
    acting = options_of(PlayOptions) if kind.acts else {}
    asked = options_of(ways) | folder_defaults(ways, folder)
    given = parse("regard run", args, options_of(Use) | options_of(Fetching) | asked | acting)
    use = Use(**{name: given.pop(name) for name in options_of(Use)})
    how_found = Fetching(**{name: given.pop(name) for name in options_of(Fetching)})
    playing, how = PlayOptions(**{name: given.pop(name) for name in acting}), ways(**given)
    if getattr(how, "temperature", 0) > 0 and any(arg.split("=")[0] == "--num-beams" for arg in args):
        note = f"at --temperature {how.temperature:g} the answer is sampled, and --num-beams has no effect"
        print(f"{note}: add --temperature 0 for greedy (--num-beams 1) or beam search", file=sys.stderr)
    if acting and use.play:
        refuse(ANSWERING, "does not go with --play, which lets it act", use, how)
    elif acting:
        refuse((*acting, "env"), "goes with --play", playing, how)
    if use.threads:
        set_num_threads(use.threads)
    if use.play and acting and kind is not Decide:
        return play_policy(found(use.model, how_found), playing)
    if use.text and use.file:
        raise ValueError("give the texts on the command line or in --file, not both")
    loaded = load(found(use.model, how_found), use.device, speed=None if use.reproducible else use.speed)
    with reproducible(loaded.model) if use.reproducible else nullcontext():
        if use.play and kind is Decide:
            return play_sequence_policy(loaded, how, playing)
        return answer(loaded, use, how)


def folder_defaults(ways: Any, folder: Path | None) -> dict[str, Option]:
    """Options of an answer that have another default where the folder asks for it."""
    known, usual = options_of(ways), way_defaults(folder) if folder else {}
    return {name: known[name]._replace(default=value) for name, value in usual.items()}


def refuse(names: Iterable[str], why: str, *groups: Any) -> None:
    """Options that would change nothing."""
    for group in groups:
        kind: Any = type(group)
        known = options_of(kind)
        for name in names:
            if name in known and getattr(group, name) != known[name].default:
                raise ValueError(f"{'a text' if name == 'text' else flag(name)} {why}")


def act(folder: Path, args: list[str]) -> int:
    """A policy without a model can do one thing."""
    given = parse("regard run", args, options_of(Use) | options_of(Fetching) | options_of(PlayOptions))
    use = Use(**{name: given[name] for name in options_of(Use)})
    if not use.play:
        raise ValueError(f"{folder} holds a policy, which acts: regard run {folder} --play")
    refuse(ANSWERING, "does not go with --play, which lets it act", use)
    return play_policy(folder, PlayOptions(**{name: given[name] for name in options_of(PlayOptions)}))


def answer(loaded: LoadedModel, use: Use, how: Any) -> int:
    if use.play:
        return play(loaded, how, " ".join(use.text))
    if use.embed:
        return embed(loaded, use)

    def ask(some: list[str], first: int) -> Iterator[list[Answer]]:
        return loaded.predict(some, how, first)

    for number, source, best in answered(use, ask):
        show(number, source, best, use.json, how)
    return 0


def answered(use: Use, ask: Callable[[list[str], int], Iterable[Any]]) -> Iterator[tuple[int, str, Any]]:
    """Every input with its number and its answer. Many are asked at once; if one of these cannot be answered, those
    before it still are, and the error tells where it stands."""
    number = 0
    for some in windows(use.text, use.file, use.encoding):
        begin, answers = number, ask(some, number)
        try:
            for source, answer in zip(some, answers, strict=True):
                yield number, source, answer
                number += 1
        except ValueError:
            for i, source in enumerate(some[number - begin :], number):
                yield i, source, alone(use, ask, source, i)
            raise


def alone(use: Use, ask: Callable[[list[str], int], Iterable[Any]], source: str, number: int) -> Any:
    try:
        [answer] = ask([source], number)
    except ValueError as error:
        raise ValueError(f"{place(use, number)}{error}") from None
    return answer


def place(use: Use, number: int) -> str:
    """Where an input is from, unless it stands in the command."""
    if use.text:
        return ""
    if use.file is None:
        return f"standard input, line {number + 1}: "
    return f"{use.file}, chain {number + 1}: " if holds_fasta(use.file) else f"{use.file}:{number + 1}: "


def play(loaded: LoadedModel, how: Any, story: str) -> int:
    """The model tells, the user acts; an empty line or the end of the input ends it. Old turns slide out of sight."""
    if not isinstance(loaded.task, Write):
        raise ValueError(
            "--play is for models that write, decide or act: regard train write, decide, or predict --env CartPole-v1"
        )
    story = loaded.task.play(loaded.model, story, "", how, 0)
    print(printable(story.strip()), flush=True)
    for turn, said in enumerate(asked(), 1):
        before = f"{story.rstrip()}{TURN}{said}\n"
        story = loaded.task.play(loaded.model, story, said, how, turn)
        print(printable(story[len(before) :].strip()), flush=True)
    return 0


def asked() -> Iterator[str]:
    while True:
        try:
            said = input("> ") if sys.stdin.isatty() else sys.stdin.readline(TEXT + 1)
        except EOFError:
            return
        must_be_short(said, "standard input")
        if not said.strip():
            return
        yield said.strip()


def embed(loaded: LoadedModel, use: Use) -> int:
    kept = []
    for number, source, vector in answered(use, lambda some, _: loaded.iter_embeddings(some)):
        if use.npy:
            kept.append(vector)
        else:
            print(json_line({"number": number, "source": source, "vector": vector}), flush=True)
    if use.npy:
        with path_in_errors(use.npy):
            np.save(use.npy, np.array(kept, np.float32))
        print(f"{len(kept)} vectors are in {use.npy}")
    return 0


def show(number: int, source: str, best: list[Answer], as_json: bool, how: Any) -> None:
    if as_json:
        rows = [{"text": a.text, "logp": a.logp, "score": a.score, **a.more} for a in best]
        print(json_line({"number": number, "source": source, "answers": rows}), flush=True)
    else:
        for answer in best:
            told = answer.more.get("cosine", answer.logp)
            text = printable(answer.text)
            print(text if how.num_return == 1 else f"{told:.4f}\t{text}", flush=True)


def json_line(line: dict[str, Any]) -> str:
    """JSON has no NaN. Of control characters it escapes the first 32 only, and a terminal acts on others too."""
    try:
        text = json.dumps(line, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise FloatingPointError(NOT_FINITE) from None
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
