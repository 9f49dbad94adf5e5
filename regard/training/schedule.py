"""Learning-rate schedules, as a fraction of the peak learning rate.

wsd            linear warm-up over `warmup_steps`, constant, linear decay to 1 % over the last `decay_share` of the run
               (warmup-stable-decay, Hu et al. 2024)
inverse-sqrt   linear warm-up over `warmup_steps`, then ∝ 1/√step          Vaswani et al. 2017, eq. 3

A run with a time budget may revise its number of steps. A revision never raises the rate: the rate decays linearly from
its current value to 1 % of that value at the new last step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

FLOOR = 0.01  # of the rate remains in the last step


class Revision(NamedTuple):
    """From `step` on, the run has `steps` steps in all."""

    step: int
    steps: int


def wsd(step: int, steps: int, warmup_steps: int, decay_share: float, revisions: Iterable[Revision] = ()) -> float:
    level, start, end = 1.0, steps - round(decay_share * steps), steps - 1

    def factor_at(at: int) -> float:
        progress = (at - start) / max(1, end - start)
        return level * (1 - (1 - FLOOR) * min(max(progress, 0.0), 1.0))

    for revision in revisions:
        if revision.step > step:
            break
        level = factor_at(revision.step)
        start = max(revision.step, revision.steps - round(decay_share * revision.steps))
        end = revision.steps - 1
    return min((step + 1) / max(1, warmup_steps), factor_at(step))


def inverse_sqrt(step: int, warmup_steps: int) -> float:
    warmup_steps = max(1, warmup_steps)
    return min((step + 1) / warmup_steps, math.sqrt(warmup_steps / (step + 1)))
