"""A molecule has no order, and what joins its atoms is known by the bias alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from regard.models.graphormer import Graphormer, GraphormerConfig

P, KINDS, D = 3, 8, 12


def small(bias: bool = True) -> Graphormer:
    torch.manual_seed(1)
    body = (
        Graphormer(GraphormerConfig(20, KINDS, dim=D, layers=2, heads=2, hidden=16, dropout=0.0, bias=bias))
        .double()
        .eval()
    )
    if body.pairs is not None:
        torch.nn.init.normal_(body.pairs.weight)
    return body


def molecule(atoms: int, seed: int) -> Tensor:
    luck = torch.Generator().manual_seed(seed)
    pairs = torch.randint(KINDS, (atoms, atoms), generator=luck)
    return torch.cat((torch.randint(20, (atoms, P), generator=luck), torch.maximum(pairs, pairs.T)), -1)[None]


@given(atoms=st.integers(1, 9), seed=st.integers(0, 99), luck=st.randoms(use_true_random=False))
@settings(deadline=None, derandomize=True, max_examples=40)
def test_another_order_of_the_atoms_is_another_order_of_the_vectors(atoms: int, seed: int, luck) -> None:
    body, x = small(), molecule(atoms, seed)
    order = [*range(atoms)]
    luck.shuffle(order)
    columns = [*range(P), *(P + atom for atom in order)]
    assert_close(body(x[:, order][:, :, columns]), body(x)[:, order])


# The same atoms, each with two neighbours: a ring of six, or two rings of three. Kinds: 0 itself, 1 a bond, 2 and 3 so
# many bonds apart, 7 not joined.
AROUND = torch.tensor([[min(abs(a - b), 6 - abs(a - b)) for b in range(6)] for a in range(6)])
APART = torch.tensor([[7 if a // 3 != b // 3 else int(a != b) for b in range(6)] for a in range(6)])


@pytest.mark.parametrize("bias", [True, False])
def test_only_the_bias_tells_one_ring_of_six_from_two_of_three(bias: bool) -> None:
    body, atoms = small(bias), torch.full((6, P), 4)
    atoms[0, 0] = 5  # a mean of vectors that are all the same is the same, whatever the weights
    one, two = (body(torch.cat((atoms, pairs), -1)[None]).mean(1) for pairs in (AROUND, APART))
    apart = (one - two).abs().max().item()
    assert apart > 1e-6 if bias else apart == 0


def test_with_all_biases_at_zero_the_pairs_say_nothing() -> None:
    body, x = small(), molecule(7, 3)
    torch.nn.init.zeros_(body.pairs.weight)
    other = x.clone()
    other[..., P:] = 0
    assert_close(body(x), body(other))


def test_a_property_that_is_missing_adds_nothing() -> None:
    body, x = small(), molecule(5, 4)
    x[..., 2] = 0
    atoms = torch.cat((x[..., :2], x[..., P:]), -1)
    assert_close(body(x), body(atoms))
