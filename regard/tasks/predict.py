"""Predict: what follows. The next observation of a video, an episode or a series from those before it, and for episodes
with actions also the reward and the termination.

    loss = Σ_t |x_t+1 - x_t - change_t|² + (r_t - reward_t)² - log P(end_t)

The error of a frame is in the units of its pixels. Other observations are divided by the standard deviation of their
changes. An episode ends only once, so its last window is trained on once more per epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.batches import Ints, length_mask, to_device
from regard.data.episode_windows import EpisodeWindows
from regard.data.episodes import EpisodeRow, Rollout
from regard.data.observation_norm import ObservationNorm
from regard.modalities import MODALITIES
from regard.modalities.protocols import Inputs, Target
from regard.modalities.step_preprocessor import StepPreprocessor
from regard.parts.dynamics_head import DynamicsHead, DynamicsOutput
from regard.parts.heads import NOT_FINITE, Body, Model
from regard.tasks.inference import context_of
from regard.tasks.rollout import mean_error_at, rollout_episodes, rollout_errors
from regard.tasks.task import DecodeOptions, Loss, Prediction, Predictions, Scores, Task, fitted, make_scores
from regard.validate import check_fields

HORIZONS = (1, 5, 10, 20)  # steps ahead at which `score` reports the error
MAX_OVERLAP = 16  # windows in which `score` sees a step, at most
BUDGET = 16384  # tokens of a batch without gradients


@dataclass(frozen=True)
class ForecastOptions(DecodeOptions):
    """Decode options of a rollout."""

    horizon: int = 20  # steps to predict
    ahead: bool = False  # start after the last observation instead of --horizon steps before it
    save: str | None = None  # file for the rollout: .gif animation, .png strip of frames, .npz or .jsonl arrays

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, horizon=(self.horizon >= 1, "at least 1"))


@dataclass(frozen=True)
class EnvOptions:
    """The environment to train in."""

    env: str | None = None  # train in this gymnasium environment instead of from files: CartPole-v1 ...
    hide: tuple[int, ...] = ()  # with --env: indices of observation entries, from 0, that are hidden from the policy
    real_steps: int = 3000  # with --env: number of environment steps in all rounds together
    history: int | None = None  # with --env: latest observations in the policy's input; default: 1, with --hide 4

    def __post_init__(self) -> None:
        defaults = {name: field.default for name, field in self.__dataclass_fields__.items()}
        allowed = {name: self.env is not None or getattr(self, name) == defaults[name] for name in defaults}
        check_fields(self, **{name: (fine, "left out without --env") for name, fine in allowed.items()})
        check_fields(
            self,
            real_steps=(100 <= self.real_steps <= 10**8, "at least 100, and at most 100,000,000"),
            history=(self.history is None or 1 <= self.history <= 64, "1 to 64"),
        )

    @property
    def history_length(self) -> int:
        return self.history or (4 if self.hide else 1)


class DynamicsBatch(NamedTuple):
    inputs: Inputs  # (B,T,K,O) scaled observations; no mask if there is no padding
    actions: Tensor | None  # (B,T)
    change: Tensor  # (B,T,K,O) scaled
    reward: Tensor  # (B,T) scaled
    end: Tensor  # (B,T)
    real: Tensor  # (B,T), False = padding


@dataclass
class Forecast(Task):
    preprocessor: StepPreprocessor = fitted()

    description = "observations so far in, the next ones out"
    target = Target.NEXT
    structures = ("dynamics",)
    default = "world_model"
    head_fields = ("preprocessor",)
    throughput_unit = "steps"
    eval_limit = 20
    option_groups = (EnvOptions,)
    decode_options = ForecastOptions
    can_play = True

    @property
    def norm(self) -> ObservationNorm:
        return self.preprocessor.norm

    def head(self, body: Body) -> Model:
        return Model(body, DynamicsHead(body.config.dim, body.config.observation_dim, body.config.num_actions))

    def encode(self, rows: Sequence[EpisodeRow], context: int) -> EpisodeWindows:
        return self.preprocessor.encode(rows, context)

    def collate(self, examples: EpisodeWindows, rows: Ints, training: bool = True) -> DynamicsBatch:
        window = examples.take(rows)
        mean, std = self.preprocessor.reward
        return DynamicsBatch(
            self.preprocessor.window_inputs(window),
            None if window.actions is None else torch.from_numpy(window.actions),
            self.norm.deltas(torch.from_numpy(window.observations)),
            (torch.from_numpy(window.rewards) - mean) / std,
            torch.from_numpy(window.ends),
            length_mask(window.lengths, window.rewards.shape[1]),
        )

    def dynamics(self, model: Model, batch: DynamicsBatch) -> DynamicsOutput:
        return model.head(model.body(batch.inputs.x, batch.actions, batch.inputs.mask))

    def outputs(self, model: Model, batch: DynamicsBatch) -> Tensor:
        return self.dynamics(model, batch).change.flatten(2)  # (B,T,K·O)

    def loss(self, model: Model, batch: DynamicsBatch) -> Loss:
        return Loss(self.sum_loss(self.dynamics(model, batch), batch, batch.real), int(batch.real.sum()))

    def sum_loss(self, output: DynamicsOutput, batch: DynamicsBatch, counted: Tensor) -> Tensor:
        """Sum over the counted steps. Each entry of an observation vector has the weight of a reward."""
        weight = 1 if self.norm.is_frames else self.norm.shape[0]
        total = weight * self.norm.step_error(output.change - batch.change)[counted].sum()
        if output.reward is None or output.end is None:
            return total
        total = total + (output.reward - batch.reward)[counted].square().sum()
        return total + F.binary_cross_entropy_with_logits(output.end[counted], batch.end[counted], reduction="sum")

    def describe_examples(
        self, rows: Sequence[EpisodeRow], examples: EpisodeWindows, numbers: Ints
    ) -> list[dict[str, object]]:
        starts = zip(*examples.locate(numbers), strict=True)
        return [{"file": rows[i].file, "line": rows[i].line, "text": f"from step {step + 1}"} for i, step in starts]

    @torch.inference_mode()
    def score(self, model: Model, rows: Sequence[EpisodeRow], options: ForecastOptions | None = None) -> Scores:
        """The error of one-step predictions, beside that of repeating the last observation; then of rollouts."""
        examples = self.encode(rows, context_of(model))
        starts, fresh = examples.overlapping(max(1, examples.context // MAX_OVERLAP))
        size = examples.windows_per_batch(BUDGET)
        device = next(model.parameters()).device
        sums: dict[str, float] = dict.fromkeys(("loss", "error", "copy", "reward_error", "end_accuracy"), 0.0)
        errors = np.zeros((len(rows), 2))
        for i in range(0, len(starts), size):
            chunk = starts[i : i + size]
            batch, number = to_device(self.collate(examples, chunk), device), examples.locate(chunk)[0]
            output, old = self.dynamics(model, batch), examples.context - torch.from_numpy(fresh[i : i + size])
            steps = torch.arange(batch.real.size(1), device=device)
            new = batch.real & (steps >= old.to(device)[:, None])  # an earlier window has scored the other steps
            residual = self.norm.clip_delta(batch.inputs.x, output.change) - batch.change
            both = [(self.norm.step_error(x) * new).sum(1).cpu().numpy() for x in (residual, batch.change)]
            np.add.at(errors, number, np.stack(both, 1))
            sums["loss"] += self.sum_loss(output, batch, new).item()
            if output.reward is not None and output.end is not None:
                reward_error = (output.reward - batch.reward)[new].square().sum().item()
                sums["reward_error"] += reward_error * self.preprocessor.reward[1] ** 2
                sums["end_accuracy"] += 100 * ((output.end > 0) == (batch.end > 0))[new].sum().item()
        sums["error"], sums["copy"] = errors.sum(0).tolist()
        num_steps = int(examples.steps.sum())
        acts = self.preprocessor.num_actions > 0
        scores = {name: total / num_steps for name, total in sums.items() if acts or "_" not in name}
        predictions = [f"error {e:.3f} (copying: {copy:.3f})" for e, copy in errors / examples.steps[:, None]]
        scores |= self.rollout_scores(model, rows)
        return make_scores(scores, map(self.preprocessor.show, rows), ["error 0"] * len(rows), predictions)

    def rollout_scores(self, model: Model, rows: Sequence[EpisodeRow]) -> dict[str, float]:
        """The error at each of HORIZONS, of rollouts that start when the context is full, and that of the baseline."""
        start, episodes = self.preprocessor.rollout_windows(rows, context_of(model), HORIZONS[-1])
        rollouts = rollout_episodes(model, self.norm, episodes, start, HORIZONS[-1])
        errors = [rollout_errors(self.preprocessor, rollout) for rollout in rollouts]
        scores = {}
        for column, name in enumerate(("error", self.preprocessor.baseline_name)):
            for step in HORIZONS:
                mean = mean_error_at([both[column] for both in errors], step)
                if name is not None and mean is not None:
                    scores[f"{name}_at_{step}"] = mean
        return scores

    def rank(self, scores: Mapping[str, float]) -> tuple[float, ...]:
        return (-round(scores["error"], 4),)

    def predict(self, model: Model, raw: Iterable[str], options: ForecastOptions, first: int = 0) -> Predictions:
        """An input is the name of a file of episodes, or of one of them: videos.npz:3."""
        for number, name in enumerate(raw, first):
            if options.save and number:
                raise ValueError(f"--save {options.save} holds the rollout of one file: give one file at a time")
            if options.ahead and self.preprocessor.num_actions:
                raise ValueError("the actions after the last step are unknown: leave out --ahead")
            rows = self.preprocessor.parse_all(name)
            for row in rows:
                self.preprocessor.require_fit(row)
            episodes = [row.input for row in rows]
            start = max(episode.steps + 1 for episode in episodes) if options.ahead else None
            rollouts = rollout_episodes(model, self.norm, episodes, start, options.horizon)
            if not all(np.isfinite(rollout.prediction).all() for rollout in rollouts):
                raise FloatingPointError(NOT_FINITE)
            if options.save:
                self.preprocessor.save_rollouts(options.save, rollouts)
            yield [self.summarize(rollouts, options.horizon)]

    def summarize(self, rollouts: list[Rollout], horizon: int) -> Prediction:
        columns = zip(*(rollout_errors(self.preprocessor, rollout) for rollout in rollouts), strict=True)
        errors, baseline = ([mean_error_at(column, step) for step in range(1, horizon + 1)] for column in columns)
        extra: dict[str, object] = {"horizon": horizon, "errors": errors, "baseline_errors": baseline}
        if len(rollouts) == 1:
            extra["observations"] = next(rollout.prediction.tolist() for rollout in rollouts)
        text = f"{horizon} steps ahead"
        if len(rollouts) > 1:
            text += f" of {len(rollouts):,} {MODALITIES[self.preprocessor.modality].unit}"
        if errors[0] is not None:
            error, trivial = (np.mean([x for x in column if x is not None]) for column in (errors, baseline))
            text += f": error {error:.3f} per step ({self.preprocessor.baseline_description}: {trivial:.3f})"
        return Prediction(text, extra=extra)
