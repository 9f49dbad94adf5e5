"""A model of a world: what was observed and done so far, so that a head may tell what comes next.

It differs from GPT in what it reads. A step is K vectors of an observation, one for each patch of a frame or a single
one for a few numbers, and one vector of the action, if anybody acts. The mask is causal over whole steps: all vectors
of step t see all of steps 0 ... t, so that what comes next is told in all places at once (Dedieu et al. 2025), as a
function of what is there and of what is done about it (Ha & Schmidhuber 2018, with attention for memory).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.parts.attention import SelfAttention
from regard.parts.block import Block
from regard.parts.cache import Cache
from regard.parts.dropout import Dropout
from regard.parts.feedforward import FeedForward
from regard.parts.norms import LayerNorm
from regard.parts.positions import Learned
from regard.parts.residual import PreNorm
from regard.validate import check_config


@dataclass(frozen=True)
class WorldConfig:
    observation: int  # numbers in each vector of an observation
    places: int = 1  # vectors of an observation
    actions: int = 0  # kinds of actions; 0 if nobody acts
    context: int = 4  # most steps seen at once
    dim: int = 64  # width of the residual stream
    layers: int = 3  # blocks
    heads: int = 4  # attention heads in each block
    hidden: int = 256  # inner width of the feed-forward
    dropout: float = 0.0  # share of numbers dropped in training
    eps: float = 1e-5  # added to the variance in each norm

    def __post_init__(self) -> None:
        check_config(self, allow_zero=("actions",))


SIZES: dict[str, dict[str, int]] = {
    "tiny": {"layers": 3, "dim": 64, "heads": 4, "hidden": 256},
    "state": {"layers": 2, "dim": 48, "heads": 4, "hidden": 192},  # a few numbers, and somebody who acts
    "mini": {"layers": 4, "dim": 128, "heads": 4, "hidden": 512},
    "small": {"layers": 6, "dim": 256, "heads": 8, "hidden": 1024, "context": 8},
}


class World(nn.Module):
    def __init__(self, c: WorldConfig):
        super().__init__()
        self.config = c

        def around(inner: nn.Module) -> nn.Module:
            return PreNorm(LayerNorm(c.dim, c.eps), inner, c.dropout)

        self.stem = nn.Linear(c.observation, c.dim)
        self.actions = nn.Embedding(c.actions + 1, c.dim) if c.actions else None  # the last one: nothing done yet
        self.places = Learned(c.places + (c.actions > 0), c.dim)
        self.positions = Learned(c.context, c.dim)
        self.drop = Dropout(c.dropout)
        self.blocks = nn.ModuleList(
            Block(
                mixer=around(SelfAttention(c.dim, c.heads)),
                feedforward=around(FeedForward(c.dim, c.hidden, F.gelu)),
            )
            for _ in range(c.layers)
        )
        self.norm = LayerNorm(c.dim, c.eps)
        for name, weight in self.blocks.named_parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    def forward(
        self,
        observations: Tensor,  # (B,T,K,O)
        actions: Tensor | None = None,  # (B,T)
        mask: Tensor | None = None,  # of steps, broadcastable to (B,1,T,S)
        cache: list[Cache] | None = None,
    ) -> Tensor:
        x = self.stem(observations)  # (B,T,K,D)
        if self.actions is not None:
            if actions is None:
                raise ValueError("this model learnt from somebody who acts: it must be told the action of every step")
            x = torch.cat((x, self.actions(actions)[:, :, None]), 2)  # (B,T,K+1,D)
        T, n = x.shape[1:3]
        start = cache[0].length // n if cache else 0
        x = x + self.places(n) + self.positions(T, start, mask)[..., None, :]
        x = self.drop(x).flatten(1, 2)  # (B,T·n,D)
        seen = whole_steps(T, start + T, n, mask, x.device)
        for i, block in enumerate(self.blocks):
            x = block(x, mask=seen, cache=cache[i] if cache else None)
        return self.norm(x).unflatten(1, (T, n))  # (B,T,n,D)

    def caches(self) -> list[Cache]:
        """They hold whole steps."""
        return [Cache() for _ in self.blocks]


def whole_steps(T: int, S: int, n: int, mask: Tensor | None, device: torch.device) -> Tensor | None:
    """Who sees whom, of the n vectors of each step: all of the same step and of those before it, (…,T·n,S·n)."""
    if mask is not None:
        mask = mask.repeat_interleave(n, -1)
        mask = mask.repeat_interleave(n, -2) if mask.size(-2) > 1 else mask
    if T == 1:  # the newest step sees everything so far
        return mask
    step = torch.arange(S * n, device=device) // n
    past = step[(S - T) * n :, None] >= step
    return past if mask is None else mask & past
