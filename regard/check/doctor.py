"""All checks of one model, in an order in which what fails first explains what fails later.

A folder that cannot be opened is told what is wrong with it, and its files are looked at; a model whose numbers are
broken is not run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from regard.check.company import accumulation, batch, padding
from regard.check.gradients import gradients
from regard.check.heads import heads
from regard.check.past import cache, causality
from regard.check.peer import peer
from regard.check.pickles import pickles
from regard.check.sample import Sample, draw
from regard.check.settings import Asking, said_in, settings
from regard.check.tokenizer import tokenizer
from regard.check.verdict import Verdict
from regard.check.weights import finite, norms, tied, zeros
from regard.hub.folder import read_config
from regard.load import Loaded, load
from regard.purpose import task_of
from regard.tasks.translate import Translate

WIDEST = 200  # letters of an error


def examine(
    folder: Path, lines: Sequence[str] | None = None, device: str = "auto", alone: bool = False
) -> Iterator[Verdict]:
    """One by one, as they are found. What is no model folder is a ValueError; `alone` is without transformers."""
    _, config = read_config(folder)
    kind = task_of(folder)
    loaded = None
    try:
        loaded = load(folder, device)
    except ValueError as error:
        advice = "Nothing else can be measured before this is repaired: the message names the file and the number."
        yield Verdict("opens", "FAILS", str(error), 1, 0, advice)
    else:
        yield Verdict("opens", "ok", "every tensor has its place, and no place is empty", 0, 0)
    yield from pickles(folder)
    if kind in ("write", "translate"):
        start = loaded.task.first if loaded and isinstance(loaded.task, Translate) else None
        yield from settings(Asking(*said_in(folder), config.vocab, config.context, kind == "translate", start))
    if loaded is not None:
        yield from examine_loaded(loaded, lines, None if alone else folder)


def examine_loaded(loaded: Loaded, lines: Sequence[str] | None = None, folder: Path | None = None) -> Iterator[Verdict]:
    """A model in memory; with its `folder` it is also compared with what transformers makes of that."""
    numbers = finite(loaded.model)
    yield numbers
    if numbers.status == "FAILS":
        return
    sample = draw(loaded, lines)
    yield from tokenizer(loaded, sample)
    yield from tied(loaded)
    yield from zeros(loaded.model)
    yield from norms(loaded.model)
    for check in (causality, padding, cache, batch, accumulation, gradients, heads):
        yield from guarded(check, loaded, sample)
    if folder is not None:
        yield from peer(loaded, sample, folder)


def guarded(check: Callable[[Loaded, Sample], list[Verdict]], loaded: Loaded, sample: Sample) -> list[Verdict]:
    """A model that stops with an error is a finding, not the end of the examination."""
    try:
        return check(loaded, sample)
    except Exception as error:
        says = f"{type(error).__name__}: {error}".splitlines()[0][:WIDEST]
        advice = "The model cannot be asked this at all: its parts do not fit each other."
        return [Verdict(check.__name__, "FAILS", says, 1, 0, advice)]


def told(verdict: Verdict) -> dict[str, Any]:
    """For JSON, which has no infinity."""
    numbers = {name: getattr(verdict, name) for name in ("value", "bound")}
    finite_ones = {
        name: value if value is None or abs(value) < float("inf") else None for name, value in numbers.items()
    }
    return verdict._asdict() | finite_ones
