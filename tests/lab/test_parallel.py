"""Critical paths are exact, an LSTM's grows with the length, and sequential attention fails the claim."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from regard.lab import parallel
from regard.lab.parallel import QUICK, STYLES, critical_path, is_proportional, run, step_by_step
from regard.lab.result import no_progress
from regard.parts.attention import SelfAttention
from regard.parts.recurrence import LSTM


@settings(max_examples=30)
@given(branches=st.lists(st.integers(1, 9), min_size=2, max_size=4))
def test_the_longest_branch_counts(branches: list[int]) -> None:
    x = torch.ones(1, requires_grad=True)
    ends = []
    for length in branches:
        y = x
        for _ in range(length):
            y = y.sin()
        ends.append(y)
    assert critical_path(torch.stack(ends)) == max(branches) + 2  # the stack, and the leaf itself


def test_merging_branches_count_once() -> None:
    x = torch.ones(1, requires_grad=True)
    y = x
    for _ in range(30):  # 2^30 paths of 30 operations
        y = y * y
    assert critical_path(y) == 31


@pytest.mark.parametrize(
    ("lengths", "chains", "expected"),
    [
        ([1, 2, 4], [5, 8, 14], True),
        ([1, 2, 4], [3, 4, 6], True),
        ([1, 2, 4], [5, 8, 15], False),
        ([1, 2, 4], [7, 7, 7], False),
        ([2, 4, 8], [9, 10, 12], False),
    ],
)
def test_a_path_is_proportional_to_the_length_only_if_it_grows_with_it(lengths, chains, expected: bool) -> None:
    assert is_proportional(lengths, chains) is expected


def test_step_by_step_is_the_same_as_all_at_once() -> None:
    torch.manual_seed(1)
    lstm, x = LSTM(6), torch.randn(2, 9, 6)
    assert_close(step_by_step(lstm, x), lstm(x))


def test_the_claim_holds(quick) -> None:
    result = quick("parallel")
    assert result.holds
    assert [row["tokens"] for row in result.table] == list(QUICK.lengths)
    assert len({row["path, attention"] for row in result.table}) == 1


class Waiting(SelfAttention):
    """Token by token, each after the previous one."""

    def forward(self, x: Tensor, *others: Tensor) -> Tensor:
        out = [super().forward(x[:, :1])]
        for t in range(1, x.size(1)):
            out.append(super().forward(x[:, : t + 1] + 0 * out[-1])[:, -1:])
        return torch.cat(out, 1)


def forgetful(lstm: LSTM, x: Tensor) -> Tensor:
    """The second half of the tokens does not depend on the first, unless they are few."""
    return torch.cat([step_by_step(lstm, part) for part in x.split(max(4, x.size(1) // 2), 1)], 1)


def few() -> parallel.ParallelOptions:
    return replace(QUICK, lengths=(2, 4, 16), times=3)


@pytest.mark.parametrize(
    "seconds",
    [lambda reader, x: float(x.size(1)), lambda reader, x: 1.0, lambda reader, x: 1 / x.size(1)],
    ids=["by the word", "always the same", "the longer the faster"],
)
def test_times_are_reported_and_do_not_affect_the_claim(seconds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "seconds", seconds)
    result = run(few(), no_progress)
    assert result.holds
    for name in STYLES:
        times = [row[f"ms, {name}"] for row in result.table]
        assert times == [round(1000 * seconds(None, torch.ones(1, length)), 3) for length in few().lengths]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("SelfAttention", Waiting),
        ("step_by_step", lambda lstm, x: lstm.cell(x)[0]),
        ("step_by_step", forgetful),
    ],
    ids=["attention that waits", "an LSTM that does not", "an LSTM that begins anew half-way"],
)
def test_the_claim_fails_with(name: str, wrong, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, name, wrong)
    assert not run(few(), no_progress).holds


@pytest.mark.parametrize("wrong", [{"lengths": (8,)}, {"lengths": (8, 8)}, {"lengths": (0, 8)}, {"times": 0}])
def test_invalid_options_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        replace(QUICK, **wrong)
