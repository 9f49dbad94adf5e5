"""Company: an answer does not depend on what stands beside it.

padding        outputs of real tokens are the same, however much padding follows, and whatever ids stand in it
batch          an example alone is answered as among others
accumulation   loss(batch) = Σ_i loss(row i): so parts of a batch add up to the whole
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from regard.check.check_result import Verdict, within
from regard.check.compare import CLOSE, apart, first_apart, outputs
from regard.check.probes import Given, Sample
from regard.data.batches import to_device
from regard.generate import Decoding
from regard.load import Loaded
from regard.tasks.embed import Embed
from regard.tasks.fill import Fill, Hidden
from regard.tasks.match import Match
from regard.tasks.task import Answer

ADDED = 1e-4  # share of a loss by which its parts may miss it: they are many numbers


def padding(loaded: Loaded, sample: Sample) -> list[Verdict]:
    if not sample.ids:
        return []
    rows = range(len(sample.ids))
    alone = [sample.given([row]) for row in rows]
    answers = [outputs(loaded, given)[0] for given in alone]
    garbage = torch.tensor(sample.plain).roll(3)
    worst, guilty = 0.0, ""
    for beside in (None, garbage):
        given = sample.given(rows, beside=beside)
        together = outputs(loaded, given)
        for row in rows:
            part = together[row] if together.dim() == 2 else together[row, : len(answers[row])]
            difference = apart(answers[row], part)
            if not difference <= worst:
                worst = difference
                guilty = "" if difference <= CLOSE else first_apart(loaded, alone[row], given, row)
    says = f"padding moves real tokens by {worst:.1e}"
    advice = f"It reads the padding, first in {guilty}: give the mask to every layer and to the pooling."
    return [within("padding", worst, CLOSE, says, advice)]


def batch(loaded: Loaded, sample: Sample) -> list[Verdict]:
    """Inputs of one length, so that nothing is padded; then questions as a user asks them."""
    worst, guilty = 0.0, ""
    for given in alike(sample):
        together = outputs(loaded, given)
        for row in range(len(given.x)):
            one = Given(given.x[row : row + 1], None, None if given.target is None else given.target[row : row + 1])
            difference = apart(outputs(loaded, one)[0], together[row])
            if not difference <= worst:
                worst = difference
                guilty = "" if difference <= CLOSE else first_apart(loaded, one, given, row)
    says = f"company moves an example by {worst:.1e}"
    advice = f"An answer depends on who else asks, first in {guilty}: in use, a norm over the batch takes its averages."
    found = within("batch", worst, CLOSE, says, advice)
    asked, changed = answered(loaded, sample)
    if found.status == "ok" and changed:
        advice = (
            f"Answered otherwise in a batch: {changed[0]!r:.60}; if its logits agree, look at how answers are chosen."
        )
        found = Verdict("batch", "FAILS", f"{len(changed)} of {asked} answers change", len(changed), 0, advice)
    return [found]


def alike(sample: Sample) -> list[Given]:
    found = []
    if sample.pixels is not None and not sample.targets:
        found.append(Given(sample.pixels))
    if sample.ids:
        length = min(map(len, sample.ids + sample.targets))
        found.append(sample.given(range(len(sample.ids)), length))
    return found


def answered(loaded: Loaded, sample: Sample) -> tuple[int, list[str]]:
    """How many questions the task could take, and those that get another answer among the others than alone."""
    task: Any = loaded.task
    short = {"beam": 1, "temperature": 0.0, "longest": 12}
    how = task.ways(**short if issubclass(task.ways, Decoding) else {})
    asked, alone = [], []
    for text in sample.raw:
        try:
            alone += task.predict(loaded.model, [text], how)
            asked.append(text)
        except ValueError:  # too long for this model, say: refused is not wrong
            continue
    together = task.predict(loaded.model, asked, how)
    same = [alike_answers(a[0], b[0]) for a, b in zip(alone, together, strict=True)]
    return len(asked), [text for text, equal in zip(asked, same, strict=True) if not equal]


def alike_answers(one: Answer, other: Answer) -> bool:
    """A number may differ in its last digit."""
    if "value" in one.more:
        return math.isclose(one.more["value"], other.more["value"], rel_tol=1e-4, abs_tol=1e-4)
    return one.text == other.text


@torch.no_grad()
def accumulation(loaded: Loaded, sample: Sample) -> list[Verdict]:
    task: Any = loaded.task
    if isinstance(task, Match | Embed):
        why = "the loss of a pair depends on all other pairs of its batch"
        return [Verdict("accumulation", "note", "not measured", advice=f"Nothing to do: {why}, as it should.")]
    device = next(loaded.model.parameters()).device
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        whole = sample.batch(task, sample.chosen)
    rows = range(len(sample.chosen))
    if isinstance(task, Fill):
        parts = [one_hidden(whole, row) for row in rows if whole.places[row].any()]
    else:
        parts = [sample.batch(task, sample.chosen[row : row + 1]) for row in rows]
    total = task.loss(loaded.model, to_device(whole, device))
    losses = [task.loss(loaded.model, to_device(part, device)) for part in parts]
    added, counted = sum(float(loss.total) for loss in losses), sum(loss.count for loss in losses)
    missed = abs(added - float(total.total)) / max(1.0, abs(added))
    says = f"{len(losses)} losses add up to {added:.4f}, all at once {float(total.total):.4f}: {missed:.1e} apart"
    if counted != total.count:
        missed, says = math.inf, f"rows count {counted} units, the whole batch {total.count}"
    advice = "A loss must be a sum over what it counts, without padding; or accumulated steps are not one large step."
    return [within("accumulation", missed, ADDED, says, advice)]


def one_hidden(batch: Hidden, row: int) -> Hidden:
    """Of one row; another draw would hide other tokens."""
    one = slice(row, row + 1)
    before = int(batch.places[:row].sum())
    wanted: Tensor = batch.wanted[before : before + int(batch.places[row].sum())]
    return Hidden(batch.ids[one], wanted, batch.places[one], None if batch.mask is None else batch.mask[one])
