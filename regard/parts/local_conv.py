"""Neighbours: each token mixes with the few beside it, by their place and not by what they say. A convolution.

    y_t = W · [x_{t-r} ; ... ; x_{t+r}] + b          LeCun et al. 1989; r to each side, zeros beyond the ends

It answers to the same call as attention. What a token may not see, padding or another document, is zero to it.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.parts.cache import Cache


class LocalConv(nn.Module):
    """`width` is how many tokens are seen, the one in the middle among them."""

    def __init__(self, dim: int, width: int):
        super().__init__()
        if width % 2 == 0:
            raise ValueError(f"a token stands in the middle of those it sees: width must be odd, not {width}")
        self.width = width
        self.map = nn.Linear(width * dim, dim)

    def forward(self, x: Tensor, mask: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        assert cache is None, "both sides are seen, and one of them is yet to come"
        if mask is not None and mask.size(-2) == 1:  # padding, the same for all: hidden once, not for each neighbour
            x, mask = x * mask[:, 0, 0, :, None], None
        T, side = x.size(1), self.width // 2
        wide = F.pad(x, (0, 0, side, side))  # (B,T+2r,D)
        seen = [wide[:, place : place + T] for place in range(self.width)]
        if mask is not None:
            may = F.pad(mask[:, 0].expand(-1, T, -1), (side, side))  # (B,T,T+2r)
            seen = [near * may.diagonal(place, 1, 2)[..., None] for place, near in enumerate(seen)]
        return self.map(torch.cat(seen, -1))  # (B,T,width·D) -> (B,T,D)
