"""The same request gives the same bits: alone or in any batch, at any place in it, beside any padding. On the CPU.

    with reproducible():
        translate("Tea and water please")

Numbers are rounded after every addition, so the order of additions shows in the last bits, and a fast kernel chooses
that order by the shape of the whole batch (He 2025). In this mode it has no choice:

    x W        rows in whole tiles: no row meets the code for what is left over
    p v        both sides in whole tiles, and the sum in pieces from first to last: zeros at the end change nothing
    softmax    over whole vectors, filled up with -inf
    f(x)       whole vectors on one thread, for the same reason as the tiles
    Σ x        one after the other
    RNN        step by step, by the spelled-out cells; a convolution as a product of its squares with weights

What moves numbers, rounds each by itself or works on each row alone runs as it is. All else is refused. The mode works
from outside, on the calls to PyTorch: parts and models do not know of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.parts.attention import repeated, what_may_be_seen
from regard.parts.recurrence import gru_step_openly, lstm_step_openly, rnn_step_openly

ROWS, NARROW = 4, 16  # of a product with weights: rows in a tile, and fewest columns
TILE = (8, 16)  # of each product in a batch of them: rows and columns in a tile
PIECE = 32  # terms of a sum that a kernel may add up in its own order
VECTOR = 16  # numbers that softmax adds up side by side
FEW = 2**14  # numbers that no kernel shares out between threads
ROOM = 2**26  # weights of attention held at once


class Reproducible(TorchFunctionMode):
    def __torch_function__(
        self, call: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), named: dict[str, Any] | None = None
    ) -> Any:
        name = call.__name__
        if name in EXACT:
            return call(*args, **named or {})
        if name in STEADY:
            return STEADY[name](call, *args, **named or {})
        raise ValueError(
            f"{name} is not known to give the same bits alone and in a batch: answer without --reproducible, "
            "or add it to regard/batch_invariant.py"
        )


def reproducible(model: nn.Module | None = None) -> Reproducible:
    """A context in which no answer depends on what else is asked. Whether the model, if given, can do that is seen at
    once. What it costs stands in docs/reliability.md."""
    if model is not None:
        must_be_known(next(model.parameters()))
    return Reproducible()


def filled(x: Tensor, *steps: int, value: float = 0.0) -> Tensor:
    """The last axes of x, filled up to multiples of `steps`."""
    missing = [-size % step for size, step in zip(x.shape[-len(steps) :], steps, strict=True)]
    return F.pad(x, [n for m in reversed(missing) for n in (0, m)], value=value) if any(missing) else x


def must_be_known(x: Tensor) -> None:
    """Other processors and other types of numbers have other tiles."""
    if not x.is_cpu:
        raise ValueError(f"reproducible answers are made on the CPU, not on {x.device.type}: use --device cpu")
    if x.dtype != torch.float32:
        raise ValueError(f"reproducible answers are made in float32, not in {str(x.dtype).removeprefix('torch.')}")


def linear(_: Any, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    must_be_known(x)
    rows, N = x.reshape(-1, x.size(-1)), weight.size(0)
    if N < NARROW:  # for few columns there are kernels whose order depends on where in memory a row begins
        weight, bias = filled(weight, NARROW, 1), bias if bias is None else filled(bias, NARROW)
    y = F.linear(filled(rows, ROWS, 1), weight, bias)
    return y[: rows.size(0), :N].view(*x.shape[:-1], N)


def product(_: Any, a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    if b.dim() == 1:
        return linear(_, a, b[None])[..., 0]
    y = linear(_, a, b.mT) if b.dim() == 2 else product_of_each(a, b)
    return y if out is None else out.copy_(y)


def product_of_each(a: Tensor, b: Tensor) -> Tensor:
    """(...,M,K) and (...,K,N): the sum over K is cut into pieces, of which the last ones may hold zeros only."""
    must_be_known(a)
    M, N = a.size(-2), b.size(-1)
    a, b = filled(a, TILE[0], PIECE), filled(b, PIECE, TILE[1])
    y = torch.zeros(())  # so that no sum is -0, which one more piece would turn into 0
    for left, right in zip(a.split(PIECE, -1), b.split(PIECE, -2), strict=True):
        y = y + left @ right
    return y[..., :M, :N]


def attend(
    _: Any,
    q: Tensor,  # (B,H,T,E)
    k: Tensor,  # (B,G,S,E)
    v: Tensor,
    mask: Tensor | None = None,  # True = may be seen, or what is added to the scores
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Spelled out, over whole pieces of keys; of many questions, some at a time."""
    T, S = q.size(2), k.size(2)
    may, _ = what_may_be_seen(q, k, mask, is_causal, spell=True)
    if may is None:
        may = torch.ones(1, S, dtype=torch.bool)
    least = torch.finfo(torch.float32).min  # not -inf: a row that may see nothing stays finite
    added = torch.zeros(may.shape).masked_fill_(~may, least) if may.dtype == torch.bool else may.clamp(min=least)
    added = filled(added, 1 if added.size(-2) == 1 else TILE[0], PIECE, value=-math.inf)
    q = filled(q * (1 / math.sqrt(q.size(3)) if scale is None else scale), TILE[0], 1)
    k, v = (filled(repeated(x, q.size(1)), PIECE, 1) for x in (k, v))
    some = max(1, ROOM // (q.size(0) * q.size(1) * k.size(2) * TILE[0])) * TILE[0]
    found = []
    for rows in (slice(start, start + some) for start in range(0, T, some)):
        scores = product_of_each(q[:, :, rows], k.mT) + (added if added.size(-2) == 1 else added[..., rows, :])
        found.append(product_of_each(scores.softmax(-1), v))
    return torch.cat(found, 2)[:, :, :T]


def softmax(call: Callable[..., Tensor], x: Tensor, dim: int, out: Tensor | None = None, **named: Any) -> Tensor:
    rows = x.movedim(dim, -1)
    y = call(filled(rows, VECTOR, value=-math.inf), dim=-1, **named)[..., : rows.size(-1)].movedim(-1, dim)
    return y if out is None else out.copy_(y)


def each_number(call: Callable[..., Tensor], x: Tensor, **named: Any) -> Tensor:
    pieces = filled(x.reshape(-1), PIECE, value=1.0).split(FEW)
    y = torch.cat([call(piece, **named) for piece in pieces])
    return y[: x.numel()].view(x.shape)


def in_place(call: Callable[..., Tensor], x: Tensor) -> Tensor:
    return x.copy_(each_number(call, x.clone()))


def total(call: Callable[..., Tensor], x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The last of the running sums, which are made from left to right."""
    if not x.is_floating_point() or not x.numel():
        return call(x) if dim is None else call(x, dim, keepdim)
    if dim is None:
        x, dim = x.reshape(-1), 0
    return x.cumsum(dim).select(dim, -1) if not keepdim else x.cumsum(dim).narrow(dim, -1, 1)


def mean(_: Any, x: Tensor, dim: int, keepdim: bool = False) -> Tensor:
    return total(torch.sum, x, dim, keepdim) / x.size(dim)


def recur(step: Any, _: Any, x: Tensor, start: Tensor | Sequence[Tensor], weights: Any, *how: Any) -> Any:
    """One layer in one direction. As from PyTorch's kernels: all answers, then the last state."""
    state = tuple(part[0] for part in ([start] if isinstance(start, Tensor) else start))  # each (B,D)
    answers = []
    with reproducible():
        for token in x.unbind(1):
            state, _ = step(token, state, weights)
            answers.append(state[0])
    return torch.stack(answers, 1), *(part[None] for part in state)


def convolve(
    _: Any,
    x: Tensor,  # (B,C,H,W)
    weight: Tensor,
    bias: Tensor | None = None,
    stride: tuple[int, ...] = (1, 1),
    padding: tuple[int, ...] = (0, 0),
    dilation: tuple[int, ...] = (1, 1),
    groups: int = 1,
) -> Tensor:
    """A linear map of every square that the kernel sees."""
    if groups != 1:
        raise ValueError(f"convolutions in groups ({groups}) are not known to be reproducible")
    squares = F.unfold(x, weight.shape[2:], dilation, padding, stride).mT  # (B,P,C·h·w)
    height = (x.size(2) + 2 * padding[0] - dilation[0] * (weight.size(2) - 1) - 1) // stride[0] + 1
    return linear(_, squares, weight.flatten(1), bias).mT.unflatten(2, (height, -1))


def convolve_in_time(
    _: Any,
    x: Tensor,  # (B,C,T)
    weight: Tensor,
    bias: Tensor | None = None,
    stride: tuple[int, ...] = (1,),
    padding: tuple[int, ...] = (0,),
    dilation: tuple[int, ...] = (1,),
    groups: int = 1,
) -> Tensor:
    """The same over pictures of one row."""
    sizes = ((1, *stride), (0, *padding), (1, *dilation))
    return convolve(_, x.unsqueeze(2), weight.unsqueeze(2), bias, *sizes, groups).squeeze(2)


def batch_norm(
    _: Any,
    x: Tensor,
    mean: Tensor,
    var: Tensor,
    weight: Tensor,
    bias: Tensor,
    training: bool,
    momentum: Any,
    eps: float,
) -> Tensor:
    if training:
        raise ValueError("a batch norm in training depends on the whole batch: call model.eval()")
    shift, scale, more = (part.view(-1, *[1] * (x.dim() - 2)) for part in (mean, (var + eps).rsqrt() * weight, bias))
    return (x - shift) * scale + more


STEADY: dict[str, Callable[..., Any]] = {
    "linear": linear,
    **dict.fromkeys(("matmul", "__matmul__", "mm", "bmm"), product),
    "scaled_dot_product_attention": attend,
    **dict.fromkeys(("softmax", "log_softmax"), softmax),
    **dict.fromkeys(("exp", "log", "tanh", "sigmoid", "gelu", "silu"), each_number),
    "exp_": in_place,
    "sum": total,
    "mean": mean,
    "rnn_tanh": partial(recur, rnn_step_openly),
    "gru": partial(recur, gru_step_openly),
    "lstm": partial(recur, lstm_step_openly),
    "conv1d": convolve_in_time,
    "conv2d": convolve,
    "batch_norm": batch_norm,
}
MOVED = """
    __array__ __bool__ __contains__ __float__ __format__ __get__ __getitem__ __index__ __int__ __iter__ __len__
    __repr__ __set__ __setitem__ arange cat chunk clone contiguous copy_ cpu detach diagonal dim double embedding
    empty expand eye flatten flip float full full_like gather int is_contiguous is_floating_point isin item long
    masked_fill masked_fill_ movedim new_empty new_full new_ones new_tensor new_zeros nonzero numel numpy ones
    ones_like pad permute rand randint randn repeat_interleave reshape searchsorted select size split squeeze stack
    tensor to tolist transpose tril triu unbind unflatten unsqueeze view where zeros zeros_like
"""
EACH_NUMBER = """
    __and__ __eq__ __floordiv__ __iand__ __invert__ __or__ __rsub__ __rtruediv__ abs add add_ clamp diff div div_
    eq equal ge gt isfinite isinf isnan le lt maximum minimum mul mul_ ne neg relu remainder rsqrt rsqrt_ sqrt square
    square_ sub sub_
"""
EACH_ROW = """
    all amax amin any argmax argsort cumsum layer_norm linalg_vector_norm max min normalize rms_norm sort topk
"""
LOSSES = "binary_cross_entropy_with_logits cross_entropy nll_loss"  # a score is of the whole file
EXACT = frozenset((MOVED + EACH_NUMBER + EACH_ROW + LOSSES).split())
