"""The cart that ships with the package, as a world to act in: it needs no other library."""

from __future__ import annotations

import numpy as np

from regard.data.bundled.cart import LIMIT, Carts, fallen, pushed, standing
from regard.data.episodes import Floats
from regard.rl.environment import Environment, Moment

NAME = "cart"


def world_of(name: str | None, hide: tuple[int, ...] = ()) -> Environment:
    """An environment of gymnasium, or the cart that ships."""
    return Track() if name in (None, NAME) else Environment(str(name), hide)


class Track(Environment):
    """One cart; the same steps as those of CartPole-v1."""

    def __init__(self) -> None:
        self.name, self.hide, self.actions, self.shown = NAME, (), 2, [0, 1, 2, 3]
        self.cart: Carts = np.zeros((1, 4))
        self.steps = 0

    @property
    def is_cart(self) -> bool:
        return True

    @property
    def limit(self) -> int:
        return LIMIT

    def reset(self, seed: int) -> Floats:
        self.cart, self.steps = standing(1, np.random.default_rng(seed)), 0
        return self.see(self.cart[0])

    def step(self, action: int) -> Moment:
        self.cart, self.steps = pushed(self.cart, np.array([action])), self.steps + 1
        fell = bool(fallen(self.cart)[0])
        return Moment(self.see(self.cart[0]), 1.0, fell, self.steps >= LIMIT and not fell)
