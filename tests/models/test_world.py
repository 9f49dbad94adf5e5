"""A world model sees whole steps, none of them ahead, and remembers them in its cache."""

import pytest
import torch
from torch import Tensor

from regard.models.world_model import WorldModel, WorldModelConfig, block_causal_mask
from regard.parts.dynamics_head import DynamicsHead
from regard.parts.heads import Model

B, T, K, N, A, D = 2, 6, 3, 5, 4, 12


def small(stirred, actions: int = A) -> Model:
    torch.manual_seed(1)
    body = WorldModel(WorldModelConfig(N, K, actions, context=7, dim=D, layers=2, heads=3, hidden=16))
    return stirred(Model(body, DynamicsHead(D, N, actions))).double().eval()


def world() -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(3)
    return torch.randn(B, T, K, N, dtype=torch.float64, generator=draw), torch.randint(A, (B, T), generator=draw)


@pytest.mark.parametrize("changed", range(T))
def test_all_places_of_a_step_see_each_other_and_its_action_but_nothing_later(stirred, changed: int) -> None:
    body = small(stirred).body
    seen, done = world()
    before = body(seen, done)
    assert before.shape == (B, T, K + 1, D)
    for place in range(K):
        other = seen.clone()
        other[:, changed, place] += 1
        moved = (body(other, done) - before).abs().amax(-1)  # (B,T,K+1)
        assert (moved[:, :changed] == 0).all()
        assert (moved[:, changed:] > 1e-9).all()
    otherwise = done.clone()
    otherwise[:, changed] = (done[:, changed] + 1) % A
    moved = (body(seen, otherwise) - before).abs().amax(-1)
    assert (moved[:, :changed] == 0).all()
    assert (moved[:, changed:] > 1e-9).all(), "what comes next depends on what is done about it"


def test_the_mask_of_two_vectors_a_step() -> None:
    seen = block_causal_mask(3, 3, 2, None, torch.device("cpu"))
    assert seen.int().tolist() == [
        [1, 1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0, 0],
        [1, 1, 1, 1, 1, 1],
        [1, 1, 1, 1, 1, 1],
    ]
    assert block_causal_mask(2, 3, 2, None, torch.device("cpu")).int().tolist() == seen.int().tolist()[2:]


def test_without_anybody_who_acts_there_is_no_vector_for_it(stirred) -> None:
    model = small(stirred, actions=0)
    seen, _ = world()
    assert model.body(seen).shape == (B, T, K, D)
    told = model(seen)
    assert told.change.shape == (B, T, K, N)
    assert (told.reward, told.end) == (None, None)


def test_one_who_saw_actions_must_be_told_them(stirred) -> None:
    with pytest.raises(ValueError, match="must be told the action of every step"):
        small(stirred).body(world()[0])


def test_the_future_is_told_from_the_right_vectors(stirred) -> None:
    model = small(stirred)
    told = model(*world())
    assert told.change.shape == (B, T, K, N)
    assert told.reward.shape == told.end.shape == (B, T)


def test_before_it_has_learnt_anything_nothing_changes() -> None:
    told = DynamicsHead(D, N, A)(torch.randn(B, T, K + 1, D))
    assert all(not part.any() for part in told)


def test_more_steps_than_the_context_are_refused(stirred) -> None:
    seen, done = world()
    with pytest.raises(ValueError, match="8 tokens do not fit this model's context of 7"):
        small(stirred).body(seen[:, [0] * 8], done[:, [0] * 8])


def test_an_action_may_be_none_so_far(stirred) -> None:
    seen, done = world()
    body = small(stirred).body
    nothing = torch.full_like(done, A)
    assert not torch.allclose(body(seen, nothing), body(seen, done))
