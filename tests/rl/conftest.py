"""A world so small that all of it can be told: a corridor, of which the right end is the goal."""

import gymnasium
import numpy as np
import pytest


class Corridor(gymnasium.Env):
    """Six places. To the right (1) or to the left (0); the right end is worth 1 and ends it, a step costs 0.05."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def seen(self):
        return np.array([self.at, self.first], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = self.first = int(self.np_random.integers(5))
        return self.seen(), {}

    def step(self, action):
        self.at = max(0, self.at + (1 if action else -1))
        won = self.at == 5
        return self.seen(), 1.0 if won else -0.05, won, False, {}


class Restless(Corridor):
    """Does not repeat itself, whatever the seed."""

    lives = 0

    def reset(self, *, seed=None, options=None):
        Restless.lives += 1
        seen, told = super().reset(seed=seed)
        return seen + Restless.lives, told


if "Corridor-v0" not in gymnasium.registry:
    gymnasium.register("Corridor-v0", entry_point=Corridor, max_episode_steps=20)
    gymnasium.register("Restless-v0", entry_point=Restless, max_episode_steps=20)
    gymnasium.register("Endless-v0", entry_point=Corridor)


@pytest.fixture
def corridor():
    from regard.rl.environment import Environment

    return Environment("Corridor-v0")
