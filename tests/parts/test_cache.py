"""A cache holds what was appended, in order, after any growth and reordering of rows."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.parts.cache import Cache, select

B, G, E = 3, 2, 5


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape)


@given(
    seed=st.integers(0, 999),
    chunks=st.lists(
        st.tuples(st.integers(1, 20), st.lists(st.integers(0, B - 1), max_size=4)), min_size=1, max_size=12
    ),
)
@settings(deadline=None, derandomize=True, max_examples=60)
def test_growing_and_selecting_equals_concatenating_and_indexing(seed: int, chunks) -> None:
    torch.manual_seed(seed)
    cache, rows = Cache(), B
    keys, values = numbers(B, G, 0, E), numbers(B, G, 0, E + 1)
    for length, chosen in chunks:
        k, v = numbers(rows, G, length, E), numbers(rows, G, length, E + 1)
        keys, values = torch.cat((keys, k), 2), torch.cat((values, v), 2)
        cached = cache.extend(k, v)
        assert cache.length == keys.size(2)
        assert torch.equal(cached[0], keys)
        assert torch.equal(cached[1], values)
        if chosen:
            order = torch.tensor(chosen) % rows
            cache.select(order)
            keys, values, rows = keys[order], values[order], len(chosen)


def test_buffer_is_reallocated_rarely() -> None:
    cache, addresses = Cache(), set()
    for _ in range(200):
        keys, _ = cache.extend(numbers(B, G, 1, E), numbers(B, G, 1, E))
        addresses.add(keys.data_ptr())
    assert len(addresses) <= 5


def test_selecting_from_an_empty_cache_is_no_error() -> None:
    cache = Cache()
    cache.select(torch.tensor([1, 1]))
    cache.select_sources(torch.tensor([1]))
    assert cache.extend(numbers(2, G, 1, E), numbers(2, G, 1, E))[0].size(0) == 2


def test_rows_and_sources_are_selected_separately_in_every_layer() -> None:
    source, mask = (numbers(B, G, 4, E), numbers(B, G, 4, E)), torch.rand(B, 1, 1, 4) < 0.5
    caches = [Cache(source, mask) for _ in range(2)]
    keys = numbers(2 * B, G, 3, E)
    for cache in caches:
        cache.extend(keys, keys)
    sources = torch.tensor([2, 0])
    rows = torch.tensor([4, 5, 0, 1])  # both beams of these
    select(caches, rows)
    for cache in caches:
        assert cache.source is source
    select(caches, torch.tensor([3, 0, 0]), sources)
    for cache in caches:
        new = numbers(3, G, 1, E)
        assert torch.equal(cache.extend(new, new)[0], torch.cat((keys[rows][[3, 0, 0]], new), 2))
        assert torch.equal(cache.source[0], source[0][sources])
        assert torch.equal(cache.source[1], source[1][sources])
        assert torch.equal(cache.source_mask, mask[sources])


@given(seed=st.integers(0, 999), orders=st.lists(st.lists(st.integers(0, B - 1), min_size=1, max_size=4), max_size=5))
@settings(deadline=None, derandomize=True, max_examples=30)
def test_recurrent_state_follows_its_rows(seed: int, orders: list[list[int]]) -> None:
    torch.manual_seed(seed)
    state = (numbers(B, E), numbers(B, G, E, E))
    cache = Cache(state=state)
    assert cache.length == 0
    for count, chosen in enumerate(orders, start=1):
        order = torch.tensor(chosen) % len(state[0])
        select([cache], order)
        state = tuple(part[order] for part in state)
        assert all(map(torch.equal, cache.state, state))
        state = tuple(part + count for part in state)
        cache.advance(state, 3)
        assert cache.length == 3 * count
