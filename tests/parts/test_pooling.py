"""Pooling ignores padding, and a single vector passes through."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from regard.look import look
from regard.parts.pooling import POOLINGS, AttentionPool, FirstPool, LastPool, MeanPool, MeanSumPool

B, T, D = 3, 7, 5
LENGTHS = [T, 1, 4]
every_pooling = pytest.mark.parametrize("name", POOLINGS)


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def mask_of(lengths: list[int], longest: int) -> Tensor:
    return (torch.arange(longest) < torch.tensor(lengths)[:, None])[:, None, None]


@every_pooling
@given(seed=st.integers(0, 99), lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4))
@settings(deadline=None, derandomize=True, max_examples=20)
def test_padded_batch_equals_single_sequences(name: str, seed: int, lengths: list[int]) -> None:
    torch.manual_seed(seed)
    pool = POOLINGS[name](D).double()
    x = numbers(len(lengths), 6, D)
    together = pool(x, mask_of(lengths, 6))
    assert together.shape == (len(lengths), D)
    for i, length in enumerate(lengths):
        assert_close(together[i], pool(x[i : i + 1, :length])[0])


@pytest.mark.parametrize("name", sorted({*POOLINGS} - {"pooler", "sum"}))  # those have weights
def test_a_single_vector_passes_through(name: str) -> None:
    pool, x = POOLINGS[name](D).double(), numbers(B, 1, D)
    for mask in None, mask_of(LENGTHS, T):
        assert_close(pool(x, mask), x[:, 0])


def test_last_first_and_mean() -> None:
    x, mask = numbers(B, T, D), mask_of(LENGTHS, T)
    assert torch.equal(LastPool()(x), x[:, -1])
    assert torch.equal(LastPool()(x, mask), torch.stack([x[i, n - 1] for i, n in enumerate(LENGTHS)]))
    assert torch.equal(FirstPool()(x, mask), x[:, 0])
    assert_close(MeanPool()(x, mask), torch.stack([x[i, :n].mean(0) for i, n in enumerate(LENGTHS)]))


def test_mean_sum_pool_depends_on_the_length() -> None:
    torch.manual_seed(1)
    x = numbers(1, 2, D)
    pool, twice = MeanSumPool(D).double(), x.repeat(1, 2, 1)
    assert_close(MeanPool()(x), MeanPool()(twice))
    assert (pool(x) - pool(twice)).abs().max() > 1e-3
    features = torch.cat((x.mean(1), x.sum(1) / 10), -1)
    assert_close(pool(x), torch.nn.functional.gelu(features @ pool.dense.weight.T + pool.dense.bias))


def test_attention_pool_records_its_weights() -> None:
    torch.manual_seed(1)
    pool, x, mask = AttentionPool(D).double(), numbers(B, T, D), mask_of(LENGTHS, T)
    with look(pool) as trace:
        y = pool(x, mask)
    weights = trace["weights"]
    assert weights.shape == (B, 1, T)
    assert_close(weights.sum(-1), torch.ones(B, 1, dtype=x.dtype))
    assert not weights[~mask[:, 0]].any()
    assert_close(y, (weights.mT * x).sum(1))
    score = (x[0] @ pool.score.weight[0]).exp()
    assert_close(weights[0, 0], score / score.sum())


@every_pooling
def test_empty_text_is_finite(name: str) -> None:
    torch.manual_seed(1)
    assert POOLINGS[name](D).double()(numbers(B, T, D), mask_of([T, 0, 4], T)).isfinite().all()
