"""Transcriber (Radford et al. 2023, Whisper): the Transformer, with an encoder that listens.

It differs from the Transformer in one thing: a stem of convolutions stands where the source's tokens were looked up.
What it writes, how it looks at its source and what it remembers of it are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
from regard.parts.residual import PreNorm
from regard.parts.stems import SoundStem
from regard.validate import check_config


@dataclass(frozen=True)
class TranscriberConfig:
    vocab: int  # different tokens of what it writes
    mels: int = 40  # numbers in a frame
    stride: int = 2  # frames that become one token
    context: int = 1024  # most tokens of a sound, and of what is written
    dim: int = 128  # width of the residual stream
    encoder_layers: int = 3  # blocks that listen
    decoder_layers: int = 2  # blocks that write
    heads: int = 4  # attention heads in each block
    hidden: int = 384  # inner width of the feed-forward
    dropout: float = 0.1  # share of numbers dropped in training
    pad: int = -1  # id of the padding, counted from the end if negative

    def __post_init__(self) -> None:
        check_config(self)


SIZES: dict[str, dict[str, int]] = {
    "nano": {"encoder_layers": 3, "decoder_layers": 2, "dim": 128, "heads": 4, "hidden": 384},
    # Radford et al. 2023, table 1
    "tiny": {"encoder_layers": 4, "decoder_layers": 4, "dim": 384, "heads": 6, "hidden": 1536},
    "base": {"encoder_layers": 6, "decoder_layers": 6, "dim": 512, "heads": 8, "hidden": 2048},
}


class Transcriber(nn.Module):
    def __init__(self, c: TranscriberConfig):
        super().__init__()
        self.config = c

        def around(inner: nn.Module) -> nn.Module:
            return PreNorm(LayerNorm(c.dim), inner, c.dropout)

        self.stem = SoundStem(c.mels, c.dim, c.stride)
        self.tokens = ScaledEmbedding(c.vocab, c.dim, c.pad)
        self.positions = Sinusoidal(c.context, c.dim)
        self.drop = Dropout(c.dropout)
        self.encoder = nn.ModuleList(
            Block(
                mixer=around(SelfAttention(c.dim, c.heads)),
                feedforward=around(FeedForward(c.dim, c.hidden, ACTIVATIONS["gelu"])),
            )
            for _ in range(c.encoder_layers)
        )
        self.decoder = nn.ModuleList(
            Block(
                mixer=around(SelfAttention(c.dim, c.heads, causal=True)),
                cross=around(CrossAttention(c.dim, c.heads)),
                feedforward=around(FeedForward(c.dim, c.hidden, ACTIVATIONS["gelu"])),
            )
            for _ in range(c.decoder_layers)
        )
        self.encoder_norm = LayerNorm(c.dim)
        self.decoder_norm = LayerNorm(c.dim)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def forward(self, source: Tensor, target: Tensor, source_mask: Tensor | None = None) -> Tensor:
        return self.decode(target, self.encode(source, source_mask), source_mask)

    def encode(self, source: Tensor, mask: Tensor | None = None) -> Tensor:  # (B,T,mels) -> (B,S,D)
        x = self.stem(source, mask)
        x = self.drop(x + self.positions(x.size(1)))
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
        x = self.tokens(target) + self.positions(target.size(1), cache[0].length if cache else 0)
        x = self.drop(x)
        for i, block in enumerate(self.decoder):
            x = block(x, cache=cache[i] if cache else None, source=source, source_mask=source_mask)
        return self.decoder_norm(x)

    def read(self, source: Tensor, mask: Tensor | None = None) -> list[Cache]:
        """What the decoder needs of a sound, computed once: each block's keys and values of it."""
        encoded = self.encode(source, mask)
        crosses: list[Any] = [block.cross for block in self.decoder]
        return [Cache(cross.inner.answers(encoded), mask) for cross in crosses]

    def vocabulary(self) -> nn.Module:
        """The output layer of this family."""
        return Unembed(self.tokens)
