"""What every task answers: which body it asks for, what its rows become, what the loss is, how good an answer is.

A task is a dataclass. Its first fields are options; those that are `learnt` follow from the data: labels ...
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from torch import Tensor

from regard.data.batches import Examples, Ints
from regard.data.files import Data, Files, Rows, read_sets
from regard.data.lines import UTF8, Dialect
from regard.data.lint import lint
from regard.parts.heads import Model
from regard.validate import check_fields


@dataclass(frozen=True)
class Loss:
    """A *sum* over `count` units, so that accumulated parts add up to the whole batch."""

    total: Tensor
    count: int


class Answer(NamedTuple):
    text: str
    logp: float = 0.0  # joint log-probability
    score: float = 0.0  # what it was ranked by
    more: dict[str, Any] = {}  # noqa: RUF012  what else there is to say, for JSON


@dataclass(frozen=True)
class Choices:
    """How many answers are wanted."""

    num_return: int = 1  # answers returned for each input, best first

    def __post_init__(self) -> None:
        check_fields(self, num_return=(self.num_return >= 1, "at least 1"))


class Task:
    about: ClassVar[str]  # in a few words
    takes: ClassVar[str]  # the files it reads
    ships: ClassVar[str]  # what it learns without files
    asks: ClassVar[tuple[str, ...]]  # abilities of a body, one of which it needs
    default: ClassVar[str]  # the model that is taken unless one is named
    counts: ClassVar[str]  # the unit of speed
    looks: ClassVar[int] = 5000  # rows looked at in a check
    shares: ClassVar[tuple[str, ...]] = ()  # scores that are shares of the examples, in percent
    of_the_head: ClassVar[tuple[str, ...]] = ()  # fields that a head was made for
    unused: ClassVar[frozenset[str]] = frozenset()  # options of files that mean nothing here
    ways: ClassVar[type] = Choices  # options of an answer
    acts: ClassVar[bool] = False  # in an environment, when told to play
    final: Any = None  # the way of answering in the last test, if another one than in checks

    # From files to rows.

    @classmethod
    def groups(cls, ability: str) -> tuple[type, ...]:
        """More options: of how the input is read."""
        return ()

    @classmethod
    def usual(cls, ability: str) -> dict[str, Any]:
        """Options, of the task or of the body, that have another default here than elsewhere."""
        return {}

    @classmethod
    def leaves_out(cls, ability: str) -> frozenset[str]:
        """Options of files that mean nothing for this kind of input."""
        return cls.unused

    @classmethod
    def rows(
        cls, paths: tuple[str, ...], fields: tuple[str, ...] | None, ability: str, dialect: Dialect = UTF8, **aim: Any
    ) -> Rows:
        raise NotImplementedError

    @classmethod
    def bundled(cls, ability: str, **aim: Any) -> dict[str, Rows]:
        raise NotImplementedError

    @classmethod
    def read(cls, files: Files, ability: str, reading: dict[str, Any], **aim: Any) -> Data:
        return read_sets(
            files,
            lambda paths: cls.rows(paths, files.fields, ability, files.dialect, **aim),
            lambda: cls.bundled(ability, **aim),
        )

    def read_one(
        self,
        paths: tuple[str, ...],
        fields: tuple[str, ...] | None,
        ability: str,
        skip_bad: bool,
        dialect: Dialect = UTF8,
    ) -> Any:
        """Files to score on."""
        rows = self.rows(paths, fields, ability, dialect, **aim_of(self))
        return lint({"test": rows}, skip_bad=skip_bad)[0]["test"]

    @classmethod
    def fit(cls, rows: Any, ability: str, reading: dict[str, Any], readers: dict[str, Any], **aim: Any) -> Self:
        """The task with what it learns from its training rows. `readers` are those of the model it starts from."""
        raise NotImplementedError

    def sizes(self) -> dict[str, int]:
        """What the data says about the body."""
        raise NotImplementedError

    # From rows to numbers.

    def head(self, body: Any) -> Model:
        raise NotImplementedError

    def prepare(self, rows: Any, context: int) -> Examples:
        raise NotImplementedError

    def batch(self, examples: Any, rows: Ints) -> Any:
        raise NotImplementedError

    def loss(self, model: Model, batch: Any) -> Loss:
        raise NotImplementedError

    def told(self, rows: Any, examples: Any, numbers: Ints) -> list[dict[str, Any]]:
        """Examples for a person: which file and line each is from, and what it says. What is learnt in two directions
        stands twice among the examples."""
        found = [rows[int(number) % len(rows)] for number in numbers]
        return [{"file": row.file, "line": row.line, "text": row.asked} for row in found]

    # How good it is.

    def some(self, rows: Any, count: int | None) -> Any:
        """What a check looks at."""
        return rows[: count or self.looks]

    def amount(self, rows: Any) -> str:
        return f"{len(rows):,} examples"

    def score(self, model: Model, rows: Any, how: Any = None) -> dict[str, Any]:
        """Numbers as floats, `answers` as texts, and `samples` of them."""
        raise NotImplementedError

    def rehearsal(self, rows: Any) -> Any:
        """A way of answering that takes as long for an untrained model as for a trained one."""
        return None

    def rank(self, scores: dict[str, Any]) -> tuple[float, ...]:
        """Which weights are kept; more is better."""
        raise NotImplementedError

    def example(self) -> str:
        """An input to try."""
        return "your text"

    def predict(self, model: Model, raw: Iterable[str], how: Any, first: int = 0) -> Iterator[list[Answer]]:
        """The best answers to each input, in order. `first` is the number of the first one, for random numbers."""
        raise NotImplementedError

    @classmethod
    def way_defaults(cls, generation: Mapping[str, Any] | None) -> dict[str, Any]:
        """Options of `ways` that have another default where a folder asks for it."""
        return {}

    def leave(self, folder: Path) -> None:
        """Write into a finished folder what others want to find there."""

    def embed(self, model: Model, raw: Iterable[str]) -> Iterator[list[float]]:
        """One vector for each input."""
        raise ValueError(f"a model of the task {type(self).__name__.lower()} gives no single vector for its input")


def samples(asked: Sequence[str], wanted: Sequence[str], answers: Sequence[str]) -> list[dict[str, str]]:
    chosen = sorted({i * len(asked) // 3 for i in range(3)})
    return [{"source": asked[i], "wanted": wanted[i], "answer": answers[i]} for i in chosen]


def aim_of(task: Any) -> dict[str, Any]:
    """The options that a task was made with."""
    return {field.name: getattr(task, field.name) for field in fields(task) if not field.kw_only}


def learnt(default: Any = MISSING) -> Any:
    """A field that follows from the data."""
    return field(kw_only=True, default=default)
