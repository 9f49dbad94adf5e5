"""Interleaved timing: every call runs once in each round, so that other load slows all alike; medians count."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from statistics import median
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
ReportProgress = Callable[[str], object]  # called with a line of progress


def ignore_progress(text: str) -> None:
    pass


def time_rounds(
    calls: Mapping[Key, Callable[[], object]],
    min_time: float,
    min_rounds: int = 3,
    clock: Callable[[], float] = time.perf_counter,
    progress: ReportProgress = ignore_progress,
) -> dict[Key, list[float]]:
    """Seconds of each call in each round. The first round warms up; the others take `min_time` seconds or more."""
    times: dict[Key, list[float]] = {key: [] for key in calls}
    progress("warming up")
    started = clock()
    for call in calls.values():
        call()
    warm = clock()
    count = 0
    while count < min_rounds or clock() - warm < min_time:
        seconds_left = max((min_rounds - count) * (warm - started), min_time - (clock() - warm))
        progress(f"round {count + 1}, about {seconds_left:.0f} s left")
        count += 1
        for key, call in calls.items():
            start = clock()
            call()
            times[key].append(clock() - start)
    return times


def medians(times: Mapping[Key, list[float]]) -> dict[Key, float]:
    return {key: median(seconds) for key, seconds in times.items()}


def step_time(totals: list[float], first_tokens: list[float], steps: int) -> float:
    """Median seconds of one of the `steps` after the first token; at least 1 ns, as a clock may be coarse."""
    return max(median((total - first) / steps for total, first in zip(totals, first_tokens, strict=True)), 1e-9)
