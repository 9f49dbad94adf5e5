"""Roll-outs: a model looks many steps ahead, by taking what it foresees for what it sees.

x̂_t+1 = x_t + change(x_≤t, a_≤t),   x̂_t+2 = x̂_t+1 + change(x_≤t, x̂_t+1, a_≤t+1) ...
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.data.batches import Ints, handfuls
from regard.data.episodes import Episode
from regard.data.observation_norm import ObservationNorm, Reals
from regard.data.rollout_video import Rollout
from regard.parts.heads import Model

TOGETHER = 50  # episodes at once


class Next(NamedTuple):
    observation: Tensor  # (B, ...) as it would be observed
    reward: Tensor | None  # (B,) scaled
    end: Tensor | None  # (B,) logit


def foresee(model: Model, senses: ObservationNorm, observations: Tensor, actions: Tensor | None = None) -> Next:
    """The next step, of those so far (B,T, ...) and what is done at each (B,T): the last `context` of them are seen."""
    last = observations[:, -model.body.config.context :]
    done = None if actions is None else actions[:, -last.size(1) :]
    told = model.head(model.body(senses.normalize(last), done))
    seen = senses.apply_delta(last[:, -1:], told.change[:, -1:])[:, 0]
    return Next(seen, None, None) if told.reward is None else Next(seen, told.reward[:, -1], told.end[:, -1])


@torch.inference_mode()
def roll(model: Model, senses: ObservationNorm, observations: Tensor, actions: Tensor | None, horizon: int) -> Tensor:
    """So many steps on, (B,T, ...) -> (B,horizon, ...). `actions` are those of all steps, (B,T-1+horizon)."""
    known = observations.size(1)
    for end in range(known, known + horizon):
        told = foresee(model, senses, observations, None if actions is None else actions[:, :end])
        observations = torch.cat((observations, told.observation[:, None]), 1)
    return observations[:, known:]


def rolled(
    model: Model, senses: ObservationNorm, rows: Sequence[Episode], known: int | None, horizon: int
) -> list[Rollout]:
    """So many steps ahead of each episode, after `known` observations; unless given, of all but the last. Nobody knows
    what would be done after the end of an episode, so nothing is told of it."""
    context, device = model.body.config.context, next(model.parameters()).device
    cuts = [max(1, row.steps + 1 - horizon) if known is None else min(known, row.steps + 1) for row in rows]

    def seen(i: int) -> int:
        return min(cuts[i], context)

    found: dict[int, Rollout] = {}
    for T, same in groupby(sorted(range(len(rows)), key=seen), key=seen):
        for some in handfuls(same, TOGETHER):
            given = torch.from_numpy(np.stack([rows[i].as_float(cuts[i] - T, cuts[i]) for i in some])).to(device)
            done = [deeds(rows[i], cuts[i] - T, T - 1 + horizon) for i in some]
            actions = None if done[0] is None else torch.from_numpy(np.stack(done)).to(device)  # type: ignore[arg-type]
            for i, one in zip(some, roll(model, senses, given, actions, horizon).cpu().numpy(), strict=True):
                told = one if rows[i].actions is None else one[: rows[i].steps + 1 - cuts[i]]
                found[i] = Rollout(rows[i], cuts[i], told, rows[i].as_float(cuts[i], cuts[i] + horizon))
    return [found[i] for i in range(len(rows))]


def deeds(row: Episode, start: int, count: int) -> Ints | None:
    """The actions of so many steps; what follows the last of them does not count."""
    if row.actions is None:
        return None
    some = row.actions[start : start + count]
    return np.pad(some, (0, count - len(some)))


def missed(senses: ObservationNorm, one: Rollout) -> tuple[Reals, Reals]:
    """The error of each step whose truth is known, and that of saying that nothing changes."""
    true, last = one.target.astype(np.float64), one.episode.as_float(one.num_observed - 1, one.num_observed)
    return senses.observation_error(one.prediction[: len(true)], true), senses.observation_error(last, true)


def at(errors: Sequence[Reals], step: int) -> float | None:
    """The mean error of one step, over all that come so far."""
    known = [float(one[step - 1]) for one in errors if len(one) >= step]
    return float(np.mean(known)) if known else None
