"""The protocol of a task: how it encodes rows, computes the loss, evaluates a model and predicts.

A task is a dataclass. Its first fields are options; `fitted` fields follow from the training data. It declares the
structures of a body and the kind of target that it needs, and never names a modality: its preprocessor knows the input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, Self

from torch import Tensor

from regard.data.batches import Examples, Ints
from regard.data.documents import RowSet
from regard.data.rows import Row
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_train import BERT_LAYOUT, TokenizerLayout
from regard.generation_config import GenerationOptions, options_from_config
from regard.modalities.protocols import Inputs, Preprocessor, Target
from regard.models import Structure
from regard.parts.heads import Body, Model
from regard.validate import check_fields


@dataclass(frozen=True)
class Loss:
    """A *sum* over `count` units, so that the losses of micro-batches add up to that of the whole batch."""

    total: Tensor
    count: int


class Batch(Protocol):
    """A named tuple; the first field is what the body reads: Inputs, or the packed rows of a language model."""

    @property
    def inputs(self) -> Any: ...

    def _replace(self, *, inputs: Any) -> Self: ...


class Prediction(NamedTuple):
    text: str
    logprob: float = 0.0  # joint log-probability
    score: float = 0.0  # by which predictions are ranked
    extra: dict[str, Any] = {}  # noqa: RUF012  further entries of the JSON output
    finish_reason: str = "stop"  # of generated text: "length" if it was cut at its limit
    tokens: int = 0  # of generated text


Predictions = Iterator[list[Prediction]]  # the best ones for each request, in order


class Scores(dict[str, Any]):
    """Metrics as floats, `predictions` as texts, and `samples` of them."""

    @property
    def metrics(self) -> dict[str, float]:
        return {name: value for name, value in self.items() if isinstance(value, float)}


@dataclass(frozen=True)
class DecodeOptions:
    """Options of `Task.predict`."""

    num_return: int = 1  # predictions per input, best first

    def __post_init__(self) -> None:
        check_fields(self, num_return=(self.num_return >= 1, "at least 1"))


def fitted(default: object = MISSING) -> Any:
    """A field that is fitted to the training data."""
    return field(kw_only=True, default=default)


@dataclass
class Task:
    preprocessor: Preprocessor = fitted()  # of the inputs
    output: Preprocessor | None = fitted(None)  # of the targets, if these have a modality of their own

    description: ClassVar[str]  # input and output in a few words
    target: ClassVar[Target]
    structures: ClassVar[tuple[Structure, ...]]  # of a body, one of which the task needs
    default: ClassVar[str]  # name of the default model
    throughput_unit: ClassVar[str]  # what the loss counts
    eval_limit: ClassVar[int] = 5000  # rows of an evaluation during training, or characters of documents
    percent_metrics: ClassVar[tuple[str, ...]] = ()  # metrics that are a percentage of the examples
    ranked_by: ClassVar[tuple[str, ...]] = ()  # metrics by which the best checkpoint is chosen, before the loss
    head_fields: ClassVar[tuple[str, ...]] = ()  # fields that a trained head depends on
    option_groups: ClassVar[tuple[type, ...]] = ()  # dataclasses of further options
    default_overrides: ClassVar[Mapping[str, object]] = {}  # options of the body with another default
    decode_options: ClassVar[type] = DecodeOptions  # the dataclass of the options of `predict`
    can_play: ClassVar[bool] = False  # whether `regard run --play` can act in an environment
    contrastive: ClassVar[bool] = False  # the loss of a row depends on the other rows of its batch
    layout: ClassVar[TokenizerLayout] = BERT_LAYOUT  # of the special tokens, unless it depends on options
    splits_long_inputs: ClassVar[bool] = False  # predicts all parts of an input that is longer than the context
    generates: ClassVar[bool] = False  # predicts token by token, each from those before it
    test_options: ClassVar[GenerationOptions | None] = None  # decode options of the final test; None: as in evaluations

    @property
    def tokenizer(self) -> Tokenizer:
        """Of the tokens that the task predicts, else of those that it reads."""
        tokenizer = (self.output or self.preprocessor).tokenizer
        assert tokenizer is not None, f"{type(self).__name__} has no tokenizer"
        return tokenizer

    @classmethod
    def token_layout(cls, **options: object) -> TokenizerLayout:
        """The special tokens that the task needs, if it reads or predicts tokens."""
        return cls.layout

    @classmethod
    def fit(cls, rows: Any, preprocessor: Preprocessor, output: Preprocessor | None, **options: Any) -> Self:
        fields = cls.fitted_fields(rows, preprocessor, **options)
        return cls(**options, preprocessor=preprocessor, output=output, **fields)

    @classmethod
    def fitted_fields(cls, rows: Any, preprocessor: Preprocessor, **options: object) -> dict[str, Any]:
        """The fields that follow from the training rows."""
        return {}

    def sizes(self) -> dict[str, int]:
        """Sizes of the body that follow from the data."""
        return self.preprocessor.sizes() | (self.output.sizes() if self.output else {})

    def head(self, body: Body) -> Model:
        raise NotImplementedError

    def encode(self, rows: Any, context: int) -> Examples:
        raise NotImplementedError

    def collate(self, examples: Any, rows: Ints, training: bool = True) -> Batch:
        raise NotImplementedError

    def split(self, batch: Any, examples: Any, rows: Ints) -> Sequence[Batch]:
        """The rows of a batch as batches of their own, without the padding that other rows need."""
        return [self.collate(examples, row, training=False) for row in rows[:, None]]

    def loss(self, model: Model, batch: Any) -> Loss:
        raise NotImplementedError

    def outputs(self, model: Model, batch: Any) -> Tensor:
        """(B,T,·), or (B,·) if the head pools: outputs of which each row depends on one example only."""
        return self.forward(model, batch.inputs)

    def forward(self, model: Model, inputs: Inputs) -> Tensor:
        return model.head(model.body(*inputs.arguments))

    def describe_examples(self, rows: Any, examples: Any, numbers: Ints) -> list[dict[str, object]]:
        """File, line and text of some examples. A task that trains both directions has every row twice."""
        subset = [rows[int(number) % len(rows)] for number in numbers]
        return [{"file": row.file, "line": row.line, "text": self.preprocessor.show(row)} for row in subset]

    def score(self, model: Model, rows: Any, options: Any = None) -> Scores:
        raise NotImplementedError

    def timing_options(self, rows: Any) -> GenerationOptions | None:
        """Decode options with which an untrained model takes as long as a trained one."""
        return None

    def rank(self, scores: Mapping[str, float]) -> tuple[float, ...]:
        """The key by which the best checkpoint is chosen; more is better."""
        return *(round(scores.get(name, 0.0), 3) for name in self.ranked_by), -round(scores["loss"], 4)

    def predict(self, model: Model, raw: Iterable[str], options: Any, first: int = 0) -> Predictions:
        """The best predictions for each request, in order. `first` is the index of the first one; it determines the
        random streams of sampling."""
        raise NotImplementedError

    def repeat_sample(self, model: Model, source: str) -> str | None:
        """The prediction that `score` records for this source; None if more than the source determines it."""
        return None

    def embed(self, model: Model, raw: Iterable[str]) -> Iterator[list[float]]:
        """One vector for each input."""
        raise ValueError(f"a model of the task {type(self).__name__.lower()} has no embedding of a whole input")

    def request(self, text: str, target: str | None = None) -> str:
        """A request as `predict` takes it, from an input in the form that a user types it; `target` may be a text that
        belongs to it."""
        return text

    def probe_rows(self, rows: Sequence[Row[Any, object]]) -> RowSet:
        """Probes with made-up targets, by default texts: the checks of the loss hold for any targets."""
        return [row._replace(target=row.target or self.preprocessor.show(row)) for row in rows]

    @classmethod
    def decode_defaults(cls, generation_config: Mapping[str, object] | None) -> dict[str, Any]:
        """Decode options whose default a generation_config.json changes."""
        return options_from_config(generation_config or {}) if cls.generates else {}

    def write_extras(self, folder: Path) -> None:
        """Write files for other libraries into a finished folder."""


def make_scores(
    metrics: Mapping[str, float | str], sources: Iterable[str], targets: Sequence[str], predictions: Sequence[str]
) -> Scores:
    """The metrics and the predictions, with three samples of them."""
    columns = {"source": [*sources], "target": targets, "prediction": predictions}
    indices = sorted({i * len(predictions) // 3 for i in range(3)})
    samples = [{name: column[i] for name, column in columns.items()} for i in indices]
    return Scores(metrics, predictions=predictions, samples=samples)
