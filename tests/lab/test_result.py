"""Tables, growth factors and plots of experiments."""

import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.lab.result import (
    growth_per_step,
    plot_curves,
    plot_densities,
    plot_table,
    prefixed,
    relative_to_first,
    subplots,
    table_rows,
)
from regard.validate import check_minimum


@given(numbers=st.lists(st.tuples(st.integers(), st.integers()), max_size=5))
def test_columns_become_table_rows(numbers):
    columns = {"a": [a for a, _ in numbers]}, prefixed("c", {"b": [b for _, b in numbers]})
    assert table_rows(*columns) == [{"a": a, "c, b": b} for a, b in numbers]


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="zip"):
        table_rows({"a": [1, 2]}, {"b": [1]})


@given(factor=st.floats(0.5, 2), size=st.floats(0.1, 10), since=st.integers(0, 4))
def test_growth_of_a_geometric_series_is_its_factor(factor, size, since):
    sizes = [size * factor**step for step in range(9)]
    assert growth_per_step(sizes, since) == pytest.approx(factor)
    assert relative_to_first(torch.tensor(sizes)) == pytest.approx([factor**step for step in range(9)], rel=1e-4)


def test_sizes_of_zero_have_no_growth():
    assert relative_to_first(torch.zeros(3)) == [0, 0, 0]
    assert math.isnan(growth_per_step([1, 0, 0], 1))


def test_the_first_option_that_is_too_small_is_named():
    @dataclass
    class Options:
        a: int = 3
        b: int = 2

    check_minimum(Options(), 2, "a", "b")
    with pytest.raises(ValueError, match="b must be at least 3, not 2"):
        check_minimum(Options(), 3, "a", "b")


def test_ticks_of_a_logarithmic_axis():
    _, (left, right) = subplots(2)
    plot_curves(left, [3, 7, 50], {"y": [1, 2, 3]}, {"y": "k-"}, xscale="log")
    assert [label.get_text() for label in left.get_xticklabels()] == ["3", "7", "50"]
    plot_curves(right, [3, 7, 50], {"y": [1, 2, 3]}, {"y": "k-"})
    assert list(right.get_xticks()) != [3, 7, 50]
    assert list(right.lines[0].get_ydata()) == [1, 2, 3]


def test_plot_table_hides_numbers_above_the_diagonal():
    _, (left, right) = subplots(2)
    numbers = torch.tensor([[0.5, 0.25], [-0.001, 1.0]])
    plot_table(left, numbers, 1.0, "ab", "cd", "all")
    assert [text.get_text() for text in left.texts] == ["0.50", "0.25", "0.00", "1.00"]
    plot_table(right, numbers, 1.0, "ab", "cd", "half", hidden="-")
    assert [text.get_text() for text in right.texts] == ["0.50", "-", "0.00", "1.00"]


def test_normal_samples_match_the_density():
    torch.manual_seed(1)
    _, (axes,) = subplots()
    plot_densities(axes, {"random": torch.randn(400_000)}, {"random": "k."}, 3)
    normal, random = (line.get_ydata() for line in axes.lines)
    assert random == pytest.approx(normal, abs=0.015)
