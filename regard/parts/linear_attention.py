"""Linear attention: attention without the softmax, which is also a recurrence over a matrix-valued state.

    LinearAttention   S' = S + k vᵀ,      y = q S'          Katharopoulos et al. 2020, without feature map and divisor
    Retention         S' = γ S + k vᵀ,    y = q S'          Sun et al. 2023 (RetNet), without rotation and norm

The recurrent form has a constant cost per token. The parallel form is y_t = Σ_s≤t γ^(t-s) (q_t·k_s) v_s: attention
whose weights are dot products that decay with distance. A test compares the two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from regard.look import is_traced, record
from regard.parts.attention import merge_heads, split_heads
from regard.parts.cache import Cache
from regard.parts.document_mask import Mask, as_tensor


def linear_attention_recurrent(q: Tensor, k: Tensor, v: Tensor, gamma: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs (B,H,T,E) and the next state, from q, k, v (B,H,T,E), gamma (H,) and a state (B,H,E,E)."""
    outputs = []
    for t in range(q.size(2)):
        state = gamma[:, None, None] * state + k[:, :, t, :, None] * v[:, :, t, None, :]
        outputs.append(q[:, :, t, None] @ state)  # (B,H,1,E)
    return torch.cat(outputs, 2), state


def linear_attention_parallel(q: Tensor, k: Tensor, v: Tensor, gamma: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """The same without a loop over time."""
    T = q.size(2)
    count = torch.arange(1, T + 1, device=q.device)[:, None]  # tokens up to each position
    decay = gamma[:, None, None]
    outputs = linear_attention_weights(q, k, gamma) @ v + decay**count * (q @ state)
    return outputs, decay**T * state + (k * decay ** (T - count)).mT @ v


def linear_attention_weights(q: Tensor, k: Tensor, gamma: Tensor, mask: Tensor | None = None) -> Tensor:
    """The weight of each value in each output, (B,H,T,S): decayed dot products, which need not sum to 1."""
    time = torch.arange(q.size(2), device=q.device)
    age = time[:, None] - time  # (T,S)
    weights = q @ k.mT * gamma[:, None, None] ** age.clamp(min=0)
    past = age >= 0
    return weights.masked_fill(~(past if mask is None else past & mask), 0.0)


class LinearAttention(nn.Module):
    """γ = 1: nothing decays, so retrieval blurs as the state fills."""

    gamma: Tensor

    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim)
        self.value = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, dim)
        self.register_buffer("gamma", torch.ones(heads), persistent=False)

    def forward(
        self, x: Tensor, mask: Mask | None = None, cache: Cache | None = None, bias: Tensor | None = None
    ) -> Tensor:
        assert bias is None, "linear attention has no softmax: a bias cannot be added to its scores"
        assert mask is None or cache is None, "a state covers whole rows: a mask and a cache exclude each other"
        q = split_heads(self.query(x), self.heads)  # (B,H,T,E)
        k = split_heads(self.key(x), self.heads) / math.sqrt(q.size(-1))
        v = split_heads(self.value(x), self.heads)
        if cache is None:
            weights = linear_attention_weights(q, k, self.gamma, as_tensor(mask))
            y = (record(self, "weights", weights) if is_traced() else weights) @ v
        else:
            compute = linear_attention_recurrent if x.size(1) == 1 else linear_attention_parallel
            (state,) = cache.state or (q.new_zeros(*q.shape[:2], q.size(3), q.size(3)),)
            y, state = compute(q, k, v, self.gamma, state)
            cache.advance((state,), x.size(1))
            if is_traced():
                record(self, "weights", linear_attention_weights(q, k, self.gamma), fixed=True)
        return self.out(merge_heads(y))


class Retention(LinearAttention):
    """Each head keeps the share γ of its state per token, so each head has its own time span."""

    def __init__(self, dim: int, heads: int, gamma: Sequence[float] | None = None):
        super().__init__(dim, heads)
        gamma = [1 - 2.0 ** (-5 - h) for h in range(heads)] if gamma is None else gamma
        if len(gamma) != heads or not all(0 < g < 1 for g in gamma):
            raise ValueError(f"each of the {heads} heads needs a gamma between 0 and 1, not {gamma}")
        self.gamma = torch.tensor(gamma)
