"""A folder becomes a model that answers.

translate = load("runs/demo")
translate("Tea and water please")               'Tee und Wasser bitte'
translate(["Good morning", "Thank you"])        a list for a list
translate("Tea and water please", n_best=3)     the three best, as a list

Several threads may ask one model at the same time. Processes must be started with `spawn`, or load after `fork`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import Any, SupportsIndex, TypeVar, overload

from torch import nn

from regard.data.lines import UTF8, Dialect
from regard.device import resolve_device, set_num_threads
from regard.engine.accelerate import SPEEDS, accelerate
from regard.engine.arena import no_init_weights
from regard.engine.int8_folder import is_int8_folder, read_int8, write_int8
from regard.engine.quantize import is_quantized
from regard.hub.folder import Origin, read_config, read_weights, write_config, write_weights
from regard.hub.remote import find
from regard.models import MODELS, ability_for
from regard.parts.heads import NOT_FINITE, Model
from regard.purpose import agreed, answers_of, read_task, write_task
from regard.tasks import TASKS
from regard.tasks.task import Answer, Task
from regard.training.settings import must_suit, options_of
from regard.validate import check_choice, check_type

Found = TypeVar("Found")


class LoadedModel:
    """Model and task of a folder, together. `model` answers; `plain` is it in plain modules, if that differs. `loading`
    are the arguments of `load` that made it."""

    def __init__(
        self,
        model: Model,
        task: Task,
        origin: Origin | None = None,
        plain: Model | None = None,
        loading: tuple[Any, ...] = (),
    ):
        self.model, self.task, self.origin, self.loading = model, task, origin, loading
        self.plain = model if plain is None else plain
        self._looked_through = False

    def __repr__(self) -> str:
        first = next(self.plain.parameters())
        rounded = (buffer for buffer in self.plain.buffers() if not buffer.is_floating_point())
        count = sum(weight.numel() for weight in (*self.plain.parameters(), *rounded))
        speed = "plain" if self.model is self.plain else "int8" if is_quantized(self.plain) else "exact"
        where = f"{str(self.loading[0])!r}, " if self.loading else ""
        names = f"task={self.kind!r}, model={self.family!r}, weights={count:_}"
        return f"Loaded({where}{names}, speed={speed!r}, device={str(first.device)!r})"

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Plain modules are copied; a model that was made fast is loaded again from its folder."""
        if self.model is self.plain:
            return super().__reduce_ex__(protocol)
        if not self.loading:
            raise TypeError("a fast model that was not loaded from a folder cannot be copied or pickled: save it first")
        return load, self.loading

    @property
    def tokenizer(self) -> Any:
        return getattr(self.task, "tokenizer", None)

    @property
    def kind(self) -> str:
        """The name of its task."""
        return next(name for name, task in TASKS.items() if type(self.task) is task)

    @property
    def family(self) -> str:
        """The name of its model."""
        return next(name for name, family in MODELS.items() if isinstance(self.model.body.config, family.config))

    @overload
    def __call__(self, text: str | PathLike[str], *, num_return: None = None, **how: Any) -> str: ...
    @overload
    def __call__(self, text: Iterable[str], *, num_return: None = None, **how: Any) -> list[str]: ...
    @overload
    def __call__(self, text: str | PathLike[str], *, num_return: int, **how: Any) -> list[str]: ...
    @overload
    def __call__(self, text: Iterable[str], *, num_return: int, **how: Any) -> list[list[str]]: ...
    def __call__(self, text: Any, *, num_return: int | None = None, **how: Any) -> Any:
        """The best answer to a text, or a list of them to a list; with `n_best`, a list of so many to each text. `how`
        takes the task's ways of answering: beam, temperature ..."""
        if num_return is not None:
            how["num_return"] = num_return
        single = isinstance(text, str | PathLike)
        if not single and not isinstance(text, Iterable):
            raise TypeError(f"a model is asked with a text or a list of texts, not with {text!r:.60}")
        texts = [[answer.text for answer in best] for best in self.answers([text] if single else text, **how)]
        answers = [some if num_return is not None else some[0] for some in texts]
        return answers[0] if single else answers

    def answers(self, texts: Iterable[str], **how: Any) -> Iterator[list[Answer]]:
        """The best answers to each text with their joint log-probabilities, in order, as they are found."""
        ways: Any = self.task.ways
        known = options_of(ways)
        for name, value in how.items():
            check_choice("way of answering", name, known)
            must_suit(name, value, known[name].kind)
        usual = self.task.way_defaults(getattr(self.task, "generation", None))
        return self.predict(only_texts(texts), ways(**{**usual, **how}))

    def predict(self, texts: Iterable[str], how: Any, first: int = 0) -> Iterator[list[Answer]]:
        """The same with a way of answering that is made already. `first` is the number of the first text, from which
        random numbers follow."""
        return self._named(self.task.predict(self.model, texts, how, first=first))

    def embed(self, texts: Iterable[str]) -> Iterator[list[float]]:
        """One vector for each text or picture: the mean of what the body makes of it."""
        return self._named(self.task.embed(self.model, only_texts(texts)))

    def score(self, rows: Any, how: Any = None) -> dict[str, Any]:
        """How good it is on rows that `rows` has read."""
        self.refuse_nan()
        with naming_weights(self.plain):
            return self.task.score(self.model, rows, how)

    def _named(self, found: Iterator[Found]) -> Iterator[Found]:
        self.refuse_nan()
        with naming_weights(self.plain):
            yield from found

    def refuse_nan(self) -> None:
        """Attention kernels may hide that a query or a key is NaN, so weights are looked through before the first
        answer; what becomes NaN or too large on the way shows in the logits."""
        if not self._looked_through:
            for weight in self.plain.parameters():
                if not math.isfinite(weight.sum().item()) and bool(weight.isnan().any()):
                    with naming_weights(self.plain):
                        raise FloatingPointError(NOT_FINITE)
            self._looked_through = True

    def save(self, folder: str | Path) -> None:
        """As it came: in the same type of numbers, with all that the folder it came from said."""
        folder = Path(folder)
        if folder.exists() and any(folder.iterdir()):
            raise ValueError(f"{folder} is there already, and not empty: choose another folder")
        folder.mkdir(parents=True, exist_ok=True)
        if is_quantized(self.plain):
            write_int8(folder, self.plain, self.origin)
            return write_task(folder, self.task)
        write_config(folder, self.plain, answers_of(self.task), self.origin)
        write_task(folder, self.task)
        return write_weights(folder / "model.safetensors", self.plain, self.origin)

    def rows(
        self,
        paths: Iterable[str],
        fields: tuple[str, ...] | None = None,
        skip_bad: bool = False,
        dialect: Dialect = UTF8,
    ) -> Any:
        """Files as the task scores them: `loaded.score(loaded.rows(["test.tsv"]))`."""
        ability = ability_for(self.family, self.kind, self.task.asks)
        return self.task.read_one(tuple(paths), fields, ability, skip_bad, dialect)


