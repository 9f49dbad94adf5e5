"""Token embedding: a one-hot vector times a matrix, which is a row look-up.

tokens(i) = E[i] · √D          Vaswani et al. 2017, section 3.4: scaled, so that positions do not drown the words
segment   = separators before it          BERT tells the first sentence from the second (Devlin et al. 2019)
"""

from __future__ import annotations

import math

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


def segments(ids: Tensor, separator: int, mask: Tensor | None = None) -> Tensor:
    """(B,T): 0 up to the first separator of a text and with it, 1 up to the second, and so on.

    Texts packed into one row have a mask (B,1,T,T) that tells who shares a text; each counts its own.
    """
    ends = ids == separator
    if mask is None or mask.size(-2) == 1:
        return ends.cumsum(1) - ends.long()
    return (mask[:, 0] & ends[:, None]).tril(-1).sum(-1)
