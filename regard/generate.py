"""Autoregressive generation with a KV cache: greedy, sampling and beam search.

    greedy     the most probable next token, until </s>
    sampling   a random token, P ∝ exp(log P / temperature)
    beam       the `num_beams` most probable unfinished hypotheses in parallel; the answer is the finished one with the
               best score (Sutskever et al. 2014; length penalty as in transformers)

        score = log P(text) / length ** length_penalty          length counts </s>

A `step` maps the newest ids (B,1) and the caches to the logits (B,V) of the next token, which are overwritten.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.beams import Beams, expand, finish, prune
from regard.parts.cache import Cache, select
from regard.parts.heads import NOT_FINITE
from regard.sampling import NO_PROCESSOR, LogitsProcessor, Sampler, gather_rows, greedy, make_sampler
from regard.validate import check_fields

Step = Callable[[Tensor, list[Cache]], Tensor]
MAX_BEAMS = 10_000  # of num_beams and of num_return
MAX_STRENGTH = 100  # of the length penalty and the temperature: larger ones give only infinities


@dataclass(frozen=True)
class GenerationOptions:
    """How an answer is generated; the names are those of Hugging Face's GenerationConfig."""

    num_beams: int = 4  # beam width; 1 = greedy; no effect if --temperature is above 0
    num_return: int = 1  # answers per input, best first
    length_penalty: float = 1.0  # exponent p of the score log P / length^p; higher values favour longer answers
    temperature: float = 0.0  # sampling temperature; 0 = no sampling; 1 = the model's own distribution
    top_k: int = 0  # sample only from the k most probable tokens; 0 = from all
    top_p: float = 1.0  # sample only from the smallest set of tokens with this total probability
    min_new_tokens: int = 0  # minimum tokens of an answer, without </s>
    max_new_tokens: int | None = None  # maximum tokens of an answer, without </s>; default: 2 · input tokens + 10
    seed: int = 0  # random seed of sampling; each input has its own random stream in any batch
    repetition_penalty: float = 1.0  # above 1 = tokens that the text already contains become less probable
    no_repeat_ngram_size: int = 0  # no n-gram of this size occurs twice; 0 = no limit

    def __post_init__(self) -> None:
        check_fields(
            self,
            num_beams=(1 <= self.num_beams <= MAX_BEAMS, f"at least 1 and at most {MAX_BEAMS:,}"),
            num_return=(1 <= self.num_return <= MAX_BEAMS, f"at least 1 and at most {MAX_BEAMS:,}"),
            length_penalty=(abs(self.length_penalty) <= MAX_STRENGTH, f"from -{MAX_STRENGTH} to {MAX_STRENGTH}"),
            temperature=(
                self.temperature == 0 or 1e-6 <= self.temperature <= MAX_STRENGTH,
                f"0, or at least 1e-6 and at most {MAX_STRENGTH}",
            ),
            top_k=(self.top_k >= 0, "0 or more"),
            top_p=(0 < self.top_p <= 1, "above 0 and at most 1"),
            min_new_tokens=(0 <= self.min_new_tokens < 2**63, "0 or more, and below 2^63"),
            max_new_tokens=(
                self.max_new_tokens is None or max(1, self.min_new_tokens) <= self.max_new_tokens < 2**63,
                "1 or more, not below min-new-tokens, and below 2^63",
            ),
            seed=(0 <= self.seed < 2**63, "0 or more, and below 2^63"),
            repetition_penalty=(0 < self.repetition_penalty <= MAX_STRENGTH, f"above 0 and at most {MAX_STRENGTH}"),
            no_repeat_ngram_size=(self.no_repeat_ngram_size >= 0, "0 or more"),
        )
        if self.temperature == 0 and self.num_return > self.num_beams:
            raise ValueError(f"num-return ({self.num_return}) must not exceed num-beams ({self.num_beams})")


class Hypothesis(NamedTuple):
    ids: list[int]  # without </s>
    logp: float  # joint log-probability of ids and </s>
    score: float  # hypotheses are ranked by it


_listener: ContextVar[Callable[[list[int]], None] | None] = ContextVar("listener", default=None)


