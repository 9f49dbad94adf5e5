"""Residual wrappers place the norm and the dropout as their formulas say."""

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from regard.parts.block import DenseConnections, PostNorm, PreNorm

B, T, D = 2, 5, 8


class Inner(nn.Module):
    def forward(self, x: Tensor, extra: Tensor | float = 0.0) -> Tensor:
        return x.sin() + extra


def make_wrapped(kind: type[nn.Module], dropout: float = 0.0) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(1)
    norm = nn.LayerNorm(D).double()
    nn.init.normal_(norm.weight)
    return kind(norm, Inner(), dropout), torch.randn(B, T, D, dtype=torch.float64)


def test_pre_norm() -> None:
    part, x = make_wrapped(PreNorm)
    assert_close(part(x), x + part.norm(x).sin())


def test_post_norm() -> None:
    part, x = make_wrapped(PostNorm)
    assert_close(part(x), part.norm(x + x.sin()))


@pytest.mark.parametrize("kind", [PreNorm, PostNorm])
def test_context_is_passed_on_and_an_unknown_name_raises(kind: type[nn.Module]) -> None:
    part, x = make_wrapped(kind)
    assert not torch.equal(part(x, extra=1.0), part(x))
    with pytest.raises(TypeError, match="unknown"):
        part(x, unknown=1.0)


def test_dropout_acts_on_the_branch_only() -> None:
    part, x = make_wrapped(PreNorm, dropout=0.5)
    added, full = part(x) - x, part.norm(x).sin()
    keep = added.abs() > 1e-12
    assert_close(added, full * keep * 2)
    assert 0 < keep.double().mean() < 1
    assert_close(part.eval()(x), x + full)
    post, x = make_wrapped(PostNorm, dropout=0.5)
    drop = post.drop.forward
    post.drop.forward = lambda y: drop(y) * 0
    assert_close(post(x), post.norm(x))


class Narrow(nn.Linear):
    def forward(self, x: Tensor, extra: Tensor | float = 0.0) -> Tensor:
        return super().forward(x).sin() + extra


def test_dense_connections_concatenate() -> None:
    torch.manual_seed(1)
    growth, count = 3, 4
    stack = DenseConnections(Narrow(D + i * growth, growth) for i in range(count)).double()
    x = torch.randn(B, T, D, dtype=torch.float64)
    y = stack(x)
    assert y.shape == (B, T, D + count * growth)
    assert torch.equal(y[..., :D], x)
    for i, layer in enumerate(stack.layers):
        width = D + i * growth
        assert_close(y[..., width : width + growth], layer(y[..., :width]))
    assert not torch.equal(stack(x, extra=1.0), y)
    with pytest.raises(TypeError, match="unknown"):
        stack(x, unknown=1.0)
