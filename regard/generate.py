"""Autoregressive generation with a KV cache: greedy, sampling and beam search, as a loop over the steps of a batch.

A `step` maps the newest ids (B,1) and the caches to the logits (B,V) of the next token, which are overwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from regard.beams import FindCandidates, find_candidates
from regard.decode_batch import DecodeBatch, Selection
from regard.decode_request import DecodeEvent, DecodeRequest, FailEvent, FinishEvent, Hypothesis
from regard.generation_config import GenerationOptions
from regard.parts.cache import Cache
from regard.sampling import NO_PROCESSOR, LogitsProcessor

Step = Callable[[Tensor, list[Cache]], Tensor]


def merge_options(processor: LogitsProcessor, options: GenerationOptions, end: int) -> LogitsProcessor:
    """The processor of a folder with the penalties of the options."""
    merged = replace(
        processor,
        repetition_penalty=options.repetition_penalty,
        no_repeat_ngram_size=options.no_repeat_ngram_size,
        bad_words_ids=tuple(word for word in processor.bad_words_ids if [*word] != [end]),  # </s> alone is no word
    )
    return NO_PROCESSOR if merged == NO_PROCESSOR else merged


def select_rows(caches: list[Cache], selection: Selection, device: torch.device) -> None:
    """Reorder the rows and the sources of all caches."""
    rows, sources = (None if part is None else torch.from_numpy(part).to(device) for part in selection)
    for cache in caches:
        if rows is not None:
            cache.select(rows)
        if sources is not None:
            cache.select_sources(sources)


@torch.inference_mode()
def decode_steps(
    step: Step,
    caches: list[Cache],
    requests: Sequence[DecodeRequest],
    end: int,
    device: torch.device,
    find_candidates: FindCandidates = find_candidates,
) -> Iterator[list[DecodeEvent]]:
    """Decode requests from the first step to the last, and yield the events of every step. `caches` hold the prompts
    but for their last tokens. Closing the iterator cancels the rest."""
    batch = DecodeBatch(end, find_candidates)
    select_rows(caches, batch.add(requests), device)
    while len(batch):
        logits = step(torch.tensor(batch.newest(), device=device)[:, None], caches)
        selection, events = batch.advance(logits)
        del logits  # the next ones can use its memory
        select_rows(caches, selection, device)
        yield events


def hypotheses_of(events: Iterator[list[DecodeEvent]]) -> dict[DecodeRequest, list[Hypothesis]]:
    """The hypotheses of every request; a failure is raised."""
    results = {}
    for event in (event for step in events for event in step):
        if isinstance(event, FailEvent):
            raise event.error
        if isinstance(event, FinishEvent):
            results[event.request] = event.hypotheses
    return results


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
    find_candidates: FindCandidates = find_candidates,
) -> list[list[Hypothesis]]:
    """The best hypotheses for each row, best first.

    `start` (B,) are the first ids, `limits` (B,) the maximum numbers of tokens without </s>: at its limit a row can
    only end. `numbers` (B,) are the positions of the rows among all inputs and seed their random streams. `processor`
    sees the `prefixes`, the tokens before each start. It changes logits, in beam search log-probabilities, as in
    transformers.
    """
    merged = merge_options(processor, options, end)
    rows = zip(prefixes or [[]] * len(start), start.tolist(), limits.tolist(), numbers.tolist(), strict=True)
    requests = [DecodeRequest([first], limit, options, n, merged, before) for before, first, limit, n in rows]
    results = hypotheses_of(decode_steps(step, caches, requests, end, start.device, find_candidates))
    return [results[request] for request in requests]
