"""Protein encoder: convolution blocks, then attention blocks; every amino acid is a token.

It differs from ModernBERT in its first blocks, which are local convolutions: secondary structure depends on nearby
residues (helices on every third or fourth, strands on every second), which a convolution captures by construction.
Attention handles distant residues. NetSurfP-2.0 (Klausen et al. 2019) has an LSTM in place of attention. Masked residue
prediction: Rives et al. 2021 (ESM).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from regard.parts.attention import SelfAttention
from regard.parts.block import Block, PreNorm
from regard.parts.document_mask import Mask
from regard.parts.dropout import Dropout
from regard.parts.feedforward import ACTIVATIONS, SwiGLU
from regard.parts.heads import Body, HeadTransform, MaskedLMHead
from regard.parts.local_conv import LocalConv
from regard.parts.norms import LayerNorm
from regard.parts.positions import RotaryPositions
from regard.validate import check_config, check_fields


@dataclass(frozen=True)
class ProteinEncoderConfig:
    vocab: int  # vocabulary size (amino acid letters and special tokens)
    context: int = 512  # maximum residues per sequence; longer ones are truncated
    dim: int = 96  # model width
    conv_layers: int = 2  # blocks with a local convolution, before the attention blocks
    kernel_size: int = 9  # residues per convolution; odd
    layers: int = 2  # attention blocks
    heads: int = 4  # attention heads per block
    hidden: int = 192  # hidden width of the feed-forward
    dropout: float = 0.1  # dropout probability
    rope_theta: float = 10_000.0  # base of the rotary frequencies
    activation: Literal["gelu", "gelu-tanh", "silu", "relu"] = "gelu"  # activation of the feed-forward's gate
    norm_eps: float = 1e-5  # epsilon of the norms, added to the variance

    def __post_init__(self) -> None:
        check_config(self, allow_zero=("conv_layers",))
        check_fields(self, rope_theta=(self.rope_theta > 0, "above 0"), kernel_size=(self.kernel_size % 2 == 1, "odd"))
        if self.dim // self.heads % 2:
            raise ValueError(f"heads ({self.heads}) must divide dim ({self.dim}) into even widths")


SIZES: dict[str, dict[str, int]] = {
    "tiny": {"conv_layers": 2, "layers": 2, "dim": 96, "heads": 4, "hidden": 192},
    "mini": {"conv_layers": 2, "layers": 4, "dim": 192, "heads": 6, "hidden": 384},
}


class ProteinEncoder(Body):
    def __init__(self, c: ProteinEncoderConfig):
        super().__init__(c)

        def residual(inner: nn.Module) -> nn.Module:
            return PreNorm(LayerNorm(c.dim, c.norm_eps, bias=False), inner, c.dropout)

        def feedforward() -> nn.Module:
            return residual(SwiGLU(c.dim, c.hidden, ACTIVATIONS[c.activation]))

        self.tokens = nn.Embedding(c.vocab, c.dim)
        self.drop = Dropout(c.dropout)
        self.positions = RotaryPositions(c.dim // c.heads, c.context, c.rope_theta)
        conv_blocks = [Block(residual(LocalConv(c.dim, c.kernel_size)), feedforward()) for _ in range(c.conv_layers)]
        attention_blocks = [
            Block(residual(SelfAttention(c.dim, c.heads, bias=False, rotate=self.positions)), feedforward())
            for _ in range(c.layers)
        ]
        self.blocks = nn.ModuleList(conv_blocks + attention_blocks)
        self.norm = LayerNorm(c.dim, c.norm_eps, bias=False)
        for name, weight in self.named_parameters():
            if name.endswith(("out.weight", "down.weight", "map.weight")):  # many outputs add up: smaller, as in GPT-2
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * len(self.blocks)))
            elif weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)

    def forward(self, ids: Tensor, mask: Mask | None = None) -> Tensor:
        x = self.drop(self.tokens(ids))  # (B,T,D)
        for block in self.blocks:
            x = block(x, mask=mask)
        return self.norm(x)

    def lm_head(self) -> nn.Module:
        """HeadTransform, then the tied token embedding."""
        return MaskedLMHead(self.tokens.weight, HeadTransform(self.config.dim, self.config.norm_eps, bias=False))
