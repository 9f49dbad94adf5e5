"""Memory: everything read is added to one matrix, and asked for by a product: attention without the softmax.

    SumMemory      S' = S + k vᵀ,      y = q S'          Katharopoulos et al. 2020, without feature map and divisor
    FadingMemory   S' = γ S + k vᵀ,    y = q S'          Sun et al. 2023 (RetNet), without rotation and norm

Written token by token, it is a recurrence whose cost does not grow. Written all at once, it is y_t = Σ_s≤t γ^(t-s)
(q_t·k_s) v_s: attention whose weights are plain products that fade with age. A test holds the two equal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from regard.look import is_traced, record
from regard.parts.attention import merge_heads, split_heads
from regard.parts.cache import Cache


def linear_attention_recurrent(q: Tensor, k: Tensor, v: Tensor, gamma: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Answers (B,H,T,E) and the next state, from q, k, v (B,H,T,E), gamma (H,) and a state (B,H,E,E)."""
    answers = []
    for t in range(q.size(2)):
        state = gamma[:, None, None] * state + k[:, :, t, :, None] * v[:, :, t, None, :]
        answers.append(q[:, :, t, None] @ state)  # (B,H,1,E)
    return torch.cat(answers, 2), state


def linear_attention_parallel(q: Tensor, k: Tensor, v: Tensor, gamma: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """The same, with no loop over time."""
    T = q.size(2)
    read = torch.arange(1, T + 1, device=q.device)[:, None]  # tokens, at each token
    fade = gamma[:, None, None]
    answers = linear_attention_weights(q, k, gamma) @ v + fade**read * (q @ state)
    return answers, fade**T * state + (k * fade ** (T - read)).mT @ v


def linear_attention_weights(q: Tensor, k: Tensor, gamma: Tensor, mask: Tensor | None = None) -> Tensor:
    """How much of each value is in each answer, (B,H,T,S): products that fade, and need not sum to 1."""
    time = torch.arange(q.size(2), device=q.device)
    age = time[:, None] - time  # (T,S)
    weights = q @ k.mT * gamma[:, None, None] ** age.clamp(min=0)
    past = age >= 0
    return weights.masked_fill(~(past if mask is None else past & mask), 0.0)


class LinearAttention(nn.Module):
    """Nothing fades, so the memory blurs as it fills."""

    gamma: Tensor

    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim)
        self.value = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, dim)
        self.register_buffer("gamma", torch.ones(heads), persistent=False)

    def forward(self, x: Tensor, mask: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        assert mask is None or cache is None, "a state is that of whole rows: with a cache there is nothing to mask"
        q = split_heads(self.query(x), self.heads)  # (B,H,T,E)
        k = split_heads(self.key(x), self.heads) / math.sqrt(q.size(-1))
        v = split_heads(self.value(x), self.heads)
        if cache is None:
            weights = linear_attention_weights(q, k, self.gamma, mask)
            y = (record(self, "weights", weights) if is_traced() else weights) @ v
        else:
            recall = linear_attention_recurrent if x.size(1) == 1 else linear_attention_parallel
            (state,) = cache.state or (q.new_zeros(*q.shape[:2], q.size(3), q.size(3)),)
            y, state = recall(q, k, v, self.gamma, state)
            cache.advance((state,), x.size(1))
            if is_traced():
                record(self, "weights", linear_attention_weights(q, k, self.gamma), fixed=True)
        return self.out(merge_heads(y))


class Retention(LinearAttention):
    """Each head keeps the share γ of its memory from token to token, so that it has a span of its own."""

    def __init__(self, dim: int, heads: int, gamma: Sequence[float] | None = None):
        super().__init__(dim, heads)
        gamma = [1 - 2.0 ** (-5 - h) for h in range(heads)] if gamma is None else gamma
        if len(gamma) != heads or not all(0 < g < 1 for g in gamma):
            raise ValueError(f"each of the {heads} heads needs a gamma between 0 and 1, not {gamma}")
        self.gamma = torch.tensor(gamma)
