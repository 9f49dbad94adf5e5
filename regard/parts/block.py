"""A Transformer block: a token mixer, cross-attention in a decoder, and a feed-forward network.

x ← mixer(x),  x ← cross(x, source),  x ← feedforward(x)          Vaswani et al. 2017, figure 1
"""

from __future__ import annotations

from torch import Tensor, nn

from regard.parts.cache import Cache


class Block(nn.Module):
    """`mixer` is attention or recurrence. Every part arrives wrapped in its residual connection."""

    def __init__(self, mixer: nn.Module, feedforward: nn.Module, cross: nn.Module | None = None):
        super().__init__()
        self.mixer, self.cross, self.feedforward = mixer, cross, feedforward

    def forward(
        self,
        x: Tensor,  # (B,T,D)
        mask: Tensor | None = None,
        cache: Cache | None = None,
        source: Tensor | None = None,
        source_mask: Tensor | None = None,
        bias: Tensor | None = None,  # (B,H,T,S), added to the attention scores of the mixer
    ) -> Tensor:
        x = self.mixer(x, mask=mask, cache=cache, bias=bias)
        if self.cross is not None:
            x = self.cross(x, source=source, mask=source_mask, cache=cache)
        return self.feedforward(x)
