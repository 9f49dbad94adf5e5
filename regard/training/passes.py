"""Passes: functions from a model to the same model that trains with less memory or in less time.

    recompute    a block keeps its input, and computes the rest again in the backward pass    Chen et al. 2016
    compile      equal blocks share one compiled graph                                        Ansel et al. 2024
    precision    matrix products in bf16; weights, residual stream and losses in fp32         Micikevicius et al. 2018

Their order is recompute, compile, shard. No part and no model knows of them, and the names of weights stay. They act
while gradients are computed: evaluation and generation run the blocks as they are, in fp32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from regard.look import is_traced
from regard.parts import attention
from regard.parts.cache import Cache
from regard.parts.heads import Model

Dtype = Literal["fp32", "bf16"]
Forward = Callable[..., Tensor]


def apply_passes(model: Model, recompute: bool = False, compiled: bool = False) -> Model:
    """The model with the passes of a run, in their order."""
    if recompute:
        recompute_blocks(model)
    if compiled:
        compile_blocks(model)
    return model


def find_blocks(module: nn.Module) -> Iterator[nn.Module]:
    """The layers of every stack: those modules of a list or a sequence that consist of parts themselves."""
    is_stack = isinstance(module, nn.ModuleList | nn.Sequential)
    for child in module.children():
        if is_stack and any(child.children()):
            yield child
        else:
            yield from find_blocks(child)


def recompute_blocks(model: Model) -> Model:
    """Activation checkpointing of every block. The gradients have the same bits, with dropout as well."""
    blocks = [*find_blocks(model.body)]
    if not blocks:
        raise ValueError("--recompute needs a model of several blocks, and this one has none: leave it out")
    for block in blocks:
        norms = [module for module in block.modules() if isinstance(module, _BatchNorm)]
        call: Forward = partial(checkpoint, use_reentrant=False)
        call = partial(call, context_fn=partial(recompute_contexts, norms)) if norms else call
        block.forward = partial(recomputed, call, block.forward)
    return model


def recomputed(call: Forward, forward: Forward, *args: object, **kwargs: object) -> Tensor:
    """A trace needs the tensors of the forward pass. A block that advances a cache, as a recurrent decoder does, would
    start its repetition from the state at its end."""
    has_cache = any(isinstance(value, Cache) for value in (*args, *kwargs.values()))
    if not torch.is_grad_enabled() or is_traced() or has_cache:
        return forward(*args, **kwargs)
    return call(forward, *args, **kwargs)


def recompute_contexts(norms: Sequence[nn.Module]) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """For the forward pass and its repetition, which must not count a batch twice."""
    return nullcontext(), restored_buffers(norms)


@contextmanager
def restored_buffers(modules: Sequence[nn.Module]) -> Iterator[None]:
    buffers = [buffer for module in modules for buffer in module.buffers()]
    before = [buffer.clone() for buffer in buffers]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in zip(buffers, before, strict=True):
                buffer.copy_(value)


def compile_blocks(model: Model, backend: str = "inductor") -> Model:
    """torch.compile of every block; a model without blocks is one. Attention to packed documents stays as it is: the
    lengths of documents differ in every batch."""
    attention.attend_chunks = torch.compiler.disable(attention.attend_chunks)
    compiled = torch.compile(call_forward, backend=backend)  # one function, so that equal blocks share its graphs
    for block in [*find_blocks(model.body)] or [model.body]:
        block.forward = partial(compiled_in_training, compiled, block.forward)
    return model


def call_forward(forward: Forward, *args: object, **kwargs: object) -> Tensor:
    return forward(*args, **kwargs)


def compiled_in_training(compiled: Forward, forward: Forward, *args: object, **kwargs: object) -> Tensor:
    """Decoding has other shapes at every step, and would compile for each."""
    if not torch.is_grad_enabled() or is_traced():
        return forward(*args, **kwargs)
    return compiled(forward, *args, **kwargs)


def default_dtype(device: torch.device) -> Dtype:
    """Tensor cores make bf16 several times faster; few CPUs have such units."""
    return "bf16" if device.type == "cuda" else "fp32"


def mixed_precision(device: torch.device, dtype: Dtype | None) -> AbstractContextManager[object]:
    """A context for forward passes. Gradients and the optimizer's state stay in fp32, as the weights do."""
    is_mixed = (dtype or default_dtype(device)) == "bf16"
    return torch.autocast(device.type, torch.bfloat16) if is_mixed else nullcontext()
