"""LLaMA and what grew out of it."""

from __future__ import annotations

from dataclasses import replace

from regard.hub.names import Head, Names
from regard.hub.tables.wording import (
    DOWN,
    FEEDFORWARD_NORM,
    GATE,
    KEY,
    MIXER_NORM,
    NO_TOKENS,
    OUT,
    QUERY,
    STACK,
    TEXT,
    UP,
    VALUE,
    ends,
    modules,
    within,
)
from regard.parts.heads import Output

_LLAMA_SIZES = TEXT | STACK | {"num_key_value_heads": "kv_heads", "dropout": "dropout"}  # they drop nothing
_LLAMA_THEIRS = {"rope_parameters.rope_type": "default", "attention_bias": False, "tie_word_embeddings": False}
_LLAMA_ABSENT = {"num_key_value_heads": 0, "dropout": 0.0, "pad_token_id": -1}
_LLAMA_ATTENTION = within("layers.{}.self_attn", {"q_proj": QUERY, "k_proj": KEY, "v_proj": VALUE, "o_proj": OUT})
_LLAMA_HEAD = {"lm_head.weight": "head.weight"}
LLAMA = Names(
    family="llama",
    architecture="LlamaModel",
    model="llama",
    sizes=_LLAMA_SIZES | {"rope_parameters.rope_theta": "base", "rms_norm_eps": "eps"},
    theirs=_LLAMA_THEIRS | {"hidden_act": "silu", "mlp_bias": False},
    follows={"head_dim": lambda c: c["dim"] // c["heads"]},
    written=NO_TOKENS,
    absent=_LLAMA_ABSENT | {"rope_parameters.rope_theta": 10_000.0},
    older={
        "rope_parameters.rope_theta": ("rope_theta",),
        "rope_parameters.rope_type": ("rope_scaling.rope_type", "rope_scaling.type"),
    },
    weights=modules(
        {
            "embed_tokens": "body.tokens",
            **_LLAMA_ATTENTION,
            **within("layers.{}.mlp", {"gate_proj": GATE, "up_proj": UP, "down_proj": DOWN}),
            **within("layers.{}", {"input_layernorm": MIXER_NORM, "post_attention_layernorm": FEEDFORWARD_NORM}),
            "norm": "body.norm",
        }
    ),
    prefix="model.",
    heads={(Output,): Head("LlamaForCausalLM", _LLAMA_HEAD, ends)},
    ignored=("layers.{}.self_attn.rotary_emb.inv_freq",),
)
NANOCHAT = replace(
    LLAMA,
    family="nanochat",
    architecture="NanoChatModel",
    model="nano",
    sizes=_LLAMA_SIZES,
    theirs=_LLAMA_THEIRS
    | {
        "rope_parameters.rope_theta": 10_000.0,
        "hidden_act": "relu2",
        "rms_norm_eps": 1e-6,
        "final_logit_softcapping": None,
    },
    absent=_LLAMA_ABSENT | {"final_logit_softcapping": 15.0},
    weights=modules(
        {"embed_tokens": "body.tokens", **_LLAMA_ATTENTION, **within("layers.{}.mlp", {"fc1": UP, "fc2": DOWN})}
    ),
    heads={(Output,): Head("NanoChatForCausalLM", _LLAMA_HEAD, ends)},
)
