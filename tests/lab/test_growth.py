"""10, then 100; a layer norm stops it; and its outputs are normal only if they were before."""

import math
from fractions import Fraction

import pytest
import torch
from torch import nn

from regard.lab import growth
from regard.lab.growth import BOUNDS, GrowthOptions, example, run
from regard.lab.result import no_progress
from regard.parts.norms import BareRMSNorm, LayerNorm

SMALLER = GrowthOptions(layers=3, inputs=300)


def test_the_example_of_the_slide_gives_10_and_100():
    once, twice, slope, after_norm = example(1000, 0.01)
    exactly = 1000 * Fraction(1, 100)
    assert (exactly, exactly * exactly) == (10, 100)
    assert once == pytest.approx(10, rel=1e-14)
    assert twice == pytest.approx(100, rel=1e-14)
    assert math.fsum([0.01 * 1] * 1000) == 10
    assert math.fsum([0.01 * 10] * 1000) == 100
    assert slope == 0.01
    assert after_norm < 1e-9


@pytest.mark.parametrize(("width", "weight"), [(50, 0.1), (200, 0.001), (7, 0.5)])
def test_each_layer_multiplies_by_width_times_weight(width, weight):
    once, twice, slope, _ = example(width, weight)
    assert (once, twice, slope) == pytest.approx((width * weight, (width * weight) ** 2, weight))


def test_the_slides_have_the_shares_of_a_normal_distribution():
    for bound, percent in BOUNDS.items():
        assert str(100 * math.erf(bound / math.sqrt(2))).startswith(percent)


def test_the_claim_holds_and_layer_norm_keeps_the_shape_of_a_relu(quick):
    result = quick("growth")
    assert result.holds
    seen = {row["quantity"]: row["measured"] for row in result.table}
    # Of a normal z, max(0, z) has mean m and spread s; it is out of [-3, 3] where z > m + 3 s.
    m = 1 / math.sqrt(2 * math.pi)
    s = math.sqrt(0.5 - m * m)
    share = 50 + 50 * math.erf((m + 3 * s) / math.sqrt(2))
    assert float(seen["% in [-3, 3] after a ReLU and a norm"]) == pytest.approx(share, abs=0.05)


def test_the_experiment_is_deterministic():
    assert run(SMALLER, no_progress).table == run(SMALLER, no_progress).table


class Squashed(LayerNorm):
    """Mean 0 and spread 1, but another shape."""

    def forward(self, x):
        return super().forward(super().forward(x).tanh())


class Bent(LayerNorm):
    def forward(self, x):
        return super().forward(x.relu())


class Doubled(LayerNorm):
    def forward(self, x):
        return 2 * super().forward(x)


@pytest.mark.parametrize("norm", [LayerNorm, nn.Identity, lambda *_, **__: BareRMSNorm(), Squashed, Bent, Doubled])
def test_the_claim_holds_with_a_layer_norm_and_nothing_else(norm, monkeypatch):
    monkeypatch.setattr(growth, "LayerNorm", lambda width, dtype=None: norm(width, dtype=dtype))
    assert run(SMALLER, no_progress).holds is (norm is LayerNorm)


@pytest.mark.parametrize("spread_over", [lambda u: u, lambda u: u.sign() * u.abs().log()], ids=["evenly", "long tails"])
def test_the_claim_fails_for_outputs_of_another_shape(spread_over, monkeypatch):
    u = spread_over(2 * torch.rand(100, 1000) - 1)
    monkeypatch.setattr(growth, "random_outputs", lambda *_: (u - u.mean()) / u.std())
    assert not run(SMALLER, no_progress).holds


def test_too_few_layers_to_see_growth_are_refused():
    with pytest.raises(ValueError, match="layers must be at least 3, not 2"):
        GrowthOptions(layers=2)
