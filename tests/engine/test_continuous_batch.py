"""Continuous batching: a request has the same bits alone and among any others, and leaves nothing behind.

Requests join at random steps, with prompts in chunks of any size and shared prefixes; some are cancelled.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from small_models import DECODERS, SEQ2SEQ, V, build_model
from torch import Tensor

pytest.importorskip("regard.engine.kernels.llvm", exc_type=ImportError)  # Numba, and a CPU that the engine supports

from regard.beams import find_candidates
from regard.data.batches import Ints, padding_mask
from regard.decode_request import BatchLimits, DecodeEvent, DecodeRequest, FinishEvent, Hypothesis, TokenEvent
from regard.engine.continuous_batch import ContinuousBatch, tokens_of
from regard.engine.engine_model import EngineModel, to_engine
from regard.engine.paged_cache import FIRST_SLOTS
from regard.engine.prefix_cache import BLOCK, PrefixCache
from regard.engine.quantize import quantize_model
from regard.generate import generate
from regard.generation_config import GenerationOptions
from regard.modalities.protocols import Inputs
from regard.modalities.token_preprocessor import TokenIds
from regard.parts.heads import Model
from regard.tasks.decoding import SourceRow

END, CONTEXT = 0, 40
GREEDY, BEAM = GenerationOptions(num_beams=1), GenerationOptions(num_beams=3, num_return=2)
SAMPLE = GenerationOptions(temperature=1.3, num_return=2, seed=5)
METHODS = [GREEDY, GenerationOptions(num_beams=2), SAMPLE, BEAM, replace(SAMPLE, num_return=1, top_k=9), GREEDY]
EVERY_MODEL = pytest.mark.parametrize("name", [*DECODERS, *SEQ2SEQ])
SOURCES = TokenIds([[5, 9, 3], [7] * 8, [11, 2], [31, 8, 4, 17, 22], [50]])


class Collator:
    """The preprocessor of a task: pads sources."""

    def collate(self, inputs: TokenIds, rows: Ints, training: bool) -> Inputs:
        ids = inputs.ids.pad(rows, 1)
        return Inputs(ids, padding_mask(inputs.ids.lengths[rows], ids.size(1)))


TASK: Any = SimpleNamespace(end=END, constrain=lambda logits: None, preprocessor=Collator())


@cache
def plain_model(name: str, int8: bool) -> Model:
    model = build_model(name)
    return quantize_model(model) if int8 else model


@cache
def engine_model(name: str, int8: bool = False) -> EngineModel:
    model = to_engine(plain_model(name, int8), batch_invariant=True)
    assert isinstance(model, EngineModel)
    return model


def make_requests(name: str, count: int, seed: int = 1, shared: int = 0) -> list[DecodeRequest]:
    """Random requests, whose prompts have the same first `shared` tokens."""
    chance = random.Random(seed)
    beginning = [chance.randrange(1, V) for _ in range(shared)]
    requests = []
    for number in range(count):
        if name in SEQ2SEQ:
            prompt, source = [1], SourceRow(SOURCES, number % SOURCES.units)
        else:
            rest = chance.randrange(1, CONTEXT - shared - 3) if number % 3 else 1
            prompt, source = [*beginning, *(chance.randrange(1, V) for _ in range(rest))], None
        limit = chance.randrange(1, min(12, CONTEXT - len(prompt)) + 1)
        requests.append(DecodeRequest(prompt, limit, METHODS[number % len(METHODS)], number, source=source))
    return requests


class Recorder:
    """What comes out of a batch for each request."""

    def __init__(self, batch: ContinuousBatch):
        self.batch = batch
        self.events: dict[DecodeRequest, list[object]] = {}

    def step(self) -> list[DecodeEvent]:
        events = self.batch.step()
        for event in events:
            assert isinstance(event, TokenEvent | FinishEvent)
            self.events.setdefault(event.request, []).append(event[1:])
        return events

    def run(self) -> None:
        steps = 0
        while len(self.batch):
            self.step()
            steps += 1
            assert steps < 5000, "the batch does not end"


def alone(model: EngineModel, request: DecodeRequest) -> list[object]:
    recorder = Recorder(ContinuousBatch(model, TASK))
    recorder.batch.add(request)
    recorder.run()
    return recorder.events[request]


def arrive(recorder: Recorder, requests: list[DecodeRequest], seed: int) -> None:
    """Requests join one by one or several at once, at random steps, in random order."""
    chance = random.Random(seed)
    waiting = chance.sample(requests, len(requests))
    while waiting:
        for _ in range(chance.choice([0, 0, 1, 1, 2, 5])):
            if waiting:
                recorder.batch.add(waiting.pop())
        recorder.step()
    recorder.run()


LIMITS = [
    BatchLimits(),
    BatchLimits(max_batch_size=3, prefill_tokens=1),
    BatchLimits(max_batch_tokens=90, prefill_tokens=5),
    BatchLimits(max_batch_size=1, prefill_tokens=BLOCK),
    BatchLimits(max_batch_tokens=2 * BLOCK, prefill_tokens=7),  # one block of prefixes
]


def check_same_bits(model: EngineModel, requests: list[DecodeRequest], limits: Iterable[BatchLimits] = LIMITS) -> None:
    """The tokens, their log-probabilities and the hypotheses of each request, alone and under random arrivals."""
    expected = {request: alone(model, request) for request in requests}
    for seed, limit in enumerate(limits):
        batch = ContinuousBatch(model, TASK, limit)
        for turn in range(2):  # in the second, the prefix cache has all prompts
            recorder = Recorder(batch)
            arrive(recorder, requests, 2 * seed + turn)
            assert recorder.events == expected
            assert batch.slots_in_use == len(batch) == 0


@EVERY_MODEL
@pytest.mark.parametrize("int8", [False, True], ids=["exact", "int8"])
def test_a_request_has_the_same_bits_alone_and_among_others(name: str, int8: bool) -> None:
    check_same_bits(engine_model(name, int8), make_requests(name, 12))


@pytest.mark.parametrize("shared", [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK])
def test_requests_with_a_common_prefix_have_the_same_bits(shared: int) -> None:
    check_same_bits(engine_model("llama"), make_requests("llama", 8, shared, shared))


@pytest.mark.parametrize("name", ["gpt-wide", "post-norm"])
@pytest.mark.parametrize("int8", [False, True], ids=["exact", "int8"])
def test_a_request_has_the_same_bits_in_a_large_batch(name: str, int8: bool) -> None:
    """Hundreds of rows in one step, for which kernels have other ways."""
    model, limits = engine_model(name, int8), BatchLimits(max_batch_size=200, prefill_tokens=1000)
    few = [replace(request, options=GREEDY, limit=3) for request in make_requests(name, 10)]
    recorder = Recorder(ContinuousBatch(model, TASK, limits))
    crowd = [replace(request, limit=3) for request in make_requests(name, 60, seed=9)]
    for request in (*few, *crowd):
        recorder.batch.add(request)
    recorder.run()
    assert [recorder.events[request] for request in few] == [alone(model, request) for request in few]


def test_the_number_of_threads_changes_no_bit() -> None:
    requests = make_requests("gpt-wide", 6)
    expected = [alone(engine_model("gpt-wide"), request) for request in requests]
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        recorder = Recorder(ContinuousBatch(engine_model("gpt-wide"), TASK))
        arrive(recorder, requests, 1)
    finally:
        torch.set_num_threads(threads)
    assert [recorder.events[request] for request in requests] == expected


def perturb(model: EngineModel, patch: pytest.MonkeyPatch) -> None:
    """A kernel whose last bit depends on the number of rows."""
    original = model.mixed_step

    def mixed_step(cache: Any, ids: Tensor, counts: Ints, outputs: int) -> Tensor:
        logits = original(cache, ids, counts, outputs)
        return logits * (1 + 2e-7) if len(ids) > 3 else logits

    patch.setattr(model, "mixed_step", mixed_step)


def share_wrong_slots(_: EngineModel, patch: pytest.MonkeyPatch) -> None:
    match = PrefixCache.match
    patch.setattr(PrefixCache, "match", lambda self, tokens: match(self, tokens)[::-1].copy())


@pytest.mark.parametrize("fault", [perturb, share_wrong_slots])
def test_a_fault_is_seen(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control, which injects its own fault."""
    model, requests = engine_model("nanochat"), make_requests("nanochat", 8, 3, 2 * BLOCK)
    check_same_bits(model, requests)
    fault(model, monkeypatch)
    with pytest.raises(AssertionError):
        check_same_bits(model, requests)


