"""The modality seam: what every kind of input implements, so that tasks, checks and commands never name one.

    files ─Modality.read─▶ rows ─Preprocessor.encode─▶ EncodedInputs ─Preprocessor.collate─▶ Inputs(x, mask, pairs)

A `Modality` reads rows from files and fits a `Preprocessor` to the training rows. The preprocessor is saved with the
model; it encodes rows, builds batches, parses requests and provides probes. A task declares its `Target`, a modality
the targets that it reads; both fit if they share it and a model has a body for them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

from torch import Tensor

from regard.data.batches import BucketedExamples, Ints
from regard.data.documents import RowSet
from regard.data.lines import UTF8, BadRow, Dialect
from regard.data.lint import RowCheck, lint
from regard.data.rows import Row
from regard.data.splits import Data, DataOptions, Rows, read_sets
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_train import BERT_LAYOUT, TokenizerLayout
from regard.options import OptionGroups, options_of
from regard.validate import matches_type

T = TypeVar("T")


class Target(StrEnum):
    """What a task predicts of an input."""

    LABELS = "labels"  # one class or several
    NUMBER = "number"
    TAGS = "tags"  # a class for each of its elements
    SPAN = "span"  # a part of it
    TEXT = "text"  # a text that belongs to it: a translation, a transcript, a caption
    PAIR = "pair"  # another input of the same modality
    MASKED = "masked"  # its own elements that were hidden
    NEXT = "next"  # what follows it
    ACTION = "action"  # the next action of a policy


class Inputs(NamedTuple):
    """What a body reads: `body(*inputs.arguments)`."""

    x: Tensor  # (B,T) ids, (B,C,H,W) pixels, (B,frames,channels), (B,T,P) features of nodes or (B,T,K,O) steps
    mask: Tensor | None = None  # (B,1,1,T), True = a token
    pairs: Tensor | None = None  # (B,T,T) kinds of token pairs

    @property
    def arguments(self) -> tuple[Tensor | None, ...]:
        """Without the last fields if they are None: not every body has a mask, and few have pairs."""
        used = max(i for i, value in enumerate(self) if value is not None)
        return self[: used + 1]


class EncodedInputs(BucketedExamples):
    """The inputs of a set as arrays, from which `collate` builds batches."""

    def __init__(self, lengths: Ints, bucketed: bool = True):
        self.lengths = lengths[:, None]  # (N,1) tokens
        self.units = len(lengths)
        self.bucketed = bucketed

    def keys(self) -> Sequence[Hashable]:
        """Equal inputs have equal keys; by default no two inputs are equal."""
        return range(self.units)

    def join(self, rows: Sequence[tuple[Any, int]]) -> Self | None:
        """Rows of several sets of this type as one set; None if they must be collated one by one."""
        return None


class ReadOptions(NamedTuple):
    """How files are read."""

    target: Target
    fields: tuple[str, ...] | None = None
    dialect: Dialect = UTF8
    multi_label: bool = False
    labels: tuple[str, ...] = ()  # of a trained model; columns that the files lack are unknown labels
    groups: OptionGroups = OptionGroups()


class Preprocessor(ABC):
    """Turns rows of one modality into the inputs of a model. It is fitted to the training rows, and saved. A subclass
    states the types of its inputs and of what `encode` returns, which only its own `collate` reads."""

    modality: ClassVar[str]
    example: ClassVar[str] = "your text"  # a request to try
    tokenizer: Tokenizer | None = None  # of modalities whose inputs are tokens
    has_pictures: ClassVar[bool] = False  # models read patches of the picture that `draw` returns

    @abstractmethod
    def encode(self, rows: Sequence[Row[Any, object]], context: int, whole: bool = False) -> Any:
        """An input of more than `context` tokens is truncated or refused; with `whole` it is always refused, unless the
        context is 0, which is no limit."""

    @abstractmethod
    def collate(self, inputs: Any, rows: Ints, training: bool) -> Inputs:
        """A batch of some of the encoded inputs, augmented in training."""

    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """Fields of a model's config that follow from the data."""

    @abstractmethod
    def parse(self, raw: str, target: Target) -> Row[object, None]:
        """One request: of `regard run`, of Python, of a server. ValueError says what is wrong with it."""

    @abstractmethod
    def probes(self, count: int, target: Target) -> Sequence[Row[object, object]]:
        """Synthetic rows that checks and benchmarks feed a model; their targets need not be those of its task."""

    @abstractmethod
    def save(self, folder: Path) -> dict[str, object]:
        """Write the files of the preprocessor; returns its fields of task.json."""

    def check(self, row: Row[Any, object]) -> BadRow | None:
        """What makes a row unusable for this preprocessor."""
        return None

    def options(self) -> OptionGroups:
        """Options with which further files are read as the training files were."""
        return OptionGroups()

    def passages(self, raw: str, max_tokens: int) -> list[tuple[str | None, str]]:
        """The parts of a request that are predicted one by one, each with the space after it. None stands for a part
        with nothing to predict."""
        return [(raw, "")]

    def as_request(self, row: Row[Any, object]) -> str | None:
        """The request whose row this is; None if it would have to be a file."""
        return None

    def show(self, row: Row[Any, object]) -> str:
        """An input as a line of text."""
        return self.as_request(row) or row.location.removesuffix(": ") or row.key

    def draw(self, row: Row[Any, object]) -> str | None:
        """The input as a picture, a data URL, if it is one."""
        return None


