"""Choosing tokens: greedy, top-k, sampling; and `LogitsProcessor`, which penalises or forbids tokens.

    greedy     argmax log P                                 top-k      the k most probable tokens, for beam search
    sampling   P(token) ∝ exp(log P / temperature), cut to the k most probable tokens (Fan et al. 2018) and to the
               smallest set of tokens with probability top_p (nucleus, Holtzman et al. 2020)

A pass over a large vocabulary costs as much as a layer of the model, so each function here reads as little as it can.
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
Endings = npt.NDArray[np.int8]  # of every row: CAN_END, CANNOT_END before its minimum, MUST_END at its limit
CAN_END, CANNOT_END, MUST_END = range(3)
Sampler = Callable[[Tensor, list[int]], list[int]]  # log-probabilities (B,V), row numbers -> one token id for each row
PARTIAL_SORTS = (512, 4096)  # candidates that are sorted first: mostly no other token can be drawn


def log_softmax_(logits: Tensor) -> Tensor:
    """In place: for the beams of a large vocabulary, allocating another table costs more than filling it."""
    if logits.dtype != torch.float32:
        return logits.log_softmax(-1, dtype=torch.float32)
    return torch.log_softmax(logits, -1, out=logits)


def ending_state(length: int, limit: int, minimum: int) -> int:
    """Whether a row with `length` new tokens can end. The limit takes precedence."""
    return MUST_END if length >= limit else CANNOT_END if length < minimum else CAN_END


def limit_length(logprobs: Tensor, end: int, endings: Endings) -> Tensor:
    """Forbid </s> in rows that CANNOT_END, and everything else in rows that MUST_END, even if the processor forbids
    </s>, which then costs nothing."""
    over, early = (np.flatnonzero(endings == state) for state in (MUST_END, CANNOT_END))
    if len(early):
        logprobs[early, end] -= math.inf  # NaN stays: it must be seen
    if len(over):
        ending = logprobs[over, end]
        logprobs[over] -= math.inf
        logprobs[over, end] = ending.masked_fill(ending == -math.inf, 0.0)
    return logprobs


def greedy(logprobs: Tensor, rows: list[int]) -> list[int]:
    # NumPy's argmax is vectorised, PyTorch's is not: with a large vocabulary it costs as much as a layer.
    tokens: list[int] = (logprobs.numpy().argmax(1) if logprobs.is_cpu else logprobs.argmax(1)).tolist()
    return tokens


def gather_rows(x: Tensor, ids: list[int]) -> list[np.float32]:
    """x[i, ids[i]] for every row i."""
    if x.is_cpu:
        return [row[i] for row, i in zip(x.numpy(), ids, strict=True)]
    return [*x.gather(1, torch.tensor(ids, device=x.device)[:, None])[:, 0].cpu().numpy()]


def largest(x: Tensor, count: int, block: int = 64) -> tuple[Floats, Ints]:
    """The `count` largest values of every row and their columns. A long row is viewed as a table of `block` lines: the
    largest values lie in the `count` table columns with the largest maxima, or in the remainder that fills no line."""
    (B, V), columns = x.shape, x.size(1) // block
    if not x.is_cpu or columns < 64 * count:
        return topk(x, count)
    values, whole, every = x.numpy(), columns * block, np.arange(B)[:, None]
    maxima = values[:, :whole].reshape(B, block, columns).max(1)
    _, candidates = topk(torch.from_numpy(maxima), count)  # (B,count)
    at = np.empty((B, count * block + V - whole), np.int64)
    at[:, : count * block] = (candidates[:, :, None] + np.arange(0, whole, columns)).reshape(B, -1)
    at[:, count * block :] = np.arange(whole, V)
    best, where = topk(torch.from_numpy(values[every, at]), count)
    return best, at[every, where]


def topk(x: Tensor, count: int) -> tuple[Floats, Ints]:
    """`Tensor.topk` over the columns, as NumPy arrays."""
    best, where = x.topk(count, dim=1)
    return best.cpu().numpy(), where.cpu().numpy()


def make_sampler(streams: list[np.random.Generator], temperature: float, top_k: int = 0, top_p: float = 1.0) -> Sampler:
    """Samples by inverting the cumulative distribution; row i draws its random numbers from `streams[i]`."""

    def sample(logprobs: Tensor, rows: list[int]) -> list[int]:
        scaled = (logprobs - logprobs.amax(-1, keepdim=True)) / temperature
        probs, ids = sort_candidates(scaled.softmax(-1).cpu(), top_k, top_p)
        if top_k:
            probs[:, top_k:] = 0.0
        before = probs.cumsum(-1) - probs
        cumulative = probs.masked_fill(before >= top_p, 0.0).double().cumsum(-1)
        uniform = torch.tensor([streams[i].random() for i in rows], dtype=torch.float64)
        rank = torch.searchsorted(cumulative, (uniform * cumulative[:, -1])[:, None], right=True)
        tokens: list[int] = ids.gather(1, rank.clamp(max=probs.size(1) - 1))[:, 0].tolist()
        return tokens

    return sample


def sort_candidates(probs: Tensor, top_k: int, top_p: float) -> tuple[Tensor, Tensor]:
    """Probabilities in descending order, ties by id, and their ids: at least those that `top_k` and `top_p` keep. To
    sort a large vocabulary takes as long as to run the model."""
    for count in PARTIAL_SORTS if top_k or top_p < 1 else ():
        if count >= probs.size(1):
            break
        ids = probs.topk(count, dim=1).indices.sort(dim=1).values
        candidates, order = probs.gather(1, ids).sort(dim=1, descending=True, stable=True)
        certain = (candidates > candidates[:, -1:]).sum(1)  # tokens outside may equal the last candidate
        before = (candidates.cumsum(-1) - candidates).gather(1, certain[:, None])
        enough = certain >= top_k if top_k else before > top_p + 1e-5  # more than the rounding error
        if bool(enough.all()):
            return candidates, ids.gather(1, order)
    return probs.sort(dim=1, descending=True, stable=True)


@dataclass(frozen=True)
class LogitsProcessor:
    """Changes the scores of tokens according to the text so far, as the logits processors of transformers do; the
    fields have the names of generation_config.json. The text of a row includes its prompt."""

    repetition_penalty: float = 1.0  # positive logits of tokens of the text are divided by this, negative multiplied
    no_repeat_ngram_size: int = 0  # no n-gram of this size occurs twice; 0 = no limit
    suppress_tokens: Sequence[int] = ()  # never generated
    begin_suppress_tokens: Sequence[int] = ()  # never generated as the first token
    bad_words_ids: Sequence[Sequence[int]] = ()  # sequences of tokens that are never generated
    forced_bos_token_id: int | None = None  # the first token, if the prompt is only a start token

    def __post_init__(self) -> None:
        words = self.bad_words_ids
        lists = [self.suppress_tokens, self.begin_suppress_tokens, *(words if isinstance(words, Sequence) else [None])]
        forced = [] if self.forced_bos_token_id is None else [self.forced_bos_token_id]
        for ids in (*lists, forced):
            if not isinstance(ids, Sequence) or not all(type(token) is int and token >= 0 for token in ids):
                names = ", ".join(field.name for field in fields(self)[2:])
                raise ValueError(f"{names} must be token ids, not {ids!r:.80}")
        if self.forced_bos_token_id in self.suppress_tokens:
            raise ValueError(
                f"forced_bos_token_id {self.forced_bos_token_id} is one of suppress_tokens: no token would be left"
            )

    def apply(self, scores: Tensor, texts: list[list[int]], time: int) -> None:
        """Change (B,V) logits or log-probabilities in place, before token number `time`, counted from 1."""
        if self.repetition_penalty != 1:
            for row, text in zip(scores, texts, strict=True):
                tokens = torch.tensor(sorted({*text}), device=scores.device)
                old = row[tokens]
                row[tokens] = torch.where(old < 0, old * self.repetition_penalty, old / self.repetition_penalty)
        if self.no_repeat_ngram_size or self.bad_words_ids:
            for row, text in zip(scores, texts, strict=True):
                banned = (*self.ngram_ends(text), *self.bad_word_ends(text))
                row[[token for token in banned if token < len(row)]] = -math.inf
        forced = self.forced_bos_token_id if time == 1 and len(texts[0]) == 1 else None
        if forced is not None:
            scores[:] = -math.inf
            scores[:, forced] = 0.0
        first = 1 + (self.forced_bos_token_id is not None and len(texts[0]) == time)
        suppressed = [*self.suppress_tokens, *(self.begin_suppress_tokens if time == first else ())]
        scores[:, [token for token in suppressed if token < scores.size(1)]] = -math.inf

    def ngram_ends(self, text: list[int]) -> list[int]:
        """Tokens that would complete an n-gram which the text already contains."""
        size = self.no_repeat_ngram_size
        if not 0 < size <= len(text):
            return []
        last = text[len(text) - size + 1 :]
        return [text[i + size - 1] for i in range(len(text) - size + 1) if text[i : i + size - 1] == last]

    def bad_word_ends(self, text: list[int]) -> list[int]:
        """Tokens that would complete one of the bad words."""
        return [word[-1] for word in self.bad_words_ids if word and text[len(text) - len(word) + 1 :] == [*word[:-1]]]


NO_PROCESSOR = LogitsProcessor()
