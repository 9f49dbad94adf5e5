"""How the sequences of a batch choose their next tokens: greedy, sampling and beam search.

    greedy     the most probable next token, until </s>
    sampling   a random token, P ∝ exp(log P / temperature)
    beam       the `num_beams` most probable unfinished hypotheses in parallel; the answer is the finished one with the
               best score (Sutskever et al. 2014; length penalty as in transformers)

A step maps the logits of all rows to the old row that each new row continues, and to events.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

import numpy as np
from torch import Tensor

from regard.beams import Beams, FindCandidates, expand, find_candidates, finish, prune
from regard.decode_request import (
    DecodeEvent,
    DecodeRequest,
    FailEvent,
    FinishEvent,
    FinishReason,
    Hypothesis,
    TokenEvent,
    row_endings,
    score_hypothesis,
)
from regard.parts.heads import NOT_FINITE
from regard.sampling import NO_PROCESSOR, gather_rows, greedy, limit_length, log_softmax_, make_sampler


class SampledRow:
    """A greedy or sampled sequence."""

    def __init__(self, request: DecodeRequest, number: int):
        self.request = request
        self.tokens: list[int] = []
        self.logp = np.float32(0)
        options = request.options
        self.settings = (options.temperature, options.top_k, options.top_p)
        self.random = np.random.default_rng([options.seed, request.number, number]) if options.temperature else None


class Sampling:
    """Greedy and sampled sequences, a row each."""

    def __init__(self, end: int):
        self.end = end
        self.rows: list[SampledRow] = []
        self.hypotheses: dict[DecodeRequest, list[Hypothesis]] = {}

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def sources(self) -> int:
        return len(self.rows)

    @property
    def requests(self) -> list[DecodeRequest]:
        return [*dict.fromkeys(row.request for row in self.rows)]

    def add(self, request: DecodeRequest) -> None:
        self.rows += [SampledRow(request, i) for i in range(request.rows)]

    def newest(self) -> list[int]:
        return [row.tokens[-1] if row.tokens else row.request.prompt[-1] for row in self.rows]

    def remove(self, requests: Collection[DecodeRequest]) -> tuple[list[int], list[int]]:
        keep = [i for i, row in enumerate(self.rows) if row.request not in requests]
        self.rows = [self.rows[i] for i in keep]
        for request in requests:
            self.hypotheses.pop(request, None)
        return keep, keep

    def advance(self, logits: Tensor) -> tuple[list[int], list[int], list[DecodeEvent]]:
        """The rows that go on, twice, and the events."""
        for i, row in enumerate(self.rows):
            if row.request.processor is not NO_PROCESSOR:
                text = [*row.request.history, *row.request.prompt, *row.tokens]
                row.request.processor.apply(logits[i : i + 1], [text], len(row.tokens) + 1)
        endings = row_endings((len(row.tokens), row.request) for row in self.rows)
        logprobs = limit_length(log_softmax_(logits), self.end, endings)
        events: list[DecodeEvent] = []
        keep: list[int] = []
        tokens = self.choose(logprobs)
        for i, (row, token, value) in enumerate(zip(self.rows, tokens, gather_rows(logprobs, tokens), strict=True)):
            row.logp += value
            if math.isnan(row.logp):  # a NaN or +inf among the logits, or only -inf, makes the whole row NaN
                events.append(FailEvent(row.request, FloatingPointError(NOT_FINITE)))
            elif token == self.end:
                events += self.finish(row, "length" if len(row.tokens) >= row.request.limit else "stop")
            else:
                row.tokens.append(token)
                if row.request.streams:
                    events.append(TokenEvent(row.request, token, float(value)))
                if row.request.is_complete is not None and row.request.is_complete(row.tokens):
                    events += self.finish(row, "stop")
                else:
                    keep.append(i)
        if len(keep) < len(self.rows):
            failed = {event.request for event in events if isinstance(event, FailEvent)}
            keep = [i for i in keep if self.rows[i].request not in failed]
            self.rows = [self.rows[i] for i in keep]
            self.hypotheses = {r: finished for r, finished in self.hypotheses.items() if r not in failed}
        return keep, keep, events

    def choose(self, logprobs: Tensor) -> list[int]:
        """The next token of every row. Rows with the same settings are sampled together."""
        groups: dict[tuple[float, int, float], list[int]] = {}
        for i, row in enumerate(self.rows):
            groups.setdefault(row.settings, []).append(i)
        tokens = [0] * len(self.rows)
        for (temperature, top_k, top_p), rows in groups.items():
            subset = logprobs if len(groups) == 1 else logprobs[rows]
            if temperature:
                streams = [random for row in rows if (random := self.rows[row].random) is not None]
                chosen = make_sampler(streams, temperature, top_k, top_p)(subset, [*range(len(rows))])
            else:
                chosen = greedy(subset, rows)
            for index, token in zip(rows, chosen, strict=True):
                tokens[index] = token
        return tokens

    def finish(self, row: SampledRow, reason: FinishReason) -> list[DecodeEvent]:
        """The event of a request whose last sequence ends."""
        request = row.request
        hypotheses = self.hypotheses.setdefault(request, [])
        hypotheses.append(score_hypothesis(row.tokens, float(row.logp), request.options, reason))
        if len(hypotheses) < request.rows:
            return []
        return [FinishEvent(request, sorted(self.hypotheses.pop(request), key=lambda h: -h.score))]


class BeamSearch:
    """Beam searches of width K, K rows each: expand, finish, prune, until an input has K finished hypotheses or no beam
    is left."""

    def __init__(self, end: int, width: int, find_candidates: FindCandidates = find_candidates):
        self.end, self.width, self.find_candidates = end, width, find_candidates
        self.requests: list[DecodeRequest] = []
        self.hypotheses: list[list[Hypothesis]] = []
        self.beams = Beams([], np.empty((0, width), np.float32))

    def __len__(self) -> int:
        return len(self.beams.tokens)

    @property
    def sources(self) -> int:
        return len(self.requests)

    def add(self, request: DecodeRequest) -> None:
        logp = np.full((1, self.width), -math.inf, np.float32)
        logp[0, 0] = 0.0  # at first all beams of an input are equal: use one
        self.requests.append(request)
        self.hypotheses.append([])
        tokens, joint = self.beams
        self.beams = Beams([*tokens, *([] for _ in range(self.width))], np.concatenate((joint, logp)))

    def newest(self) -> list[int]:
        prompts = [request.prompt[-1] for request in self.requests for _ in range(self.width)]
        return [tokens[-1] if tokens else last for tokens, last in zip(self.beams.tokens, prompts, strict=True)]

    def remove(self, requests: Collection[DecodeRequest]) -> tuple[list[int], list[int]]:
        keep = [i for i, request in enumerate(self.requests) if request not in requests]
        rows = [i * self.width + k for i in keep for k in range(self.width)]
        self.beams = Beams([self.beams.tokens[row] for row in rows], self.beams.logp[keep])
        self.keep(keep)
        return rows, keep

    def keep(self, inputs: Iterable[int]) -> None:
        inputs = [*inputs]
        self.requests, self.hypotheses = [self.requests[i] for i in inputs], [self.hypotheses[i] for i in inputs]

    def advance(self, logits: Tensor) -> tuple[list[int], list[int], list[DecodeEvent]]:
        """The rows that the new ones continue, the inputs whose search goes on, and the events."""
        requests, K = self.requests, self.width
        lengths = [len(text) for text in self.beams.tokens[::K]]  # the beams of an input have equal lengths
        endings = row_endings(zip(lengths, requests, strict=True)).repeat(K)
        if all(request.processor is NO_PROCESSOR for request in requests):
            candidates = self.find_candidates(logits, self.beams.logp, self.end, endings)
        else:
            logprobs = self.process(log_softmax_(logits))
            candidates = expand(limit_length(logprobs, self.end, endings), self.beams.logp)
        ends, ended = finish(candidates, self.beams, self.end)
        for i, tokens, total in ended:
            reason: FinishReason = "length" if len(tokens) >= requests[i].limit else "stop"
            self.hypotheses[i].append(score_hypothesis(tokens, total, requests[i].options, reason))
        failed = np.isnan(candidates.logp[:, 0])
        is_done = failed | np.array([len(finished) >= K for finished in self.hypotheses])
        self.beams, parents, survivors = prune(candidates, self.beams, ends, is_done)
        events: list[DecodeEvent] = []
        for i in {*range(len(requests))}.difference(survivors.tolist()):
            best = sorted(self.hypotheses[i], key=lambda h: -h.score)[: requests[i].options.num_return]
            error = FailEvent(requests[i], FloatingPointError(NOT_FINITE))
            events.append(error if failed[i] else FinishEvent(requests[i], best))
        self.keep(survivors.tolist())
        return parents.tolist(), survivors.tolist(), events

    def process(self, logprobs: Tensor) -> Tensor:
        """Apply the processors of the requests, in place."""
        K = self.width
        for i, request in enumerate(self.requests):
            if request.processor is not NO_PROCESSOR:
                before = [*request.history, *request.prompt]
                texts = [before + text for text in self.beams.tokens[i * K : (i + 1) * K]]
                request.processor.apply(logprobs[i * K : (i + 1) * K], texts, len(texts[0]) - len(before) + 1)
        return logprobs
