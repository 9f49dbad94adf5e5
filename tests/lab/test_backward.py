"""The backward pass gives -2r and -2r x, as autograd and a finite difference do."""

import pytest
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from regard.lab import backward as experiment
from regard.lab.backward import QUICK, BackwardOptions, all_gradients, run, squared_error
from regard.lab.computation_graph import GraphNode, backward, finite_difference, forward
from regard.lab.result import no_progress

number = st.floats(-10, 10, width=32)


def test_the_worked_example_has_the_values_and_gradients_of_the_slide():
    graph, values, gradients = all_gradients([1.0, 2.0], 4.0, {"w1": 3.0, "w2": -1.0, "b": 0.5})
    assert values == {"w1": 3, "w2": -1, "b": 0.5, "ŷ": 1.5, "r": 2.5, "l": 6.25}
    expected = {"w1": -5, "w2": -10, "b": -5, "ŷ": -5, "r": 5, "l": 1}
    assert gradients["lecture"] == gradients["by hand"] == gradients["autograd"] == expected
    assert gradients["finite difference"] == pytest.approx(expected)


@settings(max_examples=40)
@given(wx=st.lists(st.tuples(number, number), min_size=1, max_size=5), b=number, y=number)
def test_all_methods_agree(wx, b, y):
    leaves = {f"w{j}": w for j, (w, _) in enumerate(wx, 1)} | {"b": b}
    _, values, gradients = all_gradients([x for _, x in wx], y, leaves)
    size = max(abs(gradient) for gradient in gradients["lecture"].values())
    assert gradients["by hand"] == pytest.approx(gradients["lecture"], rel=1e-12, abs=1e-12 * size)
    assert gradients["by hand"] == pytest.approx(gradients["autograd"], rel=1e-12, abs=1e-12 * size)
    assert gradients["by hand"] == pytest.approx(gradients["finite difference"], abs=1e-5 * (1 + size))


@settings(max_examples=40)
@given(a=number)
def test_gradients_of_several_paths_add_up(a):
    graph = [
        GraphNode("square", ["a"], lambda a: a * a, lambda a: [2 * a]),
        GraphNode("triple", ["a"], lambda a: 3 * a, lambda a: [3.0]),
        GraphNode("l", ["square", "triple"], lambda s, t: s * t, lambda s, t: [t, s]),
    ]
    values = forward(graph, {"a": a})
    assert values["l"] == pytest.approx(3 * a**3)
    assert backward(graph, values)["a"] == pytest.approx(9 * a**2)
    assert finite_difference(graph, {"a": a}, "a", a) == pytest.approx(9 * a**2, abs=1e-4)


def test_the_claim_holds_and_is_deterministic():
    result = run(QUICK, no_progress)
    assert result.holds
    assert result.table == run(QUICK, no_progress).table
    assert [row["node"] for row in result.table] == ["w1", "w2", "w3", "b", "ŷ", "r", "l"]


@pytest.mark.parametrize("features", [1, 4])
def test_the_claim_holds_for_other_numbers_of_features(features):
    assert run(BackwardOptions(features=features, examples=3), no_progress).holds


def test_the_claim_fails_with_a_wrong_derivative(monkeypatch):
    def wrong(x, y):
        prediction, r, loss = squared_error(x, y)
        return [prediction, r._replace(partials=lambda _: [1.0]), loss]

    monkeypatch.setattr(experiment, "squared_error", wrong)
    assert not run(QUICK, no_progress).holds


@pytest.mark.parametrize("method", ["backward", "finite_difference"])
def test_the_claim_fails_if_one_method_is_wrong(method, monkeypatch):
    wrong = {"backward": lambda graph, values: dict.fromkeys(values, 0.5), "finite_difference": lambda *_: 0.5}
    monkeypatch.setattr(experiment, method, wrong[method])
    assert not run(QUICK, no_progress).holds


def test_the_claim_fails_if_the_layer_computes_something_else(monkeypatch):
    monkeypatch.setattr(nn.Linear, "forward", lambda layer, x: F.linear(x, layer.weight, 1.001 * layer.bias))
    assert not run(QUICK, no_progress).holds
