"""Graphormer is permutation-equivariant, and knows the bonds from its bias only."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from regard.models.graphormer import Graphormer, GraphormerConfig

P, KINDS, D = 3, 8, 12


def make_body(pair_bias: bool = True) -> Graphormer:
    torch.manual_seed(1)
    body = (
        Graphormer(GraphormerConfig(20, KINDS, dim=D, layers=2, heads=2, hidden=16, dropout=0.0, pair_bias=pair_bias))
        .double()
        .eval()
    )
    if body.pair_bias is not None:
        torch.nn.init.normal_(body.pair_bias.weight)
    return body


def molecule(atoms: int, seed: int) -> tuple[Tensor, Tensor]:
    """Features (1,T,P) and pair kinds (1,T,T)."""
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.randint(KINDS, (atoms, atoms), generator=generator)
    return torch.randint(20, (atoms, P), generator=generator)[None], torch.maximum(pairs, pairs.T)[None]


@given(atoms=st.integers(1, 9), seed=st.integers(0, 99), generator=st.randoms(use_true_random=False))
@settings(deadline=None, derandomize=True, max_examples=40)
def test_body_is_permutation_equivariant(atoms: int, seed: int, generator) -> None:
    body, (x, pairs) = make_body(), molecule(atoms, seed)
    order = [*range(atoms)]
    generator.shuffle(order)
    permuted = body(x[:, order], pairs=pairs[:, order][:, :, order])
    assert_close(permuted, body(x, pairs=pairs)[:, order])


# The same atoms, each with two neighbours: one ring of six, or two rings of three. Pair kinds: 0 self, 1 bond, 2 and 3
# distance in bonds, 7 not connected.
ONE_RING = torch.tensor([[min(abs(a - b), 6 - abs(a - b)) for b in range(6)] for a in range(6)])
TWO_RINGS = torch.tensor([[7 if a // 3 != b // 3 else int(a != b) for b in range(6)] for a in range(6)])


@pytest.mark.parametrize("pair_bias", [True, False])
def test_only_the_bias_distinguishes_one_ring_of_six_from_two_of_three(pair_bias: bool) -> None:
    body, atoms = make_body(pair_bias), torch.full((6, P), 4)
    atoms[0, 0] = 5  # with identical atoms, all vectors and their mean would be equal
    one_ring, two_rings = (body(atoms[None], pairs=pairs[None]).mean(1) for pairs in (ONE_RING, TWO_RINGS))
    difference = (one_ring - two_rings).abs().max().item()
    assert difference > 1e-6 if pair_bias else difference == 0


def test_zero_biases_ignore_the_pairs() -> None:
    body, (x, pairs) = make_body(), molecule(7, 3)
    torch.nn.init.zeros_(body.pair_bias.weight)
    assert_close(body(x, pairs=pairs), body(x, pairs=torch.zeros_like(pairs)))


def test_feature_id_zero_adds_nothing() -> None:
    body, (x, pairs) = make_body(), molecule(5, 4)
    x[..., 2] = 0
    assert_close(body(x, pairs=pairs), body(x[..., :2], pairs=pairs))
