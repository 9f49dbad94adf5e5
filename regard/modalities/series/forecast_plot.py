"""Writes forecasts: a .png line chart beside the truth and the baseline, or the numbers as .npy or .csv."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from regard.data.episodes import Rollout
from regard.data.observation_norm import Reals
from regard.validate import check_choice

SUFFIXES = (".png", ".npy", ".csv")
MAX_PLOTS = 3  # series in one chart


def save_forecasts(file: str, rollouts: Sequence[Rollout], baselines: Sequence[Reals]) -> None:
    kind = Path(file).suffix.lower()
    check_choice("forecast format", kind, SUFFIXES)
    if kind == ".png":
        return plot_forecasts(file, rollouts[:MAX_PLOTS], baselines)
    arrays = [rollout.prediction for rollout in rollouts]
    if kind == ".npy":
        return np.save(file, np.stack(arrays) if len(arrays) > 1 else arrays[0])
    if len(arrays) > 1:
        raise ValueError(f"{file}: a .csv file holds one series, not {len(arrays)}: save them as .npy")
    return np.savetxt(file, arrays[0], "%.9g", ",")


def plot_forecasts(file: str, rollouts: Sequence[Rollout], baselines: Sequence[Reals]) -> None:
    """The first channel of each series."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 2.6 * len(rollouts)), layout="constrained")
    axes = figure.subplots(len(rollouts), squeeze=False)[:, 0]
    for axis, rollout, baseline in zip(axes, rollouts, baselines, strict=False):
        start, horizon = rollout.num_observed, len(rollout.prediction)
        first = max(0, start - 3 * horizon)
        truth = rollout.episode.observations[first : start + horizon, 0]
        steps = np.arange(start, start + horizon)
        axis.plot(np.arange(first, first + len(truth)), truth, color="0.35", label="observed")
        axis.plot(steps, baseline[:, 0], color="0.7", linestyle="--", label="seasonal naive")
        axis.plot(steps, rollout.prediction[:, 0], color="tab:orange", label="forecast")
        axis.axvline(start - 0.5, color="0.85", linewidth=1)
        axis.set_xlabel("time step")
    axes[0].legend(frameon=False, ncols=3)
    figure.savefig(file, dpi=120)
