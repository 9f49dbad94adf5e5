"""A tiny environment: a corridor whose right end is the goal."""

import gymnasium
import numpy as np
import pytest


class Corridor(gymnasium.Env):
    """Six positions. Action 1 moves right, 0 left; the right end gives 1 and terminates, a step costs 0.05."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def observation(self):
        return np.array([self.position, self.start], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position = self.start = int(self.np_random.integers(5))
        return self.observation(), {}

    def step(self, action):
        self.position = max(0, self.position + (1 if action else -1))
        terminated = self.position == 5
        return self.observation(), 1.0 if terminated else -0.05, terminated, False, {}


class Nondeterministic(Corridor):
    """Its initial state ignores the seed."""

    resets = 0

    def reset(self, *, seed=None, options=None):
        Nondeterministic.resets += 1
        observation, info = super().reset(seed=seed)
        return observation + Nondeterministic.resets, info


if "Corridor-v0" not in gymnasium.registry:
    gymnasium.register("Corridor-v0", entry_point=Corridor, max_episode_steps=20)
    gymnasium.register("Nondeterministic-v0", entry_point=Nondeterministic, max_episode_steps=20)
    gymnasium.register("Unlimited-v0", entry_point=Corridor)


@pytest.fixture
def corridor():
    from regard.rl.environment import Environment

    return Environment("Corridor-v0")