@contextmanager
def token_listener(listener: Callable[[list[int]], None]) -> Iterator[None]:
    """Call `listener` with the new tokens of every greedy or sampled step in this context."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@torch.inference_mode()
def generate(
    step: Step,
    caches: list[Cache],
    start: Tensor,
    end: int,
    limits: Tensor,
    options: GenerationOptions,
    numbers: Tensor,
    processor: LogitsProcessor = NO_PROCESSOR,
    prefixes: list[list[int]] | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses for each row, best first.

    `start` (B,) are the first ids, `limits` (B,) the maximum numbers of tokens without </s>: at its limit a row can
    only end. `numbers` (B,) are the positions of the rows among all inputs and seed their random streams. `processor`
    sees the `prefixes`, the tokens before each start. It changes logits, in beam search log-probabilities, as in
    transformers.
    """
    words = tuple(word for word in processor.bad_words_ids if [*word] != [end])  # </s> alone is no word
    processor = replace(
        processor,
        repetition_penalty=options.repetition_penalty,
        no_repeat_ngram_size=options.no_repeat_ngram_size,
        bad_words_ids=words,
    )
    prompts = [[*ids, first] for ids, first in zip(prefixes or [[]] * len(start), start.tolist(), strict=True)]
    if options.temperature == 0 and options.num_beams > 1:
        return beam_search(step, caches, start, end, limits, options, processor, prompts)
    if options.temperature == 0:
        return [[h] for h in sample(step, caches, start, end, limits, options, greedy, processor, prompts)]
    n = options.num_return
    rows = torch.arange(len(start), device=start.device).repeat_interleave(n)
    select(caches, rows, rows)
    streams = [np.random.default_rng([options.seed, number, i]) for number in numbers.tolist() for i in range(n)]
    sampler = make_sampler(streams, options.temperature, options.top_k, options.top_p)
    prompts = [prompts[row] for row in rows]
    sampled = sample(step, caches, start[rows], end, limits[rows], options, sampler, processor, prompts)
    return [sorted(sampled[i : i + n], key=lambda h: -h.score) for i in range(0, len(sampled), n)]


def sample(
    step: Step,
    caches: list[Cache],
    start: Tensor,
    end: int,
    limits: Tensor,
    options: GenerationOptions,
    sampler: Sampler,
    processor: LogitsProcessor,
    prompts: list[list[int]],
) -> list[Hypothesis]:
    """One hypothesis for every row, a token at a time; finished rows leave the batch."""
    ids, max_tokens, rows, device = start[:, None], limits.tolist(), [*range(len(start))], start.device
    texts: list[list[int]] = [[] for _ in rows]
    hypotheses: dict[int, Hypothesis] = {}
    logp = [np.float32(0)] * len(rows)
    time, listener = 0, _listener.get()
    while rows:
        time += 1
        logits = step(ids, caches)
        if processor != NO_PROCESSOR:
            processor.apply(logits, [prompts[row] + texts[row] for row in rows], time)
        logprobs = limit_length(log_softmax_(logits), time, end, max_tokens, options)
        tokens = sampler(logprobs, rows)
        logp = [total + value for total, value in zip(logp, gather_rows(logprobs, tokens), strict=True)]
        if any(map(math.isnan, logp)):  # a NaN or +inf among the logits, or only -inf, makes the whole row NaN
            raise FloatingPointError(NOT_FINITE)
        if end in tokens:
            for row, token, total in zip(rows, tokens, logp, strict=True):
                if token == end:
                    hypotheses[row] = score_hypothesis(texts[row], float(total), options)
            alive = [i for i, token in enumerate(tokens) if token != end]
            rows, tokens, max_tokens = ([values[i] for i in alive] for values in (rows, tokens, max_tokens))
            logp = [logp[i] for i in alive]
            select(caches, indices := torch.tensor(alive, dtype=torch.long, device=device), indices)
        for row, token in zip(rows, tokens, strict=True):
            texts[row].append(token)
        if listener is not None:
            listener(tokens)
        ids = torch.tensor([[token] for token in tokens], device=device)
    return [hypotheses[row] for row in range(len(start))]


def beam_search(
    step: Step,
    caches: list[Cache],
    start: Tensor,
    end: int,
    limits: Tensor,
    options: GenerationOptions,
    processor: LogitsProcessor = NO_PROCESSOR,
    prompts: list[list[int]] | None = None,
) -> list[list[Hypothesis]]:
    """Expand, finish, prune, until every input has K = `num_beams` finished hypotheses or no beam is left."""
    B, K, device = len(start), options.num_beams, start.device
    logp = np.full((B, K), -math.inf, np.float32)
    logp[:, 0] = 0.0  # at first all beams of an input are equal: use one
    beams = Beams(np.arange(B), np.empty((B * K, 0), np.int64), logp, limits.repeat_interleave(K).tolist())
    hypotheses: list[list[Hypothesis]] = [[] for _ in start]
    ids = start.repeat_interleave(K)[:, None]  # (B·K,1)
    for cache in caches:
        cache.select(torch.from_numpy(beams.inputs.repeat(K)).to(device))
    while len(beams.inputs):
        time = beams.tokens.shape[1] + 1
        logprobs = log_softmax_(step(ids, caches))
        if processor != NO_PROCESSOR and prompts:
            pairs = zip(beams.inputs.repeat(K), beams.tokens.tolist(), strict=True)
            processor.apply(logprobs, [prompts[i] + text for i, text in pairs], time)
        candidates = expand(limit_length(logprobs, time, end, beams.limits, options), beams.logp)
        del logprobs  # the next ones can use its memory
        ends, texts = finish(candidates, beams, end)
        for i, tokens, total in texts:
            hypotheses[i].append(score_hypothesis(tokens, total, options))
        is_done = np.array([len(hypotheses[i]) >= K for i in beams.inputs])
        beams, parents, survivors = prune(candidates, beams, ends, is_done)
        ids = torch.from_numpy(beams.tokens[:, -1:].copy()).to(device)
        groups = None if len(survivors) == len(is_done) else torch.from_numpy(survivors).to(device)
        select(caches, torch.from_numpy(parents).to(device), groups)
    return [sorted(group, key=lambda h: -h.score)[: options.num_return] for group in hypotheses]


