"""World model: a causal Transformer over observations and actions (Ha & Schmidhuber 2018, with attention as memory).

It differs from GPT in its input. A step is K observation vectors (one per patch of a frame, or a single state vector)
and one action vector, if there are actions. The mask is causal over whole steps: all vectors of step t see all of steps
0 ... t, so all vectors of the next observation are predicted in parallel (Dedieu et al. 2025).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.parts.attention import SelfAttention
from regard.parts.block import Block, PreNorm
from regard.parts.cache import Cache
from regard.parts.dropout import Dropout
from regard.parts.feedforward import FeedForward
from regard.parts.heads import Body
from regard.parts.norms import LayerNorm
from regard.parts.positions import LearnedPositions
from regard.validate import check_config


@dataclass(frozen=True)
class WorldModelConfig:
    observation_dim: int  # width of each observation vector
    observation_tokens: int = 1  # vectors per observation
    num_actions: int = 0  # number of discrete actions; 0 = no actions
    context: int = 4  # maximum steps per sequence
    dim: int = 64  # model width
    layers: int = 3  # number of blocks
    heads: int = 4  # attention heads per block
    hidden: int = 256  # hidden width of the feed-forward
    dropout: float = 0.0  # dropout probability
    norm_eps: float = 1e-5  # epsilon of the norms, added to the variance

    def __post_init__(self) -> None:
        check_config(self, allow_zero=("num_actions",))


SIZES: dict[str, dict[str, int]] = {
    "tiny": {"layers": 3, "dim": 64, "heads": 4, "hidden": 256},
    "state": {"layers": 2, "dim": 48, "heads": 4, "hidden": 192},  # state vectors with actions
    "mini": {"layers": 4, "dim": 128, "heads": 4, "hidden": 512},
    "small": {"layers": 6, "dim": 256, "heads": 8, "hidden": 1024, "context": 8},
}


class WorldModel(Body):
    def __init__(self, c: WorldModelConfig):
        super().__init__(c)

        def residual(inner: nn.Module) -> nn.Module:
            return PreNorm(LayerNorm(c.dim, c.norm_eps), inner, c.dropout)

        self.stem = nn.Linear(c.observation_dim, c.dim)
        self.actions = nn.Embedding(c.num_actions + 1, c.dim) if c.num_actions else None  # the last row: no action yet
        self.token_positions = LearnedPositions(c.observation_tokens + (c.num_actions > 0), c.dim)
        self.positions = LearnedPositions(c.context, c.dim)
        self.drop = Dropout(c.dropout)
        self.blocks = nn.ModuleList(
            Block(
                mixer=residual(SelfAttention(c.dim, c.heads)),
                feedforward=residual(FeedForward(c.dim, c.hidden, F.gelu)),
            )
            for _ in range(c.layers)
        )
        self.norm = LayerNorm(c.dim, c.norm_eps)
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
                raise ValueError("this model was trained with actions: pass the action of every step")
            x = torch.cat((x, self.actions(actions)[:, :, None]), 2)  # (B,T,K+1,D)
        T, n = x.shape[1:3]
        start = cache[0].length // n if cache else 0
        x = x + self.token_positions(n) + self.positions(T, start, mask)[..., None, :]
        x = self.drop(x).flatten(1, 2)  # (B,T·n,D)
        visible = block_causal_mask(T, start + T, n, mask, x.device)
        for i, block in enumerate(self.blocks):
            x = block(x, mask=visible, cache=cache[i] if cache else None)
        return self.norm(x).unflatten(1, (T, n))  # (B,T,n,D)

    def caches(self) -> list[Cache]:
        """Empty caches, one per block; they grow by whole steps."""
        return [Cache() for _ in self.blocks]


def block_causal_mask(T: int, S: int, n: int, mask: Tensor | None, device: torch.device) -> Tensor | None:
    """(…,T·n,S·n): each of the n vectors of a step sees all vectors of that step and of the steps before it."""
    if mask is not None:
        mask = mask.repeat_interleave(n, -1)
        mask = mask.repeat_interleave(n, -2) if mask.size(-2) > 1 else mask
    if T == 1:  # a single new step sees all steps
        return mask
    step = torch.arange(S * n, device=device) // n
    past = step[(S - T) * n :, None] >= step
    return past if mask is None else mask & past
