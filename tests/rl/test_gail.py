"""GAIL: the judge learns to tell, the policy learns to please it, and the world's rewards are never looked at."""

from itertools import islice

import numpy as np
import pytest
import torch

from regard.data.bundled.cart import carts
from regard.data.episodes import video
from regard.rl.cartpole import Track
from regard.rl.environment import record
from regard.rl.gail import Deeds, Imitation, Judge, deeds_of, imitate, judged, some
from regard.rl.policy import Policy, PolicyConfig
from regard.rl.ppo import PPO
from regard.tasks.steps import the_best

EXPERT = list(the_best(carts(40), 0.1))
HOW = Imitation(round=200, hidden=32)


def policy_of(memory=1):
    torch.manual_seed(1)
    made = Policy(PolicyConfig(4, 2, memory, 32))
    made.fit_scales(EXPERT, 0.99)
    return made


@pytest.mark.parametrize("memory", [1, 3])
def test_a_judge_learns_to_tell_the_two_apart(memory):
    policy = policy_of(memory)
    torch.manual_seed(2)
    judge = Judge(policy, 32)
    mine, expert = deeds_of(some(Track(), policy, 400, 1), memory), deeds_of(EXPERT, memory)
    optimizer, before = torch.optim.Adam(judge.parameters(), 3e-3), judge.reward(mine).mean()
    told = [judged(judge, optimizer, expert, mine, Imitation(passes=5), seed) for seed in range(6)]
    assert told[-1] > max(0.6, told[0])
    assert judge.reward(mine).mean() < before, "what is no expert's is worth less than before"
    assert judge.reward(mine).mean() < judge.reward(expert).mean()


def test_the_reward_is_that_of_the_paper():
    judge = Judge(policy_of(), 8)
    deeds = deeds_of(EXPERT[:1], 1)
    chance = judge(deeds).sigmoid()
    torch.testing.assert_close(judge.reward(deeds), -(1 - chance).log())


def test_a_judge_looks_at_what_was_done():
    judge, deeds = Judge(policy_of(), 8), deeds_of(EXPERT[:1], 1)
    assert (judge(deeds) - judge(Deeds(deeds.seen, 1 - deeds.actions))).abs().min() > 0


def test_a_round_moves_judge_and_policy_and_follows_from_the_seed():
    first, second = islice(imitate(Track(), EXPERT, HOW, PPO(), seed=1), 2)
    fresh = policy_of()
    assert second.steps > first.steps >= HOW.round
    assert any(not torch.equal(a, b) for a, b in zip(first.policy.parameters(), fresh.parameters(), strict=True))
    again = list(islice(imitate(Track(), EXPERT, HOW, PPO(), seed=1), 2))[1]
    assert (again.returns, again.told_apart) == (second.returns, second.told_apart)
    other = next(imitate(Track(), EXPERT, HOW, PPO(), seed=2))
    assert other.returns != first.returns


def test_the_rewards_of_the_world_do_not_matter():
    class Mean(Track):
        def step(self, action):
            return super().step(action)._replace(reward=-100.0)

    fair, unfair = (list(islice(imitate(kind(), EXPERT, HOW, PPO(), seed=1), 2))[1] for kind in (Track, Mean))
    for one, other in zip(fair.policy.parameters(), unfair.policy.parameters(), strict=True):
        assert torch.equal(one, other)
    assert fair.returns != unfair.returns


def test_nor_do_those_that_the_expert_got():
    """A recording may have any: what the policy gets is what the judge gives."""
    poor = [one._replace(rewards=one.rewards * 0) for one in EXPERT]
    first, second = (next(imitate(Track(), some, HOW, PPO(), seed=1)).policy.state_dict() for some in (EXPERT, poor))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_it_ends_after_its_steps():
    rounds = list(imitate(Track(), EXPERT, Imitation(steps=500, round=200, hidden=8), PPO(), seed=1))
    assert rounds[-1].steps >= 500
    assert rounds[-2].steps < 500


@pytest.mark.parametrize(
    ("expert", "says"),
    [
        ([video(np.zeros((3, 4), np.float32), "ball.npz", 2)], "ball.npz:2: nobody acts here"),
        ([EXPERT[0]._replace(observations=EXPERT[0].observations[:, :3])], r"cart:\d+: its observations are \(3,\)"),
        ([EXPERT[0]._replace(actions=EXPERT[0].actions + 5)], r"its highest action is 6, but cart shows 4 numbers"),
    ],
)
def test_an_expert_of_another_world_is_refused(expert, says):
    with pytest.raises(ValueError, match=says):
        next(imitate(Track(), expert, HOW, PPO()))


def test_an_expert_may_be_recorded():
    [one] = record(Track(), lambda past: int(past.observations[-1][2] > 0), 1, seed=1)
    assert next(imitate(Track(), [one], HOW, PPO())).steps >= HOW.round
