"""A Transformer block (token mixer, cross-attention in a decoder, feed-forward network) and its residual connections.

    x ← mixer(x),  x ← cross(x, source),  x ← feedforward(x)          Vaswani et al. 2017, figure 1

Residual connections (He et al. 2016): a part adds to its input, so gradients reach every depth.
    PreNorm            x + f(norm(x))          the usual order today; nothing rescales the residual stream
    PostNorm           norm(x + f(x))          the order of Vaswani et al. 2017 and of BERT
    DenseConnections   x, f₁(x), f₂(x, f₁(x)) ...   concatenates instead of adding (Huang et al. 2017)
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from regard.parts.cache import Cache
from regard.parts.document_mask import Mask
from regard.parts.dropout import Dropout


class PreNorm(nn.Module):
    def __init__(self, norm: nn.Module, inner: nn.Module, dropout: float = 0.0):
        super().__init__()
        self.norm, self.inner, self.drop = norm, inner, Dropout(dropout)

    def forward(self, x: Tensor, **context: object) -> Tensor:  # passed on: an unknown name raises in the inner part
        return x + self.drop(self.inner(self.norm(x), **context))


class PostNorm(PreNorm):
    def forward(self, x: Tensor, **context: object) -> Tensor:
        return self.norm(x + self.drop(self.inner(x, **context)))


class DenseConnections(nn.Module):
    """Layer i maps width D + i·growth to `growth`; n layers map D to D + n·growth."""

    def __init__(self, layers: Iterable[nn.Module]):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor, **context: object) -> Tensor:
        for layer in self.layers:
            x = torch.cat((x, layer(x, **context)), -1)
        return x


class Block(nn.Module):
    """`mixer` is attention or recurrence. Every part arrives wrapped in its residual connection."""

    def __init__(self, mixer: nn.Module, feedforward: nn.Module, cross: nn.Module | None = None):
        super().__init__()
        self.mixer, self.cross, self.feedforward = mixer, cross, feedforward

    def forward(
        self,
        x: Tensor,  # (B,T,D)
        mask: Mask | None = None,
        cache: Cache | None = None,
        source: Tensor | None = None,
        source_mask: Tensor | None = None,
        bias: Tensor | None = None,  # (B,H,T,S), added to the attention scores of the mixer
    ) -> Tensor:
        x = self.mixer(x, mask=mask, cache=cache, bias=bias)
        if self.cross is not None:
            x = self.cross(x, source=source, mask=source_mask, cache=cache)
        return self.feedforward(x)
