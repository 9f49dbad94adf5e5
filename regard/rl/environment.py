"""A world to act in: gymnasium behind one small class (Towers et al. 2024), and what happens there as episodes.

o₀, then again and again:   aₜ = player(what happened so far),   oₜ₊₁, rₜ = the world's answer

Numbers of the observation may be hidden: whoever acts must then remember what the hidden ones would have told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib.metadata import version
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from regard.choose import LARGEST
from regard.data.episodes import Episode, Floats
from regard.training.loop import number_from

NEEDED = 'acting in an environment needs the library gymnasium: pip install "regard[world]"'
MOST = 10_000  # steps of an episode in a world that names no limit: nobody waits for ever for one that never ends


class Moment(NamedTuple):
    """The world's answer to an action."""

    observation: Floats
    reward: float
    ended: bool  # the world ended it
    cut: bool  # the time was up


class Environment:
    """An environment of gymnasium with a few actions and a vector of numbers to see."""

    note = ""  # what whoever acts there should be told first

    def __init__(self, name: str, hide: tuple[int, ...] = ()):
        self.name, self.hide = name, tuple(hide)
        self.world = made(name)
        space, deeds = self.world.observation_space, self.world.action_space
        if type(deeds).__name__ != "Discrete":
            raise ValueError(f"{name} is acted in by {deeds}, and regard chooses one of a few actions: Discrete(n)")
        if type(space).__name__ != "Box" or len(space.shape) != 1:
            raise ValueError(f"{name} shows {space}, and regard acts on a vector of numbers: a Box of one dimension")
        self.first, self.actions = int(deeds.start), int(deeds.n)
        whole = int(space.shape[0])
        for number in self.hide:
            if not 0 <= number < whole:
                raise ValueError(f"hide must name numbers of the observation of {name}, 0 to {whole - 1}, not {number}")
        self.shown = [number for number in range(whole) if number not in self.hide]
        if not self.shown:
            raise ValueError(f"hide {' '.join(map(str, self.hide))} leaves nothing of the observation of {name} to see")
        self.whole: Floats = np.zeros(whole, np.float32)  # the newest observation, with what is hidden
        if self.limit is None:
            self.world = limited(self.world)
            self.note = f"{name} names no limit of time: an episode is cut off after {MOST:,} steps"

    @property
    def observation(self) -> int:
        """Numbers that are seen."""
        return len(self.shown)

    @property
    def is_cart(self) -> bool:
        """Whether it can be drawn as a cart with a pole."""
        return type(self.world.unwrapped).__name__ == "CartPoleEnv"

    @property
    def limit(self) -> int | None:
        """Steps after which time is up."""
        return getattr(self.world.spec, "max_episode_steps", None)

    def reset(self, seed: int) -> Floats:
        return self.see(self.world.reset(seed=seed % 2**32)[0])

    def step(self, action: int) -> Moment:
        observation, reward, ended, cut, _ = self.world.step(self.first + action)
        if not abs(reward) < LARGEST:  # nor is NaN
            raise ValueError(f"{self.name} gave the reward {reward}, which is no number to learn from")
        return Moment(self.see(observation), float(reward), bool(ended), bool(cut))

    def see(self, observation: Any) -> Floats:
        self.whole = np.asarray(observation, np.float32)
        if not (np.abs(self.whole) < LARGEST).all():
            raise ValueError(f"{self.name} showed {self.whole.tolist()}, and not every number of it is one")
        return self.whole[self.shown]


