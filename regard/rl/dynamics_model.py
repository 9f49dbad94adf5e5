"""A world model that learns online, from a replay buffer that grows and with scales that change.

The scales of a random policy's first steps do not fit the states that a better policy reaches. When they are estimated
again, the first and the last layer absorb the change, so that the model's predictions stay the same:

    W (x - m₀) / s₀ + b  =  W' (x - m₁) / s₁ + b'          W' = W s₁ / s₀,   b' = b + W (m₁ - m₀) / s₀
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
import torch
from torch import Tensor

from regard.data.batches import Ints
from regard.data.episode_windows import EpisodeWindows, WindowBatch
from regard.data.episodes import Episode, Floats, episode_row
from regard.data.observation_norm import ObservationNorm
from regard.modalities.trajectory.preprocessor import TrajectoryPreprocessor
from regard.parts.heads import Model
from regard.rl.imagine import Transition, TransitionModel
from regard.rl.policy import NO_ACTION
from regard.tasks.predict import DynamicsBatch as Batch
from regard.tasks.predict import Forecast
from regard.training.loop import Progress

MAX_WINDOWS = 128  # windows of a batch: many small steps are better than few large ones
TERMINAL_EVERY = 8  # one window in so many ends with a termination, which would be rare otherwise


def unfitted_task(observation_dim: int, num_actions: int) -> Forecast:
    """The task before there are data: mean 0, standard deviation 1."""
    zeros, ones = [0.0] * observation_dim, [1.0] * observation_dim
    norm = ObservationNorm([observation_dim], 1, mean=zeros, std=ones, delta_std=ones, low=0.0, high=0.0)
    return Forecast(preprocessor=TrajectoryPreprocessor(num_actions, norm, reward=(0.0, 1.0)))


def refit_scales(task: Forecast, progress: Progress, episodes: Sequence[Episode]) -> Forecast:
    """The task with the scales of these episodes; the model and its average keep their predictions."""
    scales = task.preprocessor.scales([episode_row(episode, "", number) for number, episode in enumerate(episodes, 1)])
    scales["num_actions"] = task.preprocessor.num_actions
    new = replace(task, preprocessor=replace(task.preprocessor, **scales))
    absorb_scales(progress.model, task, new)
    if (ema := progress.ema) is not None:
        with ema.average_parameters():
            absorb_scales(progress.model, task, new)
            torch._foreach_copy_(ema.means, ema.weights)
    return new


@torch.no_grad()
def absorb_scales(model: Model, old: Forecast, new: Forecast) -> None:
    device = next(model.parameters()).device
    (m0, s0, c0), (m1, s1, c1) = ([scale.to(device) for scale in task.norm.scales] for task in (old, new))
    stem, change, outcome = model.body.stem, model.head.change, model.head.outcome
    stem.bias += stem.weight @ ((m1 - m0) / s0)
    stem.weight *= s1 / s0
    change.weight *= (c0 / c1)[:, None]
    change.bias *= c0 / c1
    (old_mean, old_std), (new_mean, new_std) = old.preprocessor.reward, new.preprocessor.reward
    outcome.weight[0] *= old_std / new_std
    outcome.bias[0] = (outcome.bias[0] * old_std + old_mean - new_mean) / new_std


def as_transition_model(task: Forecast, model: Model) -> TransitionModel:
    """The model as `imagine` uses it."""
    device, context = next(model.parameters()).device, model.body.config.context
    mean, std = task.preprocessor.reward

    def predict(observations: Tensor, actions: Tensor) -> Transition:
        real = actions != NO_ACTION
        diagonal = torch.eye(real.size(1), dtype=torch.bool)  # padding attends to itself only, and no step to it
        mask = None if bool(real.all()) else (real[:, None, None] | diagonal).to(device)
        inputs, previous = observations.to(device), actions.clamp(min=0).to(device)
        output = model.head(model.body(task.norm.normalize(inputs), previous, mask)[:, -1:])
        next_observation = task.norm.apply_delta(inputs[:, -1:], output.change)[:, 0]
        assert output.reward is not None
        assert output.end is not None
        continue_prob = (-output.end[:, 0]).sigmoid()
        return Transition(next_observation.cpu(), output.reward[:, 0].cpu() * std + mean, continue_prob.cpu())

    return TransitionModel(context, predict)


class BurnInTask(Forecast):
    """Prediction without loss on the first step of a window, unless the episode starts there: what determines its
    outcome may lie before the window. It is burn-in only (Kapturowski et al. 2019)."""

    @classmethod
    def from_task(cls, task: Forecast) -> BurnInTask:
        return cls(**{field.name: getattr(task, field.name) for field in fields(task)})

    def collate(self, examples: EpisodeWindows, rows: Ints, training: bool = True) -> Batch:
        batch, initial = super().collate(examples, rows, training), torch.from_numpy(examples.locate(rows)[1] == 0)
        real = torch.cat([batch.real[:, :1] & initial[:, None], batch.real[:, 1:]], 1)
        return batch._replace(real=real)


class ReplayBuffer(EpisodeWindows):
    """Random windows of all episodes so far, terminations oversampled. An epoch is one batch, so that the next one can
    be drawn from more episodes."""

    def __init__(self, episodes: Sequence[Episode], context: int, tokens: int):
        super().__init__(episodes, context, tokens)
        spans = zip(self.begins.tolist(), episodes, strict=False)
        terminal = [begin + max(0, episode.steps - self.context) for begin, episode in spans if episode.terminated]
        self.terminal_windows = np.array(terminal, np.int64)
        self.observations: Floats = np.concatenate([episode.observations for episode in episodes])
        self.rewards: Floats = np.concatenate([episode.rewards for episode in episodes])
        self.actions: Ints = np.concatenate([episode.actions for episode in episodes if episode.actions is not None])
        self.terminated: Floats = np.zeros(len(self.rewards), np.float32)
        self.terminated[self.begins[1:] - 1] = [episode.terminated for episode in episodes]

    def windows_per_batch(self, budget: int) -> int:
        return min(MAX_WINDOWS, super().windows_per_batch(budget))

    def epoch(self, budget: int, seed: int, epoch: int) -> list[Ints]:
        rng = np.random.default_rng([seed, epoch])
        count = self.windows_per_batch(budget)
        terminal = self.terminal_windows
        terminal = rng.choice(terminal, count // TERMINAL_EVERY) if len(terminal) else terminal
        return [np.concatenate([terminal, rng.choice(self.overlapping(1)[0], count - len(terminal))])]

    def take(self, starts: Ints) -> WindowBatch:
        """All windows in one indexing operation: a training step of so small a model takes only milliseconds."""
        number, _ = self.locate(starts)
        lengths = np.minimum(self.context, self.steps_left(starts))
        real = np.arange(T := int(lengths.max())) < lengths[:, None]
        steps = starts[:, None] + np.minimum(np.arange(T), lengths[:, None] - 1)
        observed = (starts + number)[:, None] + np.minimum(np.arange(T + 1), lengths[:, None])
        actions, rewards, terminated = (x[steps] * real for x in (self.actions, self.rewards, self.terminated))
        return WindowBatch(self.observations[observed], actions, rewards, terminated, lengths)
