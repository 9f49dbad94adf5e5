"""Chain: an encoder for proteins, of which every letter is a token.

It differs from ModernBERT in the blocks that come first: in these each residue sees the few beside it, by a
convolution. What a helix or a strand is shows in neighbours (every third or fourth residue, every second), which a
small attention has to find out and a convolution has by its shape; what lies farther off is left to attention. So did
Klausen et al. 2019, with an LSTM where attention stands here. Guessing hidden residues: Rives et al. 2021.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from regard.parts.attention import SelfAttention
from regard.parts.block import Block
from regard.parts.dropout import Dropout
from regard.parts.feedforward import ACTIVATIONS, SwiGLU
from regard.parts.heads import MaskedOutput, Thought
from regard.parts.neighbours import Neighbours
from regard.parts.norms import LayerNorm
from regard.parts.positions import Rotary
from regard.parts.residual import PreNorm
from regard.validate import check_config, check_fields


@dataclass(frozen=True)
class ChainConfig:
    vocab: int  # different letters
    context: int = 512  # most residues seen at once; a longer chain is cut
    dim: int = 96  # width of the residual stream
    near_layers: int = 2  # blocks in which a residue sees its neighbours
    width: int = 9  # residues that it sees there, itself in the middle
    layers: int = 2  # blocks in which it sees all
    heads: int = 4  # attention heads in each of these
    hidden: int = 192  # inner width of the feed-forward
    dropout: float = 0.1  # share of numbers dropped in training
    base: float = 10_000.0  # the slowest rotary pair turns once in about 6 times as many residues
    activation: Literal["gelu", "gelu-tanh", "silu", "relu"] = "gelu"  # of the feed-forward's gate
    eps: float = 1e-5  # added to the variance in each norm

    def __post_init__(self) -> None:
        check_config(self, allow_zero=("near_layers",))
        check_fields(self, base=(self.base > 0, "above 0"), width=(self.width % 2 == 1, "odd"))
        if self.dim // self.heads % 2:
            raise ValueError(f"heads ({self.heads}) must divide dim ({self.dim}) into even widths")


SIZES: dict[str, dict[str, int]] = {
    "tiny": {"near_layers": 2, "layers": 2, "dim": 96, "heads": 4, "hidden": 192},
    "mini": {"near_layers": 2, "layers": 4, "dim": 192, "heads": 6, "hidden": 384},
}


class Chain(nn.Module):
    def __init__(self, c: ChainConfig):
        super().__init__()
        self.config = c

        def around(inner: nn.Module) -> nn.Module:
            return PreNorm(LayerNorm(c.dim, c.eps, bias=False), inner, c.dropout)

        def feedforward() -> nn.Module:
            return around(SwiGLU(c.dim, c.hidden, ACTIVATIONS[c.activation]))

        self.tokens = nn.Embedding(c.vocab, c.dim)
        self.drop = Dropout(c.dropout)
        self.positions = Rotary(c.dim // c.heads, c.context, c.base)
        near = [Block(around(Neighbours(c.dim, c.width)), feedforward()) for _ in range(c.near_layers)]
        far = [
            Block(around(SelfAttention(c.dim, c.heads, bias=False, rotate=self.positions)), feedforward())
            for _ in range(c.layers)
        ]
        self.blocks = nn.ModuleList(near + far)
        self.norm = LayerNorm(c.dim, c.eps, bias=False)
        for name, weight in self.named_parameters():
            if name.endswith(
                ("out.weight", "down.weight", "map.weight")
            ):  # so many are added up that the sum would grow
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * len(self.blocks)))
            elif weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.drop(self.tokens(ids))  # (B,T,D)
        for block in self.blocks:
            x = block(x, mask=mask)
        return self.norm(x)

    def vocabulary(self) -> nn.Module:
        """The output layer of this family: one more layer, then the embedding of letters itself."""
        return MaskedOutput(self.tokens.weight, Thought(self.config.dim, self.config.eps, bias=False))
