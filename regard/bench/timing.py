"""Turn after turn: everyone works once in every round, so that a busy machine slows all alike, and medians count."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from statistics import median
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Tell = Callable[[str], object]  # how far it is


def print_nothing(text: str) -> None:
    pass


def rounds(
    acts: Mapping[Key, Callable[[], object]],
    min_time: float,
    least: int = 3,
    clock: Callable[[], float] = time.perf_counter,
    tell: Tell = print_nothing,
) -> dict[Key, list[float]]:
    """Seconds that each took in each round. The first round warms up; the others take `min_time` seconds or more."""
    took: dict[Key, list[float]] = {key: [] for key in acts}
    tell("warming up")
    started = clock()
    for act in acts.values():
        act()
    began = clock()
    number = 0
    while number < least or clock() - began < min_time:
        left = max((least - number) * (began - started), min_time - (clock() - began))
        tell(f"round {number + 1}, about {left:.0f} s left")
        number += 1
        for key, act in acts.items():
            start = clock()
            act()
            took[key].append(clock() - start)
    return took


def medians(took: Mapping[Key, list[float]]) -> dict[Key, float]:
    return {key: median(times) for key, times in took.items()}


def a_step(whole: list[float], first: list[float], steps: int) -> float:
    """Seconds of one of so many more steps: the median over rounds. A clock may be coarse, but no step is free."""
    each = [(one - other) / steps for one, other in zip(whole, first, strict=True)]
    return max(median(each), 1e-9)
