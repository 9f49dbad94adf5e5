"""Write a GPT or LLaMA as a GGUF file, the format of llama.cpp, with its tensor names, layouts and dtypes.

Q8_0: w ≈ d · q, d = max |w| / 127 for each block of 32 weights of a row, q int8
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from torch import Tensor

from regard.loaded_model import LoadedModel
from regard.models.gpt import GPTConfig
from regard.models.llama import LlamaConfig

BLOCK = 32  # weights that share a scale
BLOCK_NAMES = {
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
BODY_NAMES = {"tokens": "token_embd", "positions": "position_embd", "norm": "output_norm"}


def unsupported_reason(config: object) -> str:
    """Why llama.cpp cannot run the model; empty if it can."""
    if isinstance(config, GPTConfig):
        supported = config.activation == "gelu-tanh"
    elif isinstance(config, LlamaConfig):
        supported = config.activation == "silu" and config.biases == "none" and config.rope_factor == 1.0
    else:
        return "cannot read this folder: llama.cpp does not know the architecture"
    if not supported:
        return "cannot read this folder: llama.cpp has no such activation, biases or positions"
    if config.dim % BLOCK or config.hidden % BLOCK:
        return f"cannot read this folder: dim and hidden ({config.dim}, {config.hidden}) must be multiples of {BLOCK}"
    return ""


def write_gguf(file: Path, loaded: LoadedModel, precision: str) -> None:
    import gguf

    config = loaded.model.body.config
    writer = gguf.GGUFWriter(file, "gpt2" if isinstance(config, GPTConfig) else "llama")
    writer.add_block_count(config.layers)
    writer.add_context_length(config.context)
    writer.add_embedding_length(config.dim)
    writer.add_feed_forward_length(config.hidden)
    writer.add_head_count(config.heads)
    writer.add_vocab_size(config.vocab)
    writer.add_tokenizer_model("none")  # the benchmark passes ids
    if isinstance(config, LlamaConfig):
        writer.add_head_count_kv(config.kv_heads)
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
        writer.add_rope_dimension_count(config.head_dim)
        writer.add_rope_freq_base(config.rope_theta)
        writer.add_layer_norm_rms_eps(config.norm_eps)
    else:
        writer.add_layer_norm_eps(config.norm_eps)
    for name, tensor in named_tensors(loaded):
        values = np.ascontiguousarray(tensor.detach().float().numpy())
        if precision == "int8" and values.ndim == 2 and name != "position_embd.weight":
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def named_tensors(loaded: LoadedModel) -> Iterator[tuple[str, Tensor]]:
    """All weights under their GGUF names."""
    body, config = loaded.model.body, loaded.model.body.config
    weights: dict[str, Tensor] = dict(body.named_parameters())
    if isinstance(config, GPTConfig):
        weights = fuse_qkv(weights, config.layers)
    for name, tensor in weights.items():
        path, kind = name.rsplit(".", 1)
        if not path.startswith("blocks."):
            yield f"{BODY_NAMES[path]}.{kind}", tensor
            continue
        _, number, part = path.split(".", 2)
        rotated = {"attn_q": "heads", "attn_k": "kv_heads"}.get(BLOCK_NAMES[part], "")
        heads = getattr(config, rotated, 0)
        yield f"blk.{number}.{BLOCK_NAMES[part]}.{kind}", interleave_rope(tensor, heads) if heads else tensor
    if not config.tie_embeddings:
        yield "output.weight", loaded.model.head.weight


def fuse_qkv(weights: dict[str, Tensor], layers: int) -> dict[str, Tensor]:
    """Concatenate query, key and value projections."""
    import torch

    fused = dict(weights)
    for i in range(layers):
        for kind in ("weight", "bias"):
            parts = [fused.pop(f"blocks.{i}.mixer.inner.{part}.{kind}") for part in ("query", "key", "value")]
            fused[f"blocks.{i}.mixer.inner.qkv.{kind}"] = torch.cat(parts)
    return fused


def interleave_rope(weight: Tensor, heads: int) -> Tensor:
    """llama.cpp rotates adjacent pairs (i, i + 1); Hugging Face rotates halves (i, i + E/2)."""
    return weight.view(heads, 2, -1, weight.size(1)).transpose(1, 2).reshape(weight.shape)
