"""A stack of blocks becomes a program: a list of instructions for the kernels, with the places of all they work on.

Each part of a model has a small function here that writes down what it does. A part that is not known is refused, and
whoever asked takes the plain path.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.engine import bytecode as do
from regard.engine.quantize import Int8
from regard.parts.attention import CrossAttention, SelfAttention
from regard.parts.block import Block
from regard.parts.feedforward import ACTIVATIONS, FeedForward, SwiGLU
from regard.parts.norms import BareRMSNorm, LayerNorm, RMSNorm
from regard.parts.positions import Rotary, RotaryThenNorm
from regard.parts.residual import PostNorm, PreNorm

NAMED = {
    ACTIVATIONS["relu"]: do.RELU,
    ACTIVATIONS["gelu"]: do.GELU,
    ACTIVATIONS["gelu-tanh"]: do.GELU_TANH,
    ACTIVATIONS["silu"]: do.SILU,
    ACTIVATIONS["quick-gelu"]: do.QUICK_GELU,
    ACTIVATIONS["relu2"]: do.RELU_SQUARED,
}
OWN, SOURCE = 0, 1  # memories


class Unknown(NotImplementedError):
    """No instruction does what this part does."""


def address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


class Place:
    """Numbers of every row; before all others is what a program puts out."""

    def __init__(self, begin: int, width: int):
        self.begin, self.width = begin, width


class Program:
    """With `half`, keys and values are remembered in half precision."""

    def __init__(self, half: bool = False) -> None:
        self.half = half
        self.width = 0  # numbers of a row, in all places
        self.widest = 0  # inputs that are ever quantised
        self.turned = 0  # inputs of fp32 layers, whose weights are turned for many rows
        self.held: list[Tensor] = []  # the code knows their addresses only
        self._code: list[dict[str, Any]] = []
        self._stages: list[list[int]] = []
        self._places: dict[tuple[str, int], Place] = {}

    def place(self, name: str, width: int) -> Place:
        if (name, width) not in self._places:
            self._places[name, width] = Place(self.width, width)
            self.width += width
        return self._places[name, width]

    def finished(self) -> tuple[Any, Any]:
        code = np.zeros(len(self._code), do.INSTRUCTION)
        for row, told in zip(code, self._code, strict=True):
            for name, value in told.items():
                row[name] = value
        return np.array([tuple(stage) for stage in self._stages], do.STAGE), code

    def stage(self, cut: int, *told: dict[str, Any]) -> None:
        """What a row does alone joins what it did before."""
        if cut == do.ROWS and self._stages and self._stages[-1][0] == do.ROWS:
            self._stages[-1][2] += len(told)
        else:
            self._stages.append([cut, len(self._code), len(told)])
        self._code.extend(told)

    def hold(self, tensor: Tensor | None, dtype: torch.dtype = torch.float32) -> int:
        if tensor is not None:
            if tensor.dtype != dtype or not tensor.is_contiguous() or not tensor.is_cpu:
                raise Unknown(f"weights must be {dtype}, in one piece, and on the processor")
            self.held.append(tensor)
        return address(tensor)

    def norm(self, norm: nn.Module, x: Place, y: Place) -> Place:
        """Where the normed numbers are."""
        if isinstance(norm, nn.Identity):
            return x
        if not isinstance(norm, (LayerNorm, RMSNorm, BareRMSNorm)):
            raise Unknown(f"the norm {type(norm).__name__}")
        weight, bias = (self.hold(getattr(norm, name, None)) for name in ("weight", "bias"))
        told = {"op": do.NORM, "inputs": x.width, "weight": weight, "bias": bias}
        eps = np.finfo(np.float32).eps if norm.eps is None else norm.eps
        self.stage(do.ROWS, told | span(x, y) | {"number": eps, "adds": isinstance(norm, LayerNorm)})
        return y

    def linears(self, x: Place, *layers: tuple[Any, Place, dict[str, Any]]) -> None:
        """Several layers with the same input, at once."""
        if any(isinstance(layer, Int8) for layer, _, _ in layers):
            self.stage(do.ROWS, {"op": do.QUANTISE, "inputs": x.width} | span(x, x))
            self.widest = max(self.widest, x.width)
        self.stage(do.OUTPUTS, *[self.linear(layer, x, y) | more for layer, y, more in layers])

    def linear(self, layer: Any, x: Place, y: Place) -> dict[str, Any]:
        if isinstance(layer, Int8):
            weights = {"weight": self.hold(layer.bytes, torch.uint8), "scales": self.hold(layer.scales, torch.float16)}
        elif isinstance(layer, nn.Linear):
            weights = {"weight": self.hold(layer.weight)}
            self.turned = max(self.turned, x.width)
        else:
            raise Unknown(f"the layer {type(layer).__name__}")
        told = {"op": do.LINEAR, "bias": self.hold(layer.bias), "inputs": x.width, "outputs": y.width}
        return told | weights | span(x, y)

    def attend(self, q: Place, y: Place, attention: Any, memory: int, layer: int) -> None:
        scale = 1 / math.sqrt(q.width // attention.heads)
        told = {"op": do.ATTEND, "memory": memory, "layer": layer, "number": scale, "half": self.half}
        self.stage(do.HEADS, told | span(q, y) | heads_of(attention, q.width))

    def keep(self, k: Place, v: Place, attention: Any, memory: int, layer: int, width: int) -> None:
        told = {"op": do.KEEP, "source": k.begin, "other": v.begin, "memory": memory, "layer": layer}
        self.stage(do.ROWS, told | heads_of(attention, width) | {"half": self.half})


def span(x: Place, y: Place) -> dict[str, int]:
    return {"source": x.begin, "source_width": x.width, "target": y.begin, "target_width": y.width}


def heads_of(attention: Any, width: int) -> dict[str, int]:
    kv_heads = attention.kv_heads if isinstance(attention, SelfAttention) else attention.heads
    return {"heads": attention.heads, "kv_heads": kv_heads, "head_dim": width // attention.heads}


def inputs_of(layer: Any) -> int:
    return layer.inputs if isinstance(layer, Int8) else layer.in_features


def outputs_of(layer: Any) -> int:
    return layer.outputs if isinstance(layer, Int8) else layer.out_features


def self_attention(p: Program, part: SelfAttention, x: Place, into: Place, layer: int) -> None:
    if part.score_bias is not None:
        raise Unknown("attention with a bias on its scores")
    wide, narrow = outputs_of(part.query), outputs_of(part.key)
    q, k, v = p.place("query", wide), p.place("key", narrow), p.place("value", narrow)
    p.linears(x, (part.query, q, {}), (part.key, k, {}), (part.value, v, {}))
    if part.rotate is not None:
        turned(p, part.rotate, q, part.heads)
        turned(p, part.rotate, k, part.kv_heads)
    p.keep(k, v, part, OWN, layer, wide)
    mixed = p.place("mixed", wide)
    p.attend(q, mixed, part, OWN, layer)
    p.linears(mixed, (part.out, into, {"adds": 1}))


def turned(p: Program, rotate: Any, x: Place, heads: int) -> None:
    if type(rotate) not in (Rotary, RotaryThenNorm):
        raise Unknown(f"the positions {type(rotate).__name__}")
    told = {"op": do.TURN, "heads": heads, "head_dim": x.width // heads, "weight": p.hold(rotate.table)}
    p.stage(do.ROWS, told | span(x, x) | {"number": getattr(rotate, "eps", 0.0)})


def cross_attention(p: Program, part: CrossAttention, x: Place, into: Place, layer: int) -> None:
    q, mixed = p.place("query", x.width), p.place("mixed", x.width)
    p.linears(x, (part.query, q, {}))
    p.attend(q, mixed, part, SOURCE, layer)
    p.linears(mixed, (part.out, into, {"adds": 1}))


def feedforward(p: Program, part: Any, x: Place, into: Place, layer: int) -> None:
    inner = p.place("inner", outputs_of(part.up))
    first = {"activation": activation(part)}
    if isinstance(part, SwiGLU):
        gate = p.place("gate", inner.width)
        p.linears(x, (part.gate, gate, first), (part.up, inner, {}))
        p.stage(do.ROWS, {"op": do.GATE, "inputs": inner.width} | span(gate, inner))
    else:
        p.linears(x, (part.up, inner, first))
    p.linears(inner, (part.down, into, {"adds": 1}))


def activation(part: Any) -> int:
    if part.activation not in NAMED:
        raise Unknown(f"the activation {part.activation}")
    return NAMED[part.activation]


PARTS: dict[type, Callable[[Program, Any, Place, Place, int], None]] = {
    SelfAttention: self_attention,
    CrossAttention: cross_attention,
    FeedForward: feedforward,
    SwiGLU: feedforward,
}


def residual(p: Program, wrapper: Any, x: Place, layer: int) -> None:
    """The last thing that a part does is to add to x."""
    if type(wrapper) not in (PreNorm, PostNorm) or type(wrapper.inner) not in PARTS:
        raise Unknown(f"the part {type(getattr(wrapper, 'inner', wrapper)).__name__}")
    write = PARTS[type(wrapper.inner)]
    if type(wrapper) is PreNorm:
        write(p, wrapper.inner, p.norm(wrapper.norm, x, p.place("normed", x.width)), x, layer)
    else:
        write(p, wrapper.inner, x, x, layer)
        p.norm(wrapper.norm, x, x)


def program_of(blocks: Sequence[Any], width: int, half: bool) -> Program:
    """From x to x, through all blocks."""
    p = Program(half)
    go_through(p, blocks, p.place("x", width))
    return p


def go_through(p: Program, blocks: Iterable[Any], x: Place) -> None:
    for layer, block in enumerate(blocks):
        if type(block) is not Block:
            raise Unknown(f"the block {type(block).__name__}")
        for part in (block.mixer, block.cross, block.feedforward):
            if part is not None:
                residual(p, part, x, layer)


def program_of_answers(blocks: Sequence[Any], width: int, half: bool) -> Program:
    """From an encoded source to the keys and values that every block of a decoder has of it."""
    p = Program(half)
    x = p.place("x", width)
    parts = [block.cross.inner for block in blocks]
    places = [(p.place(f"key {i}", width), p.place(f"value {i}", width)) for i in range(len(parts))]
    layers: list[tuple[Any, Place, dict[str, Any]]] = []
    for part, (k, v) in zip(parts, places, strict=True):
        layers += [(part.key, k, {}), (part.value, v, {})]
    p.linears(x, *layers)
    for layer, (part, (k, v)) in enumerate(zip(parts, places, strict=True)):
        p.keep(k, v, part, SOURCE, layer, width)
    return p


def program_of_output(layer: Any, cap: float) -> Program:
    p = Program()
    put_out(p, layer, cap, p.place("x", inputs_of(layer)))
    return p


def put_out(p: Program, layer: Any, cap: float, x: Place) -> None:
    more = {"activation": do.CAP, "number": cap} if cap else {}
    p.linears(x, (layer, Place(-1, outputs_of(layer)), more))