class FitOptions(NamedTuple):
    """How a preprocessor is fitted."""

    target: Target
    groups: OptionGroups = OptionGroups()
    start: Preprocessor | None = None  # that of the model that training starts from
    layout: TokenizerLayout = BERT_LAYOUT  # special tokens that the task needs, if the inputs are tokens


class Modality(ABC):
    """One kind of input; a folder of modalities/, and a line in MODALITIES."""

    name: ClassVar[str]
    unit: ClassVar[str]  # the plural of an input: images
    like: ClassVar[tuple[str, ...]] = ()  # modalities with inputs of the same shape, whose models read it as well
    file: ClassVar[str]  # of its preprocessor in a model folder, for messages
    size_names: ClassVar[tuple[str, ...]]  # the keys of `Preprocessor.sizes`
    formats: ClassVar[Mapping[Target, str]]  # file formats, for each target that it reads
    synthetic_data: ClassVar[Mapping[Target, str]]  # the data that ships, for each target
    default_models: ClassVar[Mapping[str, str]]  # the default model of each structure
    default_overrides: ClassVar[Mapping[str, object]] = {}  # options of a task or a body with another default
    unused_options: ClassVar[frozenset[str]] = frozenset()  # options of files that do not apply
    rare_labels: ClassVar[bool] = False  # positive labels are rare: rank multi-label models by ROC AUC
    input_name: ClassVar[str | None] = None  # the argument of transformers' models that takes `Inputs.x`
    file_formats: ClassVar[tuple[str, ...]] = ()  # suffixes of the files that requests name; (): they are no files

    @abstractmethod
    def read(self, paths: Sequence[str], how: ReadOptions) -> Rows: ...

    @abstractmethod
    def synthetic(self, target: Target) -> Mapping[str, Rows]:
        """The data that ships with the package: train, valid and test."""

    @abstractmethod
    def fit(self, rows: Any, how: FitOptions) -> Preprocessor:
        """A preprocessor for these training rows: that of the model that training starts from, or a new one."""

    @abstractmethod
    def load(self, folder: Path, stored: Mapping[str, object]) -> Preprocessor | None:
        """The preprocessor of a model folder, `stored` being its task.json; None if the folder has none."""

    def option_groups(self, target: Target) -> tuple[type, ...]:
        """Dataclasses whose fields become options."""
        return ()

    def recognizes(self, path: str) -> bool:
        """Whether a file or folder holds inputs of this modality, by its name and the names in it."""
        return False

    def check(self, row: Row[object, object], how: ReadOptions) -> BadRow | None:
        """What makes a row, or the target of a row of another modality, unusable."""
        return None

    def read_sets(self, files: DataOptions, how: ReadOptions, output: Modality | None = None) -> Data:
        """The linted sets train, valid and test. `output` is the modality of the targets, if they have one."""
        sets, checks = partial(self.training_sets, files, how), self.row_checks(how, output)
        return read_sets(replace(files, data=()), lambda paths: self.read(paths, how), sets, checks)

    def training_sets(self, files: DataOptions, how: ReadOptions) -> Mapping[str, Rows]:
        """The training files, or the data that ships with the package, as sets that are not linted."""
        return {"train": self.read(files.data, how)} if files.data else self.synthetic(how.target)

    def row_checks(self, how: ReadOptions, output: Modality | None) -> list[RowCheck]:
        """The checks of inputs and targets."""
        return [partial(modality.check, how=how) for modality in dict.fromkeys((self, output or self))]

    def read_rows(
        self, paths: Sequence[str], how: ReadOptions, preprocessor: Preprocessor, skip_bad: bool = False
    ) -> RowSet:
        """The rows of files on which a trained model is scored."""
        return lint({"test": self.read(paths, how)}, skip_bad, [preprocessor.check])[0]["test"]

    def is_inline(self, raw: str) -> bool:
        """Whether a request is the input itself, and not the name of a file."""
        return not self.file_formats

    def read_requests(self, path: str, encoding: str) -> Iterator[str | BadRow] | None:
        """The requests in a file that is not one request a line; None if it is."""
        return None


def request_row(value: T, key: str = "") -> Row[T, None]:
    """The row of a request, which has neither a target nor a place in a file."""
    return Row(value, None, "", 1, key)


def stored_options(folder: Path, stored: Mapping[str, object], key: str, kind: type[T]) -> T:
    """The options that task.json holds under a key, or the defaults."""
    values, file = stored.get(key), folder / "task.json"
    if not values:
        return kind()
    known = options_of(kind)
    if not isinstance(values, dict) or {*values} != {*known}:
        raise ValueError(f"{file}: {key} must have {', '.join(known)}, and no others: restore it, or train again")
    for name, value in values.items():
        if not matches_type(value, known[name].kind):
            raise ValueError(f"{file}: {name} cannot be {value!r:.80}: restore it, or train again")
    try:
        return kind(**values)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None


def stored_value(folder: Path, stored: Mapping[str, object], key: str, kind: object, default: T) -> T:
    """The value that task.json holds under a key, which must have the type `kind`, or the default."""
    value: Any = stored.get(key, default)
    if not matches_type(value, kind):
        raise ValueError(f"{folder / 'task.json'}: {key} cannot be {value!r:.80}: restore it, or train again")
    return value
