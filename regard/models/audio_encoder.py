"""Audio encoder (Berg et al. 2021, Gong et al. 2021): a Transformer encoder over the frames of a spectrogram.

It differs from ViT in the stem, which convolves along time only, and in that clips have any length: positions are
sinusoidal, and a mask marks padding. There is no class token; the head pools, by default the mean.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from regard.parts.attention import SelfAttention
from regard.parts.block import Block, PreNorm
from regard.parts.dropout import Dropout
from regard.parts.feedforward import ACTIVATIONS, FeedForward
from regard.parts.heads import Body
from regard.parts.norms import LayerNorm
from regard.parts.positions import SinusoidalPositions
from regard.parts.stems import AudioStem
from regard.validate import check_config


@dataclass(frozen=True)
class AudioEncoderConfig:
    mels: int = 40  # mel bands per frame
    stride: int = 2  # frames per token
    context: int = 1024  # maximum tokens per clip
    dim: int = 96  # model width
    layers: int = 4  # number of blocks
    heads: int = 4  # attention heads per block
    hidden: int = 384  # hidden width of the feed-forward
    dropout: float = 0.1  # dropout probability
    norm_eps: float = 1e-5  # epsilon of the norms, added to the variance

    def __post_init__(self) -> None:
        check_config(self)


SIZES: dict[str, dict[str, int]] = {
    "nano": {"layers": 4, "dim": 96, "heads": 4, "hidden": 384},
    # Berg et al. 2021: KWT-1 and KWT-3
    "tiny": {"layers": 12, "dim": 64, "heads": 1, "hidden": 256},
    "small": {"layers": 12, "dim": 192, "heads": 3, "hidden": 768},
}


class AudioEncoder(Body):
    def __init__(self, c: AudioEncoderConfig):
        super().__init__(c)

        def residual(inner: nn.Module) -> nn.Module:
            return PreNorm(LayerNorm(c.dim, c.norm_eps), inner, c.dropout)

        self.stem = AudioStem(c.mels, c.dim, c.stride)
        self.positions = SinusoidalPositions(c.context, c.dim)
        self.drop = Dropout(c.dropout)
        self.blocks = nn.ModuleList(
            Block(
                mixer=residual(SelfAttention(c.dim, c.heads)),
                feedforward=residual(FeedForward(c.dim, c.hidden, ACTIVATIONS["gelu"])),
            )
            for _ in range(c.layers)
        )
        self.norm = LayerNorm(c.dim, c.norm_eps)

    def forward(self, frames: Tensor, mask: Tensor | None = None) -> Tensor:  # (B,T,mels)
        x = self.stem(frames, mask)  # (B,S,D)
        x = self.drop(x + self.positions(x.size(1)))
        for block in self.blocks:
            x = block(x, mask=mask)
        return self.norm(x)
