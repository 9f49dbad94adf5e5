"""The label depends on actions and not on observations, and a leak fails the claim."""

from dataclasses import replace

import pytest
import torch

from regard.lab import doors
from regard.lab.doors import QUICK, DoorsOptions, parties, run, shift_doors
from regard.lab.result import no_progress


def test_guests_stay_behind_their_door_and_the_first_door_is_the_label():
    torch.manual_seed(1)
    options = DoorsOptions()
    batch = parties(200, 6, options)
    who = batch.observations[:, :, 0, :-1].argmax(-1)  # (B,7)
    leaves = batch.observations[:, :, 0, -1]
    assert leaves[:, -1].all()
    assert not leaves[:, :-1].any()
    assert not batch.observations[:, -1, 0, :-1].any()
    for guests, actions, label in zip(who.tolist(), batch.actions.tolist(), batch.labels.tolist(), strict=True):
        behind = {}
        for guest, door in zip(guests[:-1], actions[:-1], strict=True):
            assert behind.setdefault(door, guest) == guest
        assert actions[0] == label
        assert actions[-1] == options.doors, "no action at the question"


def test_observations_do_not_determine_the_door():
    """The same observations occur with every door."""
    torch.manual_seed(1)
    batch = parties(500, 4, DoorsOptions())
    next_door = shift_doors(batch, 4)
    assert torch.equal(next_door.observations, batch.observations)
    assert (next_door.labels != batch.labels).all()
    assert torch.equal(next_door.actions[:, :-1], (batch.actions[:, :-1] + 1) % 4)
    shifted = batch
    for _ in range(4):
        shifted = shift_doors(shifted, 4)
    assert torch.equal(shifted.actions, batch.actions)


def test_the_claim_holds_and_is_deterministic():
    result = run(QUICK, no_progress)
    assert result.holds, result.table
    assert result.table == run(QUICK, no_progress).table


@pytest.mark.parametrize("defect", ["a question that leaks the door", "actions that are hidden"])
def test_the_claim_fails_with(defect, monkeypatch):
    original = {"parties": doors.parties, "predict_door": doors.predict_door}

    def leak_label(*args):
        batch = original["parties"](*args)
        batch.observations[:, -1, 0, 0] = batch.labels.float()
        return batch

    if defect == "a question that leaks the door":
        monkeypatch.setattr(doors, "parties", leak_label)
    else:
        monkeypatch.setattr(
            doors,
            "predict_door",
            lambda model, batch, sees_actions, count: original["predict_door"](model, batch, False, count),
        )
    assert not run(replace(QUICK, visits=(2,)), no_progress).holds


@pytest.mark.parametrize("wrong", [{"visits": ()}, {"doors": 1}, {"guests": 2}, {"dim": 6}, {"steps": 0}])
def test_invalid_options_are_refused(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        replace(QUICK, **wrong)
