"""BERT (Devlin et al. 2019): the encoder alone, which sees both sides of a hidden token and guesses it.

It differs from the Transformer's encoder in learned positions, a vector for the first and the second sentence, a norm
after the embedding, and GELU.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from regard.choose import must_fit
from regard.parts.attention import SelfAttention
from regard.parts.block import Block
from regard.parts.dropout import Dropout
from regard.parts.embed import segments
from regard.parts.feedforward import FeedForward
from regard.parts.heads import MaskedOutput
from regard.parts.norms import LayerNorm
from regard.parts.positions import Learned
from regard.parts.residual import PostNorm

EPS = 1e-12


@dataclass(frozen=True)
class BertConfig:
    vocab: int  # different tokens
    context: int = 512  # most tokens seen at once
    dim: int = 128  # width of the residual stream
    layers: int = 2  # blocks
    heads: int = 2  # attention heads in each block
    hidden: int = 512  # inner width of the feed-forward
    dropout: float = 0.1  # share of numbers dropped in training
    pad: int = -1  # id of the padding, counted from the end if negative
    segments: int = 2  # sentences of a text that are told apart
    sep: int = -1  # id of the token that ends a sentence; none if negative

    def __post_init__(self) -> None:
        must_fit(self)


SIZES: dict[str, dict[str, int]] = {
    # Turc et al. 2019
    "tiny": {"layers": 2, "dim": 128, "heads": 2, "hidden": 512},
    "mini": {"layers": 4, "dim": 256, "heads": 4, "hidden": 1024},
    "small": {"layers": 4, "dim": 512, "heads": 8, "hidden": 2048},
    # Devlin et al. 2019
    "base": {"layers": 12, "dim": 768, "heads": 12, "hidden": 3072},
    "large": {"layers": 24, "dim": 1024, "heads": 16, "hidden": 4096},
}


class Bert(nn.Module):
    def __init__(self, c: BertConfig):
        super().__init__()
        self.config = c

        def around(inner: nn.Module) -> nn.Module:
            return PostNorm(LayerNorm(c.dim, EPS), inner, c.dropout)

        self.tokens = nn.Embedding(c.vocab, c.dim)
        self.positions = Learned(c.context, c.dim)
        self.segments = nn.Embedding(c.segments, c.dim)
        self.embed_norm = LayerNorm(c.dim, EPS)
        self.drop = Dropout(c.dropout)
        self.blocks = nn.ModuleList(
            Block(
                mixer=around(SelfAttention(c.dim, c.heads)),
                feedforward=around(FeedForward(c.dim, c.hidden, F.gelu)),
            )
            for _ in range(c.layers)
        )
        self.norm = nn.Identity()  # the last block has normed already
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.tokens(ids) + self.positions(ids.size(1), mask=mask) + self.segments(self.segment(ids, mask))
        x = self.drop(self.embed_norm(x))  # (B,T,D)
        for block in self.blocks:
            x = block(x, mask=mask)
        return self.norm(x)

    def segment(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        """Which sentence of its text each token is of, (B,T)."""
        return segments(ids, self.config.sep, mask).clamp(max=self.config.segments - 1)

    def vocabulary(self) -> nn.Module:
        """The output layer of this family: one more layer, then the token embedding itself."""
        return MaskedOutput(self.tokens.weight, EPS)
