"""ModernBERT (Warner et al. 2024): BERT with the repairs that LLaMA had proved.

It differs from BERT in rotary positions, the norm before each part, a gated feed-forward, no biases, and nothing that
tells sentences apart. Blocks may see a window of near tokens only, as long as every few blocks one sees all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from regard.parts.attention import SelfAttention
from regard.parts.block import Block
from regard.parts.dropout import Dropout
from regard.parts.feedforward import ACTIVATIONS, SwiGLU
from regard.parts.heads import MaskedOutput, Thought
from regard.parts.norms import LayerNorm
from regard.parts.positions import Rotary
from regard.parts.residual import PreNorm
from regard.validate import check_config, check_fields


@dataclass(frozen=True)
class ModernBertConfig:
    vocab: int  # different tokens
    context: int = 512  # most tokens seen at once
    dim: int = 128  # width of the residual stream
    layers: int = 3  # blocks
    heads: int = 4  # attention heads in each block
    hidden: int = 192  # inner width of the feed-forward
    dropout: float = 0.1  # share of numbers dropped in training
    every: int = 1  # the first of so many blocks sees all tokens, the others near ones only
    window: int = 64  # how far to each side near tokens are
    pad: int = -1  # id of the padding, counted from the end if negative
    base: float = 10_000.0  # the slowest rotary pair turns once in about 6 times as many tokens
    near_base: float = 10_000.0  # the same in the blocks that see near tokens only
    activation: Literal["gelu", "gelu-tanh", "silu", "relu"] = "gelu"  # of the feed-forward's gate
    eps: float = 1e-5  # added to the variance in each norm

    def __post_init__(self) -> None:
        check_config(self)
        check_fields(self, **{name: (getattr(self, name) > 0, "above 0") for name in ("base", "near_base", "eps")})
        if self.dim // self.heads % 2:
            raise ValueError(f"heads ({self.heads}) must divide dim ({self.dim}) into even widths")


SIZES: dict[str, dict[str, int]] = {
    "tiny": {"layers": 3, "dim": 128, "heads": 4, "hidden": 192},
    "mini": {"layers": 4, "dim": 256, "heads": 4, "hidden": 384},
    "small": {"layers": 8, "dim": 384, "heads": 6, "hidden": 576},
    # Warner et al. 2024
    "base": {"layers": 22, "dim": 768, "heads": 12, "hidden": 1152, "every": 3, "context": 8192, "base": 160_000},
    "large": {"layers": 28, "dim": 1024, "heads": 16, "hidden": 2624, "every": 3, "context": 8192, "base": 160_000},
}


class ModernBert(nn.Module):
    def __init__(self, c: ModernBertConfig):
        super().__init__()
        self.config = c

        def norm() -> nn.Module:
            return LayerNorm(c.dim, c.eps, bias=False)

        self.tokens = nn.Embedding(c.vocab, c.dim)
        self.embed_norm = norm()
        self.drop = Dropout(c.dropout)
        self.positions = Rotary(c.dim // c.heads, c.context, c.base)
        self.near_positions = Rotary(c.dim // c.heads, c.context, c.near_base)
        self.blocks = nn.ModuleList()
        for i in range(c.layers):
            turn = self.near_positions if i % c.every else self.positions
            mixer = SelfAttention(c.dim, c.heads, bias=False, rotate=turn)
            feedforward = SwiGLU(c.dim, c.hidden, ACTIVATIONS[c.activation])
            self.blocks.append(
                Block(
                    mixer=PreNorm(norm() if i else nn.Identity(), mixer, c.dropout),  # the embedding is normed already
                    feedforward=PreNorm(norm(), feedforward, c.dropout),
                )
            )
        self.norm = norm()
        for name, weight in self.named_parameters():
            if name.endswith(("out.weight", "down.weight")):  # so many are added up that the sum would grow
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * c.layers))
            elif weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.drop(self.embed_norm(self.tokens(ids)))  # (B,T,D)
        near = mask if self.config.every == 1 else self.near(ids, mask)
        for i, block in enumerate(self.blocks):
            x = block(x, mask=near if i % self.config.every else mask)
        return self.norm(x)

    def near(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        """What may be seen of the near tokens, (T,T) or (B,1,T,T). Each sees itself, so that padding far from all
        tokens sees something too: of nothing no softmax can be taken."""
        place = torch.arange(ids.size(1), device=ids.device)
        away = (place[:, None] - place).abs()
        return away <= self.config.window if mask is None else (away <= self.config.window) & mask | (away == 0)

    def vocabulary(self) -> nn.Module:
        """The output layer of this family: one more layer, then the token embedding itself."""
        return MaskedOutput(self.tokens.weight, self.thought())

    def thought(self) -> Thought:
        """And what it has before every other answer."""
        return Thought(self.config.dim, self.config.eps, bias=False)