def made(name: str) -> Any:
    try:
        import gymnasium
    except ImportError:
        raise ValueError(NEEDED) from None
    if ":" not in name and name not in gymnasium.registry:
        near = get_close_matches(name, gymnasium.registry, 3, 0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else "try CartPole-v1 or Acrobot-v1"
        raise ValueError(f"gymnasium has no environment named {name!r}: {hint}")
    try:
        return gymnasium.make(name)
    except (gymnasium.error.Error, ImportError) as error:
        raise ValueError(f"the environment {name} cannot be made: {error}") from None


def limited(world: Any) -> Any:
    from gymnasium.wrappers import TimeLimit

    return TimeLimit(world, MOST)


def edition() -> str:
    """Another one may have another world under the same name."""
    return version("gymnasium")


@dataclass
class Past:
    """An episode so far: one observation more than actions."""

    observations: list[Floats]
    actions: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    ended: bool = False
    cut: bool = False
    number: int = 0  # of the episode: its beginning and all that is drawn in it follow from (seed, number)

    def add(self, action: int, moment: Moment) -> None:
        self.observations.append(moment.observation)
        self.actions.append(action)
        self.rewards.append(float(np.float32(moment.reward)))  # as files keep it
        self.ended, self.cut = moment.ended, moment.cut

    @property
    def over(self) -> bool:
        return self.ended or self.cut

    @property
    def total(self) -> float:
        return sum(self.rewards)

    def episode(self, file: str = "") -> Episode:
        """As it is kept in files. One that still goes on is cut off here."""
        told = np.stack(self.observations).astype(np.float32)
        actions, rewards = np.array(self.actions, np.int64), np.array(self.rewards, np.float32)
        return Episode(told, actions, rewards, self.ended, file, self.number + 1)

    @classmethod
    def of(cls, episode: Episode, goes_on: bool) -> Past:
        """An episode from a file, which is over unless it goes on."""
        assert episode.actions is not None, "nobody acts in a video"
        cut = not (episode.ended or goes_on)
        actions, rewards = episode.actions.tolist(), episode.rewards.tolist()
        return cls([*episode.observations], actions, rewards, episode.ended, cut, episode.line - 1)


Player = Callable[[Past], int]  # chooses an action by what has happened so far


def lived(environment: Environment, player: Player, seed: int, past: Past | None = None) -> Iterator[Past]:
    """After every step the episode so far, one episode after the other, for ever. All of it follows from the seed.
    `past` is the newest one of a life that goes on."""
    if past is None:
        past = begun(environment, seed, 0)
    elif not past.over:
        relive(environment, past, seed)
    while True:
        while not past.over:
            action = player(past)
            past.add(action, environment.step(action))
            yield past
        past = begun(environment, seed, past.number + 1)


def begun(environment: Environment, seed: int, number: int) -> Past:
    return Past([environment.reset(number_from(seed, number))], number=number)


def relive(environment: Environment, past: Past, seed: int) -> None:
    """Bring the world to where an episode had stopped: the same beginning, and the same deeds."""
    seen = [environment.reset(number_from(seed, past.number))]
    seen += [environment.step(action).observation for action in past.actions]
    if not np.array_equal(np.stack(seen), np.stack(past.observations)):
        raise ValueError(
            f"{environment.name} does not do the same again when the same is done: a run in it cannot go on, "
            "start again with --overwrite"
        )


def played(environment: Environment, player: Player, episodes: int, seed: int) -> Iterator[Past]:
    """Whole episodes, each as it ends."""
    whole = (past for past in lived(environment, player, seed) if past.over)
    return islice(whole, episodes)


def record(environment: Environment, player: Player, episodes: int, seed: int) -> list[Episode]:
    """Whole episodes, as `write_episodes` takes them."""
    return [past.episode(environment.name) for past in played(environment, player, episodes, seed)]


def returns(environment: Environment, player: Player, episodes: int, seed: int) -> list[float]:
    """What each episode brought in all."""
    return [past.total for past in played(environment, player, episodes, seed)]


def luck(past: Past, seed: int) -> float:
    """A number from 0 to 1 for the next action of an episode: the same in whatever order episodes are played."""
    return float(np.random.default_rng([seed, past.number, len(past.actions)]).random())


def by_chance(environment: Environment, seed: int) -> Player:
    """Any action, as likely as any other."""
    return lambda past: int(luck(past, seed) * environment.actions)
