"""A bag of words: order and padding change nothing, words do, and it learns."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from regard.models.pooled import SIZES, Pooled, PooledConfig

B, T, V, D = 3, 7, 19, 6


def ids(length: int = T) -> Tensor:
    return torch.randint(V - 1, (B, length), generator=torch.Generator().manual_seed(length))


@pytest.fixture
def body() -> Pooled:
    torch.manual_seed(1)
    return Pooled(PooledConfig(V, dim=D, hidden=10)).double().eval()


def test_it_is_the_feedforward_of_the_mean(body: Pooled) -> None:
    y = body(ids())
    assert y.shape == (B, 1, D)
    for b, row in enumerate(ids()):
        assert_close(y[b, 0], body.feedforward(sum(body.tokens(i) for i in row) / T))


@given(lengths=st.lists(st.integers(1, T), min_size=B, max_size=B), more=st.integers(0, 5))
@settings(max_examples=20)
def test_padding_is_invisible_whatever_stands_there(lengths: list[int], more: int) -> None:
    torch.manual_seed(1)
    body = Pooled(PooledConfig(V, dim=D, hidden=10)).double().eval()
    mask = (torch.arange(T + more) < torch.tensor(lengths)[:, None])[:, None, None]
    y = body(ids(T + more), mask)
    for b, length in enumerate(lengths):
        assert_close(y[b], body(ids(T + more)[b : b + 1, :length])[0])


def test_order_is_invisible_and_words_are_not(body: Pooled) -> None:
    assert_close(body(ids().flip(1)), body(ids()))
    for t in range(T):
        other = ids()
        other[:, t] = (other[:, t] + 1) % (V - 1)
        assert ((body(other) - body(ids())).abs().amax((1, 2)) > 1e-9).all()


def test_a_text_without_a_token_has_an_answer(body: Pooled) -> None:
    assert body(ids(), torch.zeros(B, 1, 1, T).bool()).isfinite().all()


def test_every_weight_learns_and_dropout_is_on_in_training_only(body: Pooled) -> None:
    assert torch.equal(body(ids()), body(ids()))
    body.train()
    assert not torch.equal(body(ids()), body(ids()))
    body(ids()).square().sum().backward()
    assert all(weight.grad.abs().max() > 1e-9 for weight in body.parameters())


def test_a_batch_is_learnt_by_heart() -> None:
    torch.manual_seed(1)
    body = Pooled(PooledConfig(V, dim=D, hidden=10, dropout=0.0))
    optimizer = torch.optim.Adam(body.parameters(), 0.02)
    for _ in range(100):
        loss = torch.nn.functional.cross_entropy(body(ids())[:, 0], torch.arange(B))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.05


@pytest.mark.parametrize("name", SIZES)
def test_every_size_can_be_built(name: str) -> None:
    config = PooledConfig(1000, **SIZES[name])
    with torch.device("meta"):
        size = sum(weight.numel() for weight in Pooled(config).parameters())
    assert size == 1000 * config.dim + 2 * config.dim * config.hidden + config.hidden + config.dim


@pytest.mark.parametrize(
    ("wrong", "message"), [({"hidden": 0}, "hidden .*not 0"), ({"dropout": 1.0}, "dropout .*not 1")]
)
def test_a_value_that_cannot_be_is_refused_with_its_name_and_number(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PooledConfig(V, **wrong)


def test_padding_is_the_last_id_unless_told() -> None:
    assert (PooledConfig(V).pad, PooledConfig(V, pad=2).pad) == (V - 1, 2)
