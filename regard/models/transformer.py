"""The Transformer (Vaswani et al. 2017): an encoder and a decoder made of attention and feed-forward blocks.

It differs from the recurrent translators before it in that any two tokens interact in one step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn

from regard.parts.attention import CrossAttention, SelfAttention
from regard.parts.block import Block, PostNorm, PreNorm
from regard.parts.cache import Cache
from regard.parts.dropout import Dropout
from regard.parts.embedding import ScaledEmbedding
from regard.parts.feedforward import ACTIVATIONS, FeedForward
from regard.parts.heads import BiasedLMHead, Body
from regard.parts.norms import LayerNorm
from regard.parts.positions import SinusoidalPositions
from regard.validate import check_config


@dataclass(frozen=True)
class TransformerConfig:
    vocab: int  # vocabulary size, shared by both languages
    context: int = 512  # maximum tokens per sentence
    dim: int = 512  # model width
    encoder_layers: int = 6  # encoder blocks
    decoder_layers: int = 6  # decoder blocks
    heads: int = 8  # attention heads per block
    hidden: int = 2048  # hidden width of the feed-forward
    activation: Literal["relu", "gelu", "gelu-tanh", "silu"] = "relu"  # feed-forward activation
    scale_embedding: bool = True  # multiply token embeddings by √dim
    dropout: float = 0.1  # dropout probability
    post_norm: bool = False  # norm after each residual addition, as published in 2017, instead of before each part
    pad: int = -1  # padding id; a negative id counts from the end of the vocabulary

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


class Transformer(Body):
    """`stem` embeds the source in place of the token embedding, if it is no text."""

    def __init__(self, c: TransformerConfig, stem: nn.Module | None = None):
        super().__init__(c)
        wrapper = PostNorm if c.post_norm else PreNorm

        def residual(inner: nn.Module) -> nn.Module:
            return wrapper(LayerNorm(c.dim), inner, c.dropout)

        self.stem = stem
        self.tokens = ScaledEmbedding(c.vocab, c.dim, c.pad, scale=None if c.scale_embedding else 1.0)
        self.positions = SinusoidalPositions(c.context, c.dim)
        self.drop = Dropout(c.dropout)
        self.encoder = nn.ModuleList(
            Block(
                mixer=residual(SelfAttention(c.dim, c.heads)),
                feedforward=residual(FeedForward(c.dim, c.hidden, ACTIVATIONS[c.activation])),
            )
            for _ in range(c.encoder_layers)
        )
        self.decoder = nn.ModuleList(
            Block(
                mixer=residual(SelfAttention(c.dim, c.heads, causal=True)),
                cross=residual(CrossAttention(c.dim, c.heads)),
                feedforward=residual(FeedForward(c.dim, c.hidden, ACTIVATIONS[c.activation])),
            )
            for _ in range(c.decoder_layers)
        )
        # Pre-norm leaves the residual stream unnormalised, so each stack ends with a norm.
        self.encoder_norm = nn.Identity() if c.post_norm else LayerNorm(c.dim)
        self.decoder_norm = nn.Identity() if c.post_norm else LayerNorm(c.dim)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def forward(self, source: Tensor, target: Tensor, source_mask: Tensor | None = None) -> Tensor:
        return self.decode(target, self.encode(source, source_mask), source_mask)

    def encode(self, source: Tensor, mask: Tensor | None = None) -> Tensor:  # (B,S) -> (B,S,D)
        x = self.add_positions(self.tokens(source) if self.stem is None else self.stem(source, mask))
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
        x = self.add_positions(self.tokens(target), start=cache[0].length if cache else 0)
        for i, block in enumerate(self.decoder):
            x = block(x, cache=cache[i] if cache else None, source=source, source_mask=source_mask)
        return self.decoder_norm(x)

    def decoder_caches(self, source: Tensor, mask: Tensor | None = None) -> list[Cache]:
        """Encode a source once, into one cache per decoder block with the keys and values of cross-attention."""
        encoded = self.encode(source, mask)
        crosses: list[Any] = [block.cross for block in self.decoder]
        return [Cache(cross.inner.project_kv(encoded), mask) for cross in crosses]

    def add_positions(self, x: Tensor, start: int = 0) -> Tensor:
        return self.drop(x + self.positions(x.size(1), start))

    def lm_head(self) -> nn.Module:
        """The tied token embedding, with a bias."""
        return BiasedLMHead(self.tokens)
