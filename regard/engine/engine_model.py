"""Bodies and LM heads that run in the engine, with the interface of those they replace.

A body keeps its embedding and final norm, and its blocks become one `CompiledStack`. Weights are shared with the
original model.
"""

from __future__ import annotations

from typing import get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.engine import bytecode as op
from regard.engine.compiler import (
    Program,
    ScratchBuffer,
    UnsupportedPart,
    append_blocks,
    append_lm_head,
    compile_lm_head,
    operands,
)
from regard.engine.kernels import interpreter
from regard.engine.paged_cache import PagedCache, step_args
from regard.engine.quantize import Int8Embedding, Int8Linear, Int8LMHead, is_quantized, replace_children
from regard.engine.runtime import CompiledStack, ProgramRunner
from regard.models.bert import Bert
from regard.models.gpt import GPT
from regard.models.llama import Llama
from regard.models.nanochat import NanoChat
from regard.models.transformer import Transformer
from regard.parts.cache import Cache
from regard.parts.heads import BiasedLMHead, LMHead, Model
from regard.parts.positions import LearnedPositions, RotaryPositions, RotaryQKNorm, SinusoidalPositions

SupportedBody = GPT | Llama | NanoChat | Transformer | Bert  # bodies whose blocks all use the same mask
STACK_NAMES = ("blocks", "encoder", "decoder")  # attributes that hold the blocks
MAX_LOGITS = 2**22  # in memory at once while a loss is computed


class EngineBody(nn.Module):
    """Calls without a cache go to `plain`, if there is one: for whole texts PyTorch's kernels are as fast."""

    def __init__(self, body: SupportedBody, kv_fp16: bool, plain: nn.Module | None = None):
        super().__init__()
        self.config = body.config
        self.engine = replace_blocks(body, kv_fp16)
        self.plain = plain or self.engine

    def forward(self, *inputs: Tensor, cache: list[Cache] | None = None, **context: object) -> Tensor:
        return self.engine(*inputs, cache=cache, **context) if cache else self.plain(*inputs, **context)

    def stack(self, name: str) -> CompiledStack:
        stack = self.engine.get_submodule(f"{name}.0")
        assert isinstance(stack, CompiledStack)
        return stack

    def caches(self) -> list[PagedCache]:
        return [self.stack("blocks").new_cache()]


