"""Bodies that run in the engine, with the interface of those they replace.

A body keeps its embedding and final norm, and its blocks become one `CompiledStack`. Weights are shared with the
original model.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from regard.engine import bytecode as op
from regard.engine.compiler import (
    EngineOptions,
    Program,
    ScratchBuffer,
    UnsupportedPart,
    append_blocks,
    append_cross_kv,
    operands,
)
from regard.engine.kernels import interpreter
from regard.engine.kernels.prefill_attention import NO_PREFILLS
from regard.engine.paged_cache import KernelArgs, PagedCache, SlotPool, attention_args
from regard.engine.quantize import Int8Embedding, replace_children
from regard.engine.runtime import MAX_ROWS, CompiledStack, ProgramRunner
from regard.models.bert import Bert
from regard.models.gpt import GPT
from regard.models.llama import Llama
from regard.models.nanochat import NanoChat
from regard.models.transformer import Transformer
from regard.parts.cache import Cache
from regard.parts.positions import LearnedPositions, RotaryPositions, RotaryQKNorm, SinusoidalPositions

SupportedBody = GPT | Llama | NanoChat | Transformer | Bert  # bodies whose blocks all use the same mask
STACK_NAMES = ("blocks", "encoder", "decoder")  # attributes that hold the blocks


class EngineBody(nn.Module):
    """Calls without a cache go to `plain`, if there is one: for whole texts PyTorch's kernels are as fast."""

    def __init__(
        self,
        body: SupportedBody,
        options: EngineOptions = EngineOptions(),  # noqa: B008  it is frozen
        plain: nn.Module | None = None,
    ):
        super().__init__()
        self.config = body.config
        self.engine = replace_blocks(body, options)
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

    def __init__(self, body: Transformer, options: EngineOptions = EngineOptions(), plain: nn.Module | None = None):  # noqa: B008  it is frozen
        super().__init__(body, options, plain)
        reads_tokens = body.stem is None and options.batch_invariant
        self.source_runner = ProgramRunner(compile_sources(body, options)) if reads_tokens else None
        self.encoder_pools: list[SlotPool] = []  # reused

    def encode(self, source: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.plain.encode(source, mask)

    def decoder_caches(self, source: Tensor, mask: Tensor | None = None) -> list[PagedCache]:
        cache = self.stack("decoder").new_cache()
        self.add_sources(cache, source, mask)
        return [cache]

    def add_sources(self, cache: PagedCache, source: Tensor, mask: Tensor | None = None) -> None:
        """Encode sources and add a row for each to the cache."""
        if self.source_runner is not None and len(source) * source.size(1) <= MAX_ROWS:
            return self.add_token_sources(self.source_runner, cache, source, mask)
        return self.stack("decoder").add_sources(cache, self.encode(source, mask), mask)

    def add_token_sources(self, runner: ProgramRunner, cache: PagedCache, source: Tensor, mask: Tensor | None) -> None:
        """One program from token ids to the keys and values of cross-attention. A token has the same slot in the cache
        of the encoder, which nothing reads later, and in that of the sources."""
        pool = cache.source_pool
        assert pool is not None
        self.stack("encoder").check_context(source.size(1))
        real = np.ones(source.shape, np.bool_) if mask is None else mask[:, 0, 0].numpy()
        lengths = real.sum(1)
        slots, first = cache.add_sources(lengths), len(cache.source_lens) - len(lengths)
        try:
            encoder_pool = self.encoder_pools.pop()
        except IndexError:  # the first source, or another thread uses it
            encoder_pool = self.stack("encoder").new_pool()
        if encoder_pool.capacity < pool.capacity:
            encoder_pool.grow(pool.capacity)
        rows, positions = (index.astype(np.int32) for index in real.nonzero())
        table_rows = rows + np.int32(first)
        seq_lens, none = cache.source_lens[table_rows], NO_PREFILLS
        args = attention_args(0, encoder_pool, cache.source_block_table, table_rows, seq_lens, none)
        args |= attention_args(1, pool, cache.source_block_table, table_rows, seq_lens, none)
        ids = source.numpy()[real]
        runner.step(torch.from_numpy(ids), KernelArgs(slot_mapping=slots.copy(), positions=positions, **args))
        self.encoder_pools.append(encoder_pool)

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


def replace_blocks(body: SupportedBody, options: EngineOptions) -> nn.Module:
    stacks: dict[str, nn.Module] = {}
    if isinstance(body.tokens, Int8Embedding):
        stacks["tokens"] = EngineEmbedding(body.tokens.table, body.tokens.scale)
    for name in STACK_NAMES:
        if hasattr(body, name):
            blocks = [*getattr(body, name)]
            stacks[name] = nn.ModuleList([CompiledStack(blocks, body.config.dim, options)])
    return replace_children(body, stacks)


def compile_sources(body: Transformer, options: EngineOptions) -> Program:
    """Source token id of every row -> cross-attention keys and values of every decoder block."""
    program = Program(options)
    x = program.buffer("x", body.config.dim)
    append_embedding(program, body.tokens, body.positions, x)
    append_blocks(program, body.encoder, x)
    append_cross_kv(
        program, [*body.decoder], program.append_norm(body.encoder_norm, x, program.buffer("normed", x.width))
    )
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
