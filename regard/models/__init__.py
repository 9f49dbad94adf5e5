"""The family, oldest first. A model is a body, its config and its named sizes."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import nn

from regard.models import transformer


class Family(NamedTuple):
    body: type[nn.Module]
    config: type[Any]
    sizes: dict[str, dict[str, int]]


MODELS: dict[str, Family] = {
    "transformer": Family(transformer.Transformer, transformer.TransformerConfig, transformer.SIZES),
}
