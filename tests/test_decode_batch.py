"""A batch that requests join and leave at any step gives each of them the hypotheses that it gets alone.

The model is a random function of the whole text. It reads the text from a cache that only the selections of the batch
reorder, so a wrong selection gives wrong logits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.decode_batch import DecodeBatch, Selection
from regard.decode_request import DecodeEvent, DecodeRequest, FailEvent, FinishEvent, Hypothesis, TokenEvent
from regard.generate import decode_steps, hypotheses_of, merge_options
from regard.generation_config import GenerationOptions
from regard.parts.cache import Cache
from regard.sampling import CANNOT_END, MUST_END, NO_PROCESSOR, limit_length
from regard.sequence_search import BeamSearch

END, VOCAB = 0, 6
Text = tuple[int, ...]


@cache
def logits_of(model: int, text: Text) -> Tensor:
    return torch.from_numpy(np.random.default_rng([model, *text]).normal(0, 2, VOCAB).astype(np.float32))


class TextCache(Cache):
    """The model (as a source) and the text of each row."""

    def __init__(self, models: list[int], texts: list[Text]):
        super().__init__()
        self.models, self.texts = models, texts

    def select(self, rows: Tensor) -> None:
        self.texts = [self.texts[row] for row in rows]

    def select_sources(self, sources: Tensor) -> None:
        self.models = [self.models[source] for source in sources]


@dataclass(frozen=True)
class Client:
    """A request, when it joins, and after how many steps it is cancelled."""

    model: int
    prompt: Text
    limit: int
    options: GenerationOptions
    join: int
    cancel: int | None
    stop: int | None  # the text is complete at this token
    fault: int | None  # the step from which the logits are NaN of a row whose newest token is odd

    def request(self) -> DecodeRequest:
        is_complete = None if self.stop is None else lambda tokens: tokens[-1] == self.stop
        rules = merge_options(NO_PROCESSOR, self.options, END)
        history = self.prompt[:-1]
        return DecodeRequest(
            [*self.prompt[-1:]], self.limit, self.options, self.model, rules, history, None, is_complete
        )


@dataclass
class Simulation:
    """A model with one cache, and a batch."""

    batch: DecodeBatch = field(default_factory=lambda: DecodeBatch(END))
    cache: TextCache = field(default_factory=lambda: TextCache([], []))
    faults: dict[int, int] = field(default_factory=dict)  # the length of the text from which a model gives NaN

    def apply(self, selection: Selection) -> None:
        if selection.rows is not None:
            self.cache.select(torch.from_numpy(selection.rows))
        if selection.sources is not None:
            self.cache.select_sources(torch.from_numpy(selection.sources))

    def add(self, clients: list[tuple[Client, DecodeRequest]]) -> None:
        self.cache.models = self.cache.models + [client.model for client, _ in clients]
        self.cache.texts = self.cache.texts + [client.prompt[:-1] for client, _ in clients]
        self.apply(self.batch.add([request for _, request in clients]))
        for client, _ in clients:
            if client.fault is not None:
                self.faults[client.model] = len(client.prompt) + client.fault

    def row_models(self) -> list[int]:
        """The model of every row: one source for each sampled row, and for each K rows of beam search."""
        models, sources = [], iter(self.cache.models)
        for search in self.batch.searches.values():
            width = search.width if isinstance(search, BeamSearch) else 1
            models += [model for _, model in zip(range(search.sources), sources, strict=False) for _ in range(width)]
        assert not [*sources]
        return models

    def step(self) -> list[DecodeEvent]:
        newest, models = self.batch.newest(), self.row_models()
        assert len(newest) == len(models) == len(self.cache.texts) == len(self.batch)
        self.cache.texts = [(*text, token) for text, token in zip(self.cache.texts, newest, strict=True)]
        logits = torch.stack([logits_of(m, text) for m, text in zip(models, self.cache.texts, strict=True)]).clone()
        for row, (model, text) in enumerate(zip(models, self.cache.texts, strict=True)):
            if len(text) >= self.faults.get(model, 100) and text[-1] % 2:
                logits[row] = math.nan
        selection, events = self.batch.advance(logits)
        self.apply(selection)
        return events


def simulate(clients: list[Client]) -> list[list[DecodeEvent]]:
    """The events of every client, which join and leave one batch."""
    simulation, events = Simulation(), {}
    requests = [client.request() for client in clients]
    for step in range(100):
        joining = [(c, r) for c, r in zip(clients, requests, strict=True) if c.join == step]
        if joining:
            simulation.add(joining)
        leaving = [r for c, r in zip(clients, requests, strict=True) if c.cancel == step - c.join]
        if leaving:
            simulation.apply(simulation.batch.remove(leaving))
            assert not {*leaving} & {*simulation.batch.requests}
        for event in simulation.step() if len(simulation.batch) else ():
            assert event.request not in leaving
            events.setdefault(event.request, []).append(event)
        if step > max(c.join for c in clients) and not len(simulation.batch):
            break
    assert not len(simulation.batch)
    assert not simulation.cache.texts
    assert not simulation.cache.models
    assert [*simulation.batch.searches] == [1]
    assert not simulation.batch.searches[1].hypotheses, "nothing is left of a request that has ended"
    return [events.get(request, []) for request in requests]


def alone(client: Client) -> list[DecodeEvent]:
    [events] = simulate([replace(client, join=0, cancel=None)])
    return events


def comparable(events: list[DecodeEvent]) -> list[object]:
    """Events without their request: hypotheses and numbers are compared bit for bit."""
    return [(type(event.error), str(event.error)) if isinstance(event, FailEvent) else event[1:] for event in events]


OPTIONS = st.one_of(
    st.just(GenerationOptions(num_beams=1)),
    st.builds(
        lambda t, n, k, p, seed: GenerationOptions(temperature=t, num_return=n, top_k=k, top_p=p, seed=seed),
        st.sampled_from([0.5, 1.0, 2.0]),
        st.integers(1, 3),
        st.sampled_from([0, 2]),
        st.sampled_from([1.0, 0.8]),
        st.integers(0, 3),
    ),
    st.builds(
        lambda k, n, p: GenerationOptions(num_beams=k, num_return=min(k, n), length_penalty=p),
        st.integers(2, 4),
        st.integers(1, 4),
        st.sampled_from([0.0, 0.6, 1.0]),
    ),
).flatmap(
    lambda options: st.builds(
        lambda minimum, penalty, size: replace(
            options, min_new_tokens=minimum, repetition_penalty=penalty, no_repeat_ngram_size=size
        ),
        st.sampled_from([0, 0, 2]),
        st.sampled_from([1.0, 1.0, 1.5]),
        st.sampled_from([0, 0, 2]),
    )
)


@st.composite
def client_lists(draw: st.DrawFn) -> list[Client]:
    count = draw(st.integers(1, 7))
    maybe = st.one_of(st.none(), st.none(), st.none(), st.integers(0, 4))
    return [
        Client(
            model=number,
            prompt=tuple(draw(st.lists(st.integers(1, VOCAB - 1), min_size=1, max_size=3))),
            limit=draw(st.integers(1, 6)),
            options=draw(OPTIONS),
            join=draw(st.integers(0, 8)),
            cancel=draw(maybe),
            stop=draw(st.one_of(st.none(), st.integers(1, VOCAB - 1))),
            fault=draw(st.one_of(maybe, st.none())),
        )
        for number in range(count)
    ]


@given(clients=client_lists())
@settings(max_examples=150)
def test_requests_that_join_and_leave_get_what_they_get_alone(clients: list[Client]) -> None:
    for client, events in zip(clients, simulate(clients), strict=True):
        expected = comparable(alone(client))
        if client.cancel is not None:  # whatever came before it was cancelled
            assert comparable(events) == expected[: len(events)]
        else:
            assert comparable(events) == expected


@given(clients=client_lists())
@settings(max_examples=60)
def test_tokens_of_one_sequence_are_those_of_its_hypothesis(clients: list[Client]) -> None:
    for client in clients:
        events = alone(client)
        tokens = [event for event in events if isinstance(event, TokenEvent)]
        if not client.request().streams:
            assert not tokens
        elif isinstance(events[-1], FinishEvent):
            [best] = events[-1].hypotheses
            assert [token.token for token in tokens] == best.ids
            completed = client.stop in best.ids
            total = np.float32(0)
            for token in tokens:
                total += np.float32(token.logprob)
            assert float(total) == best.logp if completed else float(total) >= best.logp
            assert (best.finish_reason == "length") == (len(best.ids) == client.limit and not completed)


def text_probability(client: Client, text: list[int]) -> float:
    """log P of a text and its </s>, by the definition."""
    total = 0.0
    for i, token in enumerate([*text, END]):
        total += logits_of(client.model, (*client.prompt, *text[:i])).log_softmax(-1)[token].item()
    return total


@given(clients=client_lists())
@settings(max_examples=60)
def test_log_probabilities_are_those_of_the_texts(clients: list[Client]) -> None:
    """Of all requests together: so each row was continued with its own text."""
    clients = [
        replace(c, stop=None, fault=None, cancel=None, options=replace(
            c.options, repetition_penalty=1.0, no_repeat_ngram_size=0
        ))
        for c in clients
    ]  # fmt: skip
    for client, events in zip(clients, simulate(clients), strict=True):
        assert isinstance(events[-1], FinishEvent)
        hypotheses = events[-1].hypotheses
        assert 1 <= len(hypotheses) <= client.options.num_return
        assert all(a.score >= b.score for a, b in pairwise(hypotheses))
        for h in hypotheses:
            assert h.logp == pytest.approx(text_probability(client, h.ids), abs=1e-4)
            assert h.score == pytest.approx(h.logp / (len(h.ids) + 1) ** client.options.length_penalty)


def test_a_greedy_sequence_is_the_most_probable_token_each_time() -> None:
    for model in range(30):
        client = Client(model, (1, 2), 6, GenerationOptions(num_beams=1), 0, None, None, None)
        text: list[int] = []
        while len(text) < 6 and (token := int(logits_of(model, (1, 2, *text)).argmax())) != END:
            text.append(token)
        assert hypotheses(alone(client))[0].ids == text


def hypotheses(events: list[DecodeEvent]) -> list[Hypothesis]:
    assert isinstance(events[-1], FinishEvent)
    return events[-1].hypotheses


def test_decode_steps_gives_the_hypotheses_of_the_batch() -> None:
    """The loop for plain modules: a batch of one kind of search, from its first step to its last."""
    for options in (
        GenerationOptions(num_beams=1),
        GenerationOptions(num_beams=3, num_return=2),
        GenerationOptions(temperature=1.0, num_return=2),
    ):
        clients = [Client(model, (1,), 2 + model, options, 0, None, None, None) for model in range(4)]
        cache = TextCache([c.model for c in clients], [() for _ in clients])

        def step(ids: Tensor, caches: list[Cache], cache: TextCache = cache) -> Tensor:
            cache.texts = [(*text, token) for text, token in zip(cache.texts, ids[:, 0].tolist(), strict=True)]
            width = len(cache.texts) // len(cache.models)
            models = [model for model in cache.models for _ in range(width)]
            return torch.stack([logits_of(m, text) for m, text in zip(models, cache.texts, strict=True)]).clone()

        requests = [client.request() for client in clients]
        events: Iterator[list[DecodeEvent]] = decode_steps(step, [cache], requests, END, torch.device("cpu"))
        results = hypotheses_of(events)
        assert [results[request] for request in requests] == [hypotheses(alone(client)) for client in clients]


def test_a_fault_of_one_request_is_raised_by_its_name_only() -> None:
    clients = [
        Client(model, (1,), 4, options, 0, None, None, 0 if model % 2 else None)
        for model, options in enumerate([GenerationOptions(num_beams=k) for k in (1, 1, 3, 3, 2, 2)])
    ]
    for client, events in zip(clients, simulate(clients), strict=True):
        if client.fault is None:
            assert comparable(events) == comparable(alone(client))
        else:
            [event] = events
            assert isinstance(event, FailEvent)
            assert isinstance(event.error, FloatingPointError)


@given(options=OPTIONS, limit=st.integers(1, 3), model=st.integers(0, 99))
def test_nan_is_an_error_with_all_options(options: GenerationOptions, limit: int, model: int) -> None:
    """Also where a rule forbids or forces tokens; a sampled sequence must not go on beyond its limit."""
    for event in alone(Client(model, (1,), limit, options, 0, None, None, fault=0)):
        assert isinstance(event, FailEvent)


def test_limits_of_length_hide_no_nan() -> None:
    """The first row may not end yet, the second must end now."""
    limited = limit_length(torch.full((2, 4), math.nan), 3, np.array([CANNOT_END, MUST_END], np.int8))
    assert limited.isnan().all()


def test_nothing_is_left_of_a_request_that_fails_after_some_of_its_sequences_have_ended() -> None:
    options = GenerationOptions(temperature=2.0, num_return=3)
    for model in range(20):
        events = alone(Client(model, (1,), 6, options, 0, None, None, fault=2))
        assert {type(event) for event in events} in ({FinishEvent}, {FailEvent})


def test_a_selection_that_changes_nothing_is_none() -> None:
    """So that caches keep their arguments."""
    simulation = Simulation()
    options = GenerationOptions(num_beams=1, min_new_tokens=9)
    client = Client(3, (1,), 9, options, 0, None, None, None)
    assert simulation.batch.add([client.request()]) == (None, None)
    selection, events = simulation.batch.advance(logits_of(3, (1,))[None].clone())
    assert selection == (None, None)
    assert len(events) == 1
    assert simulation.batch.remove([]) == (None, None)
