"""Generates number series: wave forms, sine waves of different frequencies, and a seasonal demand.

    demand(t) = level(t) + Σ_k a_k sin(2π k t / 24 + φ_k) + noise          level: a slow random walk

Every set has its own seed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float32]  # (T,C)

SETS = {"train": 1200, "valid": 200, "test": 200}  # series
FORMS = ("noise", "sawtooth", "sine", "square", "triangle")
STEPS, PERIOD, DEMAND_STEPS = 96, 24, 240
MAX_SAMPLE = 50  # series from which a period is estimated


def generator(name: str, kind: int) -> np.random.Generator:
    return np.random.default_rng([[*SETS].index(name), kind])


def wave_forms(name: str) -> tuple[list[Values], Sequence[str]]:
    """Noisy waves with random frequency, phase, scale and length, and the names of their forms."""
    rng, series = generator(name, 0), []
    forms = [FORMS[i % len(FORMS)] for i in range(SETS[name])]
    for form in forms:
        steps = int(rng.integers(STEPS // 2, STEPS + 1))
        turns = rng.uniform(2, 6) * np.arange(steps) / steps + rng.random()
        wave = shape(form, turns % 1.0) if form != "noise" else rng.normal(0, 0.7, steps)
        series.append(finish(rng.uniform(0.5, 2) * (wave + rng.normal(0, 0.15, steps))))
    return series, forms


def shape(form: str, phase: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """A period of a wave, phase from 0 to 1."""
    if form == "sine":
        return np.sin(2 * np.pi * phase)
    if form == "square":
        return np.where(phase < 0.5, 1.0, -1.0)
    return 2 * phase - 1 if form == "sawtooth" else 1 - 4 * np.abs(phase - 0.5)


def frequencies(name: str) -> tuple[list[Values], Sequence[float]]:
    """Noisy sine waves, and the number of their periods."""
    rng = generator(name, 1)
    turns = rng.uniform(1, 8, SETS[name])
    phases = turns[:, None] * np.arange(STEPS) / STEPS + rng.random((SETS[name], 1))
    waves = np.sin(2 * np.pi * phases) + rng.normal(0, 0.2, phases.shape)
    return [finish(wave) for wave in waves], [round(float(value), 4) for value in turns]


def demand(name: str) -> list[Values]:
    """Two channels with one daily pattern, whose shape differs from series to series."""
    rng, time, series = generator(name, 2), np.arange(DEMAND_STEPS), []
    for _ in range(SETS[name] // 2):
        waves = [(rng.normal(0, 1 / k), k, rng.uniform(0, 2 * np.pi)) for k in (1, 2, 3)]
        pattern = 3 * np.sum([a * np.sin(2 * np.pi * k * time / PERIOD + phase) for a, k, phase in waves], 0)
        level = np.cumsum(rng.normal(0, 0.1, (DEMAND_STEPS, 2)), 0)
        scale = rng.uniform(0.5, 1.5, 2)
        series.append(finish(10 + level + scale * pattern[:, None] + rng.normal(0, 0.3, (DEMAND_STEPS, 2))))
    return series


def finish(values: npt.NDArray[np.float64]) -> Values:
    return (values[:, None] if values.ndim == 1 else values).astype(np.float32)
