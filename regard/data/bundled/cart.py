"""The cart: it is pushed left or right so that the pole on it does not fall. Players of different skill push it.

    f   = (push + m l θ'² sin θ) / M
    θ'' = (g sin θ - f cos θ) / (l (4/3 - m cos² θ / M))          m, l: of the pole, M: of pole and cart
    x'' = f - m l θ'' cos θ / M                                    (Barto, Sutton & Anderson 1983)

The numbers are those that everybody uses, gymnasium's CartPole-v1 too: a step is 0.02 seconds, its reward is 1, and an
episode ends when the pole leans more than 12 degrees or the cart leaves the track, or is cut off after 500 steps.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from regard.data.episodes import Episode

CartStates = npt.NDArray[np.float64]  # (N,4): place, speed, angle, speed of the angle

GRAVITY, POLE, WHOLE, HALF, PUSH, SECONDS = 9.8, 0.1, 1.1, 0.5, 10.0, 0.02
TRACK, LEAN = 2.4, 12 * np.pi / 180
MAX_STEPS = 500  # steps of an episode
PLAYERS = {  # what each looks at: place, speed, angle, speed of the angle; and how far to the right it likes to lean
    "careful": ((0.05, 0.1, 1.0, 0.5), 0.0),
    "drifting": ((0.0, 0.0, 1.0, 0.5), 0.06),  # never looks where the cart is
    "late": ((0.0, 0.0, 1.0, 0.0), 0.0),  # sees that the pole leans, not that it falls
    "blind": ((0.0, 0.0, 0.0, 0.0), 0.0),
}
SHARES = {"careful": 1, "drifting": 4, "late": 3, "blind": 2}  # of ten episodes
SLIPS = 0.05  # of all pushes go to the other side


def initial_states(count: int, draw: np.random.Generator) -> CartStates:
    return draw.uniform(-0.05, 0.05, (count, 4))


def step_dynamics(carts: CartStates, actions: npt.NDArray[np.int64]) -> CartStates:
    """A step later: 0 pushes to the left, 1 to the right."""
    place, speed, angle, turning = carts.T
    sin, cos = np.sin(angle), np.cos(angle)
    force = (np.where(actions == 1, PUSH, -PUSH) + POLE * HALF * turning**2 * sin) / WHOLE
    falling = (GRAVITY * sin - force * cos) / (HALF * (4 / 3 - POLE * cos**2 / WHOLE))
    going = force - POLE * HALF * falling * cos / WHOLE
    return carts + SECONDS * np.stack((speed, going, turning, falling), 1)


def has_fallen(carts: CartStates) -> npt.NDArray[np.bool_]:
    return (np.abs(carts[:, 0]) > TRACK) | (np.abs(carts[:, 2]) > LEAN)


def choice(players: list[str], carts: CartStates, draw: np.random.Generator) -> npt.NDArray[np.int64]:
    """What each player does with its cart; who looks at nothing pushes by chance."""
    looks = np.array([PLAYERS[name][0] for name in players])
    likes = np.array([PLAYERS[name][1] for name in players])
    pull = (looks * carts).sum(1) - likes
    other = draw.random(len(carts)) < np.where(looks.any(1), SLIPS, 0.5)
    return ((pull > 0) ^ other).astype(np.int64)


def carts(count: int = 600, seed: int = 0) -> list[Episode]:
    """`count` episodes, the same for the same seed: of every ten, as many of each player as `SHARES` says."""
    draw = np.random.default_rng(seed)
    ten = [name for name, share in SHARES.items() for _ in range(share)]
    players = [ten[number % len(ten)] for number in range(count)]
    now = initial_states(count, draw)
    seen, done, steps = [now], [], np.zeros(count, np.int64)
    alive, fell = np.ones(count, bool), np.zeros(count, bool)
    for _ in range(MAX_STEPS):
        actions = choice(players, now, draw)
        now = np.where(alive[:, None], step_dynamics(now, actions), now)
        steps += alive
        fell |= has_fallen(now)
        alive &= ~fell
        seen.append(now)
        done.append(actions)
    observed, acted = np.stack(seen, 1).astype(np.float32), np.stack(done, 1)  # (N,501,4), (N,500)
    return [
        Episode(observed[i, : n + 1], acted[i, :n], np.ones(n, np.float32), bool(fell[i]), "cart", i + 1)
        for i, n in enumerate(steps.tolist())
    ]


def split(episode: Episode) -> str:
    """'train', 'valid' or 'test', by tens, so that every player is in each."""
    return {4: "valid", 5: "test"}.get((episode.line - 1) // 10 % 6, "train")
