"""The contrastive loss (InfoNCE, both directions): each item of a pair identifies its partner within the batch.

    loss = - ½ Σ_i (log softmax_j(s[i, :])[i] + log softmax_j(s[:, i])[i]),   s[i, j] = similarity of i and j

False negatives, which are known to be a pair elsewhere in the data, are left out of the softmax.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.batches import Ints
from regard.data.rows import Row
from regard.modalities.protocols import EncodedInputs, Preprocessor

EVAL_BATCH = 50  # pairs over which the loss of an evaluation is computed


def encode_unique(
    preprocessor: Preprocessor, rows: Sequence[Row[object, object]], context: int
) -> tuple[EncodedInputs, Ints]:
    """Each different input once, and for every row the index of its input. Inputs that the model cannot tell apart, as
    texts with the same tokens, are equal."""
    by_key = unique_indices([row.key for row in rows])
    inputs: EncodedInputs = preprocessor.encode([rows[i] for i in first_positions(by_key)], context)
    by_content = unique_indices(inputs.keys())
    indices = by_content[by_key]
    if len({*by_content.tolist()}) < len(by_content):
        inputs = preprocessor.encode([rows[i] for i in first_positions(indices)], context)
    return inputs, indices


def unique_indices(keys: Sequence[Hashable]) -> Ints:
    """For every position the number of its key, in the order of first occurrence."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys])


def first_positions(indices: Ints) -> list[int]:
    """The position of the first occurrence of each index, in the order of the indices."""
    return np.unique(indices, return_index=True)[1].tolist()


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


def mean_loss(pairs: Ints, scores: Callable[[slice], Tensor]) -> float:
    """The mean loss of all pairs (2,N) in batches of EVAL_BATCH; `scores` returns the (B,B) of some of them."""
    total = 0.0
    for start in range(0, pairs.shape[1], EVAL_BATCH):
        chunk = slice(start, start + EVAL_BATCH)
        total += contrastive_loss(scores(chunk), false_negatives(pairs, chunk)).item()
    return total / pairs.shape[1]
