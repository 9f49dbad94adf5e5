"""The compiler: turns a stack of blocks into a program, bytecode with the scratch buffers and weights it works on.

Each kind of part has an `append_` function that emits its instructions. A part without one raises UnsupportedPart, and
the caller falls back to plain modules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.engine import bytecode as op
from regard.engine.kernels.packed_gemm import PANEL_WIDTH
from regard.engine.quantize import Int8Linear
from regard.parts.attention import CrossAttention, Rotate, SelfAttention
from regard.parts.block import Block, PostNorm, PreNorm
from regard.parts.feedforward import ACTIVATIONS, FeedForward, SwiGLU
from regard.parts.norms import BareRMSNorm, LayerNorm, RMSNorm
from regard.parts.positions import RotaryPositions, RotaryQKNorm

ACTIVATION_CODES = {
    ACTIVATIONS["relu"]: op.RELU,
    ACTIVATIONS["gelu"]: op.GELU,
    ACTIVATIONS["gelu-tanh"]: op.GELU_TANH,
    ACTIVATIONS["silu"]: op.SILU,
    ACTIVATIONS["quick-gelu"]: op.QUICK_GELU,
    ACTIVATIONS["relu2"]: op.RELU_SQUARED,
}
SELF_CACHE, SOURCE_CACHE = 0, 1  # KV caches
Instruction = dict[str, float]  # fields of op.INSTRUCTION
Attention = SelfAttention | CrossAttention


class UnsupportedPart(NotImplementedError):
    """The engine has no instruction for this part."""


class ScratchBuffer:
    """Floats of every row in the scratch memory; offset -1 is the output of the program."""

    def __init__(self, offset: int, width: int):
        self.offset, self.width = offset, width


@dataclass(frozen=True)
class EngineOptions:
    """How a model is compiled."""

    kv_fp16: bool = False  # the KV cache is in half precision
    # A token has the same bits in any batch, and in any chunk of its text: no kernel is used whose order of additions
    # depends on the number of rows. A copy of the fp32 weights is kept in panels.
    batch_invariant: bool = False
    panels: dict[int, Tensor] = field(default_factory=dict)  # by the address of the weights

    def in_panels(self, weight: Tensor) -> Tensor:
        """(outputs, inputs) -> (panels, inputs, PANEL_WIDTH), padded with zeros; once for all programs."""
        if weight.data_ptr() not in self.panels:
            padded = F.pad(weight.detach(), (0, 0, 0, -len(weight) % PANEL_WIDTH))
            self.panels[weight.data_ptr()] = padded.view(-1, PANEL_WIDTH, weight.size(1)).mT.contiguous()
        return self.panels[weight.data_ptr()]


class Program:
    """Bytecode under construction."""

    def __init__(self, options: EngineOptions = EngineOptions()) -> None:  # noqa: B008  it is frozen
        self.options, self.kv_fp16 = options, options.kv_fp16
        self.width = 0  # floats of a row, in all buffers
        self.max_int8_inputs = 0  # of the widest int8 layer
        self.max_fp32_inputs = 0  # of the widest fp32 layer, whose weights are packed for many rows
        self.tensors: list[Tensor] = []  # kept alive: the code holds their addresses only
        self._code: list[Instruction] = []
        self._stages: list[list[int]] = []
        self._buffers: dict[tuple[str, int], ScratchBuffer] = {}

    def buffer(self, name: str, width: int) -> ScratchBuffer:
        if (name, width) not in self._buffers:
            self._buffers[name, width] = ScratchBuffer(self.width, width)
            self.width += width
        return self._buffers[name, width]

    def assemble(self) -> tuple[npt.NDArray[np.void], npt.NDArray[np.void]]:
        code = np.zeros(len(self._code), op.INSTRUCTION)
        for row, instruction in zip(code, self._code, strict=True):
            for name, value in instruction.items():
                row[name] = value
        return np.array([tuple(stage) for stage in self._stages], op.STAGE), code

    def append_stage(self, split: int, *instructions: Instruction) -> None:
        """Row-wise instructions join the stage before them, if that is row-wise too."""
        if split == op.SPLIT_ROWS and self._stages and self._stages[-1][0] == op.SPLIT_ROWS:
            self._stages[-1][2] += len(instructions)
        else:
            self._stages.append([split, len(self._code), len(instructions)])
        self._code.extend(instructions)

    def pin(self, tensor: Tensor | None, dtype: torch.dtype = torch.float32) -> int:
        """The address of a tensor, which the program keeps alive."""
        if tensor is not None:
            if tensor.dtype != dtype or not tensor.is_contiguous() or not tensor.is_cpu:
                raise UnsupportedPart(f"weights must be {dtype}, contiguous and on the CPU")
            self.tensors.append(tensor)
        return 0 if tensor is None else tensor.data_ptr()

    def append_norm(self, norm: nn.Module, x: ScratchBuffer, y: ScratchBuffer) -> ScratchBuffer:
        """Returns the buffer of the result: x itself for nn.Identity."""
        if isinstance(norm, nn.Identity):
            return x
        if not isinstance(norm, (LayerNorm, RMSNorm, BareRMSNorm)):
            raise UnsupportedPart(f"the norm {type(norm).__name__}")
        weight, bias = (self.pin(getattr(norm, name, None)) for name in ("weight", "bias"))
        eps = float(np.finfo(np.float32).eps) if norm.eps is None else norm.eps
        instruction = {"op": op.NORM, "inputs": x.width, "weight": weight, "bias": bias, "scalar": eps}
        self.append_stage(op.SPLIT_ROWS, instruction | operands(x, y) | {"center": isinstance(norm, LayerNorm)})
        return y

    def append_linears(self, x: ScratchBuffer, *layers: tuple[nn.Module, ScratchBuffer, Instruction]) -> None:
        """One stage of several layers with the same input, which int8 layers quantize once."""
        if any(isinstance(layer, Int8Linear) for layer, _, _ in layers):
            self.append_stage(op.SPLIT_ROWS, {"op": op.QUANTIZE, "inputs": x.width} | operands(x, x))
            self.max_int8_inputs = max(self.max_int8_inputs, x.width)
        self.append_stage(
            op.SPLIT_OUTPUTS, *(self.linear_instruction(layer, x, y) | extra for layer, y, extra in layers)
        )

    def linear_instruction(self, layer: nn.Module, x: ScratchBuffer, y: ScratchBuffer) -> Instruction:
        if isinstance(layer, Int8Linear):
            weights = {"weight": self.pin(layer.qweight, torch.uint8), "scales": self.pin(layer.scales, torch.float16)}
        elif isinstance(layer, nn.Linear):
            panels = self.options.batch_invariant
            weight = self.options.in_panels(layer.weight) if panels else layer.weight
            weights = {"weight": self.pin(weight), "panels": panels}
            self.max_fp32_inputs = max(self.max_fp32_inputs, x.width)
        else:
            raise UnsupportedPart(f"the layer {type(layer).__name__}")
        instruction = {"op": op.LINEAR, "bias": self.pin(layer.bias), "inputs": x.width, "outputs": y.width}
        return instruction | weights | operands(x, y)

    def append_attention(self, q: ScratchBuffer, y: ScratchBuffer, part: Attention, cache: int, layer: int) -> None:
        scale = 1 / math.sqrt(q.width // part.heads)
        instruction = {"op": op.ATTENTION, "cache": cache, "layer": layer, "scalar": scale, "kv_fp16": self.kv_fp16}
        self.append_stage(op.SPLIT_HEADS, instruction | operands(q, y) | head_layout(part))

    def append_store_kv(self, k: ScratchBuffer, v: ScratchBuffer, part: Attention, cache: int, layer: int) -> None:
        instruction = {"op": op.STORE_KV, "source": k.offset, "source2": v.offset, "cache": cache, "layer": layer}
        self.append_stage(op.SPLIT_ROWS, instruction | head_layout(part) | {"kv_fp16": self.kv_fp16})


def operands(x: ScratchBuffer, y: ScratchBuffer) -> Instruction:
    return {"source": x.offset, "source_width": x.width, "target": y.offset, "target_width": y.width}


def head_layout(attention: Attention) -> Instruction:
    kv_heads = attention.kv_heads if isinstance(attention, SelfAttention) else attention.heads
    return {"heads": attention.heads, "kv_heads": kv_heads, "head_dim": attention.query.out_features // attention.heads}


def append_self_attention(
    program: Program, part: SelfAttention, x: ScratchBuffer, target: ScratchBuffer, layer: int
) -> None:
    if part.score_bias is not None:
        raise UnsupportedPart("attention with a score bias")
    q_width, kv_width = part.query.out_features, part.key.out_features
    q, k, v = program.buffer("query", q_width), program.buffer("key", kv_width), program.buffer("value", kv_width)
    program.append_linears(x, (part.query, q, {}), (part.key, k, {}), (part.value, v, {}))
    if part.rotate is not None:
        append_rope(program, part.rotate, q, part.heads)
        append_rope(program, part.rotate, k, part.kv_heads)
    program.append_store_kv(k, v, part, SELF_CACHE, layer)
    attended = program.buffer("attended", q_width)
    program.append_attention(q, attended, part, SELF_CACHE, layer)
    program.append_linears(attended, (part.out, target, {"accumulate": 1}))


def append_rope(program: Program, rotate: Rotate, x: ScratchBuffer, heads: int) -> None:
    if not isinstance(rotate, RotaryPositions) or type(rotate) not in (RotaryPositions, RotaryQKNorm):
        raise UnsupportedPart(f"the position encoding {type(rotate).__name__}")
    instruction = {"op": op.ROPE, "heads": heads, "head_dim": x.width // heads, "weight": program.pin(rotate.table)}
    program.append_stage(op.SPLIT_ROWS, instruction | operands(x, x) | {"scalar": getattr(rotate, "eps", 0.0)})


def append_cross_attention(
    program: Program, part: CrossAttention, x: ScratchBuffer, target: ScratchBuffer, layer: int
) -> None:
    q, attended = program.buffer("query", x.width), program.buffer("attended", x.width)
    program.append_linears(x, (part.query, q, {}))
    program.append_attention(q, attended, part, SOURCE_CACHE, layer)
    program.append_linears(attended, (part.out, target, {"accumulate": 1}))


def append_feedforward(
    program: Program, part: FeedForward | SwiGLU, x: ScratchBuffer, target: ScratchBuffer, layer: int
) -> None:
    inner = program.buffer("inner", part.up.out_features)
    first: Instruction = {"activation": activation_code(part)}
    if isinstance(part, SwiGLU):
        gate = program.buffer("gate", inner.width)
        program.append_linears(x, (part.gate, gate, first), (part.up, inner, {}))
        program.append_stage(op.SPLIT_ROWS, {"op": op.GATE, "inputs": inner.width} | operands(gate, inner))
    else:
        program.append_linears(x, (part.up, inner, first))
    program.append_linears(inner, (part.down, target, {"accumulate": 1}))


def activation_code(part: FeedForward | SwiGLU) -> int:
    if part.activation not in ACTIVATION_CODES:
        raise UnsupportedPart(f"the activation {part.activation}")
    return ACTIVATION_CODES[part.activation]


APPENDERS: dict[type, Callable[..., None]] = {
    SelfAttention: append_self_attention,
    CrossAttention: append_cross_attention,
    FeedForward: append_feedforward,
    SwiGLU: append_feedforward,
}


def append_residual(program: Program, wrapper: nn.Module, x: ScratchBuffer, layer: int) -> None:
    """x + part(norm(x)) or norm(x + part(x)): the last instruction of a part accumulates into x."""
    append_part = APPENDERS.get(type(getattr(wrapper, "inner", None)))
    if append_part is not None and type(wrapper) is PreNorm:
        normed = program.append_norm(wrapper.norm, x, program.buffer("normed", x.width))
        append_part(program, wrapper.inner, normed, x, layer)
    elif append_part is not None and type(wrapper) is PostNorm:
        append_part(program, wrapper.inner, x, x, layer)
        program.append_norm(wrapper.norm, x, x)
    else:
        raise UnsupportedPart(f"the part {type(getattr(wrapper, 'inner', wrapper)).__name__}")


def compile_blocks(blocks: Sequence[nn.Module], width: int, options: EngineOptions) -> Program:
    """x -> x through all blocks."""
    program = Program(options)
    append_blocks(program, blocks, program.buffer("x", width))
    return program


def append_blocks(program: Program, blocks: Iterable[nn.Module], x: ScratchBuffer) -> None:
    for layer, block in enumerate(blocks):
        if type(block) is not Block:
            raise UnsupportedPart(f"the block {type(block).__name__}")
        for part in (block.mixer, block.cross, block.feedforward):
            if part is not None:
                append_residual(program, part, x, layer)


def compile_cross_kv(blocks: Sequence[nn.Module], width: int, options: EngineOptions) -> Program:
    """Encoded source -> cross-attention keys and values of every decoder block."""
    program = Program(options)
    append_cross_kv(program, blocks, program.buffer("x", width))
    return program


def append_cross_kv(program: Program, blocks: Sequence[nn.Module], x: ScratchBuffer) -> None:
    width = x.width
    parts = [part for block in blocks if isinstance(part := block.get_submodule("cross.inner"), CrossAttention)]
    buffers = [(program.buffer(f"key {i}", width), program.buffer(f"value {i}", width)) for i in range(len(parts))]
    layers: list[tuple[nn.Module, ScratchBuffer, Instruction]] = []
    for part, (k, v) in zip(parts, buffers, strict=True):
        layers += [(part.key, k, {}), (part.value, v, {})]
    program.append_linears(x, *layers)
    for layer, (part, (k, v)) in enumerate(zip(parts, buffers, strict=True)):
        program.append_store_kv(k, v, part, SOURCE_CACHE, layer)


def compile_lm_head(layer: Int8Linear | nn.Linear, cap: float, options: EngineOptions) -> Program:
    program = Program(options)
    append_lm_head(program, layer, cap, program.buffer("x", layer.in_features))
    return program


def append_lm_head(program: Program, layer: Int8Linear | nn.Linear, cap: float, x: ScratchBuffer) -> None:
    extra = {"activation": op.SOFTCAP, "scalar": cap} if cap else {}
    program.append_linears(x, (layer, ScratchBuffer(-1, layer.out_features), extra))
