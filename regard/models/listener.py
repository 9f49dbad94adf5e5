"""Listener (Berg et al. 2021, Gong et al. 2021): a sound is a sequence of frames, and attention reads it like words.

It differs from ViT in the stem, which looks along time only, and in that sounds have any length: positions are waves,
and a mask tells where a sound ends. Nothing stands in front of it: the mean of all tokens gathers what was heard.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from regard.parts.attention import SelfAttention
from regard.parts.block import Block
from regard.parts.dropout import Dropout
from regard.parts.feedforward import ACTIVATIONS, FeedForward
from regard.parts.norms import LayerNorm
from regard.parts.positions import Sinusoidal
from regard.parts.residual import PreNorm
from regard.parts.stems import SoundStem
from regard.validate import check_config


@dataclass(frozen=True)
class ListenerConfig:
    mels: int = 40  # numbers in a frame
    stride: int = 2  # frames that become one token
    context: int = 1024  # most tokens of a sound
    dim: int = 96  # width of the residual stream
    layers: int = 4  # blocks
    heads: int = 4  # attention heads in each block
    hidden: int = 384  # inner width of the feed-forward
    dropout: float = 0.1  # share of numbers dropped in training
    eps: float = 1e-5  # added to the variance in each norm

    def __post_init__(self) -> None:
        check_config(self)


SIZES: dict[str, dict[str, int]] = {
    "nano": {"layers": 4, "dim": 96, "heads": 4, "hidden": 384},
    # Berg et al. 2021: KWT-1 and KWT-3
    "tiny": {"layers": 12, "dim": 64, "heads": 1, "hidden": 256},
    "small": {"layers": 12, "dim": 192, "heads": 3, "hidden": 768},
}


class Listener(nn.Module):
    def __init__(self, c: ListenerConfig):
        super().__init__()
        self.config = c

        def around(inner: nn.Module) -> nn.Module:
            return PreNorm(LayerNorm(c.dim, c.eps), inner, c.dropout)

        self.stem = SoundStem(c.mels, c.dim, c.stride)
        self.positions = Sinusoidal(c.context, c.dim)
        self.drop = Dropout(c.dropout)
        self.blocks = nn.ModuleList(
            Block(
                mixer=around(SelfAttention(c.dim, c.heads)),
                feedforward=around(FeedForward(c.dim, c.hidden, ACTIVATIONS["gelu"])),
            )
            for _ in range(c.layers)
        )
        self.norm = LayerNorm(c.dim, c.eps)

    def forward(self, frames: Tensor, mask: Tensor | None = None) -> Tensor:  # (B,T,mels)
        x = self.stem(frames, mask)  # (B,S,D)
        x = self.drop(x + self.positions(x.size(1)))
        for block in self.blocks:
            x = block(x, mask=mask)
        return self.norm(x)
