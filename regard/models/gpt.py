"""GPT (Radford et al. 2019, GPT-2): a causal decoder, trained to predict the next token.

It differs from the Transformer in that there is no source: one stack of causal blocks, learned positions, GELU.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from regard.parts.attention import SelfAttention
from regard.parts.block import Block, PreNorm
from regard.parts.cache import Cache
from regard.parts.document_mask import Mask
from regard.parts.dropout import Dropout
from regard.parts.feedforward import ACTIVATIONS, FeedForward
from regard.parts.heads import Body, LMHead
from regard.parts.norms import LayerNorm
from regard.parts.positions import LearnedPositions
from regard.validate import check_config, check_fields


@dataclass(frozen=True)
class GPTConfig:
    vocab: int  # vocabulary size
    context: int = 256  # maximum tokens per sequence
    dim: int = 128  # model width
    layers: int = 4  # number of blocks
    heads: int = 4  # attention heads per block
    hidden: int = 512  # hidden width of the feed-forward
    activation: Literal["gelu-tanh", "gelu", "quick-gelu", "relu", "relu2", "silu"] = "gelu-tanh"  # activation function
    tie_embeddings: bool = True  # tie the output layer to the token embedding
    dropout: float = 0.1  # dropout probability
    pad: int = -1  # padding id; a negative id counts from the end of the vocabulary
    norm_eps: float = 1e-5  # epsilon of the norms, added to the variance

    def __post_init__(self) -> None:
        check_config(self)
        check_fields(self, norm_eps=(self.norm_eps > 0, "above 0"))


SIZES: dict[str, dict[str, int]] = {
    "tiny": {"layers": 4, "dim": 128, "heads": 4, "hidden": 512},
    "mini": {"layers": 6, "dim": 256, "heads": 4, "hidden": 1024},
    "small": {"layers": 8, "dim": 512, "heads": 8, "hidden": 2048},
    # Radford et al. 2019, table 2
    "gpt2": {"layers": 12, "dim": 768, "heads": 12, "hidden": 3072, "context": 1024},
    "gpt2-medium": {"layers": 24, "dim": 1024, "heads": 16, "hidden": 4096, "context": 1024},
    "gpt2-large": {"layers": 36, "dim": 1280, "heads": 20, "hidden": 5120, "context": 1024},
    "gpt2-xl": {"layers": 48, "dim": 1600, "heads": 25, "hidden": 6400, "context": 1024},
    # Brown et al. 2020, table 2.1; half of its blocks used sparse attention
    "gpt3": {"layers": 96, "dim": 12288, "heads": 96, "hidden": 49152, "context": 2048},
}


class GPT(Body):
    def __init__(self, c: GPTConfig):
        super().__init__(c)

        def residual(inner: nn.Module) -> nn.Module:
            return PreNorm(LayerNorm(c.dim, c.norm_eps), inner, c.dropout)

        self.tokens = nn.Embedding(c.vocab, c.dim)
        self.positions = LearnedPositions(c.context, c.dim)
        self.drop = Dropout(c.dropout)
        self.blocks = nn.ModuleList(
            Block(
                mixer=residual(SelfAttention(c.dim, c.heads, causal=True)),
                feedforward=residual(FeedForward(c.dim, c.hidden, ACTIVATIONS[c.activation])),
            )
            for _ in range(c.layers)
        )
        self.norm = LayerNorm(c.dim, c.norm_eps)
        for name, weight in self.named_parameters():
            if name.endswith(("out.weight", "down.weight")):  # 2 · layers outputs add up: smaller, as in GPT-2
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * c.layers))
            elif weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    def forward(self, ids: Tensor, mask: Mask | None = None, cache: list[Cache] | None = None) -> Tensor:
        start = cache[0].length if cache else 0
        x = self.drop(self.tokens(ids) + self.positions(ids.size(1), start, mask))  # (B,T,D)
        for i, block in enumerate(self.blocks):
            x = block(x, mask=mask, cache=cache[i] if cache else None)
        return self.norm(x)

    def caches(self) -> list[Cache]:
        return [Cache() for _ in self.blocks]

    def lm_head(self) -> nn.Module:
        """The token embedding if tied, else a matrix of its own."""
        tokens = self.tokens.weight
        return LMHead(tokens if self.config.tie_embeddings else nn.Parameter(torch.randn_like(tokens) * 0.02))