@torch.inference_mode()
def generate_one(model: Model, request: DecodeRequest) -> list[Hypothesis]:
    """By `generate`, with the caches of the model itself."""
    if request.source is not None:
        ids = torch.from_numpy(SOURCES.ids[request.source.row]).long()[None]
        caches = model.body.decoder_caches(ids)
    else:
        caches = model.body.caches()
        if len(request.prompt) > 1:
            model.body(torch.tensor([request.prompt[:-1]]), cache=caches)
    start, limits = torch.tensor(request.prompt[-1:]), torch.tensor([request.limit])
    number = torch.tensor([request.number])
    find = getattr(model, "find_candidates", find_candidates)
    [best] = generate(model.next_logits, caches, start, END, limits, request.options, number, find_candidates=find)
    return best


def hypotheses(events: list[Any]) -> list[Hypothesis]:
    return events[-1][0]


@EVERY_MODEL
def test_the_tokens_are_those_of_generate_on_plain_modules(name: str) -> None:
    for request in make_requests(name, 6, seed=4):
        best, expected = hypotheses(alone(engine_model(name), request)), generate_one(plain_model(name, False), request)
        assert [h.logp for h in best] == pytest.approx([h.logp for h in expected], abs=1e-4)
        is_tie = np.allclose([h.score for h in best], [h.score for h in expected], atol=1e-5, rtol=0)
        assert [h.ids for h in best] == [h.ids for h in expected] or is_tie
        assert [h.finish_reason for h in best] == [h.finish_reason for h in expected] or is_tie


