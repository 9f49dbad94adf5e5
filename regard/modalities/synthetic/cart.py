"""Generates CartPole episodes, recorded from policies of different skill.

    f   = (force + m l θ'² sin θ) / M
    θ'' = (g sin θ - f cos θ) / (l (4/3 - m cos² θ / M))          m, l: mass and half length of the pole, M: total mass
    x'' = f - m l θ'' cos θ / M                                    (Barto, Sutton & Anderson 1983)

The constants are those of gymnasium's CartPole-v1: a step takes 0.02 seconds and has reward 1. An episode terminates
when the pole leans more than 12 degrees or the cart leaves the track, and is truncated after 500 steps.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from regard.data.episodes import Episode

CartStates = npt.NDArray[np.float64]  # (N,4): position, velocity, angle, angular velocity

GRAVITY, POLE_MASS, TOTAL_MASS, HALF_LENGTH, FORCE, TIME_STEP = 9.8, 0.1, 1.1, 0.5, 10.0, 0.02
MAX_POSITION, MAX_ANGLE = 2.4, 12 * np.pi / 180
MAX_STEPS = 500  # of an episode
POLICIES = {  # weights of position, velocity, angle and angular velocity; and the threshold for a push to the right
    "careful": ((0.05, 0.1, 1.0, 0.5), 0.0),
    "drifting": ((0.0, 0.0, 1.0, 0.5), 0.06),  # ignores position and velocity
    "late": ((0.0, 0.0, 1.0, 0.0), 0.0),  # uses the angle only
    "blind": ((0.0, 0.0, 0.0, 0.0), 0.0),
}
EPISODES_OF_TEN = {"careful": 1, "drifting": 4, "late": 3, "blind": 2}
ERROR_RATE = 0.05  # share of actions that are flipped


def initial_states(count: int, rng: np.random.Generator) -> CartStates:
    return rng.uniform(-0.05, 0.05, (count, 4))


def step_dynamics(carts: CartStates, actions: npt.NDArray[np.int64]) -> CartStates:
    """The next states: action 0 pushes to the left, 1 to the right."""
    position, velocity, angle, angular_velocity = carts.T
    sin, cos = np.sin(angle), np.cos(angle)
    force = (np.where(actions == 1, FORCE, -FORCE) + POLE_MASS * HALF_LENGTH * angular_velocity**2 * sin) / TOTAL_MASS
    angular_acceleration = (GRAVITY * sin - force * cos) / (HALF_LENGTH * (4 / 3 - POLE_MASS * cos**2 / TOTAL_MASS))
    acceleration = force - POLE_MASS * HALF_LENGTH * angular_acceleration * cos / TOTAL_MASS
    return carts + TIME_STEP * np.stack((velocity, acceleration, angular_velocity, angular_acceleration), 1)


def has_fallen(carts: CartStates) -> npt.NDArray[np.bool_]:
    return (np.abs(carts[:, 0]) > MAX_POSITION) | (np.abs(carts[:, 2]) > MAX_ANGLE)


def choose_actions(policies: list[str], carts: CartStates, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """The actions of all policies; one without weights acts at random."""
    weights = np.array([POLICIES[name][0] for name in policies])
    thresholds = np.array([POLICIES[name][1] for name in policies])
    signal = (weights * carts).sum(1) - thresholds
    flipped = rng.random(len(carts)) < np.where(weights.any(1), ERROR_RATE, 0.5)
    return ((signal > 0) ^ flipped).astype(np.int64)


def carts(count: int = 600, seed: int = 0) -> list[Episode]:
    """`count` episodes of all policies, in the shares of EPISODES_OF_TEN; the same seed gives the same episodes."""
    rng = np.random.default_rng(seed)
    pattern = [name for name, share in EPISODES_OF_TEN.items() for _ in range(share)]
    policies = [pattern[number % len(pattern)] for number in range(count)]
    states = initial_states(count, rng)
    observations, taken, steps = [states], [], np.zeros(count, np.int64)
    alive, terminated = np.ones(count, bool), np.zeros(count, bool)
    for _ in range(MAX_STEPS):
        actions = choose_actions(policies, states, rng)
        states = np.where(alive[:, None], step_dynamics(states, actions), states)
        steps += alive
        terminated |= has_fallen(states)
        alive &= ~terminated
        observations.append(states)
        taken.append(actions)
    x, a = np.stack(observations, 1).astype(np.float32), np.stack(taken, 1)  # (N,501,4), (N,500)
    lengths = enumerate(steps.tolist())
    return [Episode(x[i, : n + 1], a[i, :n], np.ones(n, np.float32), bool(terminated[i])) for i, n in lengths]


def split(number: int) -> str:
    """'train', 'valid' or 'test' for the episode of this number, from 0: by tens, so that each set has episodes of all
    policies."""
    return {4: "valid", 5: "test"}.get(number // 10 % 6, "train")
