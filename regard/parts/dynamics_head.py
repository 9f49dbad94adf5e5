"""Future: what comes next, told from the vectors of a step.

next observation = observation + change          change = x W + b, of each of its places
reward, end      = a number each                 from the action's vector, if anybody acts

Most of a world stays as it is from one step to the next, so only what changes has to be learnt (Micheli et al. 2024).
The head begins with zeros: before it has learnt anything it says that nothing changes, which is often a good guess.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn


class DynamicsOutput(NamedTuple):
    change: Tensor  # (B,T,K,O), to be added to the observation
    reward: Tensor | None  # (B,T)
    end: Tensor | None  # (B,T) logit: above 0, the world ends the episode here


class DynamicsHead(nn.Module):
    """`actions` is how many kinds there are: where nobody acts, there is neither reward nor end."""

    def __init__(self, dim: int, observation: int, actions: int):
        super().__init__()
        self.change = nn.Linear(dim, observation)
        self.outcome = nn.Linear(dim, 2) if actions else None
        for weight in self.parameters():
            nn.init.zeros_(weight)

    def forward(self, x: Tensor) -> DynamicsOutput:  # (B,T,n,D)
        if self.outcome is None:
            return DynamicsOutput(self.change(x), None, None)
        reward, end = self.outcome(x[:, :, -1]).unbind(-1)
        return DynamicsOutput(self.change(x[:, :, :-1]), reward, end)
