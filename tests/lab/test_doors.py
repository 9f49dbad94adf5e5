"""The doors: the answer depends on what was done and on nothing that was seen, and a cheat is noticed."""

from dataclasses import replace

import pytest
import torch

from regard.lab import doors
from regard.lab.doors import QUICK, Knobs, elsewhere, parties, run
from regard.lab.result import quietly


def test_a_guest_stands_behind_one_door_and_the_first_one_is_the_answer():
    torch.manual_seed(1)
    knobs = Knobs()
    some = parties(200, 6, knobs)
    who = some.seen[:, :, 0, :-1].argmax(-1)  # (B,7)
    leaves = some.seen[:, :, 0, -1]
    assert leaves[:, -1].all()
    assert not leaves[:, :-1].any()
    assert not some.seen[:, -1, 0, :-1].any()
    for guests, taken, right in zip(who.tolist(), some.taken.tolist(), some.right.tolist(), strict=True):
        behind = {}
        for guest, door in zip(guests[:-1], taken[:-1], strict=True):
            assert behind.setdefault(door, guest) == guest
        assert taken[0] == right
        assert taken[-1] == knobs.doors, "nothing was done before the question"


def test_what_is_seen_does_not_tell_the_door():
    """The same sights go with every door alike."""
    torch.manual_seed(1)
    some = parties(500, 4, Knobs())
    other = elsewhere(some, 4)
    assert torch.equal(other.seen, some.seen)
    assert (other.right != some.right).all()
    assert torch.equal(other.taken[:, :-1], (some.taken[:, :-1] + 1) % 4)
    again = some
    for _ in range(4):
        again = elsewhere(again, 4)
    assert torch.equal(again.taken, some.taken)


def test_it_holds_and_the_same_knobs_find_the_same():
    found = run(QUICK, quietly)
    assert found.holds, found.table
    assert found.table == run(QUICK, quietly).table


@pytest.mark.parametrize("why", ["a question that tells the door", "actions that are not told"])
def test_it_does_not_hold_with(why, monkeypatch):
    right = {"parties": doors.parties, "answers": doors.answers}

    def telling(*args):
        some = right["parties"](*args)
        some.seen[:, -1, 0, 0] = some.right.float()
        return some

    if why == "a question that tells the door":
        monkeypatch.setattr(doors, "parties", telling)
    else:
        monkeypatch.setattr(
            doors, "answers", lambda model, some, told, count: right["answers"](model, some, False, count)
        )
    assert not run(replace(QUICK, visits=(2,)), quietly).holds


@pytest.mark.parametrize("wrong", [{"visits": ()}, {"doors": 1}, {"guests": 2}, {"dim": 6}, {"steps": 0}])
def test_knobs_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        replace(QUICK, **wrong)
