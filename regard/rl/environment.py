"""Environments and trajectories: gymnasium (Towers et al. 2024) behind one small class.

o₀ = reset(seed);   aₜ = policy(o₀, a₀, ..., oₜ);   oₜ₊₁, rₜ, terminated, truncated = step(aₜ)

Entries of the observation may be hidden: the environment is then partially observable, and the policy needs a history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib.metadata import version
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from regard.data.episodes import Episode, Floats
from regard.modalities.trajectory.episode_files import write_episodes
from regard.seeds import derive_seed
from regard.validate import MAX_FLOAT

INSTALL_HINT = 'acting in an environment needs gymnasium: pip install "regard[world]"'
MAX_EPISODE_STEPS = 10_000  # time limit in an environment that has none


class StepResult(NamedTuple):
    """What the environment returns for an action."""

    observation: Floats
    reward: float
    terminated: bool  # the environment ended the episode
    truncated: bool  # the time limit ended it


class Environment:
    """A gymnasium environment with a Discrete action space and a one-dimensional Box of observations."""

    note = ""  # what the commands print before they act

    def __init__(self, name: str, hide: tuple[int, ...] = ()):
        self.name, self.hide = name, tuple(hide)
        self.env = make_gymnasium(name)
        space, action_space = self.env.observation_space, self.env.action_space
        if type(action_space).__name__ != "Discrete":
            raise ValueError(f"{name} has the action space {action_space}; regard supports Discrete(n) only")
        if type(space).__name__ != "Box" or len(space.shape) != 1:
            raise ValueError(f"{name} has the observation space {space}; regard supports a one-dimensional Box only")
        self.action_start, self.num_actions = int(action_space.start), int(action_space.n)
        size = int(space.shape[0])
        for index in self.hide:
            if not 0 <= index < size:
                raise ValueError(f"hide must name indices of the observation of {name}, 0 to {size - 1}, not {index}")
        self.visible = [index for index in range(size) if index not in self.hide]
        if not self.visible:
            raise ValueError(f"hide {' '.join(map(str, self.hide))} leaves nothing of the observation of {name}")
        self.full_observation: Floats = np.zeros(size, np.float32)  # the latest, hidden entries included
        if self.max_episode_steps is None:
            from gymnasium.wrappers import TimeLimit

            self.env = TimeLimit(self.env, MAX_EPISODE_STEPS)
            self.note = f"{name} has no time limit: regard truncates an episode after {MAX_EPISODE_STEPS:,} steps"

    @property
    def observation_dim(self) -> int:
        """Visible entries of an observation."""
        return len(self.visible)

    @property
    def is_cartpole(self) -> bool:
        """Whether `view.render_cartpole` can draw it."""
        return type(self.env.unwrapped).__name__ == "CartPoleEnv"

    @property
    def max_episode_steps(self) -> int | None:
        """The time limit."""
        return getattr(self.env.spec, "max_episode_steps", None)

    def reset(self, seed: int) -> Floats:
        return self.observe(self.env.reset(seed=seed % 2**32)[0])

    def step(self, action: int) -> StepResult:
        observation, reward, terminated, truncated, _ = self.env.step(self.action_start + action)
        if not abs(reward) < MAX_FLOAT:  # nor is NaN
            raise ValueError(f"{self.name} returned the reward {reward}, which is not a finite number")
        return StepResult(self.observe(observation), float(reward), bool(terminated), bool(truncated))

    def observe(self, observation: Any) -> Floats:
        self.full_observation = np.asarray(observation, np.float32)
        if not (np.abs(self.full_observation) < MAX_FLOAT).all():
            values = self.full_observation.tolist()
            raise ValueError(f"{self.name} returned the observation {values}, which is not finite")
        return self.full_observation[self.visible]


def make_gymnasium(name: str) -> Any:
    try:
        import gymnasium
    except ImportError:
        raise ValueError(INSTALL_HINT) from None
    if ":" not in name and name not in gymnasium.registry:
        matches = get_close_matches(name, gymnasium.registry, 3, 0.5)
        hint = f"did you mean {' or '.join(matches)}?" if matches else "try CartPole-v1 or Acrobot-v1"
        raise ValueError(f"gymnasium has no environment named {name!r}: {hint}")
    try:
        return gymnasium.make(name)
    except (gymnasium.error.Error, ImportError) as error:
        raise ValueError(f"gymnasium cannot make the environment {name}: {error}") from None


def gymnasium_version() -> str:
    """Another version may have another environment under the same name."""
    return version("gymnasium")


@dataclass
class Trajectory:
    """An episode so far: one observation more than actions."""

    observations: list[Floats]
    actions: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    terminated: bool = False
    truncated: bool = False
    number: int = 0  # of the episode; (seed, number) determines its initial state and its random actions

    def append(self, action: int, result: StepResult) -> None:
        self.observations.append(result.observation)
        self.actions.append(action)
        self.rewards.append(float(np.float32(result.reward)))  # the precision of files
        self.terminated, self.truncated = result.terminated, result.truncated

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated

    @property
    def episode_return(self) -> float:
        return sum(self.rewards)

    def to_episode(self) -> Episode:
        """The episode as files hold it. One that is not done is truncated here."""
        observations = np.stack(self.observations).astype(np.float32)
        actions, rewards = np.array(self.actions, np.int64), np.array(self.rewards, np.float32)
        return Episode(observations, actions, rewards, self.terminated)

    @classmethod
    def from_episode(cls, episode: Episode, number: int, ongoing: bool) -> Trajectory:
        """An episode of a file: done, unless it is ongoing."""
        assert episode.actions is not None, "a video has no actions"
        truncated = not (episode.terminated or ongoing)
        actions, rewards = episode.actions.tolist(), episode.rewards.tolist()
        return cls([*episode.observations], actions, rewards, episode.terminated, truncated, number)


PolicyFn = Callable[[Trajectory], int]  # chooses an action from the trajectory so far


def rollout(
    environment: Environment, policy_fn: PolicyFn, seed: int, trajectory: Trajectory | None = None
) -> Iterator[Trajectory]:
    """Act for ever, episode after episode; yields the current trajectory after every step. The seed determines all of
    it. `trajectory` is the latest one of a rollout that is resumed."""
    if trajectory is None:
        trajectory = start_episode(environment, seed, 0)
    elif not trajectory.done:
        replay_actions(environment, trajectory, seed)
    while True:
        while not trajectory.done:
            action = policy_fn(trajectory)
            trajectory.append(action, environment.step(action))
            yield trajectory
        trajectory = start_episode(environment, seed, trajectory.number + 1)


def start_episode(environment: Environment, seed: int, number: int) -> Trajectory:
    return Trajectory([environment.reset(derive_seed(seed, number))], number=number)


def replay_actions(environment: Environment, trajectory: Trajectory, seed: int) -> None:
    """Bring the environment to the state in which a trajectory stopped: the same reset, the same actions."""
    observations = [environment.reset(derive_seed(seed, trajectory.number))]
    observations += [environment.step(action).observation for action in trajectory.actions]
    if not np.array_equal(np.stack(observations), np.stack(trajectory.observations)):
        raise ValueError(
            f"{environment.name} is not deterministic: the same actions led to other observations, so a run in it "
            "cannot be resumed; start again with --overwrite"
        )


def play_episodes(environment: Environment, policy_fn: PolicyFn, episodes: int, seed: int) -> Iterator[Trajectory]:
    """Complete episodes, each as it ends."""
    complete = (trajectory for trajectory in rollout(environment, policy_fn, seed) if trajectory.done)
    return islice(complete, episodes)


def record_episodes(environment: Environment, policy_fn: PolicyFn, episodes: int, seed: int) -> list[Episode]:
    """Complete episodes, as `write_episodes` takes them."""
    return [trajectory.to_episode() for trajectory in play_episodes(environment, policy_fn, episodes, seed)]


def save_record(file: str, trajectories: Iterable[Trajectory]) -> None:
    """Write complete episodes to a .npz or .jsonl file."""
    write_episodes(file, [trajectory.to_episode() for trajectory in trajectories])


def episode_returns(environment: Environment, policy_fn: PolicyFn, episodes: int, seed: int) -> list[float]:
    """The return of each episode: the sum of its rewards."""
    return [trajectory.episode_return for trajectory in play_episodes(environment, policy_fn, episodes, seed)]


def action_noise(trajectory: Trajectory, seed: int) -> float:
    """A uniform number of [0, 1) for the next action of an episode, whatever the order in which episodes are played."""
    return float(np.random.default_rng([seed, trajectory.number, len(trajectory.actions)]).random())


def random_policy(environment: Environment, seed: int) -> PolicyFn:
    """Uniformly random actions."""
    return lambda trajectory: int(action_noise(trajectory, seed) * environment.num_actions)
