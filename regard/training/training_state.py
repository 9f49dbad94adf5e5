"""What a checkpoint holds of a training: the slices of its tensors, named KIND/WEIGHT, and how they are restored.

weights/NAME   exp_avg/NAME  exp_avg_sq/NAME  step/NAME  momentum/NAME   ema/NAME   buffers/NAME
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import Parameter

from regard.hub.match_state_dict import unique_state_dict
from regard.hub.tensor_slices import TensorSlice, slice_of
from regard.parts.heads import Model
from regard.training.loop import Progress
from regard.training.sharded_state import StateReader


def state_slices(progress: Progress) -> list[TensorSlice]:
    """Weights, optimiser state, EMA and buffers: as they were after the last complete step, even if another step or an
    evaluation is under way."""
    parts: list[TensorSlice] = []
    weights, ema = "weights", "ema"
    if progress.ema is not None and progress.ema.swapped:
        weights, ema = ema, weights
    for i, (name, weight) in enumerate(progress.model.named_parameters()):
        parts.append(slice_of(f"{weights}/{name}", weight))
        for optimizer in progress.optimizers:
            for moment, value in optimizer.state.get(weight, {}).items():
                parts.append(slice_of(f"{moment}/{name}", value, weight))
        if progress.ema is not None:
            parts.append(slice_of(f"{ema}/{name}", progress.ema.means[i], weight))
    before = dict(zip((name for name, _ in progress.model.named_buffers()), progress.buffers or (), strict=False))
    for name, buffer in persistent_buffers(progress.model).items():
        parts.append(slice_of(f"buffers/{name}", before.get(name, buffer)))
    return parts


@torch.no_grad()
def restore_state(progress: Progress, reader: StateReader) -> None:
    """Read what this rank holds of the tensors of a checkpoint."""
    kinds: dict[str, list[str]] = {}
    for kind, name in (stored.split("/", 1) for stored in reader.tensors):
        kinds.setdefault(name, []).append(kind)
    for i, (name, weight) in enumerate(progress.model.named_parameters()):
        reader.copy_into(slice_of(f"weights/{name}", weight))
        for optimizer in progress.optimizers:
            if any(weight is w for group in optimizer.param_groups for w in group["params"]):
                moments = [kind for kind in kinds[name] if kind not in ("weights", "ema")]  # in one order on all ranks
                optimizer.state[weight] = {kind: reader.read_like(f"{kind}/{name}", weight) for kind in moments}
        if progress.ema is not None:
            reader.copy_into(slice_of(f"ema/{name}", progress.ema.means[i], weight))
    for name, buffer in persistent_buffers(progress.model).items():
        reader.copy_into(slice_of(f"buffers/{name}", buffer))


@torch.no_grad()
def load_average(model: Model, checkpoints: Sequence[Path]) -> None:
    """Set the weights to their mean over checkpoints (Vaswani et al. 2017, section 6.1), one tensor after the other."""
    readers = [StateReader(folder) for folder in checkpoints]
    for name, weight in model.named_parameters():
        part = slice_of(f"weights/{name}", weight)
        part.tensor.copy_(torch.stack([reader.read(part) for reader in readers]).mean(0))


def persistent_buffers(model: Model) -> dict[str, Tensor]:
    """The running statistics of batch norms."""
    return {name: tensor for name, tensor in unique_state_dict(model).items() if not isinstance(tensor, Parameter)}
