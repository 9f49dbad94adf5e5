"""Weights as int8: a quarter of the bytes, and bytes are what a decoder waits for.

    w ≈ s · q,   s = max |w| / 127 of each group of 32 inputs, in half precision          as llama.cpp's Q8_0 has it

Stored as the kernels read it: 64 outputs lie together, four inputs of each beside each other, 128 added to every q.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.engine.arena import room
from regard.parts.embed import ScaledEmbedding
from regard.parts.heads import Model, Output, Unembed

GROUP = 32  # inputs that share a scale
BLOCK = 64  # outputs that lie together


def packed(weight: Tensor) -> tuple[Tensor, Tensor]:
    """(N,K) becomes bytes (N/64, K/32, 8, 64, 4) and scales (N/64, K/32, 64), filled up with zeros."""
    N, K = weight.shape
    full = F.pad(weight.detach().float(), (0, -K % GROUP, 0, -N % BLOCK)).unflatten(1, (-1, GROUP))  # (N,G,32)
    scales = (full.abs().amax(-1) / 127).half()
    inverse = torch.where(scales > 0, 1 / scales.float(), 0.0)
    q = (full * inverse[..., None]).round_().clamp_(-127, 127).add_(128).byte()
    q = q.unflatten(2, (-1, 4)).unflatten(0, (-1, BLOCK)).permute(0, 2, 3, 1, 4)  # (N/64,G,8,64,4)
    return q.contiguous(), scales.unflatten(0, (-1, BLOCK)).transpose(1, 2).contiguous()


def rounded_inputs(x: Tensor) -> Tensor:
    """What the kernels make of the inputs: bytes too, with a scale for each group of each row."""
    K = x.size(-1)
    full = F.pad(x.float(), (0, -K % GROUP)).unflatten(-1, (-1, GROUP))
    largest = full.abs().amax(-1, keepdim=True)
    q = (full * torch.where(largest > 0, 127 / largest, 0.0) + 0.5).floor_()
    return (q * (largest / 127)).flatten(-2)[..., :K]


class Int8(nn.Module):
    """A linear layer, or the table of an embedding, with int8 weights."""

    bytes: Tensor
    bias: Tensor | None

    def __init__(self, outputs: int, inputs: int, bias: bool):
        super().__init__()
        blocks, groups = -(-outputs // BLOCK), -(-inputs // GROUP)
        self.outputs, self.inputs = outputs, inputs
        self.register_buffer("bytes", room((blocks, groups, GROUP // 4, BLOCK, 4), torch.uint8))
        self.scales = nn.Parameter(room((blocks, groups, BLOCK), torch.float16), requires_grad=False)
        self.register_buffer("bias", torch.empty(outputs) if bias else None)

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None = None) -> Int8:
        made = cls.empty(weight, bias)
        for mine, new in zip((made.bytes, made.scales.data), packed(weight), strict=True):
            mine.copy_(new)
        made.bias = None if bias is None else bias.detach().float().flatten().contiguous()
        return made

    @classmethod
    def empty(cls, weight: Tensor, bias: Tensor | None = None) -> Int8:
        return cls(weight.size(0), weight.size(1), bias is not None)

    def rows(self, which: Tensor) -> Tensor:
        """Rows of the matrix, as numbers: (...) -> (...,K)."""
        block, lane = which // BLOCK, which % BLOCK
        q = self.bytes[block, :, :, lane].flatten(-2).float() - 128  # (...,G,32)
        return (q * self.scales[block, :, lane].float()[..., None]).flatten(-2)[..., : self.inputs]

    def matrix(self) -> Tensor:
        return self.rows(torch.arange(self.outputs))  # (N,K)

    def forward(self, x: Tensor) -> Tensor:
        """In the open: what the kernels compute."""
        return F.linear(rounded_inputs(x), self.matrix(), self.bias)


Rounding = Callable[[Tensor, Tensor | None], Int8]


class Int8Embedding(nn.Module):
    def __init__(self, table: Int8, scale: float = 1.0):
        super().__init__()
        self.table, self.scale = table, scale

    def forward(self, ids: Tensor) -> Tensor:  # (B,T) -> (B,T,D)
        return self.table.rows(ids) * self.scale


def with_int8(module: nn.Module, make: Rounding) -> nn.Module:
    """The same module with int8 in every linear layer; all else is shared with the one given."""
    if isinstance(module, nn.Linear):
        return make(module.weight, module.bias)
    return with_children(module, {name: with_int8(child, make) for name, child in module.named_children()})


def with_children(module: nn.Module, children: dict[str, nn.Module]) -> nn.Module:
    """A copy that has these children in place of its own, and shares everything else."""
    other = copy(module)
    other._modules = {**module._modules, **children}
    return other


class RoundedOutput(nn.Module):
    """An output layer with int8 weights."""

    def __init__(self, layer: Int8, cap: float = 0.0):
        super().__init__()
        self.layer, self.cap = layer, cap

    def forward(self, x: Tensor) -> Tensor:  # (B,T,D) -> (B,T,V)
        return self.cap * torch.tanh(self.layer(x) / self.cap) if self.cap else self.layer(x)


def is_rounded(model: nn.Module) -> bool:
    return any(isinstance(part, Int8) for part in model.modules())


def rounded(model: Model, make: Rounding = Int8.of) -> Model:
    """The same model with int8 weights, as plain modules: slow, and what the engine is held to."""
    body: Any = with_int8(model.body, make)
    head: Any = model.head
    if isinstance(head, (Unembed, Output)):
        layer = make(head.weight, getattr(head, "bias", None))
        if head.weight is body.tokens.weight:
            scale = body.tokens.scale if isinstance(body.tokens, ScaledEmbedding) else 1.0
            body = with_children(body, {"tokens": Int8Embedding(layer, scale)})
        head = RoundedOutput(layer, getattr(head, "cap", 0.0))
    return Model(body, head).eval()
