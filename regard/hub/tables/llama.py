"""LLaMA and what grew out of it: Mistral, Qwen2 and nanochat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, replace
from typing import Any

from regard.hub.family_map import FamilyMap, Fields, Head, ValueMap, must_say
from regard.hub.tables.shared_entries import (
    ACTIVATION_WORDS,
    DOWN,
    FEEDFORWARD_NORM,
    GATE,
    KEY,
    MIXER_NORM,
    NO_TOKENS,
    OUT,
    OUTPUT,
    QUERY,
    STACK,
    TEXT,
    UP,
    VALUE,
    ends,
    modules,
    within,
)
from regard.parts.heads import CappedOutput, Output

STRETCHES = ("default", "linear", "llama3")
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}  # the only ones in use: our Rotary has them built in
BIASES = {  # attention_bias, mlp_bias
    (False, False): "none",
    (True, False): "attention",
    (False, True): "feedforward",
    (True, True): "all",
}


def rope(config: Fields, kinds: tuple[str, ...] = STRETCHES) -> Mapping[str, Any]:
    """What they say of rotary positions: today in rope_parameters, before that in rope_scaling and rope_theta."""
    said = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if not isinstance(said, Mapping):
        raise ValueError(f"config.json: rope_parameters is {said!r}, but must be an object")
    kind = said.get("rope_type", said.get("type", "default"))
    if kind not in kinds:
        known = " or ".join(map(repr, kinds))
        raise ValueError(f"config.json: rope_parameters.rope_type is {kind!r}, but only {known} can be read here")
    part = said.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))
    must_say("rope_parameters.partial_rotary_factor", part, 1.0)
    theta = said.get("rope_theta", config.get("rope_theta"))
    return {**said, "rope_type": kind, "rope_theta": 10_000.0 if theta is None else theta}


def stretch(config: Fields) -> Any:
    said = rope(config)
    if said["rope_type"] == "default":
        return 1.0
    if "factor" not in said:
        raise ValueError(f"config.json has no rope_parameters.factor, which rope_type {said['rope_type']} needs")
    return said["factor"]


def trained(config: Fields) -> Any:
    said = rope(config)
    if said["rope_type"] != "llama3":
        return 0
    for key, value in LLAMA3.items():
        must_say(f"rope_parameters.{key}", said.get(key), value)
    return said.get("original_max_position_embeddings", config["max_position_embeddings"])


def rope_type(c: Fields) -> str:
    return "llama3" if c["trained"] else "default" if c["stretch"] == 1 else "linear"


def biases(config: Fields) -> str:
    said = tuple(config.get(key, False) for key in ("attention_bias", "mlp_bias"))
    if said not in BIASES:
        raise ValueError(f"config.json: attention_bias and mlp_bias must be true or false, not {said}")
    return BIASES[said]


def context(config: Fields, slides: bool = True) -> Any:
    """Tokens that see each other wherever they stand: a window that slides over longer texts is theirs alone."""
    longest, window = config["max_position_embeddings"], config.get("sliding_window", 4096)
    return min(longest, window) if slides and isinstance(window, int) and isinstance(longest, int) else longest


SIZES = TEXT | STACK | {"num_key_value_heads": "kv_heads", "tie_word_embeddings": "tied", "rms_norm_eps": "eps"}
SIZES |= {"dropout": "dropout"}  # they drop nothing
ABSENT = {
    "num_key_value_heads": 0,
    "head_dim": 0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "rms_norm_eps": 1e-6,
    "dropout": 0.0,
    "pad_token_id": -1,
}
ATTENTION = within("layers.{}.self_attn", {"q_proj": QUERY, "k_proj": KEY, "v_proj": VALUE, "o_proj": OUT})
LLAMA = FamilyMap(
    family="llama",
    architecture="LlamaModel",
    model="llama",
    sizes=SIZES | {"head_dim": "head_dim", "hidden_act": ValueMap("activation", {"silu": "silu"} | ACTIVATION_WORDS)},
    theirs={},
    reads={"base": lambda config: rope(config)["rope_theta"], "stretch": stretch, "trained": trained, "biases": biases},
    written={
        "rope_parameters.rope_type": rope_type,
        "rope_parameters.rope_theta": lambda c: c["base"],
        "rope_parameters.factor": lambda c: MISSING if rope_type(c) == "default" else c["stretch"],
        "rope_parameters.original_max_position_embeddings": lambda c: c["trained"] or MISSING,
        **{f"rope_parameters.{key}": lambda c, v=v: v if c["trained"] else MISSING for key, v in LLAMA3.items()},
        "attention_bias": lambda c: c["biases"] in ("attention", "all"),
        "mlp_bias": lambda c: c["biases"] in ("feedforward", "all"),
        **NO_TOKENS,
    },
    absent=ABSENT,
    weights=modules(
        {
            "embed_tokens": "body.tokens",
            **ATTENTION,
            **within("layers.{}.mlp", {"gate_proj": GATE, "up_proj": UP, "down_proj": DOWN}),
            **within("layers.{}", {"input_layernorm": MIXER_NORM, "post_attention_layernorm": FEEDFORWARD_NORM}),
            "norm": "body.norm",
        }
    ),
    prefix="model.",
    heads={(Output,): Head("LlamaForCausalLM", OUTPUT, ends)},
    ignored=("layers.{}.self_attn.rotary_emb.inv_freq",),
)
ROPE = {key: rule for key, rule in LLAMA.reads.items() if key != "biases"}
MISTRAL = replace(
    LLAMA,
    family="mistral",
    architecture="MistralModel",
    ours={"biases": "none"},
    reads={**ROPE, "context": context},
    written={**LLAMA.written, "sliding_window": None},
    absent={**ABSENT, "num_key_value_heads": lambda config: 0 if "num_key_value_heads" in config else 8},
    heads={(Output,): Head("MistralForCausalLM", OUTPUT, ends)},
)
QWEN2 = replace(
    LLAMA,
    family="qwen2",
    architecture="Qwen2Model",
    ours={"biases": "qkv"},
    reads={**ROPE, "context": lambda config: context(config, config.get("use_sliding_window", False))},
    written={**LLAMA.written, "use_sliding_window": False},
    absent={  # where a window slides, the context is no longer than it
        **ABSENT,
        "num_key_value_heads": lambda config: 0 if "num_key_value_heads" in config else 32,
        "layer_types": None,
    },
    heads={(Output,): Head("Qwen2ForCausalLM", OUTPUT, ends)},
)
_NANOCHAT = Head("NanoChatForCausalLM", OUTPUT, ends)
NANOCHAT = replace(
    LLAMA,
    family="nanochat",
    architecture="NanoChatModel",
    model="nano",
    sizes=SIZES,
    theirs={"hidden_act": "relu2", "attention_bias": False},
    reads={
        "base": lambda config: rope(config, ("default",))["rope_theta"],
        "softcap": lambda config: config.get("final_logit_softcapping", 15.0) or 0.0,
    },
    follows={"head_dim": lambda c: c["dim"] // c["heads"]},
    written={
        "rope_parameters.rope_type": "default",
        "rope_parameters.rope_theta": lambda c: c["base"],
        "final_logit_softcapping": lambda c: c["softcap"] or None,
        **NO_TOKENS,
    },
    absent={**ABSENT, "pad_token_id": 1},
    weights=modules({"embed_tokens": "body.tokens", **ATTENTION, **within("layers.{}.mlp", {"fc1": UP, "fc2": DOWN})}),
    heads={(Output,): _NANOCHAT, (CappedOutput,): _NANOCHAT},
)