def score_hypothesis(ids: list[int], logp: float, options: GenerationOptions) -> Hypothesis:
    return Hypothesis(ids, logp, logp / (len(ids) + 1) ** options.length_penalty)


def log_softmax_(logits: Tensor) -> Tensor:
    """In place: for the beams of a large vocabulary, allocating another table costs more than filling it."""
    if logits.dtype != torch.float32:
        return logits.log_softmax(-1, dtype=torch.float32)
    return torch.log_softmax(logits, -1, out=logits)


def limit_length(logprobs: Tensor, time: int, end: int, limits: list[int], options: GenerationOptions) -> Tensor:
    """Forbid </s> before `min_new_tokens`, and everything else at the limit of a row, which takes precedence: there a
    row ends even if the processor forbids </s>, which then costs nothing."""
    over = [row for row, limit in enumerate(limits) if limit < time]
    ending = logprobs[over, end] if over else None
    if time <= options.min_new_tokens:
        logprobs[:, end] = -math.inf
    if ending is not None:
        logprobs[over] = -math.inf
        logprobs[over, end] = ending.masked_fill(ending == -math.inf, 0.0)
    return logprobs


# Keys of generation_config.json that are options here, under the same names.
SHARED_KEYS = (
    *("num_beams", "length_penalty", "repetition_penalty", "no_repeat_ngram_size", "min_new_tokens", "max_new_tokens"),
)
SAMPLING_DEFAULTS = {"temperature": 1.0, "top_k": 50, "top_p": 1.0}  # of transformers, with do_sample alone
PROCESSOR_KEYS = ("suppress_tokens", "begin_suppress_tokens", "bad_words_ids", "forced_bos_token_id")
OTHER_KEYS = ("do_sample", "max_length", "min_length", "forced_eos_token_id")
SUPPORTED_KEYS = (*SHARED_KEYS, *SAMPLING_DEFAULTS, *PROCESSOR_KEYS, *OTHER_KEYS)
UNSUPPORTED_KEYS = {  # keys that change an answer, and the value with which they do not
    "typical_p": 1.0, "min_p": 0.0, "top_h": None, "epsilon_cutoff": 0.0, "eta_cutoff": 0.0, "penalty_alpha": 0.0,
    "encoder_repetition_penalty": 1.0, "encoder_no_repeat_ngram_size": 0, "exponential_decay_length_penalty": None,
    "sequence_bias": None, "forced_decoder_ids": None, "force_words_ids": None, "constraints": None,
    "num_beam_groups": 1, "diversity_penalty": 0.0, "num_return_sequences": 1, "guidance_scale": 1.0,
    "renormalize_logits": False, "stop_strings": None, "watermarking_config": None, "dola_layers": None,
    "token_healing": False, "max_time": None,
}  # fmt: skip


def options_from_config(config: Mapping[str, object]) -> dict[str, object]:
    """The generation options that a generation_config.json asks for."""
    options = {key: config[key] for key in SHARED_KEYS if config.get(key) is not None}
    if config.get("do_sample"):
        options.pop("num_beams", None)
        return options | {
            key: default if config.get(key) is None else config[key] for key, default in SAMPLING_DEFAULTS.items()
        }
    searched = config.get("do_sample") is False or options.get("num_beams", 1) != 1
    return options | ({"temperature": 0.0} if searched else {})


def processor_from_config(config: Mapping[str, Any]) -> LogitsProcessor:
    return LogitsProcessor(**{key: value for key, value in config.items() if key in PROCESSOR_KEYS})


def unsupported_settings(
    config: Mapping[str, Any], eos_ids: list[int], context: int, is_seq2seq: bool
) -> dict[str, object]:
    """The settings of a generation_config.json that would change an answer and are ignored here."""
    ignored = {key: config[key] for key, neutral in UNSUPPORTED_KEYS.items() if config.get(key) not in (None, neutral)}
    if config.get("do_sample"):
        ignored |= {"num_beams": config["num_beams"]} if (config.get("num_beams") or 1) != 1 else {}
    elif config.get("do_sample") is None:  # transformers ignores them too, with a warning
        ignored |= {
            key: config[key] for key, default in SAMPLING_DEFAULTS.items() if config.get(key) not in (None, default)
        }
    if config.get("early_stopping") not in (None, True, False):
        ignored["early_stopping"] = config["early_stopping"]
    if config.get("forced_eos_token_id") not in (None, eos_ids, *eos_ids):
        ignored["forced_eos_token_id"] = config["forced_eos_token_id"]
    if not is_seq2seq:  # there, lengths include the prompt
        ignored |= {key: config[key] for key in ("min_length",) if config.get(key)}
        ignored |= {"max_length": config["max_length"]} if (config.get("max_length") or context) < context else {}
    return ignored
