"""regard run MODEL: predictions for input texts, each printed as soon as it is ready."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import numpy as np

from regard.atomic import path_in_errors
from regard.batch_invariant import reproducible
from regard.cli import CONTROL, escape_control
from regard.cli.act import PlayOptions, play_policy, play_sequence_policy
from regard.cli.input_texts import check_length, read_chunks
from regard.cli.model_argument import FetchOptions, fetch_model, model_in_args
from regard.cli.options import parse
from regard.data.lines import validate_encoding
from regard.device import set_num_threads
from regard.hub.task_config import read_decode_defaults, read_task_name
from regard.json_files import MAX_TEXT
from regard.load import load
from regard.loaded_model import LoadedModel
from regard.modalities.protocols import Modality
from regard.options import Option, Positional, make, option_flag, options_of
from regard.parts.heads import NOT_FINITE
from regard.rl.policy import is_policy
from regard.tasks import TASKS
from regard.tasks.decide import Decide, DecideOptions
from regard.tasks.task import DecodeOptions, Prediction, Task
from regard.tasks.write import TURN, Write, WriteOptions
from regard.validate import check_fields

PREDICT_ONLY = ("text", "file", "json", "embed", "num_return", "horizon", "ahead", "save")  # do not go with --play

P = TypeVar("P")


@dataclass
class RunCommandOptions:
    """The model, the inputs and the output format."""

    model: Annotated[str, Positional]  # model folder, or a repository on the Hugging Face hub: owner/repo
    text: Annotated[tuple[str, ...], Positional] = ()  # input texts; default: from --file or standard input
    file: str | None = None  # file of inputs, one per line, or in the model's own format (.fasta), plain or gzip
    encoding: str = "utf-8"  # encoding of --file and of standard input: utf-8, cp1252, utf-16 ...
    json: bool = False  # print predictions as JSON lines, with their log-probabilities
    embed: bool = False  # print one vector per input, as JSON lines, instead of predictions
    npy: str | None = None  # with --embed: write all vectors as one array to this .npy file
    play: bool = False  # take turns with a model that writes; a model that decides or acts plays in an environment
    device: str = "auto"  # cpu, cuda or mps; auto = the best available
    speed: Literal["exact", "int8"] = "exact"  # exact = the tokens of float32; int8 = 8-bit weights, faster
    threads: int | None = None  # CPU threads; default: all cores
    reproducible: bool = False  # batch-invariant kernels: each answer has the same bits in any batch; CPU only, slower

    def __post_init__(self) -> None:
        validate_encoding(self.encoding)
        check_fields(
            self,
            threads=(self.threads is None or self.threads >= 1, "at least 1"),
            speed=(not self.reproducible or self.speed == "exact", "exact with --reproducible"),
            npy=(not self.npy or (self.embed and self.npy.endswith(".npy")), "a .npy file, and goes with --embed"),
        )


def main(args: list[str]) -> int:
    folder = model_in_args(args)
    if folder and is_policy(folder):
        return run_policy(folder, args)
    kind = TASKS[read_task_name(folder) if folder else "translate"]
    play_names = options_of(PlayOptions) if kind.can_play else {}
    command, decoding_options = options_of(RunCommandOptions), decode_options_of(kind, folder)
    values = parse("regard run", args, command | options_of(FetchOptions) | decoding_options | play_names)
    options, fetch_options = make(RunCommandOptions, values), make(FetchOptions, values)
    play_options, decoding = make(PlayOptions, values), make_decoding(kind, decoding_options, values)
    if (temperature := getattr(decoding, "temperature", 0)) > 0 and "num_beams" in values:
        note = f"at --temperature {temperature:g} the answer is sampled, and --num-beams has no effect"
        print(f"{note}: add --temperature 0 for greedy (--num-beams 1) or beam search", file=sys.stderr)
    if play_names and options.play:
        refuse_options(PREDICT_ONLY, "does not go with --play, which acts in an environment", options, decoding)
    elif play_names:
        refuse_options((*play_names, "env"), "goes with --play", play_options, decoding)
    if options.threads:
        set_num_threads(options.threads)
    if options.play and play_names and kind is not Decide:
        return play_policy(fetch_model(options.model, fetch_options), play_options)
    if options.text and options.file:
        raise ValueError("choose one of texts on the command line and --file")
    speed = None if options.reproducible else options.speed
    loaded = load(fetch_model(options.model, fetch_options), options.device, speed=speed)
    with reproducible(loaded.model) if options.reproducible else nullcontext():
        if options.play and isinstance(decoding, DecideOptions):
            return play_sequence_policy(loaded, decoding, play_options)
        return run_model(loaded, options, decoding)


def decode_options_of(task: type[Task], folder: Path | None) -> dict[str, Option]:
    """The decoding options of a task, with the defaults of the folder."""
    available, defaults = options_of(task.decode_options), read_decode_defaults(folder) if folder else {}
    return available | {name: available[name]._replace(default=value) for name, value in defaults.items()}


def make_decoding(task: type[Task], available: Mapping[str, Option], values: Mapping[str, object]) -> DecodeOptions:
    return task.decode_options(**{name: values.get(name, option.default) for name, option in available.items()})


def refuse_options(names: Iterable[str], reason: str, *groups: object) -> None:
    """Raises ValueError for options that are set and would have no effect."""
    for group in groups:
        kind: type = type(group)
        available = options_of(kind)
        for name in names:
            if name in available and getattr(group, name) != available[name].default:
                raise ValueError(f"{'a text' if name == 'text' else option_flag(name)} {reason}")


def run_policy(folder: Path, args: list[str]) -> int:
    """A policy without a model only plays."""
    available = options_of(RunCommandOptions) | options_of(FetchOptions) | options_of(PlayOptions)
    values = parse("regard run", args, available)
    options = make(RunCommandOptions, values)
    if not options.play:
        raise ValueError(f"{folder} holds a policy, which only acts: add --play")
    refuse_options(PREDICT_ONLY, "does not go with --play, which acts in an environment", options)
    return play_policy(folder, make(PlayOptions, values))


def run_model(loaded: LoadedModel, options: RunCommandOptions, decoding: DecodeOptions) -> int:
    if options.play:
        return play_story(loaded, decoding, " ".join(options.text))
    if options.embed:
        return embed_texts(loaded, options)

    def predict(texts: list[str], first: int) -> Iterator[list[Prediction]]:
        return loaded.predict(texts, decoding, first)

    for number, source, best in predict_all(options, loaded.modality, predict):
        print_predictions(number, source, best, options.json, decoding)
    return 0


def predict_all(
    options: RunCommandOptions, modality: Modality, predict: Callable[[list[str], int], Iterable[P]]
) -> Iterator[tuple[int, str, P]]:
    """Each input with its number and its prediction. Predicts in chunks; if an input of a chunk fails, yields
    those before it, then raises an error that names its location."""
    number = 0
    for chunk in read_chunks(options.text, options.file, options.encoding, modality):
        start, predictions = number, predict(chunk, number)
        try:
            for source, prediction in zip(chunk, predictions, strict=True):
                yield number, source, prediction
                number += 1
        except ValueError:
            for i, source in enumerate(chunk[number - start :], number):
                try:
                    [prediction] = predict([source], i)
                except ValueError as error:
                    raise ValueError(f"{input_location(options, modality, i)}{error}") from None
                yield i, source, prediction
            raise


def input_location(options: RunCommandOptions, modality: Modality, number: int) -> str:
    """File and line of an input, counted from 1; empty if it is an argument."""
    if options.text:
        return ""
    if options.file is None:
        return f"standard input, line {number + 1}: "
    is_lines = modality.read_requests(options.file, options.encoding) is None
    return f"{options.file}{':' if is_lines else ', input '}{number + 1}: "


def play_story(loaded: LoadedModel, decoding: DecodeOptions, story: str) -> int:
    """The model and the user write in turns until an empty line or the end of input. Old turns leave the context."""
    if not isinstance(loaded.task, Write) or not isinstance(decoding, WriteOptions):
        commands = "regard train write, decide, or predict --env CartPole-v1"
        raise ValueError(f"--play is for models that write, decide or act: {commands}")
    story = loaded.task.play(loaded.model, story, "", decoding, 0)
    print(escape_control(story.strip()), flush=True)
    for number, turn in enumerate(read_turns(), 1):
        before = f"{story.rstrip()}{TURN}{turn}\n"
        story = loaded.task.play(loaded.model, story, turn, decoding, number)
        print(escape_control(story[len(before) :].strip()), flush=True)
    return 0


def read_turns() -> Iterator[str]:
    while True:
        try:
            turn = input("> ") if sys.stdin.isatty() else sys.stdin.readline(MAX_TEXT + 1)
        except EOFError:
            return
        check_length(turn, "standard input")
        if not turn.strip():
            return
        yield turn.strip()


def embed_texts(loaded: LoadedModel, options: RunCommandOptions) -> int:
    vectors = []
    for number, source, vector in predict_all(options, loaded.modality, lambda texts, _: loaded.iter_embeddings(texts)):
        if options.npy:
            vectors.append(vector)
        else:
            print(json_line({"number": number, "source": source, "vector": vector}), flush=True)
    if options.npy:
        with path_in_errors(options.npy):
            np.save(options.npy, np.array(vectors, np.float32))
        print(f"wrote {len(vectors)} vectors to {options.npy}")
    return 0


def print_predictions(number: int, source: str, best: list[Prediction], as_json: bool, decoding: DecodeOptions) -> None:
    if as_json:
        rows = [{"text": a.text, "logprob": a.logprob, "score": a.score, **a.extra} for a in best]
        print(json_line({"number": number, "source": source, "predictions": rows}), flush=True)
    else:
        for answer in best:
            value = answer.extra.get("cosine", answer.logprob)
            text = escape_control(answer.text)
            print(text if decoding.num_return == 1 else f"{value:.4f}\t{text}", flush=True)


def json_line(values: Mapping[str, object]) -> str:
    """One line of JSON. JSON has no NaN, and json.dumps escapes only the first 32 control characters."""
    try:
        text = json.dumps(values, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise FloatingPointError(NOT_FINITE) from None
    return CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
