"""PPO: its advantages are the sum that the paper writes, and what it learns is what pays."""

import numpy as np
import pytest
import torch

from regard.rl.environment import record, returns
from regard.rl.policy import Policy, PolicyConfig, Seen, drawn, greedy
from regard.rl.ppo import PPO, Rows, advantages, improve, optimizer_of, rows_of


def fresh(observation=2, actions=2, seed=1):
    torch.manual_seed(seed)
    return Policy(PolicyConfig(observation, actions, hidden=16))


def test_advantages_are_the_sum_spelled_out():
    torch.manual_seed(3)
    how, (B, T) = PPO(discount=0.9, trace=0.7), (3, 5)
    rewards, values, goes_on, last = torch.randn(B, T), torch.randn(B, T), torch.rand(B, T), torch.randn(B)
    found = advantages(rewards, values, goes_on, last, how)
    after = torch.cat([values[:, 1:], last[:, None]], 1)
    for b in range(B):
        for t in range(T):
            total, share = 0.0, 1.0
            for k in range(t, T):
                surprise = rewards[b, k] + how.discount * goes_on[b, k] * after[b, k] - values[b, k]
                total += share * surprise
                share *= how.discount * how.trace * goes_on[b, k]
            assert float(found[b, t]) == pytest.approx(float(total), abs=1e-5)


def test_with_a_whole_trace_an_advantage_is_the_return_beyond_the_value():
    rewards, values = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[5.0, 6.0, 7.0]])
    goes_on, how = torch.tensor([[1.0, 1.0, 0.0]]), PPO(discount=0.5, trace=1.0)
    wanted = [1 + 0.5 * (2 + 0.5 * 3) - 5, 2 + 0.5 * 3 - 6, 3.0 - 7]
    assert advantages(rewards, values, goes_on, torch.tensor([99.0]), how)[0].tolist() == pytest.approx(wanted)


def bandit(policy, seed, count=64):
    """One step; only action 2 pays where the first number is above 0, only action 0 elsewhere."""
    draw = np.random.default_rng(seed)
    seen = Seen(
        torch.from_numpy(draw.normal(size=(count, 1, 1, 2)).astype(np.float32)), torch.zeros(count, 1, 0).long()
    )
    with torch.no_grad():
        log = policy(seen).logits.log_softmax(-1)
    actions = torch.multinomial(log[:, 0].exp(), 1, generator=torch.Generator().manual_seed(seed))
    right = torch.where(seen.observations[:, 0, 0, 0] > 0, 2, 0)
    pays = (actions[:, 0] == right).float()[:, None]
    zero = torch.zeros(count, 1)
    return Rows(seen, actions, log[:, 0].gather(1, actions), pays, zero, zero + 1, torch.zeros(count))


def test_a_bandit_is_understood():
    policy, how = fresh(actions=3), PPO(rate=3e-3)
    optimizer = optimizer_of(policy, how)
    before = float(bandit(policy, 999, 512).rewards.mean())
    for seed in range(60):
        improve(policy, optimizer, bandit(policy, seed), how, seed)
    after = float(bandit(policy, 999, 512).rewards.mean())
    assert before < 0.45
    assert after > 0.85


def test_steps_that_are_never_reached_change_nothing():
    """Rows filled up with anything at all give the same policy."""
    told = []
    for fill in (0.0, 50.0):
        policy, how = fresh(actions=3), PPO()
        rows = bandit(policy, 1)
        more = Seen(
            torch.cat([rows.seen.observations, rows.seen.observations + fill], 1), rows.seen.actions.repeat(1, 2, 1)
        )
        doubled = [torch.cat([one, one + fill], 1) for one in (rows.logp, rows.rewards, rows.goes_on)]
        actions, reached = rows.actions.repeat(1, 2), torch.cat([rows.reached, rows.reached * 0], 1)
        filled = Rows(more, actions, *doubled, reached, rows.last)
        filled.goes_on[:, 0] = 0
        improve(policy, optimizer_of(policy, how), filled, how, 1)
        told.append(torch.cat([weight.flatten() for weight in policy.parameters()]))
    alone = fresh(actions=3)
    improve(alone, optimizer_of(alone, PPO()), bandit(alone, 1), PPO(), 1)
    assert torch.equal(told[0], told[1])
    assert torch.equal(told[0], torch.cat([weight.flatten() for weight in alone.parameters()]))


def test_real_episodes_become_rows(corridor):
    policy, how = fresh(), PPO(discount=0.9)
    episodes = [
        *record(corridor, drawn(policy, 1), 4, 1),
        *record(corridor, lambda past: 0, 1, 1),  # time cuts it off after 20 steps
    ]
    rows = rows_of(policy, episodes, how)
    assert rows.rewards.shape == (5, 20)
    for i, episode in enumerate(episodes):
        L = episode.steps
        assert rows.reached[i].tolist() == [1.0] * L + [0.0] * (20 - L)
        assert rows.goes_on[i, L - 1] == 0
        assert rows.goes_on[i, : L - 1].min() == 1 if L > 1 else True
        seen = torch.from_numpy(episode.observations)
        assert torch.equal(rows.seen.observations[i, :L, 0], seen[:L])
        logp = policy(Seen(seen[:L, None], torch.zeros(L, 0).long())).logits.log_softmax(-1)
        torch.testing.assert_close(rows.logp[i, :L], logp.gather(1, torch.from_numpy(episode.actions)[:, None])[:, 0])
        more = 0.0 if episode.ended else 0.9 * policy(Seen(seen[L:, None], torch.zeros(1, 0).long())).value[0].item()
        assert float(rows.rewards[i, L - 1]) == pytest.approx(float(episode.rewards[-1]) + more, abs=1e-6)


def test_the_way_through_a_corridor_is_found(corridor):
    policy, how = fresh(), PPO(discount=0.9, rate=3e-3)
    optimizer = optimizer_of(policy, how)
    policy.fit_scales(record(corridor, drawn(policy, 0), 20, 0), how.discount)
    before = np.mean(returns(corridor, drawn(policy, 77), 30, 77))
    for number in range(15):
        rows = rows_of(policy, record(corridor, drawn(policy, number), 12, number), how)
        improve(policy, optimizer, rows, how, number)
    assert before < 0.7
    assert np.mean(returns(corridor, greedy(policy), 30, 77)) > 0.85


def test_a_policy_that_may_not_move_does_not():
    """Where the chance of an action has moved beyond the clip in the wrong direction, there is nothing more to gain."""
    policy, how = fresh(actions=3), PPO(entropy=0.0, passes=1, parts=1)
    rows = bandit(policy, 1)
    gone = rows._replace(logp=rows.logp - torch.where(rows.rewards > rows.rewards.mean(), 1.0, -1.0))
    before = [weight.clone() for weight in policy.choice.parameters()]
    update = improve(policy, optimizer_of(policy, how), gone._replace(rewards=rows.rewards * 2 - 1), how, 1)
    assert update.moved == pytest.approx(1.0)
    assert all(torch.equal(old, new) for old, new in zip(before, policy.choice.parameters(), strict=True))


@pytest.mark.parametrize(("name", "value"), [("discount", 1.0), ("trace", 1.5), ("clip", 0.0), ("entropy", -1.0)])
def test_ways_that_make_no_sense_are_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} must be"):
        PPO(**{name: value})
