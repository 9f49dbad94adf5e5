"""The slice of a tensor that this rank holds: where it lies in the whole, whatever divided it.

    weight (7, 3) over 4 ranks    offsets (0, 0), (2, 0), (4, 0), (6, 0)    shapes (2, 3), (2, 3), (2, 3), (1, 3)

What saves and loads knows slices only. `slice_of` makes them of DTensors (FSDP2, HSDP) and of plain tensors, which
every rank holds whole; DTensors are recognised by the method through which torch.distributed.checkpoint reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class TensorSlice:
    name: str
    shape: tuple[int, ...]  # of the whole tensor
    offsets: tuple[int, ...]  # of the first element of the slice, in each dimension
    tensor: Tensor  # the slice; it may be empty

    @property
    def is_whole(self) -> bool:
        return tuple(self.tensor.shape) == self.shape

    def of(self, whole: Tensor) -> Tensor:
        """The same slice of another tensor of this shape."""
        spans = zip(self.offsets, self.tensor.shape, strict=True)
        return whole[tuple(slice(start, start + size) for start, size in spans)]


def slice_of(name: str, tensor: Tensor, weight: Tensor | None = None) -> TensorSlice:
    """The slice that this rank holds of a DTensor or of a plain tensor. A plain tensor of the size of this rank's part
    of `weight` is divided as it is: the EMA of a sharded weight."""
    spec = tensor if is_distributed(tensor) else weight
    if spec is None or not is_distributed(spec):
        return TensorSlice(name, tuple(tensor.shape), (0,) * tensor.dim(), tensor.detach())
    local = local_part(spec)
    if tensor is not spec and (tensor.shape != local.shape or not tensor.dim()):
        return TensorSlice(name, tuple(tensor.shape), (0,) * tensor.dim(), tensor.detach())
    (chunk,) = as_distributed(spec).__create_chunk_list__()
    return TensorSlice(name, tuple(spec.shape), tuple(chunk.offsets), local if tensor is spec else tensor.detach())


def is_distributed(tensor: Tensor) -> bool:
    """Whether a tensor is divided over ranks, or replicated by them, as a DTensor. Importing its class takes a second,
    which a run in one process need not wait."""
    return hasattr(tensor, "__create_chunk_list__")


def as_distributed(tensor: Tensor) -> Any:
    """A DTensor, whose class is not imported here."""
    return tensor


@torch.no_grad()
def local_part(tensor: Tensor) -> Tensor:
    """What this rank holds of a tensor; it shares its memory."""
    return as_distributed(tensor).to_local().detach() if is_distributed(tensor) else tensor.detach()


@torch.no_grad()
def whole_tensor(tensor: Tensor) -> Tensor:
    """The whole tensor, gathered on every rank: all ranks call it together."""
    return as_distributed(tensor).full_tensor().detach() if is_distributed(tensor) else tensor.detach()
