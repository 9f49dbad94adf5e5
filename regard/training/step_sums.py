"""What all ranks need to know of a step: one vector, summed over them.

loss, count, stop, clock | squared norm of each gradient, if these are sharded

A NaN on any rank makes the sum NaN, so that all skip the step; a stop requested on any rank stops all; only the first
rank adds its clock, so that all plan by the same time.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.training.ranks import Ranks


@dataclass(frozen=True)
class StepSums:
    loss: float
    count: int
    stop: bool
    clock: float  # seconds, of the first rank
    norms: Tensor | None  # (N,) of the gradients


def sum_over_ranks(
    ranks: Ranks, loss: float, count: int, stop: bool, clock: float, shards: list[Tensor] | None
) -> StepSums:
    """`shards` are those of the gradients; None if this rank holds whole gradients, and computes their norms alone."""
    if ranks.size == 1:
        return StepSums(loss, count, stop, clock, None)
    values = torch.tensor([loss, count, stop, clock if ranks.is_first else 0.0], dtype=torch.float64)
    if shards:
        squares = torch.stack(torch._foreach_norm(shards, 2, torch.float64)).square()
        values = torch.cat((values, squares.cpu() * ranks.shards / ranks.size))  # replicas add the same squares
    loss, total_count, stops, now = ranks.sum(values)[:4].tolist()
    norms = values[4:].sqrt().to(shards[0]) if shards else None
    return StepSums(loss, round(total_count), stops > 0, now, norms)
