"""Rollouts of a world model: each predicted observation is the input of the next step.

x̂_t+1 = x_t + change(x_≤t, a_≤t),   x̂_t+2 = x̂_t+1 + change(x_≤t, x̂_t+1, a_≤t+1) ...
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.data.batches import Ints, batched
from regard.data.episodes import Episode, Rollout
from regard.data.observation_norm import ObservationNorm, Reals
from regard.modalities.step_preprocessor import StepPreprocessor
from regard.parts.heads import Model

BATCH_SIZE = 50  # episodes


class StepPrediction(NamedTuple):
    observation: Tensor  # (B, ...) in the units of the data
    reward: Tensor | None  # (B,) scaled
    end: Tensor | None  # (B,) logit


def predict_step(
    model: Model, normalizer: ObservationNorm, observations: Tensor, actions: Tensor | None = None
) -> StepPrediction:
    """The next step after observations (B,T, ...) and actions (B,T), of which the last `context` are the input."""
    window = observations[:, -model.body.config.context :]
    recent = None if actions is None else actions[:, -window.size(1) :]
    output = model.head(model.body(normalizer.normalize(window), recent))
    observation = normalizer.apply_delta(window[:, -1:], output.change[:, -1:])[:, 0]
    return StepPrediction(observation, *(None if x is None else x[:, -1] for x in (output.reward, output.end)))


@torch.inference_mode()
def roll_out(
    model: Model, normalizer: ObservationNorm, observations: Tensor, actions: Tensor | None, horizon: int
) -> Tensor:
    """Predict `horizon` steps, (B,T, ...) -> (B,horizon, ...). `actions` are those of all steps, (B,T-1+horizon)."""
    start = observations.size(1)
    for end in range(start, start + horizon):
        step = predict_step(model, normalizer, observations, None if actions is None else actions[:, :end])
        observations = torch.cat((observations, step.observation[:, None]), 1)
    return observations[:, start:]


def rollout_episodes(
    model: Model, normalizer: ObservationNorm, episodes: Sequence[Episode], start: int | None, horizon: int
) -> list[Rollout]:
    """Roll out `horizon` steps of each episode after its first `start` observations; None: so that the rollout ends
    with the episode. An episode with actions is rolled out to its end only, since later actions are unknown."""
    context, device = model.body.config.context, next(model.parameters()).device
    ends = [episode.steps + 1 for episode in episodes]
    cuts = [max(1, end - horizon) if start is None else min(start, end) for end in ends]

    def window_length(i: int) -> int:
        return min(cuts[i], context)

    rollouts: dict[int, Rollout] = {}
    for T, indices in groupby(sorted(range(len(episodes)), key=window_length), key=window_length):
        for chunk in batched(indices, BATCH_SIZE):
            inputs = torch.from_numpy(np.stack([episodes[i].as_float(cuts[i] - T, cuts[i]) for i in chunk])).to(device)
            padded = [pad_actions(episodes[i], cuts[i] - T, T - 1 + horizon) for i in chunk]
            actions = None if padded[0] is None else torch.from_numpy(np.stack(padded)).to(device)  # type: ignore[arg-type]
            predicted = roll_out(model, normalizer, inputs, actions, horizon).cpu().numpy()
            for i, steps in zip(chunk, predicted, strict=True):
                end = None if episodes[i].actions is None else ends[i] - cuts[i]
                target = episodes[i].as_float(cuts[i], cuts[i] + horizon)
                rollouts[i] = Rollout(episodes[i], cuts[i], steps[:end], target)
    return [rollouts[i] for i in range(len(episodes))]


def pad_actions(episode: Episode, start: int, count: int) -> Ints | None:
    """`count` actions from `start`, padded after the last."""
    if episode.actions is None:
        return None
    actions = episode.actions[start : start + count]
    return np.pad(actions, (0, count - len(actions)))


def rollout_errors(preprocessor: StepPreprocessor, rollout: Rollout) -> tuple[Reals, Reals]:
    """The error of each step with a known target, and that of the baseline."""
    target, norm = rollout.target.astype(np.float64), preprocessor.norm
    baseline = preprocessor.baseline(rollout.episode, rollout.num_observed, len(target))
    return norm.observation_error(rollout.prediction[: len(target)], target), norm.observation_error(baseline, target)


def mean_error_at(errors: Sequence[Reals], step: int) -> float | None:
    """The mean error of one step over all rollouts that reach it."""
    values = [float(steps[step - 1]) for steps in errors if len(steps) >= step]
    return float(np.mean(values)) if values else None
