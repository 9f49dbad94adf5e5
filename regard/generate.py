"""Generation for anything that has a cache: greedy, sampling, and beam search.

    greedy     the most probable next token, until </s>
    sampling   a random one, in proportion to its probability to the power of 1/temperature
    beam       the `beam` most probable beginnings, kept side by side; the answer is the finished text with the best

        score = log P(text) / length ** length_penalty          length counts </s>

A `step` maps the newest ids (B,1) and the caches to the logits (B,V) of the next token.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.choose import must
from regard.parts.cache import Cache, select

Step = Callable[[Tensor, list[Cache]], Tensor]
WIDEST = 10_000  # beginnings, or answers, side by side
STRONGEST = 100  # length penalty or temperature: beyond that there are only infinities


@dataclass(frozen=True)
class Decoding:
    """How an answer is found."""

    beam: int = 4  # beginnings kept side by side; 1 is greedy
    n_best: int = 1  # answers returned for each input, best first
    length_penalty: float = 1.0  # the score is log P / length ** this; above 1 prefers longer answers
    temperature: float = 0.0  # above 0: sample instead of searching; 1 is the model's own distribution
    top_k: int = 0  # sample only from the k most probable tokens
    top_p: float = 1.0  # sample only from the most probable tokens that together have this probability
    shortest: int = 0  # fewest tokens of an answer
    longest: int | None = None  # most tokens of an answer; set from the length of the input unless given
    seed: int = 0  # of the sampling; each input has its own stream, whatever else is asked with it

    def __post_init__(self) -> None:
        must(
            self,
            beam=(1 <= self.beam <= WIDEST, f"at least 1 and at most {WIDEST:,}"),
            n_best=(1 <= self.n_best <= WIDEST, f"at least 1 and at most {WIDEST:,}"),
            length_penalty=(abs(self.length_penalty) <= STRONGEST, f"from -{STRONGEST} to {STRONGEST}"),
            temperature=(
                self.temperature == 0 or 1e-6 <= self.temperature <= STRONGEST,
                f"0, or at least 1e-6 and at most {STRONGEST}",
            ),
            top_k=(self.top_k >= 0, "0 or more"),
            top_p=(0 < self.top_p <= 1, "above 0 and at most 1"),
            shortest=(0 <= self.shortest < 2**63, "0 or more, and below 2^63"),
            longest=(
                self.longest is None or max(1, self.shortest) <= self.longest < 2**63,
                "1 or more, not below shortest, and below 2^63",
            ),
            seed=(0 <= self.seed < 2**63, "0 or more, and below 2^63"),
        )
        if self.temperature == 0 and self.n_best > self.beam:
            raise ValueError(f"n-best ({self.n_best}) answers need a beam of at least as many, not {self.beam}")


class Hypothesis(NamedTuple):
    ids: list[int]  # without </s>
    logp: float  # joint log-probability of ids and </s>
    score: float  # what it is ranked by


@torch.inference_mode()
def generate(
    step: Step, caches: list[Cache], start: Tensor, end: int, limits: Tensor, how: Decoding, numbers: Tensor
) -> list[list[Hypothesis]]:
    """The best answers to each row, best first.

    `start` (B,) are the first ids, `limits` (B,) the most tokens of each answer without </s>: at its limit a row may
    only end. `numbers` (B,) are the rows' places among all inputs, from which their random numbers follow.
    """
    if how.temperature == 0 and how.beam > 1:
        return beam_search(step, caches, start, end, limits, how)
    if how.temperature == 0:
        return [[h] for h in walk(step, caches, start, end, limits, how, greedily)]
    answers: list[list[Hypothesis]] = [[] for _ in start]
    rows = torch.arange(len(start), device=start.device).repeat_interleave(how.n_best)
    select(caches, rows, rows)
    sampled = walk(step, caches, start[rows], end, limits[rows], how, sampler(how, numbers))
    for i, hypothesis in enumerate(sampled):
        answers[i // how.n_best].append(hypothesis)
    return [sorted(these, key=lambda h: -h.score) for these in answers]


Choose = Callable[[Tensor, Tensor, int], Tensor]  # log-probabilities (B,V), row numbers (B,), time -> ids (B,)


def walk(
    step: Step, caches: list[Cache], start: Tensor, end: int, limits: Tensor, how: Decoding, choose: Choose
) -> list[Hypothesis]:
    """One token at a time for every row; rows that ended make room."""
    rows = torch.arange(len(start), device=start.device)
    ids, logp = start[:, None], torch.zeros(len(start), device=start.device)
    found: dict[int, Hypothesis] = {}
    time = 0
    while len(rows):
        time += 1
        logprobs = allowed(step(ids[:, -1:], caches).float().log_softmax(-1), time, end, limits, how)
        chosen = choose(logprobs, rows, time)
        logp = logp + logprobs.gather(1, chosen[:, None])[:, 0]
        ids = torch.cat((ids, chosen[:, None]), 1)
        ends = chosen == end
        if ends.any():
            for i in ends.nonzero()[:, 0].tolist():
                found[int(rows[i])] = finished(ids[i, 1:-1].tolist(), float(logp[i]), how)
            alive = (~ends).nonzero()[:, 0]
            rows, ids, logp, limits = rows[alive], ids[alive], logp[alive], limits[alive]
            select(caches, alive, alive)
    return [found[i] for i in range(len(start))]


def beam_search(
    step: Step, caches: list[Cache], start: Tensor, end: int, limits: Tensor, how: Decoding
) -> list[list[Hypothesis]]:
    """Every sentence keeps `beam` beginnings, and is done when as many have ended."""
    K, device = how.beam, start.device
    sentences = torch.arange(len(start), device=device)
    found: list[list[Hypothesis]] = [[] for _ in start]
    ids = start[:, None].repeat_interleave(K, 0)  # (B·K,t)
    logp = torch.full((len(start), K), -math.inf, device=device)
    logp[:, 0] = 0.0  # at first all beams are the same one
    for cache in caches:
        cache.select(sentences.repeat_interleave(K))
    time = 0
    while len(sentences):
        time += 1
        logprobs = step(ids[:, -1:], caches).float().log_softmax(-1)
        logprobs = allowed(logprobs, time, end, limits.repeat_interleave(K), how)
        near, named = largest(logprobs, min(2 * K, logprobs.size(1)))  # (B·K,2K): of no beam can more be among the best
        joint = (logp[:, :, None] + near.unflatten(0, (-1, K))).flatten(1)  # (B,K·2K)
        best, where = joint.topk(min(2 * K, joint.size(1)), dim=1)  # no more than K of these can end, so K go on
        beams, tokens = where // near.size(1), named.view(len(joint), -1).gather(1, where)
        ends = (tokens == end) | best.isinf()
        for b, rank in (ends[:, :K] & best[:, :K].isfinite()).nonzero().tolist():
            text = ids[b * K + int(beams[b, rank]), 1:].tolist()
            found[int(sentences[b])].append(finished(text, float(best[b, rank]), how))
        going = ends.int().argsort(dim=1, stable=True)[:, :K]  # (B,K)
        logp = best.gather(1, going).masked_fill(ends.gather(1, going), -math.inf)
        alive = torch.tensor(
            [len(found[s]) < K for s in sentences.tolist()], dtype=torch.bool, device=device
        ) & logp.isfinite().any(1)
        keep = alive.nonzero()[:, 0]
        rows = (keep[:, None] * K + beams.gather(1, going)[keep]).flatten()
        ids = torch.cat((ids[rows], tokens.gather(1, going)[keep].view(-1, 1)), 1)
        sentences, logp, limits, stays = sentences[keep], logp[keep], limits[keep], len(keep) == len(alive)
        select(caches, rows, None if stays else keep)
    return [sorted(these, key=lambda h: -h.score)[: how.n_best] for these in found]


def finished(ids: list[int], logp: float, how: Decoding) -> Hypothesis:
    return Hypothesis(ids, logp, logp / (len(ids) + 1) ** how.length_penalty)


def allowed(logprobs: Tensor, time: int, end: int, limits: Tensor, how: Decoding) -> Tensor:
    """Not to end before the shortest, and nothing but to end at the limit, even if that comes first."""
    if time <= how.shortest:
        logprobs[:, end].masked_fill_(limits >= time, -math.inf)
    over = limits < time
    if over.any():
        only = torch.full_like(logprobs[0], -math.inf)
        only[end] = 0.0
        logprobs[over] = logprobs[over] + only
    return logprobs


def greedily(logprobs: Tensor, rows: Tensor, time: int) -> Tensor:
    # NumPy has vector code for this, PyTorch has not: a long vocabulary costs it as much as a layer.
    return torch.from_numpy(logprobs.numpy().argmax(1)) if logprobs.is_cpu else logprobs.argmax(1)


def largest(x: Tensor, count: int, block: int = 64) -> tuple[Tensor, Tensor]:
    """The largest numbers of every row, and where they are. Of a long row only those blocks are sorted whose largest is
    one of the largest among all blocks: nothing else can be there."""
    V = x.size(1)
    whole = V // block * block
    if whole < 64 * block * count:
        return x.topk(count, dim=1)
    tops = [x[:, :whole].unflatten(1, (-1, block)).amax(-1)]
    if whole < V:
        tops.append(x[:, whole:].amax(-1, keepdim=True))
    some = torch.cat(tops, 1).topk(count, dim=1).indices  # (B,count)
    at = (some[:, :, None] * block + torch.arange(block, device=x.device)).flatten(1)  # (B,count·block)
    inside = at.clamp(max=V - 1)
    best, where = x.gather(1, inside).masked_fill_(at >= V, -math.inf).topk(count, dim=1)
    return best, inside.gather(1, where)


def sampler(how: Decoding, numbers: Tensor) -> Choose:
    """Draws by the inverse of the cumulated distribution, each row with random numbers of its own."""
    streams = [np.random.default_rng([how.seed, n, i]) for n in numbers.tolist() for i in range(how.n_best)]

    def draw(logprobs: Tensor, rows: Tensor, time: int) -> Tensor:
        cold = (logprobs - logprobs.amax(-1, keepdim=True)) / how.temperature
        probs, ids = cold.softmax(-1).cpu().sort(dim=-1, descending=True, stable=True)
        if how.top_k:
            probs[:, how.top_k :] = 0.0
        before = probs.cumsum(-1) - probs
        total = probs.masked_fill(before >= how.top_p, 0.0).double().cumsum(-1)
        luck = torch.tensor([streams[i].random() for i in rows.tolist()], dtype=torch.float64)
        rank = torch.searchsorted(total, (luck * total[:, -1])[:, None], right=True)
        return ids.gather(1, rank.clamp(max=probs.size(1) - 1))[:, 0].to(logprobs.device)

    return draw
