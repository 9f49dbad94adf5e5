"""Models and LM heads that run in the engine, with the interface of those they replace."""

from __future__ import annotations

from typing import get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.beams import FindCandidates
from regard.data.batches import Ints
from regard.engine.compiler import (
    EngineOptions,
    Program,
    UnsupportedPart,
    append_blocks,
    append_lm_head,
    compile_lm_head,
)
from regard.engine.engine_body import EngineBody, EngineSeq2Seq, SupportedBody, append_embedding
from regard.engine.kernels import interpreter
from regard.engine.kernels.beam_candidates import compiled_candidates
from regard.engine.paged_cache import PagedCache, append_args
from regard.engine.quantize import Int8Linear, Int8LMHead, is_quantized
from regard.engine.runtime import ProgramRunner
from regard.models.transformer import Transformer
from regard.parts.cache import Cache
from regard.parts.heads import BiasedLMHead, LMHead, Model

MAX_LOGITS = 2**22  # in memory at once while a loss is computed


class EngineLMHead(nn.Module):
    """Logits of every token of the vocabulary."""

    def __init__(
        self,
        layer: Int8Linear | nn.Linear,
        cap: float = 0.0,
        options: EngineOptions = EngineOptions(),  # noqa: B008  it is frozen
    ):
        super().__init__()
        self.layer, self.cap, self.options = layer, cap, options
        self.vocab, self.runner = layer.out_features, ProgramRunner(compile_lm_head(layer, cap, options))

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


def compile_decode_step(
    body: SupportedBody, layer: Int8Linear | nn.Linear, cap: float, options: EngineOptions
) -> Program:
    """Newest token id of every row -> logits of the next token."""
    blocks, last = (body.decoder, body.decoder_norm) if isinstance(body, Transformer) else (body.blocks, body.norm)
    program = Program(options)
    x = program.buffer("x", layer.in_features)
    append_embedding(program, body.tokens, body.positions, x)
    program.append_norm(getattr(body, "embed_norm", nn.Identity()), x, x)
    append_blocks(program, blocks, x)
    append_lm_head(program, layer, cap, program.append_norm(last, x, program.buffer("normed", x.width)))
    return program


class EngineModel(Model):
    """A decode step of one token per row is one program, from the embedding to the LM head."""

    def __init__(self, body: EngineBody, head: EngineLMHead, source_body: SupportedBody):
        super().__init__(body, head)
        self.batch_invariant = head.options.batch_invariant
        self.runner = ProgramRunner(compile_decode_step(source_body, head.layer, head.cap, head.options))
        self.vocab, self.context = head.vocab, source_body.config.context
        self.find_candidates: FindCandidates = compiled_candidates

    def next_logits(self, ids: Tensor, caches: list[Cache]) -> Tensor:
        [cache] = caches
        assert isinstance(cache, PagedCache)
        single = ids.size(1) == 1 and ids.dtype == torch.int64
        if not single or cache.length == self.context or not all(0 <= i < self.vocab for [i] in ids.tolist()):
            return super().next_logits(ids, caches)  # handles several tokens, or raises the error
        if not len(cache.seq_lens):
            cache.add_rows(len(ids))
        return self.mixed_step(cache, ids[:, 0], np.ones(len(ids), np.int64), len(ids))

    def mixed_step(self, cache: PagedCache, ids: Tensor, counts: Ints, outputs: int) -> Tensor:
        """Append `counts[r]` of the ids to every row r of the cache; returns the logits of the first `outputs` ids,
        (outputs,V). Rows with few new tokens come first."""
        if int((cache.seq_lens + counts).max()) > self.context:  # the kernels would read beyond their tables
            raise ValueError(f"a sequence does not fit into the context of {self.context} tokens")
        args = cache.next_args() if len(ids) == outputs else None
        args = args or append_args(cache, counts, self.batch_invariant)
        logits = torch.empty(outputs, self.vocab)
        self.runner.step(ids.contiguous(), args, logits)
        return logits

    def new_cache(self) -> PagedCache:
        body: EngineBody = self.body
        return body.stack("decoder" if isinstance(body, EngineSeq2Seq) else "blocks").new_cache()


def check_supported(model: Model) -> None:
    """Raise NotImplementedError for a model that the engine does not support, or a machine where it does not run."""
    if type(model.body) not in get_args(SupportedBody):
        raise UnsupportedPart(f"the engine does not support {type(model.body).__name__}")
    empty_runner = ProgramRunner(Program())
    try:
        interpreter.run_program(*empty_runner.job)
    except Exception as error:  # LLVM may fail in any way on an unknown machine
        raise NotImplementedError(f"the kernels do not run on this machine ({error!r:.100})") from error


def to_engine(model: Model, kv_fp16: bool = True, batch_invariant: bool = False) -> Model:
    """The model with its blocks in the engine; a generating fp32 model keeps plain modules for calls without a cache.

    `kv_fp16` keeps the KV cache of int8 models in half precision. With `batch_invariant`, an input has the same bits
    alone and in any batch, and its text in any chunks: kernels whose order of additions depends on the number of rows
    are not used.
    """
    body, head = model.body, model.head
    body_class = EngineSeq2Seq if hasattr(body, "decode") else EngineBody
    if isinstance(head, Int8LMHead):
        options = EngineOptions(kv_fp16, batch_invariant)
        engine_head = EngineLMHead(head.layer, head.cap, options)
        return EngineModel(body_class(body, options), engine_head, body).eval()
    if isinstance(head, (BiasedLMHead, LMHead)):
        options = EngineOptions(False, batch_invariant)
        engine_body = body_class(body, options, None if batch_invariant else body)
        return EngineModel(engine_body, ExactLMHead(head, options), body).eval()
    return Model(EngineBody(body, EngineOptions(kv_fp16 and is_quantized(body), batch_invariant)), head).eval()


class ExactLMHead(EngineLMHead):
    """An fp32 LM head, whose loss is computed by the original layer."""

    def __init__(self, head: BiasedLMHead | LMHead, options: EngineOptions):
        layer = nn.Linear(head.weight.size(1), len(head.weight), bias=False, device="meta")
        layer.weight = head.weight
        if isinstance(head, BiasedLMHead):
            layer.bias = nn.Parameter(head.bias[0], requires_grad=False)
        super().__init__(layer, getattr(head, "cap", 0.0), options)
        self.plain = head

    def loss(self, x: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        return self.plain.loss(x, targets, smoothing)
