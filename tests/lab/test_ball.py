"""From one image nobody can tell where a ball goes; from two one can, and a model that cannot is noticed."""

from dataclasses import replace

import numpy as np
import pytest

from regard.lab import ball
from regard.lab.ball import QUICK, Seen, run
from regard.lab.result import quietly


def test_it_holds(quick) -> None:
    found = quick("ball")
    assert found.holds, found.says
    assert [row["images seen"] for row in found.table] == [1, 2]
    errors = [row["error"] for row in found.table]
    assert errors[1] < errors[0]


@pytest.mark.parametrize(
    ("why", "errors"), [("all see it coming", {1: 0.1, 2: 0.05}), ("nobody does", {1: 9.0, 2: 8.0})]
)
def test_it_does_not_hold_if(why: str, errors: dict[int, float], monkeypatch: pytest.MonkeyPatch) -> None:
    def taught(task, images, *_):
        return Seen(errors[images], [np.zeros((30, 30), np.float32)] * ball.TESTED)

    monkeypatch.setattr(ball, "taught", taught)
    assert not run(QUICK, quietly).holds


@pytest.mark.parametrize(
    "wrong",
    [{"images": (2, 3)}, {"images": (1,)}, {"dim": 6}, {"frames": 2}, {"speed": 0.0}, {"rate": 0.0}, {"steps": 0}],
)
def test_knobs_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        replace(QUICK, **wrong)
