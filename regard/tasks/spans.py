"""Tags that make spans: B-x begins one, I-x goes on with it, O is outside. Words alone may choose what is no span.

best = argmax over sequences of Σ_t log p_t(tag_t), with I-x only after B-x or I-x   (Viterbi)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Grammar(NamedTuple):
    first: Tensor  # (tags,), 0 for a tag that may begin a sentence, else -inf
    after: Tensor  # (tags,tags), 0 where the column may follow the row, else -inf


def grammar(tags: Sequence[str]) -> Grammar | None:
    """None if the tags are not of this kind: other prefixes, or an I-x that no B-x can begin (IOB1 has those)."""
    begun = {tag[2:] for tag in tags if tag.startswith("B-")}
    if not begun or any(tag != "O" and not (tag[:2] in ("B-", "I-") and tag[2:] in begun) for tag in tags):
        return None
    goes_on = torch.tensor([tag.startswith("I-") for tag in tags])
    same = torch.tensor([[tag != "O" and tag[2:] == before[2:] for tag in tags] for before in tags])
    shut = torch.tensor(float("-inf"))
    return Grammar(torch.where(goes_on, shut, 0.0), torch.where(goes_on & ~same, shut, 0.0))


def best(log_probs: Tensor, rules: Grammar | None) -> list[int]:
    """The likeliest tags of one sentence, (words,tags), among those the rules allow."""
    if rules is None or not len(log_probs):
        return [int(tag) for tag in log_probs.argmax(-1)]
    score, back = log_probs[0] + rules.first, []
    for word in log_probs[1:]:
        score, before = (score[:, None] + rules.after).max(0)
        score = score + word
        back.append(before)
    chosen = [int(score.argmax())]
    for before in reversed(back):
        chosen.append(int(before[chosen[-1]]))
    return chosen[::-1]
