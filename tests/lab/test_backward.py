"""The walk back through the graph gives -2r and -2r x, as autograd and a nudge do."""

import pytest
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from regard.lab import backward as lab
from regard.lab.backward import QUICK, Knobs, Node, all_ways, backward, by_nudging, forward, run, squared_error
from regard.lab.result import quietly

number = st.floats(-10, 10, width=32)


def test_the_worked_example():
    graph, values, slopes = all_ways([1.0, 2.0], 4.0, {"w1": 3.0, "w2": -1.0, "b": 0.5})
    assert values == {"w1": 3, "w2": -1, "b": 0.5, "ŷ": 1.5, "r": 2.5, "l": 6.25}
    wanted = {"w1": -5, "w2": -10, "b": -5, "ŷ": -5, "r": 5, "l": 1}
    assert slopes["lecture"] == slopes["by hand"] == slopes["autograd"] == wanted
    assert slopes["by nudging"] == pytest.approx(wanted)


@settings(max_examples=40)
@given(wx=st.lists(st.tuples(number, number), min_size=1, max_size=5), b=number, y=number)
def test_all_ways_agree_on_any_numbers(wx, b, y):
    leaves = {f"w{j}": w for j, (w, _) in enumerate(wx, 1)} | {"b": b}
    _, values, slopes = all_ways([x for _, x in wx], y, leaves)
    size = max(abs(slope) for slope in slopes["lecture"].values())
    assert slopes["by hand"] == pytest.approx(slopes["lecture"], rel=1e-12, abs=1e-12 * size)
    assert slopes["by hand"] == pytest.approx(slopes["autograd"], rel=1e-12, abs=1e-12 * size)
    assert slopes["by hand"] == pytest.approx(slopes["by nudging"], abs=1e-5 * (1 + size))


@settings(max_examples=40)
@given(a=number)
def test_paths_that_meet_again_add_up(a):
    graph = [
        Node("square", ["a"], lambda a: a * a, lambda a: [2 * a]),
        Node("triple", ["a"], lambda a: 3 * a, lambda a: [3.0]),
        Node("l", ["square", "triple"], lambda s, t: s * t, lambda s, t: [t, s]),
    ]
    values = forward(graph, {"a": a})
    assert values["l"] == pytest.approx(3 * a**3)
    assert backward(graph, values)["a"] == pytest.approx(9 * a**2)
    assert by_nudging(graph, {"a": a}, "a", a) == pytest.approx(9 * a**2, abs=1e-4)


def test_it_holds_and_says_the_same_each_time():
    found = run(QUICK, quietly)
    assert found.holds
    assert found.table == run(QUICK, quietly).table
    assert [row["node"] for row in found.table] == ["w1", "w2", "w3", "b", "ŷ", "r", "l"]


@pytest.mark.parametrize("features", [1, 4])
def test_it_holds_for_other_numbers_of_features(features):
    assert run(Knobs(features=features, examples=3), quietly).holds


def test_it_does_not_hold_if_a_node_has_a_wrong_slope(monkeypatch):
    def wrong(x, y):
        guess, r, loss = squared_error(x, y)
        return [guess, r._replace(slopes=lambda _: [1.0]), loss]

    monkeypatch.setattr(lab, "squared_error", wrong)
    assert not run(QUICK, quietly).holds


@pytest.mark.parametrize("way", ["backward", "by_nudging"])
def test_it_does_not_hold_if_one_way_finds_something_else(way, monkeypatch):
    wrong = {"backward": lambda graph, values: dict.fromkeys(values, 0.5), "by_nudging": lambda *_: 0.5}
    monkeypatch.setattr(lab, way, wrong[way])
    assert not run(QUICK, quietly).holds


def test_it_does_not_hold_if_the_layer_computes_something_else(monkeypatch):
    monkeypatch.setattr(nn.Linear, "forward", lambda layer, x: F.linear(x, layer.weight, 1.001 * layer.bias))
    assert not run(QUICK, quietly).holds
