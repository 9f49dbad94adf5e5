"""Symmetric group-wise int8 quantization of weights: decoding is bound by memory bandwidth, and int8 has a quarter of
the bytes.

    w ≈ s · q,   s = max |w| / 127 of each group of 32 inputs, in fp16          llama.cpp's Q8_0

Stored in the order in which the kernels read it: blocks of 64 outputs, four consecutive inputs of each output side by
side, q + 128 as an unsigned byte.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.engine.arena import arena_empty
from regard.parts.embedding import ScaledEmbedding
from regard.parts.heads import BiasedLMHead, LMHead, Model

GROUP = 32  # inputs that share a scale
BLOCK = 64  # outputs that are stored together


def pack_int8(weight: Tensor) -> tuple[Tensor, Tensor]:
    """(N,K) to unsigned bytes (N/64, K/32, 8, 64, 4) and scales (N/64, K/32, 64), padded with zero weights."""
    N, K = weight.shape
    padded = F.pad(weight.detach().float(), (0, -K % GROUP, 0, -N % BLOCK)).unflatten(1, (-1, GROUP))  # (N,G,32)
    scales = (padded.abs().amax(-1) / 127).half()
    inverse = torch.where(scales > 0, 1 / scales.float(), 0.0)
    q = (padded * inverse[..., None]).round_().clamp_(-127, 127).add_(128).byte()
    q = q.unflatten(2, (-1, 4)).unflatten(0, (-1, BLOCK)).permute(0, 2, 3, 1, 4)  # (N/64,G,8,64,4)
    return q.contiguous(), scales.unflatten(0, (-1, BLOCK)).transpose(1, 2).contiguous()


def quantize_dequantize(x: Tensor) -> Tensor:
    """Reference of the kernels' activation quantization: int8, with one scale per row and group of inputs."""
    K = x.size(-1)
    padded = F.pad(x.float(), (0, -K % GROUP)).unflatten(-1, (-1, GROUP))
    largest = padded.abs().amax(-1, keepdim=True)
    q = (padded * torch.where(largest > 0, 127 / largest, 0.0) + 0.5).floor_()
    return (q * (largest / 127)).flatten(-2)[..., :K]


class Int8Linear(nn.Module):
    """A linear layer, or the table of an embedding, with int8 weights."""

    qweight: Tensor
    bias: Tensor | None

    def __init__(self, out_features: int, in_features: int, bias: bool):
        super().__init__()
        blocks, groups = -(-out_features // BLOCK), -(-in_features // GROUP)
        self.out_features, self.in_features = out_features, in_features
        self.register_buffer("qweight", arena_empty((blocks, groups, GROUP // 4, BLOCK, 4), torch.uint8))
        self.scales = nn.Parameter(arena_empty((blocks, groups, BLOCK), torch.float16), requires_grad=False)
        self.register_buffer("bias", torch.empty(out_features) if bias else None)

    @classmethod
    def from_float(cls, weight: Tensor, bias: Tensor | None = None) -> Int8Linear:
        layer = cls.empty_like(weight, bias)
        for buffer, values in zip((layer.qweight, layer.scales.data), pack_int8(weight), strict=True):
            buffer.copy_(values)
        layer.bias = None if bias is None else bias.detach().float().flatten().contiguous()
        return layer

    @classmethod
    def empty_like(cls, weight: Tensor, bias: Tensor | None = None) -> Int8Linear:
        return cls(weight.size(0), weight.size(1), bias is not None)

    def dequantize_rows(self, ids: Tensor) -> Tensor:
        """Rows of the weight matrix in fp32: (...) -> (...,K)."""
        block, lane = ids // BLOCK, ids % BLOCK
        q = self.qweight[block, :, :, lane].flatten(-2).float() - 128  # (...,G,32)
        return (q * self.scales[block, :, lane].float()[..., None]).flatten(-2)[..., : self.in_features]

    def dequantize(self) -> Tensor:
        return self.dequantize_rows(torch.arange(self.out_features))  # (N,K)

    def forward(self, x: Tensor) -> Tensor:
        """Reference of what the kernels compute."""
        return F.linear(quantize_dequantize(x), self.dequantize(), self.bias)


Quantizer = Callable[[Tensor, Tensor | None], Int8Linear]


class Int8Embedding(nn.Module):
    def __init__(self, table: Int8Linear, scale: float = 1.0):
        super().__init__()
        self.table, self.scale = table, scale

    def forward(self, ids: Tensor) -> Tensor:  # (B,T) -> (B,T,D)
        return self.table.dequantize_rows(ids) * self.scale


def quantize_linears(module: nn.Module, quantizer: Quantizer) -> nn.Module:
    """A copy of the module with every nn.Linear quantized; it shares everything else with the original."""
    if isinstance(module, nn.Linear):
        return quantizer(module.weight, module.bias)
    return replace_children(
        module, {name: quantize_linears(child, quantizer) for name, child in module.named_children()}
    )


def replace_children(module: nn.Module, children: dict[str, nn.Module]) -> nn.Module:
    """A copy with these children in place of its own; it shares everything else."""
    clone = copy(module)
    clone._modules = {**module._modules, **children}
    return clone


class Int8LMHead(nn.Module):
    """An LM head with int8 weights and an optional logit softcap."""

    def __init__(self, layer: Int8Linear, cap: float = 0.0):
        super().__init__()
        self.layer, self.cap = layer, cap

    def forward(self, x: Tensor) -> Tensor:  # (B,T,D) -> (B,T,V)
        return self.cap * torch.tanh(self.layer(x) / self.cap) if self.cap else self.layer(x)


def is_quantized(model: nn.Module) -> bool:
    return any(isinstance(part, Int8Linear) for part in model.modules())


def quantize_model(model: Model, quantizer: Quantizer = Int8Linear.from_float) -> Model:
    """The model with int8 weights as plain modules: slow; the reference that tests compare the engine with."""
    body, head = quantize_linears(model.body, quantizer), model.head
    if isinstance(head, (BiasedLMHead, LMHead)):
        layer, tokens = quantizer(head.weight, getattr(head, "bias", None)), model.body.tokens
        if head.weight is tokens.weight:
            scale = tokens.scale if isinstance(tokens, ScaledEmbedding) else 1.0
            body = replace_children(body, {"tokens": Int8Embedding(layer, scale)})
        head = Int8LMHead(layer, getattr(head, "cap", 0.0))
    return Model(body, head).eval()
