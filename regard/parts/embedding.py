"""Token embedding (a one-hot vector times a matrix, that is, a row lookup) and segment ids.

tokens(i) = E[i] · √D                           Vaswani et al. 2017, section 3.4: scaled to the size of the positions
segment   = [separators before it ≥ start]      Devlin et al. 2019 (BERT): first or second sentence of a pair
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.parts.document_mask import DocumentMask, Mask


class ScaledEmbedding(nn.Embedding):
    """Rows have about unit length, so that the matrix can also serve as the output layer; `scale` is √D by default."""

    def __init__(self, vocab: int, dim: int, pad: int | None = None, scale: float | None = None):
        super().__init__(vocab, dim, padding_idx=pad)
        self.scale = math.sqrt(dim) if scale is None else scale
        nn.init.normal_(self.weight, std=dim**-0.5)
        self._fill_padding_idx_with_zero()

    def forward(self, ids: Tensor) -> Tensor:  # (B,T) -> (B,T,D)
        return F.embedding(ids, self.weight, self.padding_idx) * self.scale


def segment_ids(ids: Tensor, separator: int, start: int = 1, mask: Mask | None = None) -> Tensor:
    """(B,T): 1 after the `start`-th separator of a text, 0 before it; all 0 if `start` is 0.

    For texts packed into one row, the mask, compact or (B,1,T,T), says which tokens share a text, and separators are
    counted per text.
    """
    if start == 0:
        return torch.zeros_like(ids)
    ends = ids == separator
    if isinstance(mask, DocumentMask) or mask is None or mask.size(-2) == 1:
        before = ends.cumsum(1) - ends.long()
        if isinstance(mask, DocumentMask):
            before = before - before.gather(1, mask.starts)
    else:
        before = (mask[:, 0] & ends[:, None]).tril(-1).sum(-1)
    return (before >= start).long()
