"""Synthetic tasks of the experiments; every batch is sampled anew, so that no model can memorise it.

recall: a name, filler words, a question         "Ann  la la la … la  who?" → Ann
reversal of a sentence                           "a b c" → "c b a"
digits that follow a rule                        x_t = x_{t-2} + 2 x_{t-1}  mod 5
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

DIGITS, NOISE = 5, 0.2  # number of digits, and the share that is random
P_RULE = 1 - NOISE + NOISE / DIGITS  # probability of the digit that follows the rule
P_OTHER = NOISE / DIGITS  # probability of another digit
UNIFORM_LOSS = math.log(DIGITS)  # nats, of a uniform prediction
ENTROPY = -P_RULE * math.log(P_RULE) - (DIGITS - 1) * P_OTHER * math.log(P_OTHER)  # nats, the lowest possible loss


def recall_batch(count: int, distance: int, names: int) -> tuple[Tensor, Tensor]:
    """(B,T) tokens and the names to recall, (B,). Vocabulary: names, then filler words, then "who?"."""
    name = torch.randint(names, (count, 1))
    filler = torch.randint(names, 2 * names, (count, distance))
    return torch.cat((name, filler, torch.full_like(name, 2 * names)), 1), name[:, 0]


def reversal_batch(count: int, length: int, words: int) -> tuple[Tensor, Tensor, Tensor]:
    """Source (B,S), decoder input (B,T) and target: the words reversed, then an end token."""
    source = torch.rand(count, words).argsort(1)[:, :length]
    end, start = (torch.full((count, 1), words + i) for i in (0, 1))
    return source, torch.cat((start, source.flip(1)), 1), torch.cat((source.flip(1), end), 1)


def digit_sequences(count: int, length: int) -> Tensor:
    """(B,T): the next digit depends on the two before and on their order."""
    ids = torch.randint(DIGITS, (count, length))
    follows = torch.rand(count, length) >= NOISE
    for t in range(2, length):
        ids[:, t] = torch.where(follows[:, t], (ids[:, t - 2] + 2 * ids[:, t - 1]) % DIGITS, ids[:, t])
    return ids
