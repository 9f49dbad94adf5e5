"""The lecture's party has its numbers, random faces interfere as predicted, and broken memories fail the claim."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from regard.lab import party
from regard.lab.party import QUICK, cosine_by_step, memories, recall_states, run
from regard.lab.result import no_progress


def met(people: int) -> tuple[Tensor, Tensor]:
    """Orthogonal faces, which do not interfere, and one-hot names."""
    faces = torch.eye(people)[None, None]  # (1,1,T,E)
    return faces, torch.eye(people)[None, None]


@given(gamma=st.floats(0.1, 0.99), people=st.integers(1, 9))
@settings(max_examples=30)
def test_gamma_decays_each_guest(gamma: float, people: int) -> None:
    faces, names = met(people)
    answers = recall_states(faces[:, :, :1].expand_as(faces), faces, names, gamma)
    assert_close(answers[0, 0, :, 0], torch.tensor([gamma**later for later in range(people)]))
    assert not answers[0, 0, :, 1:].any()


def test_recall_of_five_guests_decays_by_powers_of_gamma() -> None:
    """γ⁴ of the first, γ³ of the second ... γ⁰ of the fifth, with a query for all."""
    faces, names = met(5)
    everyone = faces.sum(2, keepdim=True).expand_as(faces)
    left = recall_states(everyone, faces, names, 0.5)[0, 0, -1]
    assert left.tolist() == [0.0625, 0.125, 0.25, 0.5, 1.0]
    assert recall_states(everyone, faces, names, 1.0)[0, 0, -1].tolist() == [1.0] * 5


def test_memories_are_causal() -> None:
    torch.manual_seed(1)
    faces, names = torch.randn(2, 3, 1, 6, 4)
    later = names.clone()
    later[:, :, 4:] += 9
    for recall in memories(0.9).values():
        assert_close(recall(faces, faces, later)[:, :, :4], recall(faces, faces, names)[:, :, :4])


def test_cosine_is_1_for_the_same_name_and_0_for_another() -> None:
    names = torch.eye(4)[None, None]
    assert_close(torch.tensor(cosine_by_step(3 * names, names)), torch.ones(4))
    assert_close(torch.tensor(cosine_by_step(names.roll(1, 2), names)), torch.zeros(4))


def test_the_claim_holds_and_is_deterministic() -> None:
    result = run(QUICK, no_progress)
    assert result.holds
    assert result.table == run(QUICK, no_progress).table
    assert result.table[0] == {"guests": 1, **{name: pytest.approx(1) for name in list(result.table[0])[1:]}}


def test_a_larger_memory_recalls_more() -> None:
    ends = [run(replace(QUICK, dim=dim), no_progress).table[-1]["first, sum"] for dim in (16, 64, 256)]
    assert ends == sorted(ends)


@pytest.mark.parametrize("defect", ["a decaying sum", "γ without decay", "uniform attention"])
def test_the_claim_fails_with(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original = memories(0.9)
    wrong = {
        "a decaying sum": {**original, "sum": original["γ"]},
        "γ without decay": {**original, "γ": original["sum"]},
        "uniform attention": {**original, "attention": lambda q, k, v: original["attention"](0 * q, k, v)},
    }
    monkeypatch.setattr(party, "memories", lambda gamma: wrong[defect])
    assert not run(QUICK, no_progress).holds


@pytest.mark.parametrize("wrong", [{"people": 1}, {"dim": 1}, {"gamma": 1.0}, {"gamma": 0.0}, {"parties": 0}])
def test_invalid_options_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        replace(QUICK, **wrong)
