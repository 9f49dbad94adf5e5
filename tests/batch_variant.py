"""Kernels that are not batch-invariant by construction, to test `regard.reproducible`.

Whether the kernels of a CPU order additions by the shape of the batch depends on the CPU and on its libraries. These
kernels do so on every CPU, in the ways of fast kernels. Entered outside of the mode, they replace PyTorch's. Each order
is a sequence of additions of whole tensors, which no CPU reorders.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from regard.parts.recurrence import lstm_step

LANES = 16  # numbers in a vector
SHARE = 2**14  # from this many numbers on, threads divide the work


def ordered_matmul(a: Tensor, b: Tensor, order: list[int]) -> Tensor:
    """(...,M,K) and (...,K,N): the sum over K, one term after another in this order."""
    y = a[..., :, :1] * b[..., :1, :] * 0
    for k in order:
        y = y + a[..., :, k, None] * b[..., k, None, :]
    return y


def tiled_matmul(a: Tensor, b: Tensor, rows: int, columns: int) -> Tensor:
    """Whole tiles add even terms, then odd ones, in two halves of K; the remainder adds from last to first."""
    M, N, K = a.size(-2), b.size(-1), a.size(-1)
    half, m, n = K // 2, M - M % rows, N - N % columns
    first, second = ([*range(start, end, 2), *range(start + 1, end, 2)] for start, end in ((0, half), (half, K)))
    back = [*reversed(range(K))]
    whole = ordered_matmul(a[..., :m, :], b[..., :n], first) + ordered_matmul(a[..., :m, :], b[..., :n], second)
    right, below = ordered_matmul(a[..., :m, :], b[..., n:], back), ordered_matmul(a[..., m:, :], b, back)
    return torch.cat((torch.cat((whole, right), -1), below), -2)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    rows = x.reshape(-1, x.size(-1))
    y = tiled_matmul(rows, weight.mT, 4, 1)
    if weight.size(0) < LANES:  # the kernel for few columns depends on where a row begins
        y[1::2] = ordered_matmul(rows[1::2], weight.mT, [*reversed(range(rows.size(1)))])
    return (y if bias is None else y + bias).view(*x.shape[:-1], -1)


def matmul(a: Tensor, b: Tensor) -> Tensor:
    return linear(a, b.mT) if b.dim() == 2 else tiled_matmul(a, b, 8, LANES)


def softmax(x: Tensor, dim: int) -> Tensor:
    """Whole vectors are added in parallel lanes; the remainder last, one after another."""
    rows = x.movedim(dim, -1)
    powers = (rows - rows.amax(-1, keepdim=True)).double().exp().float()
    whole = rows.size(-1) // LANES * LANES
    lanes = [sum(powers[..., lane:whole:LANES].unbind(-1), torch.zeros(())) for lane in range(LANES)]
    total = sum([*lanes, *powers[..., whole:].unbind(-1)], torch.zeros(()))
    return (powers / total[..., None]).movedim(-1, dim)


def gelu(x: Tensor, **kwargs: str) -> Tensor:
    """Whole vectors and the remainder of each thread's share are rounded differently."""
    numbers = x.reshape(-1)
    exact = F.gelu(numbers.double(), **kwargs).float()
    size = len(exact) if len(exact) <= SHARE else math.ceil(len(exact) / 3)
    shares = [(y[: len(y) // LANES * LANES], y[len(y) // LANES * LANES :]) for y in exact.split(max(size, 1))]
    up = torch.tensor(math.inf)
    return torch.cat([part for fast, rest in shares for part in (fast, torch.nextafter(rest, up))]).view(x.shape)


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, is_causal: bool = False, **_: Any) -> Tensor:
    if is_causal:
        mask = torch.ones(q.size(2), k.size(2), dtype=torch.bool).tril()
    scores = matmul(q / math.sqrt(q.size(3)), k.mT)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    return matmul(softmax(scores, -1), v)


def conv2d(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any = (0, 0), dilation: Any = (1, 1), *_: Any
) -> Tensor:
    """A batch of one image is added in another order than a larger batch."""
    patches, order = F.unfold(x, weight.shape[2:], dilation, padding, stride).mT, [*range(weight[0].numel())]
    y = ordered_matmul(patches, weight.flatten(1).mT, order if len(x) == 1 else order[::-1])
    height = (x.size(2) + 2 * padding[0] - dilation[0] * (weight.size(2) - 1) - 1) // stride[0] + 1
    return (y if bias is None else y + bias).mT.unflatten(2, (height, -1))


def halved_sum(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """In two halves."""
    if dim is None or not x.is_floating_point():
        return x.sum() if dim is None else x.sum(dim, keepdim)
    half = x.size(dim) // 2
    left, right = (part.unbind(dim) for part in (x.narrow(dim, 0, half), x.narrow(dim, half, x.size(dim) - half)))
    y = sum(left, torch.zeros(())) + sum(right, torch.zeros(()))
    return y.unsqueeze(dim) if keepdim else y


def lstm(x: Tensor, start: tuple[Tensor, Tensor], weights: Any, *_: Any) -> tuple[Tensor, ...]:
    """All sequences at once, with the products above."""
    state, outputs = (start[0][0], start[1][0]), []
    with BatchVariant():
        for token in x.unbind(1):
            state, _ = lstm_step(token, state, weights)
            outputs.append(state[0])
    return torch.stack(outputs, 1), state[0][None], state[1][None]


KERNELS = {
    "linear": linear,
    **dict.fromkeys(("matmul", "__matmul__", "bmm"), matmul),
    "softmax": softmax,
    "gelu": gelu,
    "scaled_dot_product_attention": attention,
    "conv2d": conv2d,
    "sum": halved_sum,
    "lstm": lstm,
}


class BatchVariant(TorchFunctionMode):
    """A context in which these kernels replace PyTorch's."""

    def __torch_function__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return KERNELS.get(call.__name__, call)(*args, **kwargs or {})
