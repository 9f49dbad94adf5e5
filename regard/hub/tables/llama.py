"""LLaMA and its descendants: Mistral, Qwen2 and nanochat (Touvron et al. 2023)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, replace

from regard.hub.family_map import FamilyMap, Fields, HeadMap, ValueMap, check_value
from regard.hub.tables.shared_entries import ACTIVATION_NAMES, NO_TOKENS, OUTPUT, STACK, TEXT, eos_keys, layer, modules
from regard.parts.heads import LMHead, SoftcapLMHead

ROPE_TYPES = ("default", "linear", "llama3")
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}  # the only values in use; our Rotary fixes them
BIASES: dict[tuple[object, ...], str] = {  # attention_bias, mlp_bias
    (False, False): "none",
    (True, False): "attention",
    (False, True): "feedforward",
    (True, True): "all",
}


def read_rope(config: Fields, types: tuple[str, ...] = ROPE_TYPES) -> Fields:
    """The settings of rotary positions: today in rope_parameters, earlier in rope_scaling and rope_theta."""
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if not isinstance(rope, Mapping):
        raise ValueError(f"config.json: rope_parameters is {rope!r}, but must be an object")
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in types:
        choices = " or ".join(map(repr, types))
        raise ValueError(f"config.json: rope_parameters.rope_type is {kind!r}, but only {choices} is supported")
    factor = rope.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))
    check_value("rope_parameters.partial_rotary_factor", factor, 1.0)
    theta = rope.get("rope_theta", config.get("rope_theta"))
    return {**rope, "rope_type": kind, "rope_theta": 10_000.0 if theta is None else theta}


def read_rope_factor(config: Fields) -> object:
    rope = read_rope(config)
    if rope["rope_type"] == "default":
        return 1.0
    if "factor" not in rope:
        raise ValueError(f"config.json has no rope_parameters.factor, which rope_type {rope['rope_type']} needs")
    return rope["factor"]


def read_original_context(config: Fields) -> object:
    """The context before it was extended; 0 if it was not."""
    rope = read_rope(config)
    if rope["rope_type"] != "llama3":
        return 0
    for key, value in LLAMA3.items():
        check_value(f"rope_parameters.{key}", rope.get(key), value)
    return rope.get("original_max_position_embeddings", config["max_position_embeddings"])


def rope_type(c: Fields) -> str:
    return "llama3" if c["rope_original_context"] else "default" if c["rope_factor"] == 1 else "linear"


def read_biases(config: Fields) -> str:
    flags = tuple(config.get(key, False) for key in ("attention_bias", "mlp_bias"))
    if flags not in BIASES:
        raise ValueError(f"config.json: attention_bias and mlp_bias must be true or false, not {flags}")
    return BIASES[flags]


def read_context(config: Fields, sliding: object = True) -> object:
    """The positions that attend to each other; at most the sliding window, which our body does not implement."""
    longest, window = config["max_position_embeddings"], config.get("sliding_window", 4096)
    return min(longest, window) if sliding and isinstance(window, int) and isinstance(longest, int) else longest


SIZES = {
    **(TEXT | STACK),
    **{"num_key_value_heads": "kv_heads", "tie_word_embeddings": "tie_embeddings", "rms_norm_eps": "norm_eps"},
    "dropout": "dropout",  # LlamaConfig has no dropout
}
DEFAULTS = {
    **{"num_key_value_heads": 0, "head_dim": 0, "pad_token_id": -1},
    **{"hidden_act": "silu", "tie_word_embeddings": False, "rms_norm_eps": 1e-6, "dropout": 0.0},
}
ATTENTION = layer("layers.{}.self_attn", {"q_proj": "query", "k_proj": "key", "v_proj": "value", "o_proj": "out"})
LLAMA = FamilyMap(
    family="llama",
    architecture="LlamaModel",
    model="llama",
    config_fields=SIZES
    | {"head_dim": "head_dim", "hidden_act": ValueMap("activation", {"silu": "silu"} | ACTIVATION_NAMES)},
    derived_fields={
        "rope_theta": lambda config: read_rope(config)["rope_theta"],
        "rope_factor": read_rope_factor,
        "rope_original_context": read_original_context,
        "biases": read_biases,
    },
    written_keys={
        "rope_parameters.rope_type": rope_type,
        "rope_parameters.rope_theta": lambda c: c["rope_theta"],
        "rope_parameters.factor": lambda c: MISSING if rope_type(c) == "default" else c["rope_factor"],
        "rope_parameters.original_max_position_embeddings": lambda c: c["rope_original_context"] or MISSING,
        **{
            f"rope_parameters.{key}": lambda c, v=v: v if c["rope_original_context"] else MISSING
            for key, v in LLAMA3.items()
        },
        "attention_bias": lambda c: c["biases"] in ("attention", "all"),
        "mlp_bias": lambda c: c["biases"] in ("feedforward", "all"),
        **NO_TOKENS,
    },
    defaults=DEFAULTS,
    weights=modules(
        {
            "embed_tokens": "body.tokens",
            **ATTENTION,
            **layer("layers.{}.mlp", {"gate_proj": "gate", "up_proj": "up", "down_proj": "down"}),
            **layer("layers.{}", {"input_layernorm": "mixer norm", "post_attention_layernorm": "feedforward norm"}),
            "norm": "body.norm",
        }
    ),
    prefix="model.",
    heads={(LMHead,): HeadMap("LlamaForCausalLM", OUTPUT, eos_keys)},
    ignored=("layers.{}.self_attn.rotary_emb.inv_freq",),
)
ROPE = {key: rule for key, rule in LLAMA.derived_fields.items() if key != "biases"}
MISTRAL = replace(
    LLAMA,
    family="mistral",
    architecture="MistralModel",
    fixed_fields={"biases": "none"},
    derived_fields={**ROPE, "context": read_context},
    written_keys={**LLAMA.written_keys, "sliding_window": None},
    defaults={**DEFAULTS, "num_key_value_heads": lambda config: 0 if "num_key_value_heads" in config else 8},
    heads={(LMHead,): HeadMap("MistralForCausalLM", OUTPUT, eos_keys)},
)
QWEN2 = replace(
    LLAMA,
    family="qwen2",
    architecture="Qwen2Model",
    fixed_fields={"biases": "qkv"},
    derived_fields={**ROPE, "context": lambda config: read_context(config, config.get("use_sliding_window", False))},
    written_keys={**LLAMA.written_keys, "use_sliding_window": False},
    defaults={  # read_context limits the context to a sliding window
        **DEFAULTS,
        "num_key_value_heads": lambda config: 0 if "num_key_value_heads" in config else 32,
        "layer_types": None,
    },
    heads={(LMHead,): HeadMap("Qwen2ForCausalLM", OUTPUT, eos_keys)},
)
_NANOCHAT = HeadMap("NanoChatForCausalLM", OUTPUT, eos_keys)
NANOCHAT = replace(
    LLAMA,
    family="nanochat",
    architecture="NanoChatModel",
    model="nanochat",
    config_fields=SIZES,
    required={"hidden_act": "relu2", "attention_bias": False},
    derived_fields={
        "rope_theta": lambda config: read_rope(config, ("default",))["rope_theta"],
        "softcap": lambda config: config.get("final_logit_softcapping", 15.0) or 0.0,
    },
    derived_keys={"head_dim": lambda c: c["dim"] // c["heads"]},
    written_keys={
        "rope_parameters.rope_type": "default",
        "rope_parameters.rope_theta": lambda c: c["rope_theta"],
        "final_logit_softcapping": lambda c: c["softcap"] or None,
        **NO_TOKENS,
    },
    defaults={**DEFAULTS, "pad_token_id": 1},
    weights=modules(
        {"embed_tokens": "body.tokens", **ATTENTION, **layer("layers.{}.mlp", {"fc1": "up", "fc2": "down"})}
    ),
    heads={(LMHead,): _NANOCHAT, (SoftcapLMHead,): _NANOCHAT},
)
