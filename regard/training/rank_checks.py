"""What several ranks cannot train, each with the remedy."""

from __future__ import annotations

import math

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from regard.training.ranks import Ranks


def check_accumulation(grad_accum: int, ranks: Ranks) -> None:
    """The ranks divide the batches of a step."""
    if grad_accum % ranks.size:
        more = f"--grad-accum {math.ceil(grad_accum / ranks.size) * ranks.size}"
        raise ValueError(
            f"{ranks.size} ranks divide the batches of a step, but --grad-accum is {grad_accum}: add {more}"
        )


def check_batch_norm(name: str, model: nn.Module, ranks: Ranks) -> None:
    """The running statistics of one process know only its own batches."""
    if ranks.size > 1 and any(isinstance(module, _BatchNorm) for module in model.modules()):
        remedy = "start it without torchrun, or choose another --model"
        raise ValueError(f"--model {name} has batch norms, whose statistics ranks do not share: {remedy}")


def check_alone(ranks: Ranks) -> None:
    """An environment runs in one process."""
    if ranks.size > 1:
        raise ValueError(f"--env trains in one process, not in {ranks.size} ranks: start it without torchrun")
