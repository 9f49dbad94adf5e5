"""The contrastive loss (InfoNCE, both directions): each item of a pair identifies its partner within the batch.

    loss = - ½ Σ_i (log softmax_j(s[i, :])[i] + log softmax_j(s[:, i])[i]),   s[i, j] = similarity of i and j

False negatives, which are known to be a pair elsewhere in the data, are left out of the softmax.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.batches import Ints

T = TypeVar("T")


def deduplicate(items: Iterable[T], key: Callable[[T], Hashable]) -> tuple[list[T], Ints]:
    """Each item once, and for every position the index of its item."""
    unique: dict[Hashable, tuple[int, T]] = {}
    indices = [unique.setdefault(key(item), (len(unique), item))[0] for item in items]
    return [item for _, item in unique.values()], np.array(indices)


def false_negatives(pairs: Ints, rows: Ints | slice = slice(None)) -> Tensor:
    """(B,B) for some rows of all pairs (2,N), indices of left and right items: True = left i and right j are a pair
    too, but another one, in this batch or anywhere."""
    batch = pairs[:, rows]
    present = np.isin(pairs[0], batch[0]) & np.isin(pairs[1], batch[1])
    left, right = (np.unique(side, return_inverse=True)[1] for side in np.concatenate((batch, pairs[:, present]), 1))
    positive = np.zeros((left.max() + 1, right.max() + 1), bool)
    positive[left, right] = True
    B = batch.shape[1]
    return torch.from_numpy(positive[left[:B]][:, right[:B]]) & ~torch.eye(B, dtype=torch.bool)


def retrieval_ranks(similarity: Tensor, relevant: Tensor) -> Tensor:
    """For each row the rank, from 1, of its best relevant column.

    An irrelevant column with an equal similarity ranks first: a model to which all are equal gets no credit.
    """
    best = similarity.masked_fill(~relevant, -torch.inf).amax(1, keepdim=True)
    return 1 + (~relevant & ~(similarity < best)).sum(1)  # not `>=`: NaN ranks before all


def contrastive_loss(scores: Tensor, ignore: Tensor) -> Tensor:
    """The mean of both directions, summed over the pairs. `ignore` (B,B) leaves false negatives out."""
    scores, own = scores.masked_fill(ignore, -torch.inf), torch.arange(len(scores), device=scores.device)
    return (F.cross_entropy(scores, own, reduction="sum") + F.cross_entropy(scores.T, own, reduction="sum")) / 2
