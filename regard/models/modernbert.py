"""ModernBERT (Warner et al. 2024): BERT with RoPE, pre-norm and GeGLU.

It differs from BERT in rotary positions, pre-norm, a gated feed-forward, no biases, and no segments. Blocks may attend
within a local window, alternating with global blocks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from regard.parts.attention import SelfAttention
from regard.parts.block import Block, PreNorm
from regard.parts.document_mask import DENSE_TOKENS, DocumentMask, Mask
from regard.parts.dropout import Dropout
from regard.parts.feedforward import ACTIVATIONS, SwiGLU
from regard.parts.heads import Body, HeadTransform, MaskedLMHead
from regard.parts.norms import LayerNorm
from regard.parts.positions import RotaryPositions, distances
from regard.validate import check_config, check_fields


@dataclass(frozen=True)
class ModernBertConfig:
    vocab: int  # vocabulary size
    context: int = 512  # maximum tokens per sequence
    dim: int = 128  # model width
    layers: int = 3  # number of blocks
    heads: int = 4  # attention heads per block
    hidden: int = 192  # hidden width of the feed-forward
    dropout: float = 0.1  # dropout probability
    global_every: int = 1  # every n-th block attends globally, the others within the window; 1 = all
    window: int = 64  # tokens to each side that local attention sees
    pad: int = -1  # padding id; a negative id counts from the end of the vocabulary
    rope_theta: float = 10_000.0  # base of the rotary frequencies
    local_rope_theta: float = 10_000.0  # base of the rotary frequencies in local blocks
    activation: Literal["gelu", "gelu-tanh", "silu", "relu"] = "gelu"  # activation of the feed-forward's gate
    norm_eps: float = 1e-5  # epsilon of the norms, added to the variance

    def __post_init__(self) -> None:
        check_config(self)
        check_fields(
            self,
            **{name: (getattr(self, name) > 0, "above 0") for name in ("rope_theta", "local_rope_theta", "norm_eps")},
        )
        if self.dim // self.heads % 2:
            raise ValueError(f"heads ({self.heads}) must divide dim ({self.dim}) into heads of even width")


SIZES: dict[str, dict[str, int]] = {
    "tiny": {"layers": 3, "dim": 128, "heads": 4, "hidden": 192},
    "mini": {"layers": 4, "dim": 256, "heads": 4, "hidden": 384},
    "small": {"layers": 8, "dim": 384, "heads": 6, "hidden": 576},
    # Warner et al. 2024
    "base": {
        "layers": 22,
        "dim": 768,
        "heads": 12,
        "hidden": 1152,
        "global_every": 3,
        "context": 8192,
        "rope_theta": 160_000,
    },
    "large": {
        "layers": 28,
        "dim": 1024,
        "heads": 16,
        "hidden": 2624,
        "global_every": 3,
        "context": 8192,
        "rope_theta": 160_000,
    },
}


class ModernBert(Body):
    def __init__(self, c: ModernBertConfig):
        super().__init__(c)

        def norm() -> nn.Module:
            return LayerNorm(c.dim, c.norm_eps, bias=False)

        self.tokens = nn.Embedding(c.vocab, c.dim)
        self.embed_norm = norm()
        self.drop = Dropout(c.dropout)
        self.positions = RotaryPositions(c.dim // c.heads, c.context, c.rope_theta)
        self.local_positions = RotaryPositions(c.dim // c.heads, c.context, c.local_rope_theta)
        self.blocks = nn.ModuleList()
        for i in range(c.layers):
            rotate = self.local_positions if i % c.global_every else self.positions
            mixer = SelfAttention(c.dim, c.heads, bias=False, rotate=rotate)
            feedforward = SwiGLU(c.dim, c.hidden, ACTIVATIONS[c.activation])
            self.blocks.append(
                Block(
                    mixer=PreNorm(norm() if i else nn.Identity(), mixer, c.dropout),  # the embedding is normed
                    feedforward=PreNorm(norm(), feedforward, c.dropout),
                )
            )
        self.norm = norm()
        for name, weight in self.named_parameters():
            if name.endswith(("out.weight", "down.weight")):  # 2 · layers outputs add up: smaller, as in GPT-2
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * c.layers))
            elif weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)

    def forward(self, ids: Tensor, mask: Mask | None = None) -> Tensor:
        x = self.drop(self.embed_norm(self.tokens(ids)))  # (B,T,D)
        local = mask if self.config.global_every == 1 else self.local_mask(ids, mask)
        for i, block in enumerate(self.blocks):
            x = block(x, mask=local if i % self.config.global_every else mask)
        return self.norm(x)

    def local_mask(self, ids: Tensor, mask: Mask | None) -> Mask:
        """(T,T) or (B,1,T,T), compact for long rows without padding: tokens within the window. Every token sees itself,
        so that padding far from all tokens has no empty softmax."""
        if mask is None and ids.size(1) > DENSE_TOKENS:
            mask = DocumentMask(torch.zeros_like(ids[:1]))
        if isinstance(mask, DocumentMask):
            return mask.within(self.config.window)
        distance = distances(ids.size(1), ids.size(1), ids).abs()
        visible = distance <= self.config.window
        return visible if mask is None else visible & mask | (distance == 0)

    def lm_head(self) -> nn.Module:
        """HeadTransform, then the tied token embedding."""
        return MaskedLMHead(self.tokens.weight, self.head_transform())

    def head_transform(self) -> HeadTransform:
        """The layer before every other head of this family, too."""
        return HeadTransform(self.config.dim, self.config.norm_eps, bias=False)
