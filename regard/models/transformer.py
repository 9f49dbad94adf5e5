"""The Transformer (Vaswani et al. 2017): an encoder reads, a decoder writes, and both are attention only.

It differs from the recurrent translators it replaced in that every token reaches every other in one step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn

from regard.parts.attention import CrossAttention, SelfAttention
from regard.parts.block import Block
from regard.parts.cache import Cache
from regard.parts.dropout import Dropout
from regard.parts.embed import ScaledEmbedding
from regard.parts.feedforward import ACTIVATIONS, FeedForward
from regard.parts.heads import Unembed
from regard.parts.norms import LayerNorm
from regard.parts.positions import Sinusoidal
from regard.parts.residual import PostNorm, PreNorm
from regard.validate import check_config


@dataclass(frozen=True)
class TransformerConfig:
    vocab: int  # different tokens, of both languages together
    context: int = 512  # most tokens of a sentence
    dim: int = 512  # width of the residual stream
    encoder_layers: int = 6  # blocks that read the source
    decoder_layers: int = 6  # blocks that write the target
    heads: int = 8  # attention heads in each block
    hidden: int = 2048  # inner width of the feed-forward
    activation: Literal["relu", "gelu", "gelu-tanh", "silu"] = "relu"  # of the feed-forward
    scaled: bool = True  # token vectors are multiplied by √dim before positions are added
    dropout: float = 0.1  # share of numbers dropped in training
    norm_last: bool = False  # norm after each part, as published in 2017, instead of before it
    pad: int = -1  # id of the padding, counted from the end if negative

    def __post_init__(self) -> None:
        check_config(self)


SIZES: dict[str, dict[str, int]] = {
    # Wu et al. 2021, for small data
    "tiny": {"encoder_layers": 4, "decoder_layers": 4, "dim": 128, "hidden": 256, "heads": 4},
    "small": {"encoder_layers": 6, "decoder_layers": 6, "dim": 256, "hidden": 1024, "heads": 4},
    # Vaswani et al. 2017, table 3
    "base": {"encoder_layers": 6, "decoder_layers": 6, "dim": 512, "hidden": 2048, "heads": 8},
    "big": {"encoder_layers": 6, "decoder_layers": 6, "dim": 1024, "hidden": 4096, "heads": 16},
}


class Transformer(nn.Module):
    def __init__(self, c: TransformerConfig):
        super().__init__()
        self.config = c
        residual = PostNorm if c.norm_last else PreNorm

        def around(inner: nn.Module) -> nn.Module:
            return residual(LayerNorm(c.dim), inner, c.dropout)

        self.tokens = ScaledEmbedding(c.vocab, c.dim, c.pad, scale=None if c.scaled else 1.0)
        self.positions = Sinusoidal(c.context, c.dim)
        self.drop = Dropout(c.dropout)
        self.encoder = nn.ModuleList(
            Block(
                mixer=around(SelfAttention(c.dim, c.heads)),
                feedforward=around(FeedForward(c.dim, c.hidden, ACTIVATIONS[c.activation])),
            )
            for _ in range(c.encoder_layers)
        )
        self.decoder = nn.ModuleList(
            Block(
                mixer=around(SelfAttention(c.dim, c.heads, causal=True)),
                cross=around(CrossAttention(c.dim, c.heads)),
                feedforward=around(FeedForward(c.dim, c.hidden, ACTIVATIONS[c.activation])),
            )
            for _ in range(c.decoder_layers)
        )
        # With the norm before each part, nothing has normed the sum of all of them.
        self.encoder_norm = nn.Identity() if c.norm_last else LayerNorm(c.dim)
        self.decoder_norm = nn.Identity() if c.norm_last else LayerNorm(c.dim)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def forward(self, source: Tensor, target: Tensor, source_mask: Tensor | None = None) -> Tensor:
        return self.decode(target, self.encode(source, source_mask), source_mask)

    def encode(self, source: Tensor, mask: Tensor | None = None) -> Tensor:  # (B,S) -> (B,S,D)
        x = self.embed(source)
        for block in self.encoder:
            x = block(x, mask=mask)
        return self.encoder_norm(x)

    def decode(
        self,
        target: Tensor,
        source: Tensor | None = None,
        source_mask: Tensor | None = None,
        cache: list[Cache] | None = None,
    ) -> Tensor:  # (B,T) -> (B,T,D)
        x = self.embed(target, start=cache[0].length if cache else 0)
        for i, block in enumerate(self.decoder):
            x = block(x, cache=cache[i] if cache else None, source=source, source_mask=source_mask)
        return self.decoder_norm(x)

    def read(self, source: Tensor, mask: Tensor | None = None) -> list[Cache]:
        """What the decoder needs of a source, computed once: each block's keys and values of it."""
        encoded = self.encode(source, mask)
        crosses: list[Any] = [block.cross for block in self.decoder]
        return [Cache(cross.inner.answers(encoded), mask) for cross in crosses]

    def embed(self, ids: Tensor, start: int = 0) -> Tensor:
        return self.drop(self.tokens(ids) + self.positions(ids.size(1), start))

    def vocabulary(self) -> nn.Module:
        """The output layer of this family."""
        return Unembed(self.tokens)
