"""Picking tokens: the most probable of every row, the few most probable, or one that is drawn; and `Rules`, by which
some tokens are less probable, or may not come at all.

A vocabulary is long, and the model has just gone through the processor's caches: what looks at all of it costs as much
as a layer, so each of these looks as little as it can.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from regard.data.batches import Ints

Floats = npt.NDArray[np.float32]
Choose = Callable[[Tensor, list[int]], list[int]]  # log-probabilities (B,V), row numbers -> an id for each
FEW = (512, 4096)  # tokens that are sorted first: mostly no other can be drawn


def greedily(logprobs: Tensor, rows: list[int]) -> list[int]:
    # NumPy has vector code for this, PyTorch has not: a long vocabulary costs it as much as a layer.
    found: list[int] = (logprobs.numpy().argmax(1) if logprobs.is_cpu else logprobs.argmax(1)).tolist()
    return found


def picked(x: Tensor, ids: list[int]) -> list[np.float32]:
    """Of every row the number that is asked for."""
    if x.is_cpu:
        return [numbers[i] for numbers, i in zip(x.numpy(), ids, strict=True)]
    return [*x.gather(1, torch.tensor(ids, device=x.device)[:, None])[:, 0].cpu().numpy()]


def largest(x: Tensor, count: int, block: int = 64) -> tuple[Floats, Ints]:
    """The largest numbers of every row, and where they are. Of a long row only those columns are sorted whose largest
    is one of the largest among all columns, and what fills no column: nothing else can be there."""
    (B, V), columns = x.shape, x.size(1) // block
    if not x.is_cpu or columns < 64 * count:
        return top(x, count)
    numbers, whole, every = x.numpy(), columns * block, np.arange(B)[:, None]
    tops = numbers[:, :whole].reshape(B, block, columns).max(1)
    _, some = top(torch.from_numpy(tops), count)  # (B,count)
    at = np.empty((B, count * block + V - whole), np.int64)
    at[:, : count * block] = (some[:, :, None] + np.arange(0, whole, columns)).reshape(B, -1)
    at[:, count * block :] = np.arange(whole, V)
    best, where = top(torch.from_numpy(numbers[every, at]), count)
    return best, at[every, where]


def top(x: Tensor, count: int) -> tuple[Floats, Ints]:
    best, where = x.topk(count, dim=1)
    return best.cpu().numpy(), where.cpu().numpy()


def sampler(streams: list[np.random.Generator], temperature: float, top_k: int = 0, top_p: float = 1.0) -> Choose:
    """Draws by the inverse of the cumulated distribution, each row with random numbers of its own stream."""

    def draw(logprobs: Tensor, rows: list[int]) -> list[int]:
        cold = (logprobs - logprobs.amax(-1, keepdim=True)) / temperature
        probs, ids = in_order(cold.softmax(-1).cpu(), top_k, top_p)
        if top_k:
            probs[:, top_k:] = 0.0
        before = probs.cumsum(-1) - probs
        total = probs.masked_fill(before >= top_p, 0.0).double().cumsum(-1)
        luck = torch.tensor([streams[i].random() for i in rows], dtype=torch.float64)
        rank = torch.searchsorted(total, (luck * total[:, -1])[:, None], right=True)
        found: list[int] = ids.gather(1, rank.clamp(max=probs.size(1) - 1))[:, 0].tolist()
        return found

    return draw


def in_order(probs: Tensor, top_k: int, top_p: float) -> tuple[Tensor, Tensor]:
    """From the largest to the smallest, equal ones in their own order: those that can be drawn at least, and their ids.
    To sort a long vocabulary takes as long as to run the model."""
    for few in FEW if top_k or top_p < 1 else ():
        if few >= probs.size(1):
            break
        ids = probs.topk(few, dim=1).indices.sort(dim=1).values
        some, order = probs.gather(1, ids).sort(dim=1, descending=True, stable=True)
        known = (some > some[:, -1:]).sum(1)  # others may be equal to the last
        before = (some.cumsum(-1) - some).gather(1, known[:, None])
        enough = known >= top_k if top_k else before > top_p + 1e-5  # more than is lost by rounding
        if bool(enough.all()):
            return some, ids.gather(1, order)
    return probs.sort(dim=1, descending=True, stable=True)


@dataclass(frozen=True)
class LogitsProcessor:
    """What comes next depends on what was written, as transformers' logits processors have it, under the names of
    generation_config.json. `texts` hold all that the decoder was given, the prompt too."""

    repetition_penalty: float = 1.0  # logits of tokens that are there are divided by this, negative ones multiplied
    no_repeat_ngram_size: int = 0  # no run of so many tokens comes twice; 0: any may
    suppress_tokens: Sequence[int] = ()
    begin_suppress_tokens: Sequence[int] = ()  # only as the first token
    bad_words_ids: Sequence[Sequence[int]] = ()  # the last token of each may not follow the others
    forced_bos_token_id: int | None = None  # the first token, if nothing but a start was given

    def __post_init__(self) -> None:
        words = self.bad_words_ids
        lists = [self.suppress_tokens, self.begin_suppress_tokens, *(words if isinstance(words, Sequence) else [None])]
        forced = [] if self.forced_bos_token_id is None else [self.forced_bos_token_id]
        for ids in (*lists, forced):
            if not isinstance(ids, Sequence) or not all(type(number) is int and number >= 0 for number in ids):
                named = ", ".join(field.name for field in fields(self)[2:])
                raise ValueError(f"{named} must be numbers of tokens, not {ids!r:.80}")
        if self.forced_bos_token_id in self.suppress_tokens:
            raise ValueError(
                f"forced_bos_token_id {self.forced_bos_token_id} is one of suppress_tokens: none could come"
            )

    def apply(self, scores: Tensor, texts: list[list[int]], time: int) -> None:
        """To (B,V) logits or log-probabilities, in their place, before token number `time`, counted from 1."""
        if self.repetition_penalty != 1:
            for row, text in zip(scores, texts, strict=True):
                seen = torch.tensor(sorted({*text}), device=scores.device)
                some = row[seen]
                row[seen] = torch.where(some < 0, some * self.repetition_penalty, some / self.repetition_penalty)
        if self.no_repeat_ngram_size or self.bad_words_ids:
            for row, text in zip(scores, texts, strict=True):
                row[[number for number in (*self.again(text), *self.bad(text)) if number < len(row)]] = -math.inf
        forced = self.forced_bos_token_id if time == 1 and len(texts[0]) == 1 else None
        if forced is not None:
            scores[:] = -math.inf
            scores[:, forced] = 0.0
        first = 1 + (self.forced_bos_token_id is not None and len(texts[0]) == time)
        never = [*self.suppress_tokens, *(self.begin_suppress_tokens if time == first else ())]
        scores[:, [number for number in never if number < scores.size(1)]] = -math.inf

    def again(self, text: list[int]) -> list[int]:
        """What would end a run of tokens that is there already."""
        size = self.no_repeat_ngram_size
        if not 0 < size <= len(text):
            return []
        last = text[len(text) - size + 1 :]
        return [text[i + size - 1] for i in range(len(text) - size + 1) if text[i : i + size - 1] == last]

    def bad(self, text: list[int]) -> list[int]:
        return [word[-1] for word in self.bad_words_ids if word and text[len(text) - len(word) + 1 :] == [*word[:-1]]]


NO_RULES = LogitsProcessor()
