"""Generation for anything that has a cache: greedy, sampling, and beam search.

    greedy     the most probable next token, until </s>
    sampling   a random one, in proportion to its probability to the power of 1/temperature
    beam       the `beam` most probable beginnings, kept side by side; the answer is the finished text with the best

        score = log P(text) / length ** length_penalty          length counts </s>

A `step` maps the newest ids (B,1) and the caches to the logits (B,V) of the next token, which are written over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.parts.cache import Cache, select
from regard.parts.heads import NOT_FINITE
from regard.sampling import NO_RULES, Choose, LogitsProcessor, greedily, largest, picked, sampler, top
from regard.validate import check_fields

Step = Callable[[Tensor, list[Cache]], Tensor]
WIDEST = 10_000  # beginnings, or answers, side by side
STRONGEST = 100  # length penalty or temperature: beyond that there are only infinities


@dataclass(frozen=True)
class GenerationOptions:
    """How an answer is found."""

    beam: int = 4  # beginnings kept side by side; 1 is greedy; without effect if --temperature is above 0
    num_return: int = 1  # answers returned for each input, best first
    length_penalty: float = 1.0  # the score is log P / length ** this; above 1 prefers longer answers
    temperature: float = 0.0  # above 0: sample instead of searching; 1 is the model's own distribution
    top_k: int = 0  # sample only from the k most probable tokens
    top_p: float = 1.0  # sample only from the most probable tokens that together have this probability
    min_new_tokens: int = 0  # fewest tokens of an answer
    longest: int | None = None  # most tokens of an answer; set from the length of the input unless given
    seed: int = 0  # of the sampling; each input has its own stream, whatever else is asked with it
    repetition_penalty: float = 1.0  # above 1: tokens that are there already are less probable
    no_repeat_ngram_size: int = 0  # no run of so many tokens comes twice; 0: any may

    def __post_init__(self) -> None:
        check_fields(
            self,
            beam=(1 <= self.beam <= WIDEST, f"at least 1 and at most {WIDEST:,}"),
            num_return=(1 <= self.num_return <= WIDEST, f"at least 1 and at most {WIDEST:,}"),
            length_penalty=(abs(self.length_penalty) <= STRONGEST, f"from -{STRONGEST} to {STRONGEST}"),
            temperature=(
                self.temperature == 0 or 1e-6 <= self.temperature <= STRONGEST,
                f"0, or at least 1e-6 and at most {STRONGEST}",
            ),
            top_k=(self.top_k >= 0, "0 or more"),
            top_p=(0 < self.top_p <= 1, "above 0 and at most 1"),
            min_new_tokens=(0 <= self.min_new_tokens < 2**63, "0 or more, and below 2^63"),
            longest=(
                self.longest is None or max(1, self.min_new_tokens) <= self.longest < 2**63,
                "1 or more, not below shortest, and below 2^63",
            ),
            seed=(0 <= self.seed < 2**63, "0 or more, and below 2^63"),
            repetition_penalty=(0 < self.repetition_penalty <= STRONGEST, f"above 0 and at most {STRONGEST}"),
            no_repeat_ngram_size=(self.no_repeat_ngram_size >= 0, "0 or more"),
        )
        if self.temperature == 0 and self.num_return > self.beam:
            raise ValueError(f"n-best ({self.num_return}) answers need a beam of at least as many, not {self.beam}")


class Hypothesis(NamedTuple):
    ids: list[int]  # without </s>
    logp: float  # joint log-probability of ids and </s>
    score: float  # what it is ranked by


@torch.inference_mode()
def generate(
    step: Step,
    caches: list[Cache],
    start: Tensor,
    end: int,
    limits: Tensor,
    how: GenerationOptions,
    numbers: Tensor,
    rules: LogitsProcessor = NO_RULES,
    before: list[list[int]] | None = None,
) -> list[list[Hypothesis]]:
    """The best answers to each row, best first.

    `start` (B,) are the first ids, `limits` (B,) the most tokens of each answer without </s>: at its limit a row may
    only end. `numbers` (B,) are the rows' places among all inputs, from which their random numbers follow. `rules` see
    what came `before` each row's start. They act on logits, but in a beam on log-probabilities, as in transformers.
    """
    words = tuple(word for word in rules.bad_words_ids if [*word] != [end])  # an end is no word
    asked = {"repetition_penalty": how.repetition_penalty, "no_repeat_ngram_size": how.no_repeat_ngram_size}
    rules = replace(rules, **asked, bad_words_ids=words)  # type: ignore[arg-type]
    prompts = [[*ids, first] for ids, first in zip(before or [[]] * len(start), start.tolist(), strict=True)]
    if how.temperature == 0 and how.num_beams > 1:
        return beam_search(step, caches, start, end, limits, how, rules, prompts)
    if how.temperature == 0:
        return [[h] for h in walk(step, caches, start, end, limits, how, greedily, rules, prompts)]
    answers: list[list[Hypothesis]] = [[] for _ in start]
    rows = torch.arange(len(start), device=start.device).repeat_interleave(how.num_return)
    select(caches, rows, rows)
    streams = [np.random.default_rng([how.seed, n, i]) for n in numbers.tolist() for i in range(how.num_return)]
    draw = sampler(streams, how.temperature, how.top_k, how.top_p)
    sampled = walk(step, caches, start[rows], end, limits[rows], how, draw, rules, [prompts[row] for row in rows])
    for i, hypothesis in enumerate(sampled):
        answers[i // how.num_return].append(hypothesis)
    return [sorted(these, key=lambda h: -h.score) for these in answers]


def walk(
    step: Step,
    caches: list[Cache],
    start: Tensor,
    end: int,
    limits: Tensor,
    how: GenerationOptions,
    choose: Choose,
    rules: LogitsProcessor,
    prompts: list[list[int]],
) -> list[Hypothesis]:
    """One token at a time for every row; rows that ended make room."""
    ids, most, rows, device = start[:, None], limits.tolist(), [*range(len(start))], start.device
    texts: list[list[int]] = [[] for _ in rows]
    found: dict[int, Hypothesis] = {}
    logp = [np.float32(0)] * len(rows)
    time = 0
    while rows:
        time += 1
        logits = step(ids, caches)
        if rules != NO_RULES:
            rules.apply(logits, [prompts[row] + texts[row] for row in rows], time)
        logprobs = limit_length(chances(logits), time, end, most, how)
        chosen = choose(logprobs, rows)
        logp = [total + more for total, more in zip(logp, picked(logprobs, chosen), strict=True)]
        if any(map(math.isnan, logp)):  # one NaN or +inf among the logits, or nothing but -inf, makes all of a row NaN
            raise FloatingPointError(NOT_FINITE)
        if end in chosen:
            for row, token, total in zip(rows, chosen, logp, strict=True):
                if token == end:
                    found[row] = score_hypothesis(texts[row], float(total), how)
            alive = [i for i, token in enumerate(chosen) if token != end]
            rows, chosen, most = ([one[i] for i in alive] for one in (rows, chosen, most))
            logp = [logp[i] for i in alive]
            select(caches, going := torch.tensor(alive, dtype=torch.long, device=device), going)
        for row, token in zip(rows, chosen, strict=True):
            texts[row].append(token)
        ids = torch.tensor([[token] for token in chosen], device=device)
    return [found[row] for row in range(len(start))]


def beam_search(
    step: Step,
    caches: list[Cache],
    start: Tensor,
    end: int,
    limits: Tensor,
    how: GenerationOptions,
    rules: LogitsProcessor = NO_RULES,
    prompts: list[list[int]] | None = None,
) -> list[list[Hypothesis]]:
    """Every sentence keeps `beam` beginnings, and is done when as many have ended."""
    K, device = how.num_beams, start.device
    ids = start.repeat_interleave(K)[:, None]  # (B·K,1)
    most, sentences = limits.repeat_interleave(K).tolist(), np.arange(len(start))
    found: list[list[Hypothesis]] = [[] for _ in sentences]
    texts = np.empty((len(ids), 0), np.int64)  # (B·K,t)
    logp = np.full((len(sentences), K), -math.inf, np.float32)
    logp[:, 0] = 0.0  # at first all beams are the same one
    for cache in caches:
        cache.select(torch.from_numpy(sentences.repeat(K)).to(device))
    time = 0
    while len(sentences):
        time += 1
        logprobs = chances(step(ids, caches))
        if rules != NO_RULES and prompts:
            given = [prompts[sentence] for sentence in sentences for _ in range(K)]
            rules.apply(logprobs, [prompt + text for prompt, text in zip(given, texts.tolist(), strict=True)], time)
        logprobs = limit_length(logprobs, time, end, most, how)
        near, named = largest(logprobs, min(2 * K, logprobs.size(1)))  # (B·K,2K): of no beam can more be among the best
        del logprobs  # so that the next ones find room where these were
        every, C = np.arange(len(logp))[:, None], K * near.shape[1]
        joint = (logp.reshape(-1, 1) + near).reshape(-1, C)  # (B,K·2K)
        best, where = top(torch.from_numpy(joint), min(2 * K, C))  # no more than K of these can end, so K go on
        if np.isnan(best[:, 0]).any():  # NaN counts as the largest
            raise FloatingPointError(NOT_FINITE)
        beams, tokens = where // near.shape[1], named.reshape(-1, C)[every, where]
        ends = (tokens == end) | np.isinf(best)
        for b, rank in zip(*(ends & np.isfinite(best))[:, :K].nonzero(), strict=True):
            text = texts[b * K + beams[b, rank]].tolist()
            found[sentences[b]].append(score_hypothesis(text, float(best[b, rank]), how))
        going = ends.argsort(1, kind="stable")[:, :K]  # (B,K)
        logp = np.where(ends[every, going], np.float32(-math.inf), best[every, going])
        full = np.array([len(found[s]) >= K for s in sentences])
        keep = (~full & np.isfinite(logp).any(1)).nonzero()[0]
        rows = (every * K + beams[every, going])[keep].ravel()
        chosen = tokens[every, going][keep].reshape(-1, 1)
        texts = np.concatenate((texts[rows], chosen), 1)
        ids, stays = torch.from_numpy(chosen).to(device), len(keep) == len(sentences)
        sentences, logp, most = sentences[keep], logp[keep], [most[row] for row in rows]
        here = None if stays else torch.from_numpy(keep).to(device)
        select(caches, torch.from_numpy(rows).to(device), here)
    return [sorted(these, key=lambda h: -h.score)[: how.num_return] for these in found]


def score_hypothesis(ids: list[int], logp: float, how: GenerationOptions) -> Hypothesis:
    return Hypothesis(ids, logp, logp / (len(ids) + 1) ** how.length_penalty)


def chances(logits: Tensor) -> Tensor:
    """In their place: for beams of a long vocabulary, room for another table costs more than to fill it."""
    if logits.dtype != torch.float32:
        return logits.log_softmax(-1, dtype=torch.float32)
    return torch.log_softmax(logits, -1, out=logits)


def limit_length(logprobs: Tensor, time: int, end: int, limits: list[int], how: GenerationOptions) -> Tensor:
    """Not to end before the shortest, and nothing but to end at the limit, even if that comes first."""
    over = [row for row, limit in enumerate(limits) if limit < time]
    ending = logprobs[over, end] if over else None
    if time <= how.min_new_tokens:
        logprobs[:, end] = -math.inf
    if ending is not None:
        logprobs[over] = -math.inf
        logprobs[over, end] = ending
    return logprobs


# generation_config.json -> options of ours that mean the same
SAME = {
    "num_beams": "beam",
    "length_penalty": "length_penalty",
    "repetition_penalty": "repetition_penalty",
    "no_repeat_ngram_size": "no_repeat_ngram_size",
    "min_new_tokens": "shortest",
    "max_new_tokens": "longest",
}
SAMPLING = {"temperature": 1.0, "top_k": 50, "top_p": 1.0}  # what transformers takes if do_sample is all that is said
PROCESSOR_KEYS = ("suppress_tokens", "begin_suppress_tokens", "bad_words_ids", "forced_bos_token_id")
SUPPORTED_KEYS = (*SAME, *SAMPLING, *PROCESSOR_KEYS, "do_sample", "max_length", "min_length", "forced_eos_token_id")
UNHEEDED = {  # keys that change an answer, and the value with which they do not
    "typical_p": 1.0, "min_p": 0.0, "top_h": None, "epsilon_cutoff": 0.0, "eta_cutoff": 0.0, "penalty_alpha": 0.0,
    "encoder_repetition_penalty": 1.0, "encoder_no_repeat_ngram_size": 0, "exponential_decay_length_penalty": None,
    "sequence_bias": None, "forced_decoder_ids": None, "force_words_ids": None, "constraints": None,
    "num_beam_groups": 1, "diversity_penalty": 0.0, "num_return_sequences": 1, "guidance_scale": 1.0,
    "renormalize_logits": False, "stop_strings": None, "watermarking_config": None, "dola_layers": None,
    "token_healing": False, "max_time": None,
}  # fmt: skip


def options_from_config(told: Mapping[str, Any]) -> dict[str, Any]:
    """Options of ours, as generation_config.json asks for them."""
    options = {ours: told[theirs] for theirs, ours in SAME.items() if told.get(theirs) is not None}
    if told.get("do_sample"):
        options = {name: value for name, value in options.items() if name != "beam"}
        return options | {name: usual if told.get(name) is None else told[name] for name, usual in SAMPLING.items()}
    searched = told.get("do_sample") is False or options.get("beam", 1) != 1
    return options | ({"temperature": 0.0} if searched else {})


def unsupported_settings(told: Mapping[str, Any], ends: list[int], context: int, translates: bool) -> dict[str, Any]:
    """What generation_config.json asks for and is not done."""
    found = {key: told[key] for key, usual in UNHEEDED.items() if told.get(key) not in (None, usual)}
    if told.get("do_sample"):
        found |= {"num_beams": told["num_beams"]} if (told.get("num_beams") or 1) != 1 else {}
    elif told.get("do_sample") is None:  # transformers would not sample, and say so
        found |= {key: told[key] for key, usual in SAMPLING.items() if told.get(key) not in (None, usual)}
    if told.get("early_stopping") not in (None, True, False):
        found["early_stopping"] = told["early_stopping"]
    if told.get("forced_eos_token_id") not in (None, ends, *ends):
        found["forced_eos_token_id"] = told["forced_eos_token_id"]
    if not translates:  # where a length counts the prompt
        found |= {key: told[key] for key in ("min_length",) if told.get(key)}
        found |= {"max_length": told["max_length"]} if (told.get("max_length") or context) < context else {}
    return found
