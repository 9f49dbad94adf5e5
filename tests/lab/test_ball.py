"""One image does not determine where a ball goes, two do, and models that contradict this fail the claim."""

from dataclasses import replace

import numpy as np
import pytest

from regard.lab import ball
from regard.lab.ball import QUICK, BallResult, run
from regard.lab.result import no_progress


def test_the_claim_holds(quick) -> None:
    result = quick("ball")
    assert result.holds, result.summary
    assert [row["images"] for row in result.table] == [1, 2]
    errors = [row["error"] for row in result.table]
    assert errors[1] < errors[0]


@pytest.mark.parametrize(
    ("defect", "errors"),
    [("one frame suffices", {1: 0.1, 2: 0.05}), ("no number of frames suffices", {1: 9.0, 2: 8.0})],
)
def test_the_claim_fails_with(defect: str, errors: dict[int, float], monkeypatch: pytest.MonkeyPatch) -> None:
    def train(task, images, *_):
        return BallResult(errors[images], [np.zeros((30, 30), np.float32)] * ball.TEST_VIDEOS)

    monkeypatch.setattr(ball, "train", train)
    assert not run(QUICK, no_progress).holds


@pytest.mark.parametrize(
    "wrong",
    [{"images": (2, 3)}, {"images": (1,)}, {"dim": 6}, {"frames": 2}, {"speed": 0.0}, {"lr": 0.0}, {"steps": 0}],
)
def test_invalid_options_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        replace(QUICK, **wrong)
