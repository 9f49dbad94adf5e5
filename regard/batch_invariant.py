"""Batch invariance: a request gives the same bits alone or in any batch, at any place, with any padding (on the CPU).

    with reproducible():
        translate("Tea and water please")

Floating-point addition is not associative, and a fast kernel chooses the order of its additions by the shape of the
whole batch (He 2025, "Defeating Nondeterminism in LLM Inference"). In this mode the order is fixed:

    x W        rows padded to whole tiles: no row meets the kernel's code for a remainder
    p v        both matrices padded to whole tiles, the sum in chunks from first to last: zeros at the end add nothing
    softmax    over whole vectors, padded with -inf
    f(x)       whole vectors on one thread, for the same reason as the tiles
    Σ x        sequentially
    RNN        step by step, by the reference cells; a convolution as a product of its patches with the weights

Operations that move numbers, or that work on each number or each row alone, run unchanged. All others are refused. The
mode intercepts the calls to PyTorch: parts and models do not know of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.parts.attention import repeat_kv, resolve_mask
from regard.parts.recurrence import Gates, State, Weights, gru_step, lstm_step, rnn_step

LINEAR_ROWS, LINEAR_COLUMNS = 4, 16  # of a product with weights: rows of a tile, minimum number of columns
TILE = (8, 16)  # rows and columns of a tile of a batched product
CHUNK = 32  # terms of a sum that a kernel may add in its own order
LANES = 16  # numbers of a vector in softmax
SINGLE_THREAD = 2**14  # numbers that no kernel divides between threads
MAX_SCORES = 2**26  # attention weights in memory at a time
Operation = Callable[..., object]
Cell = Callable[[Tensor, State, Weights], tuple[State, Gates]]


class BatchInvariantMode(TorchFunctionMode):
    """A context in which every call to PyTorch is batch-invariant or raises ValueError."""

    def __torch_function__(
        self, call: Operation, types: object, args: Sequence[object] = (), kwargs: dict[str, object] | None = None
    ) -> object:
        name = call.__name__
        if name in UNCHANGED:
            return call(*args, **kwargs or {})
        if name in REPLACEMENTS:
            return REPLACEMENTS[name](call, *args, **kwargs or {})
        raise ValueError(
            f"{name} is not known to be batch-invariant: run without --reproducible, or add it to "
            "regard/batch_invariant.py"
        )


def reproducible(model: nn.Module | None = None) -> BatchInvariantMode:
    """A context in which an answer has the same bits alone and in any batch, on the CPU in float32.

    Args:
        model: if given, its device and dtype are checked at once.

    Raises:
        ValueError: the model is not on the CPU or not in float32; or, inside the context, PyTorch is asked for an
            operation that is not known to be batch-invariant.

    docs/reliability.md has the cost.

    >>> with regard.reproducible():
    ...     alone, together = model("tea"), model(["tea", "milk and bread"])
    >>> alone == together[0]
    True
    """
    if model is not None:
        check_supported(next(model.parameters()))
    return BatchInvariantMode()


def pad_to_multiple(x: Tensor, *multiples: int, value: float = 0.0) -> Tensor:
    """The last axes of x, padded to multiples of these numbers."""
    missing = [-size % multiple for size, multiple in zip(x.shape[-len(multiples) :], multiples, strict=True)]
    return F.pad(x, [n for m in reversed(missing) for n in (0, m)], value=value) if any(missing) else x


def check_supported(x: Tensor) -> None:
    """Other devices and dtypes have kernels with other tiles."""
    if not x.is_cpu:
        raise ValueError(f"--reproducible needs the CPU, but the model is on {x.device.type}: use --device cpu")
    if x.dtype != torch.float32:
        raise ValueError(f"--reproducible needs float32, but the model is in {str(x.dtype).removeprefix('torch.')}")


# Replacements take the call that they replace, then its arguments.


def linear(_: object, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    check_supported(x)
    rows, N = x.reshape(-1, x.size(-1)), weight.size(0)
    if N < LINEAR_COLUMNS:  # kernels for few columns choose their order by the memory address of a row
        weight = pad_to_multiple(weight, LINEAR_COLUMNS, 1)
        bias = bias if bias is None else pad_to_multiple(bias, LINEAR_COLUMNS)
    y = F.linear(pad_to_multiple(rows, LINEAR_ROWS, 1), weight, bias)
    return y[: rows.size(0), :N].view(*x.shape[:-1], N)


def matmul(_: object, a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    if b.dim() == 1:
        return linear(_, a, b[None])[..., 0]
    y = linear(_, a, b.mT) if b.dim() == 2 else batched_matmul(a, b)
    return y if out is None else out.copy_(y)


def batched_matmul(a: Tensor, b: Tensor) -> Tensor:
    """(...,M,K) and (...,K,N): the sum over K is divided into chunks, of which the last may hold only zeros."""
    check_supported(a)
    M, N = a.size(-2), b.size(-1)
    a, b = pad_to_multiple(a, TILE[0], CHUNK), pad_to_multiple(b, CHUNK, TILE[1])
    y = torch.zeros(())  # so that no sum is -0, which a chunk of zeros would turn into 0
    for left, right in zip(a.split(CHUNK, -1), b.split(CHUNK, -2), strict=True):
        y = y + left @ right
    return y[..., :M, :N]


def attention(
    _: object,
    q: Tensor,  # (B,H,T,E)
    k: Tensor,  # (B,G,S,E)
    v: Tensor,
    mask: Tensor | None = None,  # boolean, True = visible, or added to the scores
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Unfused, over whole chunks of keys; long texts in blocks of queries."""
    T, S = q.size(2), k.size(2)
    visible, _ = resolve_mask(q, k, mask, is_causal, materialize=True)
    if visible is None:
        visible = torch.ones(1, S, dtype=torch.bool)
    least = torch.finfo(torch.float32).min  # not -inf: a row without a visible key stays finite
    is_boolean = visible.dtype == torch.bool
    bias = torch.zeros(visible.shape).masked_fill_(~visible, least) if is_boolean else visible.clamp(min=least)
    bias = pad_to_multiple(bias, 1 if bias.size(-2) == 1 else TILE[0], CHUNK, value=-math.inf)
    q = pad_to_multiple(q * (1 / math.sqrt(q.size(3)) if scale is None else scale), TILE[0], 1)
    k, v = (pad_to_multiple(repeat_kv(x, q.size(1)), CHUNK, 1) for x in (k, v))
    block = max(1, MAX_SCORES // (q.size(0) * q.size(1) * k.size(2) * TILE[0])) * TILE[0]
    outputs = []
    for rows in (slice(start, start + block) for start in range(0, T, block)):
        scores = batched_matmul(q[:, :, rows], k.mT) + (bias if bias.size(-2) == 1 else bias[..., rows, :])
        outputs.append(batched_matmul(scores.softmax(-1), v))
    return torch.cat(outputs, 2)[:, :, :T]


def softmax(call: Callable[..., Tensor], x: Tensor, dim: int, out: Tensor | None = None, **kwargs: object) -> Tensor:
    rows = x.movedim(dim, -1)
    y = call(pad_to_multiple(rows, LANES, value=-math.inf), dim=-1, **kwargs)[..., : rows.size(-1)].movedim(-1, dim)
    return y if out is None else out.copy_(y)


def elementwise(call: Callable[..., Tensor], x: Tensor, **kwargs: object) -> Tensor:
    parts = pad_to_multiple(x.reshape(-1), CHUNK, value=1.0).split(SINGLE_THREAD)
    y = torch.cat([call(part, **kwargs) for part in parts])
    return y[: x.numel()].view(x.shape)


def elementwise_(call: Callable[..., Tensor], x: Tensor) -> Tensor:
    return x.copy_(elementwise(call, x.clone()))


def sequential_sum(call: Callable[..., Tensor], x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The last of the cumulative sums, which are computed from left to right."""
    if not x.is_floating_point() or not x.numel():
        return call(x) if dim is None else call(x, dim, keepdim)
    if dim is None:
        x, dim = x.reshape(-1), 0
    return x.cumsum(dim).select(dim, -1) if not keepdim else x.cumsum(dim).narrow(dim, -1, 1)


def mean(_: object, x: Tensor, dim: int, keepdim: bool = False) -> Tensor:
    return sequential_sum(torch.sum, x, dim, keepdim) / x.size(dim)


def recurrent(
    cell: Cell, _: object, x: Tensor, start: Tensor | Sequence[Tensor], weights: Weights, *args: object
) -> tuple[Tensor, ...]:
    """One layer in one direction. Returns all outputs, then the last state, as PyTorch's kernels do."""
    state = tuple(part[0] for part in ([start] if isinstance(start, Tensor) else start))  # each (B,D)
    outputs = []
    with reproducible():
        for token in x.unbind(1):
            state, _ = cell(token, state, weights)
            outputs.append(state[0])
    return torch.stack(outputs, 1), *(part[None] for part in state)


def conv2d(
    _: object,
    x: Tensor,  # (B,C,H,W)
    weight: Tensor,
    bias: Tensor | None = None,
    stride: tuple[int, ...] = (1, 1),
    padding: tuple[int, ...] = (0, 0),
    dilation: tuple[int, ...] = (1, 1),
    groups: int = 1,
) -> Tensor:
    """A linear map of every patch under the kernel."""
    if groups != 1:
        raise ValueError(f"grouped convolutions ({groups} groups) are not known to be batch-invariant")
    patches = F.unfold(x, weight.shape[2:], dilation, padding, stride).mT  # (B,P,C·h·w)
    height = (x.size(2) + 2 * padding[0] - dilation[0] * (weight.size(2) - 1) - 1) // stride[0] + 1
    return linear(_, patches, weight.flatten(1), bias).mT.unflatten(2, (height, -1))


def conv1d(
    _: object,
    x: Tensor,  # (B,C,T)
    weight: Tensor,
    bias: Tensor | None = None,
    stride: tuple[int, ...] = (1,),
    padding: tuple[int, ...] = (0,),
    dilation: tuple[int, ...] = (1,),
    groups: int = 1,
) -> Tensor:
    """conv2d over images of height 1."""
    sizes = ((1, *stride), (0, *padding), (1, *dilation))
    return conv2d(_, x.unsqueeze(2), weight.unsqueeze(2), bias, *sizes, groups).squeeze(2)


def batch_norm(
    _: object,
    x: Tensor,
    mean: Tensor,
    var: Tensor,
    weight: Tensor,
    bias: Tensor,
    training: bool,
    momentum: object,
    eps: float,
) -> Tensor:
    if training:
        raise ValueError("batch norm in training depends on the whole batch: call model.eval()")
    parts = (mean, (var + eps).rsqrt() * weight, bias)
    center, scale, shift = (part.view(-1, *[1] * (x.dim() - 2)) for part in parts)
    return (x - center) * scale + shift


REPLACEMENTS: dict[str, Operation] = {
    "linear": linear,
    **dict.fromkeys(("matmul", "__matmul__", "mm", "bmm"), matmul),
    "scaled_dot_product_attention": attention,
    **dict.fromkeys(("softmax", "log_softmax"), softmax),
    **dict.fromkeys(("exp", "log", "tanh", "sigmoid", "gelu", "silu"), elementwise),
    "exp_": elementwise_,
    "sum": sequential_sum,
    "mean": mean,
    "rnn_tanh": partial(recurrent, rnn_step),
    "gru": partial(recurrent, gru_step),
    "lstm": partial(recurrent, lstm_step),
    "conv1d": conv1d,
    "conv2d": conv2d,
    "batch_norm": batch_norm,
}
DATA_MOVEMENT = """
    __array__ __bool__ __contains__ __float__ __format__ __get__ __getitem__ __index__ __int__ __iter__ __len__
    __repr__ __set__ __setitem__ arange cat chunk clone contiguous copy_ cpu cummax detach diagonal dim double
    embedding empty expand eye flatten flip float full full_like gather int is_contiguous is_floating_point isin
    item long masked_fill masked_fill_ movedim new_empty new_full new_ones new_tensor new_zeros nonzero numel numpy
    ones ones_like pad permute rand randint randn repeat repeat_interleave reshape searchsorted select size split
    squeeze stack tensor to tolist transpose tril triu unbind unflatten unfold unique_consecutive unsqueeze view
    where zeros zeros_like
"""
ELEMENTWISE = """
    __and__ __eq__ __floordiv__ __iand__ __invert__ __or__ __rsub__ __rtruediv__ abs add add_ clamp diff div div_
    eq equal ge gt isfinite isinf isnan le lt maximum minimum mul mul_ ne neg relu remainder rsqrt rsqrt_ sqrt square
    square_ sub sub_
"""
ROWWISE = """
    all amax amin any argmax argsort cumsum layer_norm linalg_vector_norm max min normalize rms_norm sort topk
"""
LOSSES = "binary_cross_entropy_with_logits cross_entropy nll_loss"  # reported for a whole file
UNCHANGED = frozenset((DATA_MOVEMENT + ELEMENTWISE + ROWWISE + LOSSES).split())
