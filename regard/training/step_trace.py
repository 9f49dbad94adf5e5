"""FLOPs and memory of code that runs on fake tensors: they have shapes and no storage, so no time or memory is spent.

    with StepTrace() as trace:            every operation of PyTorch comes by here, also those of the backward pass
        model = build()
        model(batch).backward()
    trace.flops, trace.peak

Tensors that the code creates are fake; those that existed before, as a batch, are real, and operations on real tensors
alone run as usual: a mask selects as many tokens as it does in training. FLOPs are those of products, two for each
multiplication and addition, as in torch.utils.flop_counter, which lacks some kernels of the CPU. Memory is that of all
tensors that are alive at a time. On a CPU both equal what the same code does with real tensors (a test compares them).
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

aten = torch.ops.aten
SELECTIONS = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default}


class StepTrace(TorchDispatchMode):
    """Within the context, new tensors are fake, and every operation is counted."""

    def __init__(self) -> None:
        super().__init__()
        self.uncast: set[int] = set()  # storages whose copies in another data type are not counted
        self.fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
        self.flops = 0
        self.allocated = 0  # bytes of all storages that are alive
        self.peak = 0  # the maximum of `allocated`
        self.storages: set[int] = set()

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.prim.device.default:
            return func(*args)
        if func is aten._local_scalar_dense.default and isinstance(args[0], FakeTensor):
            return placeholder(args[0].dtype)
        if func in SELECTIONS:
            args = (args[0], [part for index in args[1] for part in as_integers(index)], *args[2:])
        inputs = list(tensors((args, kwargs)))
        if inputs and not any(isinstance(tensor, FakeTensor) for tensor in inputs):
            return func(*args, **kwargs)
        with self.fake_mode:
            out = func(*args, **kwargs)
        if count := FLOPS.get(func.overloadpacket):
            self.flops += count(*args, **kwargs, out_val=out)
        if func is aten._to_copy.default and args[0].untyped_storage()._cdata in self.uncast:
            self.allocate(out.untyped_storage(), 0)
        for tensor in tensors(out):
            self.allocate(tensor.untyped_storage())
        if func.overloadpacket is aten.mkldnn_rnn_layer:
            self.allocate(out[3].untyped_storage(), lstm_workspace(args[0], out[0]))
        return out

    def allocate(self, storage: torch.UntypedStorage, size: int | None = None) -> None:
        """Count a new storage until it is freed, or `size` bytes that live as long as it does."""
        key = storage._cdata
        if size is None and key in self.storages:
            return
        size = storage.nbytes() if size is None else size
        self.storages.add(key)
        self.allocated += size
        self.peak = max(self.peak, self.allocated)
        weakref.finalize(storage, self.free, key, size).atexit = False

    def free(self, key: int, size: int) -> None:
        self.storages.discard(key)
        self.allocated -= size


def lstm_workspace(x: Tensor, y: Tensor) -> int:
    """Bytes that oneDNN's LSTM keeps for its backward pass, (T,B,inputs) to (T,B,H), measured with AVX-512; within 5 %.
    A fake tensor does not have them."""
    inputs, hidden = x.size(2), y.size(2)
    return int(4 * y.size(0) * y.size(1) * (9 * hidden + 6.5 * max(inputs, hidden)))


def placeholder(dtype: torch.dtype) -> bool | int | float:
    """The value of a fake number, such as a loss: finite, so that the code goes on."""
    return True if dtype == torch.bool else 1.0 if dtype.is_floating_point else 1


def as_integers(index: Tensor | None) -> Sequence[Tensor | None]:
    """A real boolean index as integer ones: fake tensors cannot tell how many it selects."""
    if index is None or isinstance(index, FakeTensor) or index.dtype not in (torch.bool, torch.uint8):
        return (index,)
    return index.nonzero().unbind(1)


def tensors(value: object) -> Iterator[Tensor]:
    """The tensors of nested lists, tuples and dicts."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from tensors(item)


def addmm_flops(_: Tensor, a: Tensor, b: Tensor, **kwargs: object) -> int:
    """In place: the gradient of the output layer, in the chunked cross-entropy."""
    return 2 * a.size(0) * a.size(1) * b.size(1)


def attention_flops(q: Tensor, k: Tensor, v: Tensor, *args: object, **kwargs: object) -> int:
    """Scores and weighted sums, (B,H,T,E) and (B,H,S,E); a causal kernel counts as a full one, as is the custom."""
    batch, heads, T, width = q.shape
    return 2 * batch * heads * T * k.size(2) * (width + v.size(3))


def attention_backward_flops(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *args: object, **kwargs: object) -> int:
    """Two products for each of the forward's, and the scores once more, which were not stored."""
    batch, heads, T, width = q.shape
    return 2 * batch * heads * T * k.size(2) * (3 * width + 2 * v.size(3))


def rnn_flops(x: Tensor, weight: Tensor, recurrent: Tensor, *args: object, **kwargs: object) -> int:
    return 2 * math.prod(x.shape[:2]) * (weight.numel() + recurrent.numel())


def rnn_backward_flops(*args: Any, **kwargs: object) -> int:
    return 2 * rnn_flops(*args)


FLOPS: Mapping[Any, Callable[..., int]] = {
    **flop_registry,
    aten.addmm_: addmm_flops,
    aten._scaled_dot_product_flash_attention_for_cpu: attention_flops,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: attention_backward_flops,
    aten.mkldnn_rnn_layer: rnn_flops,
    aten.mkldnn_rnn_layer_backward: rnn_backward_flops,
}
