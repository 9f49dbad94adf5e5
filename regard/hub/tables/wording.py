"""What the tables of several families say in the same words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.hub.names import Rule, joined, turned

QUERY, KEY, VALUE, OUT = (f"body.blocks.{{}}.mixer.inner.{role}" for role in ("query", "key", "value", "out"))
GATE, UP, DOWN = (f"body.blocks.{{}}.feedforward.inner.{role}" for role in ("gate", "up", "down"))
MIXER_NORM, FEEDFORWARD_NORM = "body.blocks.{}.mixer.norm", "body.blocks.{}.feedforward.norm"


# Theirs -> ours; where several are the same, the first is written.
ACTIVATION_WORDS = {
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu_fast": "gelu-tanh",
    "gelu_python_tanh": "gelu-tanh",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


def modules(names: Mapping[str, str]) -> dict[str, str | Rule]:
    """Weight and bias of each, as far as it has them."""
    return {f"{theirs}.{w}": f"{ours}.{w}" for theirs, ours in names.items() for w in ("weight", "bias")}


def turned_modules(names: Mapping[str, tuple[str, ...]]) -> dict[str, Rule]:
    weights = {f"{theirs}.weight": turned(*(f"{one}.weight" for one in ours)) for theirs, ours in names.items()}
    return weights | {f"{theirs}.bias": joined(*(f"{one}.bias" for one in ours)) for theirs, ours in names.items()}


def within(outer: str, names: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{outer}.{name}": value for name, value in names.items()}


def four_times(key: str) -> Any:
    """What is no number is refused later, under its own name."""
    return lambda config: 4 * config[key] if isinstance(config[key], int) else config[key]


def ends(head: Any) -> dict[str, Any]:
    """</s> closes a text of ours, and opens the next."""
    return {"bos_token_id": 0, "eos_token_id": 0}


def labels(head: Any) -> dict[str, Any]:
    """Without these they would make two."""
    names = {f"LABEL_{i}": i for i in range(head.out.out_features)}
    return {"id2label": {str(i): name for name, i in names.items()}, "label2id": names}


TOWER = {"hidden_size": "dim", "num_hidden_layers": "layers", "num_attention_heads": "heads"}
STACK = TOWER | {"intermediate_size": "hidden"}
TEXT = {"vocab_size": "vocab", "max_position_embeddings": "context", "pad_token_id": "pad"}
IMAGE = {"image_size": "image", "num_channels": "channels", "patch_size": "patch"}
NO_TOKENS = {"bos_token_id": None, "eos_token_id": None}
OUTPUT = {"lm_head.weight": "head.weight"}
LINEAR = {"classifier.weight": "head.out.weight", "classifier.bias": "head.out.bias"}
POOLER = ("pooler.dense.weight", "pooler.dense.bias")
