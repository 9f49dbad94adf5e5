"""Speech-to-text (Radford et al. 2023, Whisper): the Transformer with an audio encoder.

It differs from the Transformer in one thing: an audio stem of convolutions replaces the source's token embedding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from regard.parts.attention import CrossAttention, SelfAttention
from regard.parts.block import Block
from regard.parts.cache import Cache
from regard.parts.dropout import Dropout
from regard.parts.embedding import ScaledEmbedding
from regard.parts.feedforward import ACTIVATIONS, FeedForward
from regard.parts.heads import BiasedLMHead
from regard.parts.norms import LayerNorm
from regard.parts.positions import SinusoidalPositions
from regard.parts.residual import PreNorm
from regard.parts.stems import AudioStem
from regard.validate import check_config


@dataclass(frozen=True)
class Speech2TextConfig:
    vocab: int  # vocabulary size of the transcript
    mels: int = 40  # mel bands per frame
    stride: int = 2  # frames per token
    context: int = 1024  # maximum tokens of a clip, and of its transcript
    dim: int = 128  # model width
    encoder_layers: int = 3  # encoder blocks
    decoder_layers: int = 2  # decoder blocks
    heads: int = 4  # attention heads per block
    hidden: int = 384  # hidden width of the feed-forward
    dropout: float = 0.1  # dropout probability
    pad: int = -1  # padding id; a negative id counts from the end of the vocabulary

    def __post_init__(self) -> None:
        check_config(self)


SIZES: dict[str, dict[str, int]] = {
    "nano": {"encoder_layers": 3, "decoder_layers": 2, "dim": 128, "heads": 4, "hidden": 384},
    # Radford et al. 2023, table 1
    "tiny": {"encoder_layers": 4, "decoder_layers": 4, "dim": 384, "heads": 6, "hidden": 1536},
    "base": {"encoder_layers": 6, "decoder_layers": 6, "dim": 512, "heads": 8, "hidden": 2048},
}


class Speech2Text(nn.Module):
    def __init__(self, c: Speech2TextConfig):
        super().__init__()
        self.config = c

        def residual(inner: nn.Module) -> nn.Module:
            return PreNorm(LayerNorm(c.dim), inner, c.dropout)

        self.stem = AudioStem(c.mels, c.dim, c.stride)
        self.tokens = ScaledEmbedding(c.vocab, c.dim, c.pad)
        self.positions = SinusoidalPositions(c.context, c.dim)
        self.drop = Dropout(c.dropout)
        self.encoder = nn.ModuleList(
            Block(
                mixer=residual(SelfAttention(c.dim, c.heads)),
                feedforward=residual(FeedForward(c.dim, c.hidden, ACTIVATIONS["gelu"])),
            )
            for _ in range(c.encoder_layers)
        )
        self.decoder = nn.ModuleList(
            Block(
                mixer=residual(SelfAttention(c.dim, c.heads, causal=True)),
                cross=residual(CrossAttention(c.dim, c.heads)),
                feedforward=residual(FeedForward(c.dim, c.hidden, ACTIVATIONS["gelu"])),
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

    def decoder_caches(self, source: Tensor, mask: Tensor | None = None) -> list[Cache]:
        """Encode a clip once, into one cache per decoder block with the keys and values of cross-attention."""
        encoded = self.encode(source, mask)
        crosses: list[Any] = [block.cross for block in self.decoder]
        return [Cache(cross.inner.project_kv(encoded), mask) for cross in crosses]

    def lm_head(self) -> nn.Module:
        """The tied token embedding, with a bias."""
        return BiasedLMHead(self.tokens)