class EngineSeq2Seq(EngineBody):
    engine: Transformer
    plain: Transformer

    def encode(self, source: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.plain.encode(source, mask)

    def decoder_caches(self, source: Tensor, mask: Tensor | None = None) -> list[PagedCache]:
        return [self.stack("decoder").source_cache(self.encode(source, mask), mask)]

    def decode(
        self,
        target: Tensor,
        source: Tensor | None = None,
        source_mask: Tensor | None = None,
        cache: list[Cache] | None = None,
    ) -> Tensor:
        return (self.engine if cache else self.plain).decode(target, source, source_mask, cache)


class EngineEmbedding(Int8Embedding):
    """Embeddings from the int8 weights of the tied LM head."""

    def forward(self, ids: Tensor) -> Tensor:  # (B,T) -> (B,T,D)
        table, row_ids = self.table, ids.long().contiguous()
        if ids.numel() and not 0 <= (values := row_ids.numpy()).min() <= values.max() < table.out_features:
            raise IndexError(f"token id {values.max()} is not in the vocabulary of {table.out_features} tokens")
        out = torch.empty(*ids.shape, table.in_features)
        weight, scales, rows, y = (t.data_ptr() for t in (table.qweight, table.scales, row_ids, out))
        interpreter.dequantize_rows(weight, scales, rows, y, ids.numel(), table.in_features, self.scale)
        return out


class EngineLMHead(nn.Module):
    """Logits of every token of the vocabulary."""

    def __init__(self, layer: Int8Linear | nn.Linear, cap: float = 0.0):
        super().__init__()
        self.layer, self.cap = layer, cap
        self.vocab, self.runner = layer.out_features, ProgramRunner(compile_lm_head(layer, cap))

    def forward(self, x: Tensor) -> Tensor:  # (...,D) -> (...,V)
        out = torch.empty(*x.shape[:-1], self.vocab)
        return self.runner.run(x.flatten(0, -2), out=out)

    def loss(self, x: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        """Summed cross-entropy, as Output.loss."""
        if smoothing:
            raise ValueError("an engine model is for inference only: load it without speed to train it")
        rows = max(1, MAX_LOGITS // self.vocab)
        parts = zip(x.split(rows), targets.split(rows), strict=True)
        return torch.stack([F.cross_entropy(self(h), ids, reduction="sum") for h, ids in parts]).sum()


def compile_decode_step(body: SupportedBody, layer: Int8Linear | nn.Linear, cap: float, kv_fp16: bool) -> Program:
    """Newest token id of every row -> logits of the next token."""
    blocks, last = (body.decoder, body.decoder_norm) if isinstance(body, Transformer) else (body.blocks, body.norm)
    program = Program(kv_fp16)
    x = program.buffer("x", layer.in_features)
    append_embedding(program, body.tokens, body.positions, x)
    program.append_norm(getattr(body, "embed_norm", nn.Identity()), x, x)
    append_blocks(program, blocks, x)
    append_lm_head(program, layer, cap, program.append_norm(last, x, program.buffer("normed", x.width)))
    return program


def append_embedding(program: Program, tokens: nn.Module, positions: nn.Module, x: ScratchBuffer) -> None:
    instruction = {"op": op.EMBED, "scalar": getattr(tokens, "scale", 1.0)} | operands(x, x)
    if isinstance(tokens, Int8Embedding):
        table, scales = tokens.table.qweight, tokens.table.scales
        instruction |= {"weight": program.pin(table, torch.uint8), "scales": program.pin(scales, torch.float16)}
    elif isinstance(tokens, nn.Embedding):
        instruction |= {"weight": program.pin(tokens.weight)}
    if isinstance(positions, (LearnedPositions, SinusoidalPositions)):
        table = positions.weight if isinstance(positions, LearnedPositions) else positions.table
        instruction |= {"source2": program.pin(table)}
    elif not isinstance(positions, (RotaryPositions, RotaryQKNorm)):  # these act on queries and keys
        raise UnsupportedPart(f"the position encoding {type(positions).__name__}")
    program.append_stage(op.SPLIT_ROWS, instruction)


class EngineModel(Model):
    """A decode step of one token per row is one program, from the embedding to the LM head."""

    def __init__(self, body: EngineBody, head: EngineLMHead, source_body: SupportedBody, kv_fp16: bool):
        super().__init__(body, head)
        program = compile_decode_step(source_body, head.layer, head.cap, kv_fp16)
        self.runner, self.vocab, self.context = ProgramRunner(program), head.vocab, source_body.config.context

    def next_logits(self, ids: Tensor, caches: list[Cache]) -> Tensor:
        [cache] = caches
        assert isinstance(cache, PagedCache)
        single = ids.size(1) == 1 and ids.dtype == torch.int64
        if not single or cache.length == self.context or not all(0 <= i < self.vocab for [i] in ids.tolist()):
            return super().next_logits(ids, caches)  # handles several tokens, or raises the error
        return self.runner.step(ids.contiguous(), step_args(cache, len(ids)), torch.empty(len(ids), self.vocab))


def replace_blocks(body: SupportedBody, kv_fp16: bool) -> nn.Module:
    stacks: dict[str, nn.Module] = {}
    if isinstance(body.tokens, Int8Embedding):
        stacks["tokens"] = EngineEmbedding(body.tokens.table, body.tokens.scale)
    for name in STACK_NAMES:
        if hasattr(body, name):
            stacks[name] = nn.ModuleList([CompiledStack(list(getattr(body, name)), body.config.dim, kv_fp16)])
    return replace_children(body, stacks)


def check_supported(model: Model) -> None:
    """Raise NotImplementedError for a model that the engine does not support, or a machine where it does not run."""
    if type(model.body) not in get_args(SupportedBody):
        raise UnsupportedPart(f"the engine does not support {type(model.body).__name__}")
    empty_runner = ProgramRunner(Program())
    try:
        interpreter.run_program(*empty_runner.job)
    except Exception as error:  # LLVM may fail in any way on an unknown machine
        raise NotImplementedError(f"the kernels do not run on this machine ({error!r:.100})") from error


def to_engine(model: Model, kv_fp16: bool = True) -> Model:
    """The model with its blocks in the engine; a generating fp32 model keeps plain modules for calls without a cache.

    `kv_fp16` keeps the KV cache of int8 models in half precision.
    """
    body, head = model.body, model.head
    body_class = EngineSeq2Seq if hasattr(body, "decode") else EngineBody
    if isinstance(head, Int8LMHead):
        return EngineModel(body_class(body, kv_fp16), EngineLMHead(head.layer, head.cap), body, kv_fp16).eval()
    if isinstance(head, (BiasedLMHead, LMHead)):
        return EngineModel(body_class(body, False, body), ExactLMHead(head), body, False).eval()
    return Model(EngineBody(body, kv_fp16 and is_quantized(body)), head).eval()


class ExactLMHead(EngineLMHead):
    """An fp32 LM head, whose loss is computed by the original layer."""

    def __init__(self, head: BiasedLMHead | LMHead):
        layer = nn.Linear(head.weight.size(1), len(head.weight), bias=False, device="meta")
        layer.weight = head.weight
        if isinstance(head, BiasedLMHead):
            layer.bias = nn.Parameter(head.bias[0], requires_grad=False)
        super().__init__(layer, getattr(head, "cap", 0.0))
        self.plain = head

    def loss(self, x: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        return self.plain.loss(x, targets, smoothing)
