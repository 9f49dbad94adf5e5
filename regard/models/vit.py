"""ViT (Dosovitskiy et al. 2021): an image is a sequence of patches, and attention reads it like words.

It differs from BERT in the stem that makes vectors of pixels instead of tokens, and in the norm before each part. Its
first vector stands for no patch: it is there to gather what the image shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from regard.parts.attention import SelfAttention
from regard.parts.block import Block
from regard.parts.dropout import Dropout
from regard.parts.feedforward import ACTIVATIONS, FeedForward
from regard.parts.norms import LayerNorm
from regard.parts.positions import Learned
from regard.parts.residual import PreNorm
from regard.parts.stems import ConvolutionStem, Patches, must_show
from regard.validate import check_config


@dataclass(frozen=True)
class ViTConfig:
    image: int = 28  # height and width of an image in pixels
    channels: int = 3  # 3 for colours, 1 for grey
    patch: int = 4  # height and width of a patch in pixels
    dim: int = 96  # width of the residual stream
    layers: int = 3  # blocks
    heads: int = 3  # attention heads in each block
    hidden: int = 192  # inner width of the feed-forward
    dropout: float = 0.0  # share of numbers dropped in training
    convolution: bool = False  # make the vectors by convolutions that shrink the image as much as patches do
    class_token: bool = True  # put a vector in front that gathers the whole image
    activation: Literal["gelu", "gelu-tanh", "quick-gelu", "relu", "relu2", "silu"] = "gelu"  # of the feed-forward
    eps: float = 1e-12  # added to the variance in each norm
    qkv_bias: bool = True  # add a trained vector to queries, keys and values
    embed_norm: bool = False  # norm the embedding, of patches without a bias, as CLIP's image tower does

    def __post_init__(self) -> None:
        check_config(self)
        if self.image % self.patch and not self.convolution:
            raise ValueError(f"patch ({self.patch}) must divide image ({self.image})")


SIZES: dict[str, dict[str, int]] = {
    "nano": {"layers": 3, "dim": 96, "heads": 3, "hidden": 192, "patch": 4},
    # Touvron et al. 2021
    "tiny": {"layers": 12, "dim": 192, "heads": 3, "hidden": 768, "patch": 16, "image": 224},
    "small": {"layers": 12, "dim": 384, "heads": 6, "hidden": 1536, "patch": 16, "image": 224},
    # Dosovitskiy et al. 2021
    "base": {"layers": 12, "dim": 768, "heads": 12, "hidden": 3072, "patch": 16, "image": 224},
}


class ViT(nn.Module):
    def __init__(self, c: ViTConfig):
        super().__init__()
        self.config = c

        def around(inner: nn.Module) -> nn.Module:
            return PreNorm(LayerNorm(c.dim, c.eps), inner, c.dropout)

        convolved = ConvolutionStem(c.channels, c.dim, c.patch) if c.convolution else None
        self.stem = convolved or Patches(c.channels, c.patch, c.dim, bias=not c.embed_norm)
        self.first = nn.Parameter(torch.randn(1, 1, c.dim) * 0.02) if c.class_token else None
        self.positions = Learned(self.stem.places(c.image) + c.class_token, c.dim)
        self.embed_norm = LayerNorm(c.dim, c.eps) if c.embed_norm else nn.Identity()
        self.drop = Dropout(c.dropout)
        self.blocks = nn.ModuleList(
            Block(
                mixer=around(SelfAttention(c.dim, c.heads, bias=c.qkv_bias, out_bias=True)),
                feedforward=around(FeedForward(c.dim, c.hidden, ACTIVATIONS[c.activation])),
            )
            for _ in range(c.layers)
        )
        self.norm = LayerNorm(c.dim, c.eps)
        for name, weight in self.blocks.named_parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    def forward(self, pixels: Tensor) -> Tensor:  # (B,C,H,W)
        must_show(pixels, self.config.channels, self.config.image)
        x = self.stem(pixels)  # (B,P,D)
        if self.first is not None:
            x = torch.cat((self.first.expand(len(x), -1, -1), x), 1)  # (B,1+P,D)
        x = self.drop(self.embed_norm(x + self.positions(x.size(1))))
        for block in self.blocks:
            x = block(x)
        return self.norm(x)
