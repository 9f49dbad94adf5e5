"""The bundled CartPole as an environment; it does not need gymnasium."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from regard.data.episodes import Floats
from regard.modalities.synthetic.cart import MAX_STEPS, CartStates, has_fallen, initial_states, step_dynamics
from regard.rl.environment import Environment, PolicyFn, StepResult, Trajectory

NAME = "cart"


def make_environment(name: str | None, hide: tuple[int, ...] = ()) -> Environment:
    """A gymnasium environment, or the bundled CartPole."""
    return CartPole() if name in (None, NAME) else Environment(str(name), hide)


class CartPole(Environment):
    """The dynamics and the time limit of CartPole-v1."""

    def __init__(self) -> None:
        self.name, self.hide, self.num_actions, self.visible = NAME, (), 2, [0, 1, 2, 3]
        self.state: CartStates = np.zeros((1, 4))
        self.steps = 0

    @property
    def is_cartpole(self) -> bool:
        return True

    @property
    def max_episode_steps(self) -> int:
        return MAX_STEPS

    def reset(self, seed: int) -> Floats:
        self.state, self.steps = initial_states(1, np.random.default_rng(seed)), 0
        return self.observe(self.state[0])

    def step(self, action: int) -> StepResult:
        self.state, self.steps = step_dynamics(self.state, np.array([action])), self.steps + 1
        terminated = bool(has_fallen(self.state)[0])
        return StepResult(self.observe(self.state[0]), 1.0, terminated, self.steps >= MAX_STEPS and not terminated)


def record_states(
    environment: Environment, policy_fn: PolicyFn, states: list[Floats], show: Callable[[Floats], None] | None
) -> PolicyFn:
    """The same policy; it appends the states of the first episode to `states`, and shows them."""

    def choose(trajectory: Trajectory) -> int:
        if trajectory.number == 0:
            states.append(environment.full_observation.copy())
            if show:
                show(environment.full_observation)
        return policy_fn(trajectory)

    return choose
