"""Contrast: of two sides, each looks for its other half among all of its batch.

    loss = - ½ Σ_i (log softmax_j(s[i, :])[i] + log softmax_j(s[:, i])[i]),   s[i, j] = likeness of i and j

What is known to belong together as another pair is left out of the softmax.
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


def distinct(things: Iterable[T], name: Callable[[T], Hashable]) -> tuple[list[T], Ints]:
    """Each thing once, and for every place the number of the one that stands there."""
    found: dict[Hashable, tuple[int, T]] = {}
    numbers = [found.setdefault(name(thing), (len(found), thing))[0] for thing in things]
    return [thing for _, thing in found.values()], np.array(numbers)


def alike(pairs: Ints, rows: Ints | slice = slice(None)) -> Tensor:
    """(B,B), of some rows of all pairs (2,N), the numbers of pictures and texts: True = picture i has text j too, but
    as another pair, in this batch or anywhere."""
    some = pairs[:, rows]
    here = np.isin(pairs[0], some[0]) & np.isin(pairs[1], some[1])
    pictures, texts = (np.unique(side, return_inverse=True)[1] for side in np.concatenate((some, pairs[:, here]), 1))
    known = np.zeros((pictures.max() + 1, texts.max() + 1), bool)
    known[pictures, texts] = True
    B = some.shape[1]
    return torch.from_numpy(known[pictures[:B]][:, texts[:B]]) & ~torch.eye(B, dtype=torch.bool)


def places(cosines: Tensor, right: Tensor) -> Tensor:
    """The place, from 1, at which each row finds the first column that is right for it.

    What is wrong and no less alike stands before it: a model that finds all alike gets no credit.
    """
    best = cosines.masked_fill(~right, -torch.inf).amax(1, keepdim=True)
    return 1 + (~right & ~(cosines < best)).sum(1)  # so turned that NaN stands before all


def contrast(scores: Tensor, alike: Tensor) -> Tensor:
    """Summed over the pairs, the mean of both ways."""
    scores, own = scores.masked_fill(alike, -torch.inf), torch.arange(len(scores), device=scores.device)
    return (F.cross_entropy(scores, own, reduction="sum") + F.cross_entropy(scores.T, own, reduction="sum")) / 2
