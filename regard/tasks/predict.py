"""Predict: a world model. It predicts the next observation of a video or an episode from those before it, and for
episodes with actions also the reward and the termination.

    loss = Σ_t |x_t+1 - x_t - change_t|² + (r_t - reward_t)² - log P(end_t)

The error of a frame is in the units of its pixels. Other observations are divided by the standard deviation of their
changes. An episode ends only once, so its last window is trained on once more per epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.batches import Ints, length_mask, padding_mask, to_device
from regard.data.bundled import bouncing_balls
from regard.data.env_options import EnvOptions
from regard.data.episode_windows import EpisodeWindows
from regard.data.episodes import Episode, read_episodes, video
from regard.data.lines import UTF8, Dialect
from regard.data.observation_norm import ObservationNorm, nonzero_std
from regard.data.rollout_video import Rollout, save_rollouts
from regard.data.splits import Rows
from regard.parts.dynamics_head import DynamicsHead, DynamicsOutput
from regard.parts.heads import NOT_FINITE, Model
from regard.tasks.returns import read_named_episodes
from regard.tasks.rollout import mean_error_at, rollout_episodes, rollout_errors
from regard.tasks.task import DecodeOptions, Loss, Prediction, Task, fitted, make_samples
from regard.validate import check_fields

VIDEOS = {"train": 1500, "valid": 100, "test": 200}  # bundled videos of bouncing balls
HORIZONS = (1, 5, 10, 20)  # steps ahead at which `score` reports the error
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


class DynamicsBatch(NamedTuple):
    x: Tensor  # (B,T,K,O) scaled observations
    actions: Tensor | None  # (B,T)
    change: Tensor  # (B,T,K,O) scaled
    reward: Tensor  # (B,T) scaled
    end: Tensor  # (B,T)
    real: Tensor  # (B,T), False = padding
    mask: Tensor | None  # (B,1,1,T), None if there is no padding


@dataclass
class Forecast(Task):
    patch_size: int | None = None  # height and width of an image patch in pixels; default: the divisor nearest to 10
    num_actions: int = fitted()  # 0 for videos
    observation_norm: dict[str, Any] = fitted()  # shape and scales of observations
    reward: list[float] = fitted()  # mean and standard deviation

    def __post_init__(self) -> None:
        check_fields(
            self,
            patch_size=(self.patch_size is None or self.patch_size >= 1, "at least 1"),
            num_actions=(self.num_actions >= 0, "0 or more"),
            reward=(len(self.reward) == 2 and self.reward[1] > 0, "mean and standard deviation"),
        )
        self.normalizer = ObservationNorm(**self.observation_norm)

    description = "observations and actions in, the next observations out"
    file_formats = ".npz or .jsonl of videos or episodes"
    bundled_data = "videos of three bouncing balls"
    requires = ("foresees",)
    default = "world_model"
    head_fields = ("patch_size", "num_actions", "observation_norm", "reward")
    throughput_unit = "steps"
    eval_limit = 20
    ignored_options = frozenset({"fields", "max_words"})
    decode_options = ForecastOptions
    can_play = True

    @classmethod
    def option_groups(cls, ability: str) -> tuple[type, ...]:
        return (EnvOptions,)

    @classmethod
    def rows(
        cls, paths: tuple[str, ...], fields: tuple[str, ...] | None, ability: str, dialect: Dialect = UTF8, **_: Any
    ) -> Rows:
        return read_episodes(paths, dialect)

    @classmethod
    def bundled_rows(cls, ability: str, **_: Any) -> dict[str, Rows]:
        """Videos of bouncing balls; each set has its own seed."""
        sets: dict[str, Rows] = {}
        for seed, (name, count) in enumerate(VIDEOS.items()):
            videos = bouncing_balls.balls(count, seed=seed).frames
            sets[name] = [video(frames, f"ball {name}", line) for line, frames in enumerate(videos, 1)]
        return sets

    @classmethod
    def fit(
        cls,
        rows: Any,
        ability: str,
        input_options: dict[str, Any],
        preprocessors: dict[str, Any],
        **task_options: Any,
    ) -> Forecast:
        num_actions = 0 if rows[0].actions is None else 1 + max(int(row.actions.max()) for row in rows)
        rewards = np.concatenate([row.rewards for row in rows]).astype(np.float64)
        reward = [float(rewards.mean()), float(nonzero_std(rewards.std()))]
        norm = asdict(ObservationNorm.fit(rows, task_options["patch_size"]))
        return cls(**task_options, num_actions=num_actions, observation_norm=norm, reward=reward)

    def sizes(self) -> dict[str, int]:
        return {**self.normalizer.sizes, "num_actions": self.num_actions}

    def head(self, body: Any) -> Model:
        return Model(body, DynamicsHead(body.config.dim, body.config.observation_dim, body.config.num_actions))

    def encode(self, rows: Sequence[Episode], context: int) -> EpisodeWindows:
        for row in rows:
            self.check_episode(row)
        return EpisodeWindows(rows, context, self.normalizer.num_patches + (self.num_actions > 0))

    def check_episode(self, row: Episode) -> None:
        shape, location = list(row.observations.shape[1:]), f"{row.file}:{row.line}"
        if shape != (expected := self.normalizer.shape):
            raise ValueError(f"{location}: observations of shape {shape}, but the training data have {expected}")
        if (row.actions is None) != (self.num_actions == 0):
            has, trained = ("no actions", "actions") if row.actions is None else ("actions", "no actions")
            raise ValueError(f"{location}: the episode has {has}, but the training data have {trained}")
        if row.actions is not None and row.actions.max() >= self.num_actions:
            largest = self.num_actions - 1
            raise ValueError(f"{location}: action {row.actions.max()}, but the training data have 0 to {largest}")

    def collate(self, examples: EpisodeWindows, rows: Ints) -> DynamicsBatch:
        window = examples.take(rows)
        observations, T = torch.from_numpy(window.observations), window.rewards.shape[1]
        mean, std = self.reward
        return DynamicsBatch(
            self.normalizer.normalize(observations[:, :-1]),
            None if window.actions is None else torch.from_numpy(window.actions),
            self.normalizer.deltas(observations),
            (torch.from_numpy(window.rewards) - mean) / std,
            torch.from_numpy(window.ends),
            length_mask(window.lengths, T),
            None if window.lengths.min() == T else padding_mask(window.lengths, T),
        )

    def forward(self, model: Model, batch: DynamicsBatch) -> DynamicsOutput:
        output: DynamicsOutput = model.head(model.body(batch.x, batch.actions, batch.mask))
        return output

    def loss(self, model: Model, batch: DynamicsBatch) -> Loss:
        return Loss(self.sum_loss(self.forward(model, batch), batch, batch.real), int(batch.real.sum()))

    def sum_loss(self, output: DynamicsOutput, batch: DynamicsBatch, counted: Tensor) -> Tensor:
        """Sum over the counted steps. Each entry of an observation vector has the weight of a reward."""
        weight = 1 if self.normalizer.is_frames else self.normalizer.shape[0]
        total = weight * self.normalizer.step_error(output.change - batch.change)[counted].sum()
        if output.reward is None or output.end is None:
            return total
        total = total + (output.reward - batch.reward)[counted].square().sum()
        return total + F.binary_cross_entropy_with_logits(output.end[counted], batch.end[counted], reduction="sum")

    def describe_examples(self, rows: Any, examples: EpisodeWindows, numbers: Ints) -> list[dict[str, Any]]:
        starts = zip(*examples.locate(numbers), strict=True)
        return [{"file": rows[i].file, "line": rows[i].line, "text": f"from step {step + 1}"} for i, step in starts]

    def count_examples(self, rows: Sequence[Any]) -> str:
        return f"{len(rows):,} {'episode' if self.num_actions else 'video'}{'s' * (len(rows) != 1)}"

    @torch.inference_mode()
    def score(self, model: Model, rows: Sequence[Episode], options: Any = None) -> dict[str, Any]:
        """The error of one-step predictions, beside that of repeating the last observation; then of rollouts."""
        examples = self.encode(rows, model.body.config.context)
        starts = examples.all_starts()
        size = examples.windows_per_batch(BUDGET)
        device = next(model.parameters()).device
        sums: dict[str, float] = dict.fromkeys(("loss", "error", "copy", "reward_error", "end_accuracy"), 0.0)
        errors = np.zeros((len(rows), 2))
        for chunk in (starts[i : i + size] for i in range(0, len(starts), size)):
            number, start = examples.locate(chunk)
            batch = to_device(self.collate(examples, chunk), device)
            output, first = self.forward(model, batch), torch.from_numpy(start == 0).to(device)[:, None]
            last = torch.arange(batch.real.size(1), device=device) == examples.context - 1
            new = batch.real & (first | last)  # an earlier window has scored the other steps
            residual = self.normalizer.clip_delta(batch.x, output.change) - batch.change
            both = [(self.normalizer.step_error(x) * new).sum(1).cpu().numpy() for x in (residual, batch.change)]
            np.add.at(errors, number, np.stack(both, 1))
            sums["loss"] += self.sum_loss(output, batch, new).item()
            if output.reward is not None and output.end is not None:
                sums["reward_error"] += (output.reward - batch.reward)[new].square().sum().item() * self.reward[1] ** 2
                sums["end_accuracy"] += 100 * ((output.end > 0) == (batch.end > 0))[new].sum().item()
        sums["error"], sums["copy"] = errors.sum(0).tolist()
        steps = int(examples.steps.sum())
        scores = {name: total / steps for name, total in sums.items() if self.num_actions or "_" not in name}
        predictions = [f"error {e:.3f} (copying: {copy:.3f})" for e, copy in errors / examples.steps[:, None]]
        samples = make_samples([f"{row.file}:{row.line}" for row in rows], ["error 0"] * len(rows), predictions)
        return {**scores, **self.rollout_scores(model, rows), "predictions": predictions, "samples": samples}

    def rollout_scores(self, model: Model, rows: Sequence[Episode]) -> dict[str, float]:
        """The error at each of HORIZONS, of rollouts that start when the context is full."""
        start = model.body.config.context
        rows = [row for row in rows if row.steps >= start]
        rollouts = rollout_episodes(model, self.normalizer, rows, start, HORIZONS[-1])
        errors = [rollout_errors(self.normalizer, rollout)[0] for rollout in rollouts]
        return {f"error_at_{step}": error for step in HORIZONS if (error := mean_error_at(errors, step)) is not None}

    def rank(self, scores: dict[str, Any]) -> tuple[float, ...]:
        return (-round(scores["error"], 4),)

    def example(self) -> str:
        return "episodes.jsonl" if self.num_actions else "videos.npz"

    def predict(
        self, model: Model, raw: Iterable[str], options: ForecastOptions, first: int = 0
    ) -> Iterator[list[Prediction]]:
        """An input is the name of a file of episodes, or of one of them: videos.npz:3."""
        for number, name in enumerate(raw, first):
            if options.save and number:
                raise ValueError(f"--save {options.save} holds the rollout of one file: give one file at a time")
            if options.ahead and self.num_actions:
                raise ValueError("the actions after the last step are unknown: leave out --ahead")
            rows = read_named_episodes(name)
            for row in rows:
                self.check_episode(row)
            start = max(row.steps + 1 for row in rows) if options.ahead else None
            rollouts = rollout_episodes(model, self.normalizer, rows, start, options.horizon)
            if not all(np.isfinite(rollout.prediction).all() for rollout in rollouts):
                raise FloatingPointError(NOT_FINITE)
            if options.save:
                save_rollouts(options.save, rollouts, self.normalizer.low, self.normalizer.high)
            yield [self.summarize(rollouts, options.horizon)]

    def summarize(self, rollouts: list[Rollout], horizon: int) -> Prediction:
        columns = zip(*(rollout_errors(self.normalizer, rollout) for rollout in rollouts), strict=True)
        errors, copy_errors = ([mean_error_at(column, step) for step in range(1, horizon + 1)] for column in columns)
        extra: dict[str, Any] = {"horizon": horizon, "errors": errors, "copy_errors": copy_errors}
        if len(rollouts) == 1:
            extra["observations"] = next(rollout.prediction.tolist() for rollout in rollouts)
        text = f"{horizon} steps ahead of {self.count_examples(rollouts)}"
        if errors[0] is not None:
            error, copy = (np.mean([x for x in column if x is not None]) for column in (errors, copy_errors))
            text += f": error {error:.3f} per step (copying the last observation: {copy:.3f})"
        return Prediction(text, extra=extra)
