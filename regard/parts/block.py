"""A block is one layer: tokens mix, a decoder looks at its source, then each token thinks alone."""

from __future__ import annotations

from torch import Tensor, nn

from regard.parts.cache import Cache


class Block(nn.Module):
    """`mixer` is attention or recurrence. Each part comes wrapped in its own residual."""

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
    ) -> Tensor:
        x = self.mixer(x, mask=mask, cache=cache)
        if self.cross is not None:
            x = self.cross(x, source=source, mask=source_mask, cache=cache)
        return self.feedforward(x)
