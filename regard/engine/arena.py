"""An arena allocator that puts weights into 2 MB pages, and models built without initialising their weights.

A decoder reads every weight for every token; with 4 KB pages, TLB misses cost half of its time. NumPy requests huge
pages (madvise) for arrays of 4 MB or more, so weights share arrays that are larger than that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

CHUNK_BYTES = 2**26  # allocated at once; the system commits a page when it is first written
ALIGNMENT = 64  # bytes of the widest vector register
MIN_BYTES = 2**14  # smaller tensors are left to torch.empty


class Arena:
    """A bump allocator: tensors follow each other in large chunks, and are never freed one by one."""

    def __init__(self) -> None:
        self.chunk, self.used = torch.empty(0, dtype=torch.uint8), 0
        self.lock = Lock()  # two threads may load models at the same time

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        size = math.prod(shape) * dtype.itemsize
        with self.lock:
            if self.used + size > len(self.chunk):
                chunk = np.empty(max(CHUNK_BYTES, size) + ALIGNMENT, np.uint8)
                first = -chunk.ctypes.data % ALIGNMENT
                self.chunk, self.used = torch.from_numpy(chunk[first : len(chunk) - ALIGNMENT + first]), 0
            begin, self.used = self.used, self.used + -(-size // ALIGNMENT) * ALIGNMENT
            return self.chunk[begin : begin + size].view(dtype).view(*shape)


_ARENA = Arena()


def arena_empty(shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
    """torch.empty, in the arena."""
    return (
        _ARENA.empty(shape, dtype)
        if math.prod(shape) * dtype.itemsize >= MIN_BYTES
        else torch.empty(shape, dtype=dtype)
    )


def array_empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """torch.empty in a NumPy array of its own (huge pages too), for tensors that are freed again."""
    return torch.from_numpy(np.empty(math.prod(shape) * dtype.itemsize, np.uint8)).view(dtype).view(*shape)


class _NoInitWeights(TorchFunctionMode):
    """Skips weight initialisation. For tensors on the meta device PyTorch infers shapes with code that takes a second
    to import; this mode infers them itself."""

    INIT_FUNCTIONS = {
        torch.Tensor.normal_, torch.Tensor.uniform_, torch.Tensor.zero_, torch.Tensor.fill_,
        nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_, nn.init.xavier_uniform_,
        nn.init.zeros_, nn.init.ones_,
    }  # fmt: skip
    RANDOM_FUNCTIONS = (torch.randn, torch.randn_like)
    ELEMENTWISE = {
        "add", "sub", "mul", "div", "truediv", "pow", "neg", "sin", "cos", "clamp", "reciprocal",
        "radd", "rsub", "rmul", "rdiv", "rtruediv", "rpow",
    }  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.uninitialized: list[Tensor] = []  # stand-ins for random tensors

    def __torch_function__(
        self, function: Callable[..., object], types: object, args: Any = (), kwargs: Any = None
    ) -> object:
        kwargs = kwargs or {}
        first = args[0] if args else kwargs.get("tensor")
        if function in self.INIT_FUNCTIONS and isinstance(first, nn.Parameter):
            return first
        if function is torch.Tensor.mul and any(first is t for t in self.uninitialized):
            return first
        if function is torch.empty and not isinstance(first, int) and not any(kwargs.values()):
            return arena_empty(first)
        if function in self.RANDOM_FUNCTIONS:
            self.uninitialized.append(self.uninitialized_like(function, args, kwargs))
            return self.uninitialized[-1]
        if function is torch.arange and str(kwargs.get("device")) == "meta":
            return torch.empty(len(np.arange(*args)), device="meta")
        shape = self.shape_of(function, args)
        return function(*args, **kwargs) if shape is None else torch.empty(shape, device="meta")

    def uninitialized_like(self, function: Callable[..., object], args: Any, kwargs: Any) -> Tensor:
        shape = args[0].shape if function is torch.randn_like else args
        meta = str(kwargs.get("device", getattr(args[0], "device", "cpu"))) == "meta"
        return torch.empty(shape, device="meta") if meta else arena_empty(shape)

    def shape_of(self, function: Callable[..., object], args: Any) -> Sequence[int] | None:
        """Output shape of torch.cat or an elementwise function of meta tensors; None for any other call."""
        is_cat = function is torch.cat
        tensors = [t for t in (args[0] if is_cat else args) if isinstance(t, Tensor)] if args else []
        if not tensors or not all(t.is_meta and t.dtype == torch.float32 for t in tensors):
            return None
        if is_cat:
            dim = (args[1] if len(args) > 1 else 0) % tensors[0].dim()
            shape = list(tensors[0].shape)
            shape[dim] = sum(t.size(dim) for t in tensors)
            return shape
        is_elementwise = getattr(function, "__name__", "").strip("_") in self.ELEMENTWISE
        return torch.broadcast_shapes(*(t.shape for t in tensors)) if is_elementwise else None


def no_init_weights() -> TorchFunctionMode:
    """Build a model whose weights are about to be loaded: drawing random ones would take longer than all the rest."""
    return _NoInitWeights()
