"""The learning rate over a run, as a share of its peak.

decay                 rises for `warmup` steps, stays, and falls in a line to 0 over the last `decay` share
inverse-square-root   rises for `warmup` steps, then falls with 1/√step          Vaswani et al. 2017, eq. 3
"""

from __future__ import annotations

import math


def decay(step: int, steps: int, warmup: int, share: float) -> float:
    falling = max(1, round(share * steps))
    return min((step + 1) / max(1, warmup), 1.0, (steps - step) / falling)


def inverse_square_root(step: int, warmup: int) -> float:
    warmup = max(1, warmup)
    return min((step + 1) / warmup, math.sqrt(warmup / (step + 1)))
