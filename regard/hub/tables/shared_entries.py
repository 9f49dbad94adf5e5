"""Table entries that several families share: module names, config keys, and keys of unsupported features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from regard.hub.family_map import Fields, TensorRule, ValueMap
from regard.parts.heads import Classifier, LMHead, SpanHead, TokenClassifier

V = TypeVar("V")
LAYER = {  # our modules of a layer, by their role
    **{role: f"body.blocks.{{}}.mixer.inner.{role}" for role in ("query", "key", "value", "out")},
    **{role: f"body.blocks.{{}}.feedforward.inner.{role}" for role in ("gate", "up", "down")},
    **{f"{part} norm": f"body.blocks.{{}}.{part}.norm" for part in ("mixer", "feedforward")},
}
ACTIVATION_NAMES = {  # theirs -> ours; of several names for one function, the first is written
    **dict.fromkeys(("gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_python_tanh"), "gelu-tanh"),
    **dict.fromkeys(("gelu", "gelu_python"), "gelu"),
    "relu": "relu",
    **dict.fromkeys(("silu", "swish"), "silu"),
}
ACTIVATION = ValueMap(
    "activation", ACTIVATION_NAMES | {"gelu_accurate": "gelu-tanh", "quick_gelu": "quick-gelu", "relu2": "relu2"}
)


def modules(names: Mapping[str, str]) -> dict[str, str | TensorRule]:
    """Weight and bias of each module; entries without a tensor match nothing."""
    return {f"{hf_name}.{w}": f"{name}.{w}" for hf_name, name in names.items() for w in ("weight", "bias")}


def within(outer: str, names: Mapping[str, V]) -> dict[str, V]:
    return {f"{outer}.{name}": value for name, value in names.items()}


def layer(outer: str, roles: Mapping[str, str]) -> dict[str, str]:
    """Modules of a layer: their names at Hugging Face -> ours, from their roles."""
    return within(outer, {name: LAYER[role] for name, role in roles.items()})


def eos_keys(head: LMHead) -> Fields:
    """</s> ends a text and starts the next."""
    return {"bos_token_id": 0, "eos_token_id": 0}


def head_label_keys(head: Classifier | TokenClassifier | SpanHead) -> Fields:
    """Without these keys transformers assumes two labels."""
    names = {f"LABEL_{i}": i for i in range(head.out.out_features)}
    return {"id2label": {str(i): name for name, i in names.items()}, "label2id": names}


@dataclass(frozen=True)
class SquareMap(ValueMap):
    """An edge length that may be given twice, as height and width."""

    values: Mapping[str, str] = field(default_factory=dict)

    def from_hf(self, key: str, value: object) -> object:
        return value[0] if isinstance(value, list) and len(value) == 2 and value[0] == value[1] else value

    def to_hf(self, value: object) -> object:
        return value


TOWER = {"hidden_size": "dim", "num_hidden_layers": "layers", "num_attention_heads": "heads"}
STACK = TOWER | {"intermediate_size": "hidden"}
TEXT = {"vocab_size": "vocab", "max_position_embeddings": "context", "pad_token_id": "pad"}
IMAGE: dict[str, str | ValueMap] = {
    "image_size": SquareMap("image_size"),
    "num_channels": "channels",
    "patch_size": SquareMap("patch_size"),
}
NO_TOKENS = {"bos_token_id": None, "eos_token_id": None}
OUTPUT = {"lm_head.weight": "head.weight"}
LINEAR = {"classifier.weight": "head.out.weight", "classifier.bias": "head.out.bias"}
POOLER = ("pooler.dense.weight", "pooler.dense.bias")

# Config keys of other families that change the computation and not the weights, and their neutral values; of a list,
# all items must be neutral. A family that has such a key itself handles it in its own table.
NEUTRAL_VALUES: dict[str, tuple[object, ...]] = {
    # factors: Granite, Falcon-H1, Cohere, MiniCPM, Gemma
    **dict.fromkeys(("residual_multiplier", "embedding_multiplier", "logits_scaling", "lm_head_multiplier"), (1,)),
    **dict.fromkeys(("attention_in_multiplier", "attention_out_multiplier", "key_multiplier", "mlp_multipliers"), (1,)),
    **dict.fromkeys(("logit_scale", "output_multiplier", "embedding_scale", "scale_emb", "rotary_pct"), (1,)),
    **dict.fromkeys(("attention_multiplier", "query_pre_attn_scalar", "scale_depth", "dim_model_base"), ()),
    **dict.fromkeys(("mup_enabled", "rescale_embeddings", "scale_embedding"), (False,)),
    # caps: Gemma 2, OLMo
    **dict.fromkeys(("attn_logit_softcapping", "final_logit_softcapping"), (0,)),
    "clip_qkv": (),
    # positions: SmolLM3, Gemma 3, Phi, GPT-J, Falcon, DeBERTa, ESM
    "no_rope_layers": (1,),
    **dict.fromkeys(("no_rope_layer_interval", "nope_layer_interval"), (0,)),
    **dict.fromkeys(("layer_rope_theta", "rope_local_base_freq", "rotary_dim", "pos_att_type"), ()),
    "partial_rotary_factor": (1,),
    "position_embedding_type": ("absolute", "rope"),
    **dict.fromkeys(("alibi", "use_alibi", "relative_attention", "use_relative_position_bias"), (False,)),
    "position_biased_input": (True,),
    # attention masks: Gemma 3, Llama 4, Cohere 2, GPT-Neo, Longformer, BigBird
    "layer_types": ("full_attention",),
    "attention_layers": ("global",),
    "attention_type": ("original_full",),
    **dict.fromkeys(("use_sliding_window", "use_bidirectional_attention", "is_decoder"), (False,)),
    **dict.fromkeys(("sliding_window_pattern", "attention_window", "attention_chunk_size"), ()),
    # order within a block: Falcon, GPT-NeoX, BLOOM, Llama 4
    **dict.fromkeys(("parallel_attn", "use_parallel_residual", "use_post_norm", "use_qk_norm"), (False,)),
    **dict.fromkeys(("qk_layernorm", "qk_norm", "attn_temperature_tuning", "token_dropout"), (False,)),
    "apply_residual_connection_post_layernorm": (False,),
    **dict.fromkeys(("emb_layer_norm_before", "scale_attn_by_inverse_layer_idx"), (False,)),
}
