"""ViT (Dosovitskiy et al. 2021): a Transformer encoder over the patches of an image.

It differs from BERT in the patch embedding in place of token embeddings, and in pre-norm. A class token comes first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from regard.parts.attention import SelfAttention
from regard.parts.block import Block, PreNorm
from regard.parts.dropout import Dropout
from regard.parts.feedforward import ACTIVATIONS, FeedForward
from regard.parts.heads import Body
from regard.parts.norms import LayerNorm
from regard.parts.positions import LearnedPositions
from regard.parts.stems import ConvStem, PatchEmbedding, check_image_shape
from regard.validate import check_config


@dataclass(frozen=True)
class ViTConfig:
    image_size: int = 28  # image height and width in pixels
    channels: int = 3  # image channels: 3 for colour, 1 for grey
    patch_size: int = 4  # patch height and width in pixels
    dim: int = 96  # model width
    layers: int = 3  # number of blocks
    heads: int = 3  # attention heads per block
    hidden: int = 192  # hidden width of the feed-forward
    dropout: float = 0.0  # dropout probability
    conv_stem: bool = False  # replace the patch embedding by a convolution stem with the same downsampling
    class_token: bool = True  # prepend a trained class token
    activation: Literal["gelu", "gelu-tanh", "quick-gelu", "relu", "relu2", "silu"] = "gelu"  # feed-forward activation
    norm_eps: float = 1e-12  # epsilon of the norms, added to the variance
    qkv_bias: bool = True  # bias of the query, key and value projections
    embed_norm: bool = False  # norm after the embedding and no patch bias, as in CLIP's image tower

    def __post_init__(self) -> None:
        check_config(self)
        if self.image_size % self.patch_size and not self.conv_stem:
            raise ValueError(f"patch-size ({self.patch_size}) must divide image-size ({self.image_size})")


SIZES: dict[str, dict[str, int]] = {
    "nano": {"layers": 3, "dim": 96, "heads": 3, "hidden": 192, "patch_size": 4},
    # Touvron et al. 2021
    "tiny": {"layers": 12, "dim": 192, "heads": 3, "hidden": 768, "patch_size": 16, "image_size": 224},
    "small": {"layers": 12, "dim": 384, "heads": 6, "hidden": 1536, "patch_size": 16, "image_size": 224},
    # Dosovitskiy et al. 2021
    "base": {"layers": 12, "dim": 768, "heads": 12, "hidden": 3072, "patch_size": 16, "image_size": 224},
}


class ViT(Body):
    def __init__(self, c: ViTConfig):
        super().__init__(c)

        def residual(inner: nn.Module) -> nn.Module:
            return PreNorm(LayerNorm(c.dim, c.norm_eps), inner, c.dropout)

        conv_stem = ConvStem(c.channels, c.dim, c.patch_size) if c.conv_stem else None
        self.stem = conv_stem or PatchEmbedding(c.channels, c.patch_size, c.dim, bias=not c.embed_norm)
        self.first = nn.Parameter(torch.randn(1, 1, c.dim) * 0.02) if c.class_token else None
        self.positions = LearnedPositions(self.stem.num_patches(c.image_size) + c.class_token, c.dim)
        self.embed_norm = LayerNorm(c.dim, c.norm_eps) if c.embed_norm else nn.Identity()
        self.drop = Dropout(c.dropout)
        self.blocks = nn.ModuleList(
            Block(
                mixer=residual(SelfAttention(c.dim, c.heads, bias=c.qkv_bias, out_bias=True)),
                feedforward=residual(FeedForward(c.dim, c.hidden, ACTIVATIONS[c.activation])),
            )
            for _ in range(c.layers)
        )
        self.norm = LayerNorm(c.dim, c.norm_eps)
        for name, weight in self.blocks.named_parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    def forward(self, pixels: Tensor) -> Tensor:  # (B,C,H,W)
        check_image_shape(pixels, self.config.channels, self.config.image_size)
        x = self.stem(pixels)  # (B,P,D)
        if self.first is not None:
            x = torch.cat((self.first.expand(len(x), -1, -1), x), 1)  # (B,1+P,D)
        x = self.drop(self.embed_norm(x + self.positions(x.size(1))))
        for block in self.blocks:
            x = block(x)
        return self.norm(x)