def only_texts(texts: Iterable[str]) -> Iterator[str]:
    """Refuse what is no text; the name of a file may be a path."""
    if isinstance(texts, str | bytes | PathLike) or not isinstance(texts, Iterable):
        raise TypeError(f"give a list of texts, not {texts!r:.60}")
    return map(as_text, texts)


def as_text(text: Any) -> str:
    if not isinstance(text, str | PathLike) or isinstance(found := fspath(text), bytes):
        raise TypeError(f"each text must be a str, not {type(text).__name__}: {text!r:.60}")
    return found


@contextmanager
def naming_weights(model: nn.Module) -> Iterator[None]:
    """Whose fault it is that a model gives no finite numbers: the first tensor of its weights that is not finite."""
    try:
        yield
    except FloatingPointError as error:
        tensors = {name: tensor for name, tensor in model.state_dict().items() if tensor.is_floating_point()}
        odd = next((name for name, tensor in tensors.items() if not bool(tensor.isfinite().all())), None)
        why = "all its weights are finite, but what it makes of this input becomes too large"
        if odd:
            why = f"{odd} of its weights is NaN or infinite: take an earlier save, or get the folder again"
        raise FloatingPointError(f"{error}: {why}") from None


def load(
    name: str | PathLike[str],
    device: str = "auto",
    download: bool | None = None,
    speed: str | None = None,
    threads: int | None = None,
) -> LoadedModel:
    """A model folder, or a name on the hub, which is fetched only if `download` says so.

    `device` is "cpu", "cuda" or "mps"; "auto" takes the best there is. `speed` "exact" gives the same tokens sooner,
    "int8" rounds the weights; without it, all is there to be looked at. `threads` of the processor are used from now on
    by everything in this process, as PyTorch has one number for all; it takes all cores unless told.
    """
    if not isinstance(name, str | PathLike):
        raise TypeError(f"the name of a model must be a str or a path, not {name!r:.60}")
    check_type("device", device, str)
    check_type("download", download, bool | None)
    if speed is not None:
        check_choice("speed", speed, SPEEDS)
    if threads is not None:
        check_type("threads", threads, int)
        set_num_threads(threads)
    loading = (name, device, download, speed, threads)
    folder = find(fspath(name), download)
    rounded = is_int8_folder(folder)
    with no_init_weights():
        names, config = read_config(folder, weights=not rounded)
        task = read_task(folder)
        kind = next(name for name, kind in TASKS.items() if type(task) is kind)
        config = agreed(config, task, folder)
        body = MODELS[names.model].bodies[ability_for(names.model, kind, task.asks)]
        model = task.head(body(config))
    if rounded:
        origin, plain = read_int8(folder, model)
        return LoadedModel(accelerate(plain, "int8")[0], task, origin, plain, loading)
    with no_init_weights():
        origin = read_weights(folder, names, model)
    plain = model.to(resolve_device(device)).eval()
    model, plain = accelerate(plain, speed) if speed else (plain, plain)
    return LoadedModel(model, task, origin, plain, loading)
