"""The deep averaging network ignores order and padding, and trains."""

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


def test_output_is_the_feed_forward_of_the_mean(body: Pooled) -> None:
    y = body(ids())
    assert y.shape == (B, 1, D)
    for b, row in enumerate(ids()):
        assert_close(y[b, 0], body.feedforward(sum(body.tokens(i) for i in row) / T))


@given(lengths=st.lists(st.integers(1, T), min_size=B, max_size=B), extra=st.integers(0, 5))
@settings(max_examples=20)
def test_padding_is_invisible(lengths: list[int], extra: int) -> None:
    torch.manual_seed(1)
    body = Pooled(PooledConfig(V, dim=D, hidden=10)).double().eval()
    mask = (torch.arange(T + extra) < torch.tensor(lengths)[:, None])[:, None, None]
    y = body(ids(T + extra), mask)
    for b, length in enumerate(lengths):
        assert_close(y[b], body(ids(T + extra)[b : b + 1, :length])[0])


def test_order_is_ignored_and_tokens_are_not(body: Pooled) -> None:
    assert_close(body(ids().flip(1)), body(ids()))
    for t in range(T):
        altered = ids()
        altered[:, t] = (altered[:, t] + 1) % (V - 1)
        assert ((body(altered) - body(ids())).abs().amax((1, 2)) > 1e-9).all()


def test_empty_text_is_finite(body: Pooled) -> None:
    assert body(ids(), torch.zeros(B, 1, 1, T).bool()).isfinite().all()


def test_every_weight_has_a_gradient_and_dropout_acts_in_training_only(body: Pooled) -> None:
    assert torch.equal(body(ids()), body(ids()))
    body.train()
    assert not torch.equal(body(ids()), body(ids()))
    body(ids()).square().sum().backward()
    assert all(weight.grad.abs().max() > 1e-9 for weight in body.parameters())


def test_one_batch_can_be_memorised() -> None:
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
def test_invalid_values_are_refused(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PooledConfig(V, **wrong)


def test_pad_defaults_to_the_last_id() -> None:
    assert (PooledConfig(V).pad, PooledConfig(V, pad=2).pad) == (V - 1, 2)
