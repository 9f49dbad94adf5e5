"""Worlds: what is seen, hidden, recorded and lived again, and what is refused."""

import sys
from itertools import islice

import numpy as np
import pytest

from regard.cli.act import Playing, play
from regard.data.episodes import Episode, read_episodes, write_episodes
from regard.rl.environment import MOST, Environment, Past, by_chance, lived, played, record, returns


def to_the_right(past):
    return 1


def test_what_is_hidden_is_not_seen():
    whole, part = Environment("CartPole-v1"), Environment("CartPole-v1", (1, 3))
    assert (whole.observation, whole.actions, whole.limit) == (4, 2, 500)
    seen = whole.reset(7)
    assert part.reset(7).tolist() == seen[[0, 2]].tolist()
    assert part.whole.tolist() == seen.tolist()
    assert part.step(1).observation.tolist() == whole.step(1).observation[[0, 2]].tolist()


def test_an_episode_has_one_observation_more_than_actions_and_ends_where_the_world_ends_it(corridor):
    for episode in record(corridor, to_the_right, 8, seed=3):
        first = int(episode.observations[0, 0])
        assert episode.ended
        assert episode.observations[:, 0].tolist() == list(range(first, 6))
        assert episode.actions.tolist() == [1] * (5 - first)
        assert episode.rewards.tolist() == [np.float32(-0.05)] * (4 - first) + [1.0]


def test_what_time_cuts_off_is_not_ended(corridor):
    (episode,) = record(corridor, lambda past: 0, 1, seed=3)
    assert (episode.steps, episode.ended) == (20, False)


def test_a_world_that_names_no_limit_is_cut_off_by_ours(corridor):
    endless = Environment("Endless-v0")
    assert (endless.limit, corridor.limit) == (MOST, 20)
    left, right = (record(endless, lambda past, to=to: to, 1, seed=3)[0] for to in (0, 1))
    assert (left.steps, left.ended) == (MOST, False)
    assert right.steps < 6
    assert right.ended, "an end of its own stays one"


def test_who_waits_is_told_that_only_we_end_it(corridor, monkeypatch, capsys):
    monkeypatch.setattr("regard.rl.environment.MOST", 30)
    for world in (Environment("Endless-v0"), corridor):
        assert play(world, lambda past: 0, Playing(episodes=1)) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "Endless-v0 names no limit of time: an episode is cut off after 30 steps"
    assert [line.split(" in ")[1] for line in said if line.startswith("episode")] == ["30 steps", "20 steps"]
    assert len(said) == 5, "of a limit of its own nothing is said"


def test_all_follows_from_the_seed(corridor):
    def some(seed):
        return [episode.said for episode in record(corridor, by_chance(corridor, seed), 6, seed)]

    assert some(1) == some(1) != some(2)
    assert len(set(some(1))) > 3


def test_returns_are_sums_of_rewards(corridor):
    episodes = record(corridor, by_chance(corridor, 5), 6, seed=5)
    assert returns(corridor, by_chance(corridor, 5), 6, seed=5) == pytest.approx([e.rewards.sum() for e in episodes])


def test_records_are_read_back(corridor, tmp_path):
    episodes = record(corridor, by_chance(corridor, 5), 6, seed=5)
    for name in ("a.npz", "a.jsonl"):
        write_episodes(tmp_path / name, episodes)
        back = [one for one in read_episodes([tmp_path / name]) if isinstance(one, Episode)]
        assert [one.said for one in back] == [one.said for one in episodes]


@pytest.mark.parametrize("steps", [7, 30, 33])
def test_a_life_that_goes_on_is_the_life_that_was_interrupted(corridor, steps):
    """The world is brought to where it was, though nothing of it was kept but what was seen and done."""

    def told(lives):
        return [(past.number, len(past.actions), past.total) for past in lives]

    player = by_chance(corridor, 4)
    whole = told(islice(lived(corridor, player, 9), 60))
    last = [*islice(lived(corridor, player, 9), steps)][-1]
    again = Past.of(last.episode(), goes_on=not last.over)
    other = Environment("Corridor-v0")
    assert told(islice(lived(other, player, 9, again), 60 - steps)) == whole[steps:]


def test_a_world_that_does_not_repeat_itself_is_told():
    environment = Environment("Restless-v0")
    past = next(lived(environment, to_the_right, 1))
    past.ended = False
    with pytest.raises(ValueError, match="Restless-v0 does not do the same again"):
        next(lived(environment, to_the_right, 1, past))


def test_played_episodes_are_whole(corridor):
    assert all(past.over for past in played(corridor, by_chance(corridor, 1), 5, 1))


@pytest.mark.parametrize(
    ("name", "hide", "told"),
    [
        ("CartPol-v1", (), "no environment named 'CartPol-v1': did you mean CartPole-v1"),
        ("zzzzzzzz", (), "no environment named 'zzzzzzzz'"),
        ("no.such:Module-v0", (), "no.such:Module-v0 cannot be made"),
        ("Pendulum-v1", (), "Pendulum-v1 is acted in by Box.*one of a few actions"),
        ("FrozenLake-v1", (), "FrozenLake-v1 shows Discrete.*vector of numbers"),
        ("CartPole-v1", (4,), "0 to 3, not 4"),
        ("CartPole-v1", (-1,), "0 to 3, not -1"),
        ("CartPole-v1", (0, 1, 2, 3), "leaves nothing"),
    ],
)
def test_what_cannot_be_acted_in_is_refused_by_name(name, hide, told):
    with pytest.raises(ValueError, match=told):
        Environment(name, hide)


def test_without_gymnasium_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(ValueError, match=r'pip install "regard\[world\]"'):
        Environment("CartPole-v1")


@pytest.mark.parametrize(("what", "told"), [("see", "not every number"), ("earn", "no number to learn from")])
def test_what_is_no_number_is_told(corridor, what, told):
    corridor.reset(1)
    inner = corridor.world.unwrapped
    if what == "see":
        inner.seen = lambda: np.array([np.nan, 0.0], np.float32)
    else:
        inner.step = lambda action: (inner.seen(), np.nan, False, False, {})
    with pytest.raises(ValueError, match=told):
        corridor.step(1)
