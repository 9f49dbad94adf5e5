"""Room for weights in large pages: a decoder reads all of them for every token, and small pages cost it half its time.

NumPy asks the system for pages of 2 MB for an array of 4 MB or more, so weights share arrays that are larger than that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

PIECE = 2**26  # bytes asked for at once; the system gives them when they are written to
ALIGNED = 64  # bytes of a register
LEAST = 2**14  # bytes of what is worth it


class _Room:
    def __init__(self) -> None:
        self.piece, self.used = torch.empty(0, dtype=torch.uint8), 0
        self.lock = Lock()  # two models may be loaded at the same time, and no weight may lie on another

    def take(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        size = math.prod(shape) * dtype.itemsize
        with self.lock:
            if self.used + size > len(self.piece):
                piece = np.empty(max(PIECE, size) + ALIGNED, np.uint8)
                first = -piece.ctypes.data % ALIGNED
                self.piece, self.used = torch.from_numpy(piece[first : len(piece) - ALIGNED + first]), 0
            begin, self.used = self.used, self.used + -(-size // ALIGNED) * ALIGNED
            return self.piece[begin : begin + size].view(dtype).view(*shape)


_ROOM = _Room()


def room(shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
    """A tensor that is not filled."""
    return _ROOM.take(shape, dtype) if math.prod(shape) * dtype.itemsize >= LEAST else torch.empty(shape, dtype=dtype)


def alone(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """The same in an array of its own, for what comes and goes."""
    return torch.from_numpy(np.empty(math.prod(shape) * dtype.itemsize, np.uint8)).view(dtype).view(*shape)


class _Unfilled(TorchFunctionMode):
    """Weights that nobody has filled yet. Of tensors without numbers, on the meta device, PyTorch computes the shapes
    in a way that takes a second to import; here they are told at once."""

    FILLING = {
        torch.Tensor.normal_, torch.Tensor.uniform_, torch.Tensor.zero_, torch.Tensor.fill_,
        nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_, nn.init.xavier_uniform_,
        nn.init.zeros_, nn.init.ones_,
    }  # fmt: skip
    RANDOM = (torch.randn, torch.randn_like)
    EACH_ALONE = {
        "add", "sub", "mul", "div", "truediv", "pow", "neg", "sin", "cos", "clamp", "reciprocal",
        "radd", "rsub", "rmul", "rdiv", "rtruediv", "rpow",
    }  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.blank: list[Tensor] = []  # stand for random numbers

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        first = args[0] if args else kwargs.get("tensor")
        if function in self.FILLING and isinstance(first, nn.Parameter):
            return first
        if function is torch.Tensor.mul and any(first is one for one in self.blank):
            return first
        if function is torch.empty and not isinstance(first, int) and not any(kwargs.values()):
            return room(first)
        if function in self.RANDOM:
            self.blank.append(self.unfilled(function, args, kwargs))
            return self.blank[-1]
        if function is torch.arange and str(kwargs.get("device")) == "meta":
            return torch.empty(len(np.arange(*args)), device="meta")
        shape = self.shape_of(function, args)
        return function(*args, **kwargs) if shape is None else torch.empty(shape, device="meta")

    def unfilled(self, function: Any, args: Any, kwargs: Any) -> Tensor:
        shape = args[0].shape if function is torch.randn_like else args
        meta = str(kwargs.get("device", getattr(args[0], "device", "cpu"))) == "meta"
        return torch.empty(shape, device="meta") if meta else room(shape)

    def shape_of(self, function: Any, args: Any) -> Sequence[int] | None:
        """Of what a simple function makes of tensors without numbers."""
        joined = function is torch.cat
        tensors = [one for one in (args[0] if joined else args) if isinstance(one, Tensor)] if args else []
        if not tensors or not all(one.is_meta and one.dtype == torch.float32 for one in tensors):
            return None
        if joined:
            along = (args[1] if len(args) > 1 else 0) % tensors[0].dim()
            shape = list(tensors[0].shape)
            shape[along] = sum(one.size(along) for one in tensors)
            return shape
        named = getattr(function, "__name__", "").strip("_") in self.EACH_ALONE
        return torch.broadcast_shapes(*(one.shape for one in tensors)) if named else None


@contextmanager
def unfilled() -> Iterator[None]:
    """For a model whose weights are about to be read: random numbers would take longer to make than the rest."""
    with _Unfilled():
        yield
