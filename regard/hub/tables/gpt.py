"""GPT-2 (Radford et al. 2019): transposed matrices, and one matrix for query, key and value."""

from __future__ import annotations

from regard.hub.family_map import FamilyMap, HeadMap
from regard.hub.tables.shared_entries import (
    ACTIVATION,
    DOWN,
    FEEDFORWARD_NORM,
    KEY,
    MIXER_NORM,
    NO_TOKENS,
    OUT,
    OUTPUT,
    QUERY,
    UP,
    VALUE,
    four_times,
    head_eos_keys,
    modules,
    transposed_modules,
)
from regard.parts.heads import LMHead

GPT2 = FamilyMap(
    family="gpt2",
    architecture="GPT2Model",
    model="gpt",
    config_fields={
        "vocab_size": "vocab",
        "n_positions": "context",
        "n_embd": "dim",
        "n_layer": "layers",
        "n_head": "heads",
        "n_inner": "hidden",
        "activation_function": ACTIVATION,
        "tie_word_embeddings": "tie_embeddings",
        "resid_pdrop": "dropout",
        "pad_token_id": "pad",
        "layer_norm_epsilon": "norm_eps",
    },
    required={
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
    },
    written_keys={"embd_pdrop": lambda c: c["dropout"], "attn_pdrop": 0.0, **NO_TOKENS},
    defaults={
        "n_inner": four_times("n_embd"),
        "activation_function": "gelu_new",
        "tie_word_embeddings": True,
        "resid_pdrop": 0.1,
        "pad_token_id": -1,
        "layer_norm_epsilon": 1e-5,
    },
    weights={
        **modules({"wte": "body.tokens", "wpe": "body.positions", "ln_f": "body.norm"}),
        **modules({"h.{}.ln_1": MIXER_NORM, "h.{}.ln_2": FEEDFORWARD_NORM}),
        **transposed_modules({"h.{}.attn.c_attn": (QUERY, KEY, VALUE), "h.{}.attn.c_proj": (OUT,)}),
        **transposed_modules({"h.{}.mlp.c_fc": (UP,), "h.{}.mlp.c_proj": (DOWN,)}),
    },
    prefix="transformer.",
    heads={(LMHead,): HeadMap("GPT2LMHeadModel", OUTPUT, head_eos_keys)},
    ignored=("h.{}.attn.bias", "h.{}.attn.masked_bias"),  # the causal mask
)
