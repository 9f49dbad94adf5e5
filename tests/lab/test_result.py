"""What experiments share to tell what they found: tables, factors, and figures that show the numbers they are given."""

import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.lab.result import at_least, curves, densities, drawing, grid, of_the_first, per_step, rows, under


@given(numbers=st.lists(st.tuples(st.integers(), st.integers()), max_size=5))
def test_a_table_has_a_row_for_each_place_of_its_columns(numbers):
    columns = {"a": [a for a, _ in numbers]}, under("c", {"b": [b for _, b in numbers]})
    assert rows(*columns) == [{"a": a, "c, b": b} for a, b in numbers]


def test_columns_of_other_lengths_are_no_table():
    with pytest.raises(ValueError, match="zip"):
        rows({"a": [1, 2]}, {"b": [1]})


@given(factor=st.floats(0.5, 2), size=st.floats(0.1, 10), since=st.integers(0, 4))
def test_what_grows_by_a_factor_has_that_factor(factor, size, since):
    sizes = [size * factor**step for step in range(9)]
    assert per_step(sizes, since) == pytest.approx(factor)
    assert of_the_first(torch.tensor(sizes)) == pytest.approx([factor**step for step in range(9)], rel=1e-4)


def test_of_nothing_nothing():
    assert of_the_first(torch.zeros(3)) == [0, 0, 0]
    assert math.isnan(per_step([1, 0, 0], 1))


def test_the_first_knob_that_is_too_small_is_named():
    @dataclass
    class Knobs:
        a: int = 3
        b: int = 2

    at_least(2, Knobs(), "a", "b")
    with pytest.raises(ValueError, match="b must be at least 3, not 2"):
        at_least(3, Knobs(), "a", "b")


def test_a_logarithmic_axis_is_marked_where_something_was_measured():
    _, (left, right) = drawing(2)
    curves(left, [3, 7, 50], {"y": [1, 2, 3]}, {"y": "k-"}, xscale="log")
    assert [label.get_text() for label in left.get_xticklabels()] == ["3", "7", "50"]
    curves(right, [3, 7, 50], {"y": [1, 2, 3]}, {"y": "k-"})
    assert list(right.get_xticks()) != [3, 7, 50]
    assert list(right.lines[0].get_ydata()) == [1, 2, 3]


def test_a_grid_says_its_numbers_and_hides_what_is_hidden():
    _, (left, right) = drawing(2)
    numbers = torch.tensor([[0.5, 0.25], [-0.001, 1.0]])
    grid(left, numbers, 1.0, "ab", "cd", "all")
    assert [text.get_text() for text in left.texts] == ["0.50", "0.25", "0.00", "1.00"]
    grid(right, numbers, 1.0, "ab", "cd", "half", hidden="-")
    assert [text.get_text() for text in right.texts] == ["0.50", "-", "0.00", "1.00"]


def test_normal_numbers_lie_on_the_normal_curve():
    torch.manual_seed(1)
    _, (axes,) = drawing()
    densities(axes, {"random": torch.randn(400_000)}, {"random": "k."}, 3)
    normal, random = (line.get_ydata() for line in axes.lines)
    assert random == pytest.approx(normal, abs=0.015)
