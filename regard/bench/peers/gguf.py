"""A GPT or LLaMA of ours as a GGUF file, as llama.cpp reads it: names, layouts and numbers of its own.

Q8_0: w ≈ d · q, d = max |w| / 127 for each 32 numbers of a row, q a byte          the int8 of llama.cpp
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from regard.load import Loaded
from regard.models.gpt import GPTConfig
from regard.models.llama import LlamaConfig

BLOCK = 32  # numbers that share a scale
PARTS = {
    "mixer.norm": "attn_norm",
    "mixer.inner.qkv": "attn_qkv",
    "mixer.inner.query": "attn_q",
    "mixer.inner.key": "attn_k",
    "mixer.inner.value": "attn_v",
    "mixer.inner.out": "attn_output",
    "feedforward.norm": "ffn_norm",
    "feedforward.inner.gate": "ffn_gate",
    "feedforward.inner.up": "ffn_up",
    "feedforward.inner.down": "ffn_down",
}
WHOLE = {"tokens": "token_embd", "positions": "position_embd", "norm": "output_norm"}


def why_not(config: Any) -> str:
    """Nothing if llama.cpp has the same model."""
    if isinstance(config, GPTConfig):
        same = config.activation == "gelu-tanh"
    elif isinstance(config, LlamaConfig):
        same = config.activation == "silu" and config.biases == "none" and config.stretch == 1.0
    else:
        return "cannot read this folder: its shape is unknown there"
    if not same:
        return "cannot read this folder: it has no such activation, biases or positions"
    if config.dim % BLOCK or config.hidden % BLOCK:
        return f"cannot read this folder: its widths ({config.dim}, {config.hidden}) are no multiples of {BLOCK}"
    return ""


def write_gguf(file: Path, loaded: Loaded, numbers: str) -> None:
    import gguf

    config = loaded.model.body.config
    writer = gguf.GGUFWriter(file, "gpt2" if isinstance(config, GPTConfig) else "llama")
    writer.add_block_count(config.layers)
    writer.add_context_length(config.context)
    writer.add_embedding_length(config.dim)
    writer.add_feed_forward_length(config.hidden)
    writer.add_head_count(config.heads)
    writer.add_vocab_size(config.vocab)
    writer.add_tokenizer_model("none")  # it is given ids
    if isinstance(config, LlamaConfig):
        writer.add_head_count_kv(config.kv_heads)
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
        writer.add_rope_dimension_count(config.head_dim)
        writer.add_rope_freq_base(config.base)
        writer.add_layer_norm_rms_eps(config.eps)
    else:
        writer.add_layer_norm_eps(config.eps)
    for name, tensor in tensors(loaded):
        values = np.ascontiguousarray(tensor.detach().float().numpy())
        if numbers == "int8" and values.ndim == 2 and name != "position_embd.weight":
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tensors(loaded: Loaded) -> Iterator[tuple[str, Tensor]]:
    """All weights by their names there."""
    body, config = loaded.model.body, loaded.model.body.config
    ours: dict[str, Tensor] = dict(body.named_parameters())
    if isinstance(config, GPTConfig):
        ours = joined(ours, config.layers)
    for name, tensor in ours.items():
        path, kind = name.rsplit(".", 1)
        if not path.startswith("blocks."):
            yield f"{WHOLE[path]}.{kind}", tensor
            continue
        _, number, part = path.split(".", 2)
        heads = {"attn_q": getattr(config, "heads", 0), "attn_k": getattr(config, "kv_heads", 0)}.get(PARTS[part], 0)
        yield f"blk.{number}.{PARTS[part]}.{kind}", interleaved(tensor, heads) if heads else tensor
    if not config.tied:
        yield "output.weight", loaded.model.head.weight


def joined(ours: dict[str, Tensor], layers: int) -> dict[str, Tensor]:
    """Queries, keys and values as one matrix."""
    import torch

    made = dict(ours)
    for i in range(layers):
        for kind in ("weight", "bias"):
            three = [made.pop(f"blocks.{i}.mixer.inner.{part}.{kind}") for part in ("query", "key", "value")]
            made[f"blocks.{i}.mixer.inner.qkv.{kind}"] = torch.cat(three)
    return made


def interleaved(weight: Tensor, heads: int) -> Tensor:
    """There the two numbers of a rotary pair are neighbours; here they stand half a head apart."""
    return weight.view(heads, 2, -1, weight.size(1)).transpose(1, 2).reshape(weight.shape)
