"""Small models of every family that the engine supports, with no weight at zero."""

from typing import Any

import torch

from regard.models import MODELS
from regard.parts.heads import Model

V = 53
SIZES: dict[str, Any] = {
    "vocab": V, "context": 40, "layers": 2, "encoder_layers": 2, "decoder_layers": 3, "dropout": 0.0, "hidden": 44,
}  # fmt: skip
DECODERS = {
    "gpt": ("gpt", {"dim": 24, "heads": 3}),
    "gpt-wide": ("gpt", {"dim": 64, "heads": 2, "activation": "gelu", "tie_embeddings": False}),
    "llama": ("llama", {"dim": 72, "heads": 9, "kv_heads": 3, "biases": "all"}),
    "llama-tied": ("llama", {"dim": 128, "heads": 2, "tie_embeddings": True, "activation": "gelu-tanh"}),
    "nanochat": ("nanochat", {"dim": 128, "heads": 4, "kv_heads": 2, "softcap": 6.0}),
    "nanochat-tied": ("nanochat", {"dim": 128, "heads": 1, "tie_embeddings": True}),
}
SEQ2SEQ = {
    "pre-norm": ("transformer", {"dim": 24, "heads": 2}),
    "post-norm": (
        "transformer",
        {"dim": 64, "heads": 1, "post_norm": True, "activation": "silu", "scale_embedding": False},
    ),
}


def build_model(name: str) -> Model:
    family, overrides = (DECODERS | SEQ2SEQ)[name]
    config = MODELS[family].config
    options = {key: value for key, value in (SIZES | overrides).items() if key in config.__dataclass_fields__}
    torch.manual_seed(3)
    body: Any = MODELS[family].bodies["decoder" if name in DECODERS else "encoder-decoder"](config(**options))
    model = Model(body, body.lm_head()).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape) * 0.15)
    return model
