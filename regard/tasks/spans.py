"""Viterbi decoding of BIO tags: B-x begins a span, I-x continues it, O is outside.

best = argmax over tag sequences of Σ_t log p_t(tag_t), with I-x only after B-x or I-x
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class TagTransitions(NamedTuple):
    first: Tensor  # (tags,), 0 for a tag that may begin a sentence, else -inf
    after: Tensor  # (tags,tags), 0 where the column may follow the row, else -inf


def bio_transitions(tags: Sequence[str]) -> TagTransitions | None:
    """None if the tags are not BIO: other prefixes, or an I-x without a B-x (as in IOB1)."""
    types = {tag[2:] for tag in tags if tag.startswith("B-")}
    if not types or any(tag != "O" and not (tag[:2] in ("B-", "I-") and tag[2:] in types) for tag in tags):
        return None
    inside = torch.tensor([tag.startswith("I-") for tag in tags])
    same = torch.tensor([[tag != "O" and tag[2:] == before[2:] for tag in tags] for before in tags])
    forbidden = torch.tensor(float("-inf"))
    return TagTransitions(torch.where(inside, forbidden, 0.0), torch.where(inside & ~same, forbidden, 0.0))


def viterbi(log_probs: Tensor, transitions: TagTransitions | None) -> list[int]:
    """The most probable allowed tags of one sentence, (words,tags)."""
    if transitions is None or not len(log_probs):
        return [int(tag) for tag in log_probs.argmax(-1)]
    score, backpointers = log_probs[0] + transitions.first, []
    for word in log_probs[1:]:
        score, before = (score[:, None] + transitions.after).max(0)
        score = score + word
        backpointers.append(before)
    path = [int(score.argmax())]
    for before in reversed(backpointers):
        path.append(int(before[path[-1]]))
    return path[::-1]
