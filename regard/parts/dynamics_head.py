"""The head of a world model: predicts the next observation, the reward and the end of the episode.

next observation = observation + change          change = x W + b, for each of its tokens
reward, end      = one number each               from the action's vector, if there are actions

Most of an observation stays the same from one step to the next, so the head predicts the change (Micheli et al. 2024).
Its weights start at zero: an untrained head predicts no change.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn


class DynamicsOutput(NamedTuple):
    change: Tensor  # (B,T,K,O), to be added to the observation
    reward: Tensor | None  # (B,T)
    end: Tensor | None  # (B,T) logit that the episode terminates here


class DynamicsHead(nn.Module):
    """Without actions (`num_actions` 0) there is neither reward nor end."""

    def __init__(self, dim: int, observation_dim: int, num_actions: int):
        super().__init__()
        self.change = nn.Linear(dim, observation_dim)
        self.outcome = nn.Linear(dim, 2) if num_actions else None
        for weight in self.parameters():
            nn.init.zeros_(weight)

    def forward(self, x: Tensor) -> DynamicsOutput:  # (B,T,n,D)
        if self.outcome is None:
            return DynamicsOutput(self.change(x), None, None)
        reward, end = self.outcome(x[:, :, -1]).unbind(-1)
        return DynamicsOutput(self.change(x[:, :, :-1]), reward, end)