@pytest.mark.parametrize("name", ["gpt", "pre-norm"])
@pytest.mark.parametrize("int8", [False, True], ids=["exact", "int8"])
def test_the_bits_are_those_of_generate_on_the_same_engine(name: str, int8: bool) -> None:
    """Whole prompts in one call of the body, as `regard run` uses them."""
    model = engine_model(name, int8)
    for request in make_requests(name, 6, seed=4):
        assert hypotheses(alone(model, request)) == generate_one(model, request)


@pytest.mark.parametrize("name", ["llama", "post-norm"])
def test_cancelled_requests_leave_nothing_behind(name: str) -> None:
    """At random times, for many rounds: rows are freed, the pools do not grow, and no other request changes."""
    model = engine_model(name)
    requests = make_requests(name, 10, seed=2, shared=0 if name in SEQ2SEQ else BLOCK)
    expected = {request: alone(model, request) for request in requests}
    batch, chance, capacities = ContinuousBatch(model, TASK, BatchLimits(prefill_tokens=9)), random.Random(7), []
    for _ in range(12):
        recorder, cancelled = Recorder(batch), set()
        waiting = chance.sample(requests, len(requests))
        while waiting or len(batch):
            if waiting and chance.random() < 0.7:
                batch.add(waiting.pop())
            if chance.random() < 0.3:
                victim = chance.choice(requests)
                if victim not in waiting and not has_finished(recorder, victim):
                    batch.cancel(victim)
                    cancelled.add(victim)
            events = recorder.step()
            assert not cancelled & {event.request for event in events}, "no event follows a cancellation"
        for request, events in recorder.events.items():
            if request in cancelled:
                assert events == expected[request][: len(events)]
            else:
                assert events == expected[request]
        assert {*recorder.events} | cancelled == {*requests}
        assert batch.slots_in_use == len(batch) == 0
        pools = [pool for pool in (batch.cache.pool, batch.cache.source_pool) if pool is not None]
        capacities.append([pool.capacity for pool in pools])
    assert capacities[-1] == capacities[len(capacities) // 2]


@pytest.mark.parametrize("victim", range(4))
@pytest.mark.parametrize("steps", [1, 3, 6])
def test_one_of_several_prompts_is_cancelled_while_several_are_prefilled(victim: int, steps: int) -> None:
    model = engine_model("llama")
    requests = [DecodeRequest([7 * i + 1] * (6 + i), 4, METHODS[i], i) for i in range(4)]
    recorder = Recorder(ContinuousBatch(model, TASK, BatchLimits(prefill_tokens=3)))
    for request in requests:
        recorder.batch.add(request)
    for _ in range(steps):
        recorder.step()
    recorder.batch.cancel(requests[victim])
    recorder.run()
    for request in requests:
        events = recorder.events.get(request, [])
        assert events == alone(model, request)[: len(events)]
        assert has_finished(recorder, request) == (request is not requests[victim])


def has_finished(recorder: Recorder, request: DecodeRequest) -> bool:
    return any(len(event) == 1 for event in recorder.events.get(request, []))


def counted(batch: ContinuousBatch, patch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The numbers of rows that decode and of prompt tokens in every step of the model."""
    steps, original = [], batch.model.mixed_step

    def mixed_step(cache: Any, ids: Tensor, counts: Ints, outputs: int) -> Tensor:
        assert len(ids) == counts.sum()
        steps.append((outputs, len(ids) - outputs))
        return original(cache, ids, counts, outputs)

    patch.setattr(batch.model, "mixed_step", mixed_step)
    return steps


@pytest.mark.parametrize("length", [BLOCK, BLOCK + 1, BLOCK + 2, 2 * BLOCK + 1, 2 * BLOCK + 5])
def test_a_prompt_with_a_known_prefix_is_not_computed_again(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = ContinuousBatch(engine_model("gpt"), TASK)
    steps = counted(batch, monkeypatch)
    prompt = [*range(1, length + 1)]
    for turn in range(2):
        steps.clear()
        recorder, request = Recorder(batch), DecodeRequest(prompt, 3, replace(GREEDY, min_new_tokens=3))
        batch.add(request)
        recorder.run()
        assert sum(tokens for _, tokens in steps) == (length - 1) % BLOCK if turn else length - 1
        assert sum(rows for rows, _ in steps) == 4
        assert recorder.events[request] == alone(engine_model("gpt"), request)


def survive(model: EngineModel) -> None:
    """A prefix is kept while the slots of many other requests are used again and again."""
    recorder = Recorder(ContinuousBatch(model, TASK))
    prompt = DecodeRequest([*range(1, 2 * BLOCK + 2)], 3, GREEDY)
    others = (DecodeRequest([2 + i % 9] * (BLOCK - 2), 2, GREEDY, i) for i in range(40))
    for request in (prompt, *others, last := replace(prompt)):
        recorder.batch.add(request)
        recorder.run()
    assert recorder.batch.cache.pool.capacity <= 4 * FIRST_SLOTS
    assert recorder.events[last] == recorder.events[prompt]


def test_a_prefix_survives_other_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    survive(engine_model("gpt"))
    monkeypatch.setattr(PrefixCache, "slots", lambda self: [])  # the negative control
    with pytest.raises(AssertionError):
        survive(engine_model("gpt"))


def test_a_text_that_goes_on_shares_its_older_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two prompts with one beginning of a whole block, and different ends; at the same time."""
    batch = ContinuousBatch(engine_model("gpt"), TASK, BatchLimits(prefill_tokens=100))
    steps = counted(batch, monkeypatch)
    beginning = [*range(1, BLOCK + 1)]
    for number, end in enumerate(([20, 21], [30], [30, 31, 32])):
        batch.add(DecodeRequest([*beginning, *end], 2, GREEDY, number))
        batch.step()
    assert [tokens for _, tokens in steps] == [BLOCK + 1, 0, 2]


def test_a_long_prompt_does_not_delay_the_others() -> None:
    """While it is prefilled in many chunks, every other sequence gets a token at every step."""
    batch = ContinuousBatch(engine_model("gpt"), TASK, BatchLimits(prefill_tokens=2))
    others = [DecodeRequest([5 + i], 30, replace(GREEDY, min_new_tokens=30), i) for i in range(3)]
    for request in others:
        batch.add(request)
    batch.step()
    long = DecodeRequest([*range(1, 37)], 3, GREEDY, 3)
    batch.add(long)
    for _ in range(18):  # 35 tokens in chunks of 2
        events = batch.step()
        assert {event.request for event in events if isinstance(event, TokenEvent)} == {*others}
    assert long in {event.request for event in batch.step()}


def test_the_prompts_of_a_step_stay_within_their_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    for budget in (1, 3, 10):
        with monkeypatch.context() as patch:
            batch = ContinuousBatch(engine_model("gpt"), TASK, BatchLimits(prefill_tokens=budget))
            steps = counted(batch, patch)
            for i in range(4):
                batch.add(DecodeRequest([*range(1 + i, 9 + i)], 2, GREEDY, i))
            Recorder(batch).run()
        assert max(tokens for _, tokens in steps) <= budget
        assert sum(tokens for _, tokens in steps) == 4 * 7


def running(batch: ContinuousBatch) -> list[DecodeRequest]:
    return [*batch.batch.requests, *batch.prefilling]


@pytest.mark.parametrize("limits", [BatchLimits(max_batch_size=4), BatchLimits(max_batch_tokens=60)])
def test_what_runs_at_the_same_time_stays_within_the_limits(limits: BatchLimits) -> None:
    """But one request that is larger runs alone; and requests start in their order."""
    batch, started = ContinuousBatch(engine_model("gpt"), TASK, limits), []
    requests = make_requests("gpt", 12)
    requests.insert(4, DecodeRequest([3, 4], 30, replace(BEAM, num_beams=5), 50))
    assert batch.has_room(requests[:1])
    for request in requests:
        batch.add(request)
    assert not batch.has_room([requests[0]])
    while len(batch):
        batch.step()
        new = [request for request in running(batch) if request not in started]
        started += sorted(new, key=requests.index)
        rows, tokens = sum(r.rows for r in running(batch)), sum(map(tokens_of, running(batch)))
        within = rows <= limits.max_batch_size and tokens <= limits.max_batch_tokens
        assert within or len(running(batch)) == 1
    assert started == [request for request in requests if request in started]


@pytest.mark.parametrize("kind", ["gpt", "pre-norm"])
def test_a_step_of_an_empty_batch_does_nothing(kind: str) -> None:
    batch = ContinuousBatch(engine_model(kind), TASK)
    assert batch.step() == []
    [request] = make_requests(kind, 1)
    batch.add(request)
    batch.cancel(request)
    batch.cancel(request)
    assert len(batch) == 0
    assert batch.step() == []
    assert batch.has_room([request])


def many_steps(batch: ContinuousBatch, requests: Iterator[DecodeRequest]) -> None:
    for request in requests:
        batch.add(request)
        batch.step()
    Recorder(batch).run()


def test_the_pool_holds_what_runs_and_no_more() -> None:
    """Thousands of tokens through a small batch: slots of ended requests, and of dropped prefixes, are used again."""
    limits = BatchLimits(max_batch_tokens=128, max_batch_size=4)
    batch, chance = ContinuousBatch(engine_model("gpt"), TASK, limits), random.Random(3)
    prompts = ([chance.randrange(1, V) for _ in range(20)] for _ in range(120))
    many_steps(batch, (DecodeRequest(prompt, 3, GREEDY, number) for number, prompt in enumerate(prompts)))
    assert len(batch.prefixes) <= limits.max_batch_tokens // 2
    assert batch.cache.pool.capacity <= 4 * (limits.max_batch_tokens + limits.max_batch_tokens // 2)
