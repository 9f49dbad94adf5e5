"""CLIP (Radford et al. 2021): one tower for images, one for texts; a picture and its caption meet at the same place.

    score(image, text) = e^scale · image · text          both of length 1

The towers differ from ViT and GPT in a quicker GELU, and each ends in one vector. That of images norms its embedding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.parts.attention import SelfAttention
from regard.parts.block import Block
from regard.parts.dropout import Dropout
from regard.parts.feedforward import ACTIVATIONS, FeedForward
from regard.parts.norms import LayerNorm
from regard.parts.pooling import AtEnd, First
from regard.parts.positions import Learned
from regard.parts.residual import PreNorm
from regard.parts.stems import ConvolutionStem, Patches, must_show
from regard.validate import check_config


@dataclass(frozen=True)
class CLIPConfig:
    vocab: int  # different tokens
    context: int = 77  # most tokens of a text
    dim: int = 96  # width of the text tower
    layers: int = 2  # blocks of the text tower
    heads: int = 3  # attention heads in each of these blocks
    hidden: int = 0  # inner width of their feed-forward; 4 times dim if 0
    image: int = 32  # height and width of an image in pixels
    channels: int = 3  # 3 for colours, 1 for grey
    patch: int = 4  # height and width of a patch in pixels
    convolution: bool = False  # make the vectors by convolutions that shrink the image as much as patches do
    image_dim: int = 96  # width of the image tower
    image_layers: int = 3  # blocks of the image tower
    image_heads: int = 3  # attention heads in each of these blocks
    image_hidden: int = 0  # inner width of their feed-forward; 4 times image-dim if 0
    joint: int = 64  # numbers of a vector where both towers meet
    dropout: float = 0.0  # share of numbers dropped in training
    pad: int = -1  # id of the padding, counted from the end if negative
    sep: int = 3  # id of the token that ends a text, whose vector is the text's; 2 means the highest id of each text
    activation: Literal["gelu", "gelu-tanh", "quick-gelu", "relu", "relu2", "silu"] = "quick-gelu"  # of the text tower
    eps: float = 1e-5  # added to the variance in each norm of the text tower
    image_activation: Literal["same", "gelu", "gelu-tanh", "quick-gelu", "relu", "relu2", "silu"] = "same"  # of images
    image_eps: float = 0.0  # added to the variance in each norm of the image tower; eps if 0

    def __post_init__(self) -> None:
        check_config(self, allow_zero=("hidden", "image_hidden"))
        usual = {"hidden": 4 * self.dim, "image_hidden": 4 * self.image_dim, "image_eps": self.eps}
        for name, value in {**usual, "image_activation": self.activation}.items():
            if getattr(self, name) in (0, "same"):
                object.__setattr__(self, name, value)
        if self.image % self.patch and not self.convolution:
            raise ValueError(f"patch ({self.patch}) must divide image ({self.image})")


SIZES: dict[str, dict[str, int]] = {
    "tiny": {"layers": 2, "dim": 96, "heads": 3, "image_layers": 3, "image_dim": 96, "image_heads": 3, "joint": 64},
    # Radford et al. 2021, ViT-B/32
    "base": {
        "layers": 12, "dim": 512, "heads": 8, "image_layers": 12, "image_dim": 768, "image_heads": 12, "joint": 512,
        "image": 224, "patch": 32,
    },
}  # fmt: skip


def block(dim: int, heads: int, hidden: int, activation: str, eps: float, dropout: float, causal: bool) -> Block:
    def around(inner: nn.Module) -> nn.Module:
        return PreNorm(LayerNorm(dim, eps), inner, dropout)

    mixer = around(SelfAttention(dim, heads, causal=causal))
    return Block(mixer=mixer, feedforward=around(FeedForward(dim, hidden, ACTIVATIONS[activation])))


class ImageTower(nn.Module):
    def __init__(self, c: CLIPConfig):
        super().__init__()
        self.config = c
        convolved = ConvolutionStem(c.channels, c.image_dim, c.patch) if c.convolution else None
        self.stem = convolved or Patches(c.channels, c.patch, c.image_dim, bias=False)
        self.first = nn.Parameter(torch.randn(c.image_dim) * 0.02)
        self.positions = Learned(1 + self.stem.places(c.image), c.image_dim)
        self.embed_norm = LayerNorm(c.image_dim, c.image_eps)
        self.drop = Dropout(c.dropout)
        sizes = (c.image_dim, c.image_heads, c.image_hidden, c.image_activation, c.image_eps, c.dropout)
        self.blocks = nn.ModuleList(block(*sizes, causal=False) for _ in range(c.image_layers))
        self.pooling = First()
        self.norm = LayerNorm(c.image_dim, c.image_eps)
        self.out = nn.Linear(c.image_dim, c.joint, bias=False)

    def forward(self, pixels: Tensor) -> Tensor:  # (B,C,H,W)
        must_show(pixels, self.config.channels, self.config.image)
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
        self.positions = Learned(c.context, c.dim)
        self.drop = Dropout(c.dropout)
        sizes = (c.dim, c.heads, c.hidden, c.activation, c.eps, c.dropout)
        self.blocks = nn.ModuleList(block(*sizes, causal=True) for _ in range(c.layers))
        self.pooling = AtEnd(c.sep)
        self.norm = LayerNorm(c.dim, c.eps)
        self.out = nn.Linear(c.dim, c.joint, bias=False)

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:  # (B,T), (B,1,1,T)
        x = self.drop(self.tokens(ids) + self.positions(ids.size(1)))  # (B,T,D)
        for block in self.blocks:
            x = block(x, mask=mask)
        return F.normalize(self.out(self.norm(self.pooling(x, ids, mask))), dim=-1)  # (B,E)


class CLIP(nn.Module):
    def __init__(self, c: CLIPConfig):
        super().__init__()
        self.config = c
        self.image = ImageTower(c)
        self.text = TextTower(c)
        self.scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))
        for name, weight in self.named_parameters():
            if name.endswith(("tokens.weight", "positions.weight")):
                nn.init.normal_(weight, std=0.02)
            elif weight.dim() == 2:  # by its width: small towers that start with less are alike for a long time
                nn.init.normal_(weight, std=weight.size(1) ** -0.5)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    def forward(self, pixels: Tensor, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """How well each image and each text fit, (images, texts)."""
        return self.scores(self.image(pixels), self.text(ids, mask))

    def scores(self, images: Tensor, texts: Tensor) -> Tensor:
        """Of unit vectors. No score exceeds 100 in training, as in the paper."""
        scale = self.scale.clamp(max=math.log(100)) if self.training else self.scale
        return scale.exp() * images @ texts.T
