"""GPT-2 (Radford et al. 2019): transposed matrices, and one matrix for query, key and value."""

from __future__ import annotations

from collections.abc import Mapping

from regard.hub.family_map import FamilyMap, HeadMap, TensorRule, concat, transpose
from regard.hub.tables.shared_entries import ACTIVATION, LAYER, NO_TOKENS, OUTPUT, eos_keys, layer, modules
from regard.parts.heads import LMHead


def _transposed(names: Mapping[str, tuple[str, ...]]) -> dict[str, TensorRule]:
    """Modules of a layer, by their roles, whose matrices Hugging Face stores transposed and as one."""
    parts = {name: [LAYER[role] for role in roles] for name, roles in names.items()}
    weights = {f"{name}.weight": transpose(*(f"{p}.weight" for p in paths)) for name, paths in parts.items()}
    return weights | {f"{name}.bias": concat(*(f"{p}.bias" for p in paths)) for name, paths in parts.items()}


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
    required={"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False},
    written_keys={"embd_pdrop": lambda c: c["dropout"], "attn_pdrop": 0.0, **NO_TOKENS},
    defaults={
        "n_inner": lambda c: 4 * c["n_embd"] if isinstance(c["n_embd"], int) else c["n_embd"],  # refused later
        "activation_function": "gelu_new",
        "tie_word_embeddings": True,
        "resid_pdrop": 0.1,
        "pad_token_id": -1,
        "layer_norm_epsilon": 1e-5,
    },
    weights={
        **modules({"wte": "body.tokens", "wpe": "body.positions", "ln_f": "body.norm"}),
        **modules(layer("h.{}", {"ln_1": "mixer norm", "ln_2": "feedforward norm"})),
        **_transposed({"h.{}.attn.c_attn": ("query", "key", "value"), "h.{}.attn.c_proj": ("out",)}),
        **_transposed({"h.{}.mlp.c_fc": ("up",), "h.{}.mlp.c_proj": ("down",)}),
    },
    prefix="transformer.",
    heads={(LMHead,): HeadMap("GPT2LMHeadModel", OUTPUT, eos_keys)},
    ignored=("h.{}.attn.bias", "h.{}.attn.masked_bias"),  # the causal mask
)
