"""Pooling: one vector per sequence, (B,T,D) -> (B,D).

LastPool, FirstPool   the last token (of a causal model) or the first ([CLS] of BERT)
EosPool               the end-of-text token                    Radford et al. 2021 (CLIP)
Pooler                tanh(x_1 W + b)                          Devlin et al. 2019: the first token through a layer
MeanPool              Σ x / T
MeanSumPool           gelu([Σ x / T, Σ x / 10] W + b)          the sum also encodes the length
AttentionPool         Σ softmax(x w) · x                       Lin et al. 2017: one trained query

A mask (B,1,1,T) marks the tokens that are not padding. The output of a body that has already pooled, T = 1, passes
unchanged through all but Pooler and MeanSumPool, which have weights.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.look import is_traced, record


class LastPool(nn.Module):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is None or x.size(1) == 1:
            return x[:, -1]
        real = mask[:, 0, 0]  # (B,T)
        last = (real * torch.arange(x.size(1), device=x.device)).argmax(-1)  # (B,)
        return x[torch.arange(len(x), device=x.device), last]


class FirstPool(nn.Module):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return x[:, 0]


class EosPool(nn.Module):
    """The vector of the first `sep` of each text; of its last token if it has none."""

    HIGHEST = 2  # not an id: configs of the first CLIP say 2 and mean the highest id of each text

    def __init__(self, sep: int):
        super().__init__()
        self.sep = sep

    def forward(self, x: Tensor, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        return x[torch.arange(len(x), device=x.device), self.eos_position(ids, mask)]

    def eos_position(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        """(B,)"""
        real = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask[:, 0, 0]
        if self.sep == self.HIGHEST:
            return ids.where(real, -1).argmax(-1)
        ends = (ids == self.sep) & real
        last = (real * torch.arange(ids.size(1), device=ids.device)).argmax(-1)
        return torch.where(ends.any(-1), ends.int().argmax(-1), last)


class Pooler(FirstPool):
    def __init__(self, dim: int):
        super().__init__()
        self.dense = nn.Linear(dim, dim)
        nn.init.normal_(self.dense.weight, std=0.02)
        nn.init.zeros_(self.dense.bias)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.dense(super().forward(x, mask)).tanh()


class MeanPool(nn.Module):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is None or x.size(1) == 1:
            return x.mean(1)
        real = mask[:, 0, 0, :, None]  # (B,T,1)
        return x.where(real, 0).sum(1) / real.sum(1).clamp(min=1)


class MeanSumPool(MeanPool):
    SUM_SCALE = 10  # the sum is divided by this, so that both inputs have a similar scale

    def __init__(self, dim: int):
        super().__init__()
        self.dense = nn.Linear(2 * dim, dim)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        mean = super().forward(x, mask)
        count = x.size(1) if mask is None or x.size(1) == 1 else mask[:, 0, 0].sum(-1, keepdim=True)  # (B,1)
        return F.gelu(self.dense(torch.cat((mean, mean * (count / self.SUM_SCALE)), -1)))


class AttentionPool(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.score = nn.Linear(dim, 1, bias=False)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        scores = self.score(x).mT  # (B,1,T)
        if mask is not None and x.size(1) > 1:
            scores = scores.masked_fill(~mask[:, 0], torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1)
        if is_traced():
            weights = record(self, "weights", weights)
        return (weights @ x)[:, 0]


POOLINGS: dict[str, Callable[[int], nn.Module]] = {
    "last": lambda dim: LastPool(),
    "first": lambda dim: FirstPool(),
    "mean": lambda dim: MeanPool(),
    "sum": MeanSumPool,
    "attention": AttentionPool,
    "pooler": Pooler,
}
