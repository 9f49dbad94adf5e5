"""Token embedding: a one-hot vector times a matrix, which is a row look-up.

tokens(i) = E[i] · √D          Vaswani et al. 2017, section 3.4: scaled, so that positions do not drown the words
segment   = [separators before it ≥ n]          BERT tells the first sentence from the second (Devlin et al. 2019)
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ScaledEmbedding(nn.Embedding):
    """Rows of about unit length, small enough to serve as an output layer too, and scaled up: by √D unless given."""

    def __init__(self, vocab: int, dim: int, pad: int | None = None, scale: float | None = None):
        super().__init__(vocab, dim, padding_idx=pad)
        self.scale = math.sqrt(dim) if scale is None else scale
        nn.init.normal_(self.weight, std=dim**-0.5)
        self._fill_padding_idx_with_zero()

    def forward(self, ids: Tensor) -> Tensor:  # (B,T) -> (B,T,D)
        return F.embedding(ids, self.weight, self.padding_idx) * self.scale


def segment_ids(ids: Tensor, separator: int, start: int = 1, mask: Tensor | None = None) -> Tensor:
    """(B,T): 1 behind the separator number `start` of a text, 0 elsewhere; 0 everywhere if `start` is 0.

    Texts packed into one row have a mask (B,1,T,T) that tells who shares a text; each counts its own.
    """
    if start == 0:
        return torch.zeros_like(ids)
    ends = ids == separator
    if mask is None or mask.size(-2) == 1:
        before = ends.cumsum(1) - ends.long()
    else:
        before = (mask[:, 0] & ends[:, None]).tril(-1).sum(-1)
    return (before >= start).long()
