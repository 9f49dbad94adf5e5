"""All checks of one model, in an order in which what fails first explains what fails later.

A folder that cannot be opened is told what is wrong with it, and its files are looked at; a model whose numbers are
broken is not run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from regard.check.attention_heads import heads
from regard.check.batch_independence import accumulation, batch, padding
from regard.check.causality import cache, causality
from regard.check.check_result import Verdict
from regard.check.generation_settings import Asking, said_in, settings
from regard.check.golden_answers import memory
from regard.check.gradient_flow import gradients
from regard.check.loss_baseline import guess
from regard.check.pickles import programs
from regard.check.probe_texts import LEARNT
from regard.check.probes import Sample, draw
from regard.check.tokenizer_checks import tokenizer
from regard.check.transformers_parity import peer
from regard.check.weight_stats import finite, norms, tied, zeros
from regard.hub.folder import read_config
from regard.hub.names import Names
from regard.load import Loaded, load
from regard.purpose import task_of
from regard.tasks.embed import Embed
from regard.tasks.translate import Translate

WIDEST = 200  # letters of an error
EXACT = 1e-9  # what rounding may make of numbers in double precision
Check = Callable[[Loaded, Sample], list[Verdict]]
PRECISE: tuple[Check, ...] = (causality, padding, cache, batch)


def examine(
    folder: Path, lines: Sequence[str] | None = None, device: str = "auto", alone: bool = False
) -> Iterator[Verdict]:
    """One by one, as they are found. What is no model folder is a ValueError; `alone` is without transformers."""
    names, config = read_config(folder)
    kind = task_of(folder)
    loaded = None
    try:
        loaded = load(folder, device)
    except ValueError as error:
        advice = "Nothing else can be measured before this is repaired: the message names the file and the number."
        yield Verdict("opens", "FAILS", str(error), 1, 0, advice)
    else:
        yield Verdict("opens", "ok", "every tensor has its place, and no place is empty", 0, 0)
    yield from programs(folder)
    if kind in ("write", "translate") and isinstance(names, Names):  # others cannot read a family of our own
        start = loaded.task.first if loaded and isinstance(loaded.task, Translate) else None
        yield from settings(Asking(*said_in(folder), config.vocab, config.context, kind == "translate", start))
    if loaded is not None:
        yield from examine_loaded(loaded, lines, folder, alone)


def examine_loaded(
    loaded: Loaded, lines: Sequence[str] | None = None, folder: Path | None = None, alone: bool = False
) -> Iterator[Verdict]:
    """A model in memory; with its `folder` it is also compared with what is said there, and with transformers."""
    numbers = finite(loaded.model)
    yield numbers
    if numbers.status == "FAILS":
        return
    pairs_seen = isinstance(loaded.task, Embed) and loaded.task.pictures is not None  # none of these ship
    if type(loaded.task) not in LEARNT or pairs_seen:
        yield from zeros(loaded.model)
        yield from norms(loaded.model)
        what = "pairs of pictures" if pairs_seen else "neither texts nor pictures"
        says = f"it reads {what}, so its weights were looked at, and it was not asked anything"
        yield Verdict("asked", "note", says, None, None)
        return
    sample = draw(loaded, lines)
    yield from guarded(tokenizer, loaded, sample)
    yield from tied(loaded)
    yield from zeros(loaded.model)
    yield from norms(loaded.model)
    for check in (*PRECISE, accumulation, gradients, heads, guess):
        yield from guarded(check, loaded, sample)
    if folder is not None:
        yield from memory(loaded, folder)
    if folder is not None and not alone:
        yield from peer(loaded, sample, folder)


def guarded(check: Check, loaded: Loaded, sample: Sample) -> list[Verdict]:
    """A model that stops with an error is a finding, not the end of the examination."""
    try:
        found = check(loaded, sample)
        if check in PRECISE and found and found[0].status == "FAILS" and only_rounding(check, loaded, sample):
            advice = (
                "Nothing to do: with twice the digits the difference is gone, so it is rounding among large numbers."
            )
            return [found[0]._replace(status="note", advice=advice)]
        return found
    except Exception as error:
        says = f"{type(error).__name__}: {error}".splitlines()[0][:WIDEST]
        advice = "The model cannot be asked this at all: its parts do not fit each other."
        return [Verdict(check.__name__, "FAILS", says, 1, 0, advice)]


def only_rounding(check: Check, loaded: Loaded, sample: Sample) -> bool:
    """Whether a difference goes away with twice the digits. Single precision comes back from there as it was."""
    model = loaded.model.double()
    try:
        return all(verdict.value is not None and verdict.value <= EXACT for verdict in check(loaded, sample))
    finally:
        model.float()


def told(verdict: Verdict) -> dict[str, Any]:
    """For JSON, which has no infinity."""
    numbers = {name: getattr(verdict, name) for name in ("value", "bound")}
    finite_ones = {
        name: value if value is None or abs(value) < float("inf") else None for name, value in numbers.items()
    }
    return verdict._asdict() | finite_ones
