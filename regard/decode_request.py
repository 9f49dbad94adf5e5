"""A sequence to decode, what becomes of it, and how much is decoded at the same time.

score = log P(text) / length ** length_penalty          length counts </s>
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from regard.generation_config import GenerationOptions
from regard.sampling import NO_PROCESSOR, Endings, LogitsProcessor, ending_state

FinishReason = Literal["stop", "length"]  # </s> or a stop text; the limit


class Hypothesis(NamedTuple):
    ids: list[int]  # without </s>
    logp: float  # joint log-probability of ids and </s>
    score: float  # hypotheses are ranked by it
    finish_reason: FinishReason = "stop"


@dataclass(eq=False)
class DecodeRequest:
    """A sequence to continue."""

    prompt: list[int]  # the tokens before the answer; the last one is the first input of the decoder
    limit: int  # maximum number of new tokens, without </s>: there the sequence can only end
    options: GenerationOptions
    number: int = 0  # position among all inputs; seeds the random stream
    processor: LogitsProcessor = NO_PROCESSOR
    history: Sequence[int] = ()  # tokens before the prompt, which only the processor sees
    source: Any = None  # what the decoder attends to beside the text; the task encodes it
    is_complete: Callable[[list[int]], bool] | None = None  # whether these new tokens end the sequence: a stop text
    text: Callable[[list[int]], str] | None = None  # the text of new tokens, after that of requests which it continues
    before: str = ""  # text between the answers of the sequences before and that of this one

    @property
    def rows(self) -> int:
        """Sequences that are decoded for the request."""
        if self.options.temperature > 0:
            return self.options.num_return
        return self.options.num_beams

    @property
    def streams(self) -> bool:
        """Whether its tokens are final as soon as they are chosen."""
        return self.rows == 1


@dataclass(frozen=True)
class BatchLimits:
    """How much is decoded at the same time."""

    max_batch_tokens: int = 16_384  # tokens of all running requests, which the KV cache holds
    max_batch_size: int = 64  # sequences that are decoded at the same time
    prefill_tokens: int = 128  # prompt tokens that a step adds to those it decodes


class TokenEvent(NamedTuple):
    request: DecodeRequest
    token: int
    logprob: float


class FinishEvent(NamedTuple):
    request: DecodeRequest
    hypotheses: list[Hypothesis]  # best first


class FailEvent(NamedTuple):
    request: DecodeRequest
    error: Exception


DecodeEvent = TokenEvent | FinishEvent | FailEvent


def row_endings(rows: Iterable[tuple[int, DecodeRequest]]) -> Endings:
    """Whether rows can end, each with its number of new tokens so far."""
    states = [ending_state(length, request.limit, request.options.min_new_tokens) for length, request in rows]
    return np.array(states, np.int8)


def score_hypothesis(
    ids: list[int], logp: float, options: GenerationOptions, finish_reason: FinishReason = "stop"
) -> Hypothesis:
    return Hypothesis(ids, logp, logp / (len(ids) + 1) ** options.length_penalty, finish_reason)
