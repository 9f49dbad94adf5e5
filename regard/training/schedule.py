"""The learning rate over a run, as a share of its peak.

decay                 rises for `warmup` steps, stays, and falls in a line to 1 % over the last `share` of the run
inverse-square-root   rises for `warmup` steps, then falls with 1/√step          Vaswani et al. 2017, eq. 3

A run that has to end at a given time may change its number of steps on the way. Such a revision never raises the rate:
it falls from where it stands, to 1 % of that at the new end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

FLOOR = 0.01  # what is left of the rate in the last step


class Revision(NamedTuple):
    """From `step` on the run has `steps` steps in all."""

    step: int
    steps: int


def wsd(step: int, steps: int, warmup_steps: int, share: float, revisions: Iterable[Revision] = ()) -> float:
    level, begin, end = 1.0, steps - round(share * steps), steps - 1

    def height(at: int) -> float:
        fallen = (at - begin) / max(1, end - begin)
        return level * (1 - (1 - FLOOR) * min(max(fallen, 0.0), 1.0))

    for revision in revisions:
        if revision.step > step:
            break
        level = height(revision.step)
        begin = max(revision.step, revision.steps - round(share * revision.steps))
        end = revision.steps - 1
    return min((step + 1) / max(1, warmup_steps), height(step))


def inverse_sqrt(step: int, warmup_steps: int) -> float:
    warmup_steps = max(1, warmup_steps)
    return min((step + 1) / warmup_steps, math.sqrt(warmup_steps / (step + 1)))
