"""A loaded model: the model and its task behind one object that answers, embeds, streams, evaluates and saves."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Self, SupportsIndex, TypeVar, get_origin, overload

from torch import nn

from regard.answer_stream import Token, stream_answer
from regard.data.documents import RowSet
from regard.data.lines import UTF8, Dialect
from regard.data.tokenizer import Tokenizer
from regard.decode_request import BatchLimits
from regard.device import resolve_device
from regard.engine.executors import make_executor
from regard.engine.int8_folder import write_int8
from regard.engine.quantize import is_quantized
from regard.generation_config import GenerationOptions
from regard.hub.folder import SourceCheckpoint, write_config, write_weights
from regard.hub.task_config import label_keys, task_name, write_task
from regard.modalities import MODALITIES
from regard.modalities.protocols import Modality, ReadOptions
from regard.models import MODELS
from regard.options import check_known, options_of
from regard.parts.heads import NOT_FINITE, Model
from regard.tasks.decoding import GeneratingTask
from regard.tasks.inference import context_of
from regard.tasks.task import Prediction, Scores, Task
from regard.validate import check_texts

Item = TypeVar("Item")
Text = str | PathLike[str]  # an input: a text, or the path of a file


class LoadedModel:
    """A model with its task, as `regard.load` returns it. An input is a text; for images, audio and trajectories, the
    name of a file; for several fields, their texts separated by tabs.

    Attributes:
        model: the body and head that answer; a `torch.nn.Module`.
        task: what the model is for, with its preprocessors and labels.
        reference: the same model in plain PyTorch modules; `model` itself unless it was loaded with a `speed`.
        origin: the checkpoint that it was loaded from; None if it was built in memory.
        reload: function and arguments that load the model again; None if it was built in memory.
    """

    def __init__(
        self,
        model: Model,
        task: Task,
        origin: SourceCheckpoint | None = None,
        reference: Model | None = None,
        reload: tuple[Callable[..., LoadedModel], tuple[object, ...]] | None = None,
    ):
        self.model, self.task, self.origin, self.reload = model, task, origin, reload
        self.reference = model if reference is None else reference
        self._weights_checked = False

    def __repr__(self) -> str:
        device = next(self.reference.parameters()).device
        quantized = (buffer for buffer in self.reference.buffers() if not buffer.is_floating_point())
        count = sum(weight.numel() for weight in (*self.reference.parameters(), *quantized))
        engine_speed = "int8" if is_quantized(self.reference) else "exact"
        speed = "reference" if self.model is self.reference else engine_speed
        folder = f"{str(self.reload[1][0])!r}, " if self.reload else ""
        names = f"task={self.task_name!r}, model={self.model_name!r}, parameters={count:_}"
        return f"LoadedModel({folder}{names}, speed={speed!r}, device={str(device)!r})"

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        """Plain modules are copied; an engine model is loaded again from its folder."""
        if self.model is self.reference:
            return super().__reduce_ex__(protocol)
        if self.reload is None:
            raise TypeError("an engine model that no folder holds cannot be copied or pickled: save_pretrained() first")
        return self.reload

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer of the task; None if the model reads no text."""
        return (self.task.output or self.task.preprocessor).tokenizer

    @property
    def modality(self) -> Modality:
        """The kind of input that the model reads."""
        return MODALITIES[self.task.preprocessor.modality]

    @property
    def task_name(self) -> str:
        """Name of the task, e.g. "translate"."""
        return task_name(self.task)

    @property
    def model_name(self) -> str:
        """Name of the model family, e.g. "transformer"."""
        return next(name for name, family in MODELS.items() if isinstance(self.model.body.config, family.config))

    @overload
    def __call__(self, inputs: Text, *, num_return: None = None, **options: Any) -> str: ...
    @overload
    def __call__(self, inputs: Iterable[Text], *, num_return: None = None, **options: Any) -> list[str]: ...
    @overload
    def __call__(self, inputs: Text, *, num_return: int, **options: Any) -> list[str]: ...
    @overload
    def __call__(self, inputs: Iterable[Text], *, num_return: int, **options: Any) -> list[list[str]]: ...
    def __call__(self, inputs: Text | Iterable[Text], *, num_return: int | None = None, **options: object) -> object:
        """Answer one input, or each of several.

        Args:
            inputs: one input, or an iterable of them.
            num_return: number of answers to each input, best first.
            options: generation options of the task, as `regard run FOLDER --help` lists them, with _ for each -:
                num_beams, temperature, top_k, top_p, max_new_tokens, seed ...

        Returns:
            The text of the best answer; with `num_return`, a list of that many. For several inputs, a list of these.

        Raises:
            TypeError: an input is no text. ValueError: an unknown option, or an invalid value.

        >>> translate(["Good morning", "Thank you"], num_beams=8)
        ['Guten Morgen', 'Danke']
        """
        if num_return is not None:
            options["num_return"] = num_return
        answers = self.generate([inputs] if isinstance(inputs, str | PathLike) else inputs, **options)
        results = [texts if num_return is not None else texts[0] for texts in ([a.text for a in b] for b in answers)]
        return results[0] if isinstance(inputs, str | PathLike) else results

    @overload
    def generate(self, inputs: Text, **options: Any) -> list[Prediction]: ...
    @overload
    def generate(self, inputs: Iterable[Text], **options: Any) -> list[list[Prediction]]: ...
    def generate(self, inputs: Text | Iterable[Text], **options: object) -> list[Prediction] | list[list[Prediction]]:
        """The answers with their log-probabilities and scores.

        Args:
            inputs: one input, or an iterable of them.
            options: as of a call; `num_return` is the number of answers to each input.

        Returns:
            The answers to the input, best first: `text`, `logprob` (joint log-probability), `score` (answers are ranked
            by it) and `extra` (other results of the task). For several inputs, a list of these lists.

        >>> [(answer.text, answer.logprob) for answer in translate.generate("Thank you", num_return=2)]
        [('Danke', -0.21), ('Danke schön', -2.4)]
        """
        if not isinstance(inputs, str | PathLike | Iterable):
            raise TypeError(f"a model takes a text or a list of texts, not {inputs!r:.60}")
        texts = [inputs] if isinstance(inputs, str | PathLike) else inputs
        answers = [*self.predict(texts, self.make_options(**options))]
        return answers[0] if isinstance(inputs, str | PathLike) else answers

    def stream(self, text: str, **options: object) -> Iterator[str]:
        """Generate the answer to one text and yield it in pieces; joined, they equal `self(text, **options)`.

        A greedy or sampled answer comes word by word, as soon as each is complete, for models that write the prompt
        first. An answer of beam search is one piece. Closing the iterator ends the generation.

        Raises:
            ValueError: the task does not generate text, or `num_return` is not 1.

        >>> for piece in writer.stream("Once upon a time", max_new_tokens=50):
        ...     print(piece, end="", flush=True)
        """
        resolved, task = self.make_options(**options), self.task
        if not isinstance(resolved, GenerationOptions) or not isinstance(task, GeneratingTask):
            raise ValueError(f"the task {self.task_name} generates no text to stream: call the model instead")
        if resolved.num_return != 1:
            raise ValueError(f"a stream is one answer: leave out num_return ({resolved.num_return})")
        return self._checked(self._stream(task, next(check_texts([text])), resolved))

    def _stream(self, task: GeneratingTask, text: str, options: GenerationOptions) -> Iterator[str]:
        context = context_of(self.model)
        executor = make_executor(self.model, task, BatchLimits(prefill_tokens=context))
        yield from filter(None, [task.echo(text)])
        for event in stream_answer(executor, task, text, options, context):
            if isinstance(event, Token) and event.text:
                yield event.text

    def make_options(self, **options: object) -> object:
        """The generation options of the task: `options`, then the defaults of the folder, then those of the task."""
        kind = self.task.decode_options
        several = {name for name, option in options_of(kind).items() if get_origin(option.kind) is tuple}  # or one text
        options = {k: (v,) if isinstance(v, str) and k in several else v for k, v in options.items()}
        check_known("generation option", options, options_of(kind))
        return kind(**{**self.task.decode_defaults(getattr(self.task, "generation_config", None)), **options})

    def predict(self, inputs: Iterable[Text], options: object, first: int = 0) -> Iterator[list[Prediction]]:
        """Lazily, the answers to each input, in order; there may be endlessly many. `options` is what `make_options`
        returns, `first` the number of the first input, which seeds its random stream."""
        return self._checked(self.task.predict(self.model, check_texts(inputs), options, first=first))

    @overload
    def embed(self, inputs: Text) -> list[float]: ...  # type: ignore[overload-overlap]  # a str first
    @overload
    def embed(self, inputs: Iterable[Text]) -> list[list[float]]: ...
    def embed(self, inputs: Text | Iterable[Text]) -> list[float] | list[list[float]]:
        """Embed one input, or each of several.

        Returns:
            One vector as a list of floats; for several inputs, a list of vectors.

        Raises:
            ValueError: models of this task give no single vector.
        >>> len(model.embed("a small house"))
        384
        """
        if not isinstance(inputs, str | PathLike):
            return [*self.iter_embeddings(inputs)]
        [vector] = self.iter_embeddings([inputs])
        return vector

    def iter_embeddings(self, inputs: Iterable[Text]) -> Iterator[list[float]]:
        """Lazily, one vector for each input, in order."""
        return self._checked(self.task.embed(self.model, check_texts(inputs)))

    def score(self, rows: RowSet, options: object = None) -> Scores:
        """The metrics of the task on rows that `rows` has read, with `options` of `make_options`."""
        self.check_weights()
        with weights_in_errors(self.reference):
            return self.task.score(self.model, rows, options)

    def rows(
        self, paths: Iterable[str], fields: Sequence[str] | None = None, skip_bad: bool = False, dialect: Dialect = UTF8
    ) -> RowSet:
        """Read files as the task evaluates them: `loaded.score(loaded.rows(["test.tsv"]))`.

        Args:
            paths: the files.
            fields: columns or keys to read: the inputs, then the target.
            skip_bad: leave out invalid lines instead of raising ValueError.
            dialect: encoding and separator of the files.
        """
        task, fields = self.task, tuple(fields) if fields else None
        labels, multi_label = getattr(task, "labels", ()), getattr(task, "multi_label", False)
        how = ReadOptions(task.target, fields, dialect, multi_label, tuple(labels), task.preprocessor.options())
        return self.modality.read_rows([*paths], how, task.preprocessor, skip_bad)

    def to(self, device: str) -> Self:
        """Move the model to a device: "cpu", "cuda", "mps" or "auto". Returns the model itself.

        Raises:
            ValueError: PyTorch cannot use the device; or an engine model, which runs on the CPU, is to leave it.
        """
        target = resolve_device(device)
        if self.model is not self.reference and target.type != "cpu":
            raise ValueError(f"an engine model runs on the CPU only: load it without speed to move it to {target}")
        self.reference.to(target)
        return self

    def save_pretrained(self, folder: str | PathLike[str]) -> None:
        """Save as a Hugging Face folder, which `regard.load` and transformers read. Dtypes, config keys and tokenizer
        files stay as they were loaded; an int8 model is saved in int8.

        Raises:
            ValueError: the folder exists and is not empty.
        """
        folder = Path(folder)
        if folder.exists() and any(folder.iterdir()):
            raise ValueError(f"{folder} exists and is not empty: choose another folder")
        folder.mkdir(parents=True, exist_ok=True)
        if is_quantized(self.reference):
            write_int8(folder, self.reference, self.origin)
            return write_task(folder, self.task)
        write_config(folder, self.reference, label_keys(self.task), self.origin)
        write_task(folder, self.task)
        return write_weights(folder / "model.safetensors", self.reference, self.origin)

    def check_weights(self) -> None:
        """Raise FloatingPointError if a weight is NaN. Attention kernels may hide a NaN in a query or a key, so weights
        are checked before the first answer; a number that becomes NaN or infinite later shows in the logits."""
        weights = () if self._weights_checked else self.reference.parameters()
        if any(not math.isfinite(weight.sum().item()) and bool(weight.isnan().any()) for weight in weights):
            with weights_in_errors(self.reference):
                raise FloatingPointError(NOT_FINITE)
        self._weights_checked = True

    def _checked(self, results: Iterator[Item]) -> Iterator[Item]:
        self.check_weights()
        with weights_in_errors(self.reference):
            yield from results


@contextmanager
def weights_in_errors(model: nn.Module) -> Iterator[None]:
    """Add the cause to a FloatingPointError: the first tensor of the weights that is not finite, if there is one."""
    try:
        yield
    except FloatingPointError as error:
        tensors = {name: tensor for name, tensor in model.state_dict().items() if tensor.is_floating_point()}
        name = next((name for name, tensor in tensors.items() if not bool(tensor.isfinite().all())), None)
        cause = "all its weights are finite, but an activation of this input overflows"
        if name:
            cause = f"{name} of its weights is NaN or infinite: take an earlier save, or get the folder again"
        raise FloatingPointError(f"{error}: {cause}") from None
