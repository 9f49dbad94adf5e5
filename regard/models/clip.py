"""CLIP (Radford et al. 2021): an image tower and a text tower that embed images and captions in one space.

    score(image, text) = e^scale · image · text          both normalised to length 1

The towers differ from ViT and GPT in quick GELU, and each ends in one vector. The image tower norms its embedding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.parts.attention import SelfAttention
from regard.parts.block import Block, PreNorm
from regard.parts.dropout import Dropout
from regard.parts.feedforward import ACTIVATIONS, FeedForward
from regard.parts.heads import Body
from regard.parts.norms import LayerNorm
from regard.parts.pooling import EosPool, FirstPool
from regard.parts.positions import LearnedPositions
from regard.parts.stems import ConvStem, PatchEmbedding, check_image_shape
from regard.validate import check_config


@dataclass(frozen=True)
class CLIPConfig:
    vocab: int  # vocabulary size
    context: int = 77  # maximum tokens per text
    dim: int = 96  # width of the text tower
    layers: int = 2  # number of blocks of the text tower
    heads: int = 3  # attention heads per block of the text tower
    hidden: int = 0  # hidden width of the text tower's feed-forward; 0 = 4 · dim
    image_size: int = 32  # image height and width in pixels
    channels: int = 3  # image channels: 3 for colour, 1 for grey
    patch_size: int = 4  # patch height and width in pixels
    conv_stem: bool = False  # replace the patch embedding by a convolution stem with the same downsampling
    image_dim: int = 96  # width of the image tower
    image_layers: int = 3  # number of blocks of the image tower
    image_heads: int = 3  # attention heads per block of the image tower
    image_hidden: int = 0  # hidden width of the image tower's feed-forward; 0 = 4 · image-dim
    projection_dim: int = 64  # width of the shared embedding space
    dropout: float = 0.0  # dropout probability
    pad: int = -1  # padding id; a negative id counts from the end of the vocabulary
    sep: int = 3  # end-of-text id, at which the text tower is pooled; 2 = the highest id of each text
    activation: Literal["gelu", "gelu-tanh", "quick-gelu", "relu", "relu2", "silu"] = "quick-gelu"  # of the text tower
    norm_eps: float = 1e-5  # epsilon of the text tower's norms
    image_activation: Literal["same", "gelu", "gelu-tanh", "quick-gelu", "relu", "relu2", "silu"] = "same"  # of images
    image_norm_eps: float = 0.0  # epsilon of the image tower's norms; 0 = norm-eps

    def __post_init__(self) -> None:
        check_config(self, allow_zero=("hidden", "image_hidden"))
        defaults = {"hidden": 4 * self.dim, "image_hidden": 4 * self.image_dim, "image_norm_eps": self.norm_eps}
        for name, value in {**defaults, "image_activation": self.activation}.items():
            if getattr(self, name) in (0, "same"):
                object.__setattr__(self, name, value)
        if self.image_size % self.patch_size and not self.conv_stem:
            raise ValueError(f"patch-size ({self.patch_size}) must divide image-size ({self.image_size})")


SIZES: dict[str, dict[str, int]] = {
    "tiny": {"layers": 2, "dim": 96, "heads": 3, "image_layers": 3, "image_dim": 96, "image_heads": 3},
    # Radford et al. 2021, ViT-B/32
    "base": {
        "layers": 12, "dim": 512, "heads": 8, "image_layers": 12, "image_dim": 768, "image_heads": 12,
        "projection_dim": 512, "image_size": 224, "patch_size": 32,
    },
}  # fmt: skip


def block(dim: int, heads: int, hidden: int, activation: str, eps: float, dropout: float, causal: bool) -> Block:
    def residual(inner: nn.Module) -> nn.Module:
        return PreNorm(LayerNorm(dim, eps), inner, dropout)

    mixer = residual(SelfAttention(dim, heads, causal=causal))
    return Block(mixer=mixer, feedforward=residual(FeedForward(dim, hidden, ACTIVATIONS[activation])))


class ImageTower(nn.Module):
    def __init__(self, c: CLIPConfig):
        super().__init__()
        self.config = c
        conv_stem = ConvStem(c.channels, c.image_dim, c.patch_size) if c.conv_stem else None
        self.stem = conv_stem or PatchEmbedding(c.channels, c.patch_size, c.image_dim, bias=False)
        self.first = nn.Parameter(torch.randn(c.image_dim) * 0.02)
        self.positions = LearnedPositions(1 + self.stem.num_patches(c.image_size), c.image_dim)
        self.embed_norm = LayerNorm(c.image_dim, c.image_norm_eps)
        self.drop = Dropout(c.dropout)
        sizes = (c.image_dim, c.image_heads, c.image_hidden, c.image_activation, c.image_norm_eps, c.dropout)
        self.blocks = nn.ModuleList(block(*sizes, causal=False) for _ in range(c.image_layers))
        self.pooling = FirstPool()
        self.norm = LayerNorm(c.image_dim, c.image_norm_eps)
        self.out = nn.Linear(c.image_dim, c.projection_dim, bias=False)

    def forward(self, pixels: Tensor) -> Tensor:  # (B,C,H,W)
        check_image_shape(pixels, self.config.channels, self.config.image_size)
        x = self.stem(pixels)  # (B,P,D)
        x = torch.cat((self.first.expand(len(x), 1, -1), x), 1)  # (B,1+P,D)
        x = self.drop(self.embed_norm(x + self.positions(x.size(1))))
        for block in self.blocks:
            x = block(x)
        return F.normalize(self.out(self.norm(self.pooling(x))), dim=-1)  # (B,E)


class TextTower(nn.Module):
    def __init__(self, c: CLIPConfig):
        super().__init__()
        self.tokens = nn.Embedding(c.vocab, c.dim)
        self.positions = LearnedPositions(c.context, c.dim)
        self.drop = Dropout(c.dropout)
        sizes = (c.dim, c.heads, c.hidden, c.activation, c.norm_eps, c.dropout)
        self.blocks = nn.ModuleList(block(*sizes, causal=True) for _ in range(c.layers))
        self.pooling = EosPool(c.sep)
        self.norm = LayerNorm(c.dim, c.norm_eps)
        self.out = nn.Linear(c.dim, c.projection_dim, bias=False)

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:  # (B,T), (B,1,1,T)
        x = self.drop(self.tokens(ids) + self.positions(ids.size(1)))  # (B,T,D)
        for block in self.blocks:
            x = block(x, mask=mask)
        return F.normalize(self.out(self.norm(self.pooling(x, ids, mask))), dim=-1)  # (B,E)


class CLIP(Body):
    def __init__(self, c: CLIPConfig):
        super().__init__(c)
        self.image = ImageTower(c)
        self.text = TextTower(c)
        self.scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))
        for name, weight in self.named_parameters():
            if name.endswith(("tokens.weight", "positions.weight")):
                nn.init.normal_(weight, std=0.02)
            elif weight.dim() == 2:  # by fan-in: with less, the outputs of small towers stay alike for long
                nn.init.normal_(weight, std=weight.size(1) ** -0.5)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    def forward(self, pixels: Tensor, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """Similarity of each image and each text, (images, texts)."""
        return self.scores(self.image(pixels), self.text(ids, mask))

    def scores(self, images: Tensor, texts: Tensor) -> Tensor:
        """Scaled cosine similarity of unit vectors. Training clamps the scale at 100, as in the paper."""
        scale = self.scale.clamp(max=math.log(100)) if self.training else self.scale
        return scale.exp() * images @ texts.T
