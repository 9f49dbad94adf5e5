"""What the models of some experiments learn: puzzles that are made up on the way, so that nothing is learnt by heart.

a name, then chatter, then the question          "Ann  la la la … la  who?" → Ann
a sentence to say backwards                      "a b c" → "c b a"
digits that follow a rule                        x_t = x_{t-2} + 2 x_{t-1}  mod 5
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

DIGITS, SLIPS = 5, 0.2  # how many there are, and the share that is drawn at random, rule or not
RIGHT, WRONG = 1 - SLIPS + SLIPS / DIGITS, SLIPS / DIGITS  # probability of what the rule says, and of another digit
CHANCE = math.log(DIGITS)  # the loss of a guess
FLOOR = -RIGHT * math.log(RIGHT) - (DIGITS - 1) * WRONG * math.log(WRONG)  # the loss of who knows all


def named(count: int, distance: int, names: int) -> tuple[Tensor, Tensor]:
    """(B,T) words and the names asked for, (B,). The names come first in the vocabulary, then chatter, then "who?"."""
    name = torch.randint(names, (count, 1))
    chatter = torch.randint(names, 2 * names, (count, distance))
    return torch.cat((name, chatter, torch.full_like(name, 2 * names)), 1), name[:, 0]


def backwards(count: int, length: int, words: int) -> tuple[Tensor, Tensor, Tensor]:
    """Source (B,S), what the decoder is given (B,T), and what it should say: the words backwards, then an end."""
    source = torch.rand(count, words).argsort(1)[:, :length]
    end, start = (torch.full((count, 1), words + i) for i in (0, 1))
    return source, torch.cat((start, source.flip(1)), 1), torch.cat((source.flip(1), end), 1)


def digits(count: int, length: int) -> Tensor:
    """(B,T): only who knows the two before, and in which order, can tell the next."""
    ids = torch.randint(DIGITS, (count, length))
    follows = torch.rand(count, length) >= SLIPS
    for t in range(2, length):
        ids[:, t] = torch.where(follows[:, t], (ids[:, t - 2] + 2 * ids[:, t - 1]) % DIGITS, ids[:, t])
    return ids
