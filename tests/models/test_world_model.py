"""The world model is causal over whole steps, with and without actions."""

import pytest
import torch
from torch import Tensor

from regard.models.world_model import WorldModel, WorldModelConfig, block_causal_mask
from regard.parts.dynamics_head import DynamicsHead
from regard.parts.heads import Model

B, T, K, N, A, D = 2, 6, 3, 5, 4, 12


def make_model(randomize, num_actions: int = A) -> Model:
    torch.manual_seed(1)
    body = WorldModel(WorldModelConfig(N, K, num_actions, context=7, dim=D, layers=2, heads=3, hidden=16))
    return randomize(Model(body, DynamicsHead(D, N, num_actions))).double().eval()


def make_steps() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(B, T, K, N, dtype=torch.float64, generator=generator), torch.randint(
        A, (B, T), generator=generator
    )


@pytest.mark.parametrize("changed", range(T))
def test_a_step_sees_itself_and_earlier_steps_only(randomize, changed: int) -> None:
    body = make_model(randomize).body
    observations, actions = make_steps()
    before = body(observations, actions)
    assert before.shape == (B, T, K + 1, D)
    for position in range(K):
        altered = observations.clone()
        altered[:, changed, position] += 1
        difference = (body(altered, actions) - before).abs().amax(-1)  # (B,T,K+1)
        assert (difference[:, :changed] == 0).all()
        assert (difference[:, changed:] > 1e-9).all()
    other_actions = actions.clone()
    other_actions[:, changed] = (actions[:, changed] + 1) % A
    difference = (body(observations, other_actions) - before).abs().amax(-1)
    assert (difference[:, :changed] == 0).all()
    assert (difference[:, changed:] > 1e-9).all(), "the prediction depends on the action"


def test_block_causal_mask_of_two_vectors_per_step() -> None:
    mask = block_causal_mask(3, 3, 2, None, torch.device("cpu"))
    assert mask.int().tolist() == [
        [1, 1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0, 0],
        [1, 1, 1, 1, 1, 1],
        [1, 1, 1, 1, 1, 1],
    ]
    assert block_causal_mask(2, 3, 2, None, torch.device("cpu")).int().tolist() == mask.int().tolist()[2:]


def test_without_actions_there_is_no_action_vector(randomize) -> None:
    model = make_model(randomize, num_actions=0)
    observations, _ = make_steps()
    assert model.body(observations).shape == (B, T, K, D)
    output = model(observations)
    assert output.change.shape == (B, T, K, N)
    assert (output.reward, output.end) == (None, None)


def test_missing_actions_are_refused(randomize) -> None:
    with pytest.raises(ValueError, match="pass the action of every step"):
        make_model(randomize).body(make_steps()[0])


def test_head_output_shapes(randomize) -> None:
    model = make_model(randomize)
    output = model(*make_steps())
    assert output.change.shape == (B, T, K, N)
    assert output.reward.shape == output.end.shape == (B, T)


def test_untrained_head_predicts_no_change() -> None:
    output = DynamicsHead(D, N, A)(torch.randn(B, T, K + 1, D))
    assert all(not part.any() for part in output)


def test_more_steps_than_the_context_are_refused(randomize) -> None:
    observations, actions = make_steps()
    with pytest.raises(ValueError, match="8 tokens do not fit this model's context of 7"):
        make_model(randomize).body(observations[:, [0] * 8], actions[:, [0] * 8])


def test_there_is_an_embedding_for_no_action(randomize) -> None:
    observations, actions = make_steps()
    body = make_model(randomize).body
    no_action = torch.full_like(actions, A)
    assert not torch.allclose(body(observations, no_action), body(observations, actions))
