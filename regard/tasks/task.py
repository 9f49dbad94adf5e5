"""The protocol of a task: how it reads files, encodes rows, computes the loss, evaluates a model and predicts.

A task is a dataclass. Its first fields are command-line options; `fitted` fields follow from the training data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from torch import Tensor

from regard.data.batches import Examples, Ints
from regard.data.lines import UTF8, Dialect
from regard.data.lint import lint
from regard.data.splits import Data, DataOptions, Rows, read_sets
from regard.parts.heads import Model
from regard.validate import check_fields


@dataclass(frozen=True)
class Loss:
    """A *sum* over `count` units, so that the losses of micro-batches add up to that of the whole batch."""

    total: Tensor
    count: int


class Prediction(NamedTuple):
    text: str
    logprob: float = 0.0  # joint log-probability
    score: float = 0.0  # by which predictions are ranked
    extra: dict[str, Any] = {}  # noqa: RUF012  further entries of the JSON output


@dataclass(frozen=True)
class DecodeOptions:
    """Options of `Task.predict`."""

    num_return: int = 1  # predictions per input, best first

    def __post_init__(self) -> None:
        check_fields(self, num_return=(self.num_return >= 1, "at least 1"))


class Task:
    description: ClassVar[str]  # input and output in a few words
    file_formats: ClassVar[str]  # of --data
    bundled_data: ClassVar[str]  # the training data without --data
    requires: ClassVar[tuple[str, ...]]  # abilities of a body, one of which the task needs
    default: ClassVar[str]  # name of the default model
    throughput_unit: ClassVar[str]  # what the loss counts
    eval_limit: ClassVar[int] = 5000  # rows of an evaluation during training
    percent_metrics: ClassVar[tuple[str, ...]] = ()  # metrics that are a percentage of the examples
    head_fields: ClassVar[tuple[str, ...]] = ()  # fields that a trained head depends on
    ignored_options: ClassVar[frozenset[str]] = frozenset()  # options of files that the task does not use
    decode_options: ClassVar[type] = DecodeOptions  # the dataclass of the options of `predict`
    can_play: ClassVar[bool] = False  # whether `regard run --play` can act in an environment
    test_options: Any = None  # decode options of the final test, where they differ from those of evaluations

    # From files to rows.

    @classmethod
    def option_groups(cls, ability: str) -> tuple[type, ...]:
        """Dataclasses of further options: how the input is read."""
        return ()

    @classmethod
    def default_overrides(cls, ability: str) -> dict[str, Any]:
        """Options of the task or the body whose default differs for this kind of input."""
        return {}

    @classmethod
    def excluded_options(cls, ability: str) -> frozenset[str]:
        """Options of files that do not exist for this kind of input."""
        return cls.ignored_options

    @classmethod
    def rows(
        cls,
        paths: tuple[str, ...],
        fields: tuple[str, ...] | None,
        ability: str,
        dialect: Dialect = UTF8,
        **task_options: Any,
    ) -> Rows:
        raise NotImplementedError

    @classmethod
    def bundled_rows(cls, ability: str, **task_options: Any) -> dict[str, Rows]:
        raise NotImplementedError

    @classmethod
    def read(cls, files: DataOptions, ability: str, input_options: dict[str, Any], **task_options: Any) -> Data:
        return read_sets(
            files,
            lambda paths: cls.rows(paths, files.fields, ability, files.dialect, **task_options),
            lambda: cls.bundled_rows(ability, **task_options),
        )

    def read_test_rows(
        self,
        paths: tuple[str, ...],
        fields: tuple[str, ...] | None,
        ability: str,
        skip_bad: bool,
        dialect: Dialect = UTF8,
    ) -> Any:
        """The rows of files on which a trained model is scored."""
        rows = self.rows(paths, fields, ability, dialect, **get_task_options(self))
        return lint({"test": rows}, skip_bad=skip_bad)[0]["test"]

    @classmethod
    def fit(
        cls,
        rows: Any,
        ability: str,
        input_options: dict[str, Any],
        preprocessors: dict[str, Any],
        **task_options: Any,
    ) -> Self:
        """The task with its fields fitted to the training rows. `preprocessors` are those of the model that training
        starts from."""
        raise NotImplementedError

    def sizes(self) -> dict[str, int]:
        """Sizes of the body that follow from the data."""
        raise NotImplementedError

    # From rows to tensors.

    def head(self, body: Any) -> Model:
        raise NotImplementedError

    def encode(self, rows: Any, context: int) -> Examples:
        raise NotImplementedError

    def collate(self, examples: Any, rows: Ints) -> Any:
        raise NotImplementedError

    def loss(self, model: Model, batch: Any) -> Loss:
        raise NotImplementedError

    def describe_examples(self, rows: Any, examples: Any, numbers: Ints) -> list[dict[str, Any]]:
        """File, line and text of some examples. A task that trains both directions has every row twice."""
        subset = [rows[int(number) % len(rows)] for number in numbers]
        return [{"file": row.file, "line": row.line, "text": row.input_key} for row in subset]

    # Evaluation.

    def eval_subset(self, rows: Any, count: int | None) -> Any:
        """The rows of an evaluation during training."""
        return rows[: count or self.eval_limit]

    def count_examples(self, rows: Any) -> str:
        return f"{len(rows):,} examples"

    def score(self, model: Model, rows: Any, options: Any = None) -> dict[str, Any]:
        """Metrics as floats, `predictions` as texts, and `samples` of them."""
        raise NotImplementedError

    def timing_options(self, rows: Any) -> Any:
        """Decode options with which an untrained model takes as long as a trained one."""
        return None

    def rank(self, scores: dict[str, Any]) -> tuple[float, ...]:
        """The key by which the best checkpoint is chosen; more is better."""
        raise NotImplementedError

    def example(self) -> str:
        """An input to try."""
        return "your text"

    def predict(self, model: Model, raw: Iterable[str], options: Any, first: int = 0) -> Iterator[list[Prediction]]:
        """The best predictions for each input, in order. `first` is the index of the first input; it determines the
        random streams of sampling."""
        raise NotImplementedError

    @classmethod
    def decode_defaults(cls, generation_config: Mapping[str, Any] | None) -> dict[str, Any]:
        """Decode options whose default a generation_config.json changes."""
        return {}

    def write_extras(self, folder: Path) -> None:
        """Write files for other libraries into a finished folder."""

    def embed(self, model: Model, raw: Iterable[str]) -> Iterator[list[float]]:
        """One vector for each input."""
        raise ValueError(f"a model of the task {type(self).__name__.lower()} has no embedding of a whole input")


def make_samples(sources: Sequence[str], targets: Sequence[str], predictions: Sequence[str]) -> list[dict[str, str]]:
    indices = sorted({i * len(sources) // 3 for i in range(3)})
    return [{"source": sources[i], "target": targets[i], "prediction": predictions[i]} for i in indices]


def get_task_options(task: Any) -> dict[str, Any]:
    """The values of the options of a task."""
    return {field.name: getattr(task, field.name) for field in fields(task) if not field.kw_only}


def fitted(default: Any = MISSING) -> Any:
    """A field that is fitted to the training data."""
    return field(kw_only=True, default=default)
