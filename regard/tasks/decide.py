"""Decide: offline reinforcement learning as sequence modelling. It predicts the next action of recorded episodes.

    behaviour cloning      loss = - Σ log p(a_t | o_≤t, a_<t)
    top episodes only      the same, of the episodes with the highest returns (--top-fraction 0.1)
    return-conditioned     p(a_t | o_≤t, R_≤t, a_<t),   return-to-go R_t = Σ of the rewards from t on (--returns)

Return conditioning is the Decision Transformer (Chen et al. 2021): in training the input holds the return-to-go of each
step, in play that of a target return. Here the return-to-go and the step number are two more observation entries.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.batches import Ints, to_device
from regard.data.bundled import cart
from regard.data.episode_chunks import EpisodeChunks
from regard.data.episodes import Episode, Floats, read_episodes
from regard.data.lines import UTF8, Dialect
from regard.data.observation_norm import ObservationNorm, nonzero_std
from regard.data.splits import Rows
from regard.metrics import accuracy
from regard.parts.heads import Model, TokenClassifier, check_finite
from regard.tasks.returns import compute_returns_to_go, parse_episodes, require_actions, top_episodes
from regard.tasks.task import DecodeOptions, Loss, Prediction, Task, fitted, make_samples
from regard.validate import check_fields

PADDING = -100  # target of a padded step, which the loss ignores
SAMPLE_ACTIONS = 20  # actions of an episode in a sample


class DecisionBatch(NamedTuple):
    observations: Tensor  # (B,T,K,O)
    previous_actions: Tensor  # (B,T)
    targets: Tensor  # (B,T) actions


@dataclass(frozen=True)
class DecideOptions(DecodeOptions):
    """Decode options of an action."""

    target_return: float | None = None  # return to condition on, after --returns; default: the highest in training
    temperature: float = 0.0  # sampling temperature; 0 = the most probable action; 1 = the model's own distribution
    env: str | None = None  # with --play: id of a gymnasium environment; default: the bundled CartPole

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(
            self,
            target_return=(self.target_return is None or math.isfinite(self.target_return), "finite"),
            temperature=(0 <= self.temperature < math.inf, "0 or more, and finite"),
        )


@dataclass
class Decide(Task):
    top_fraction: float = 1.0  # train on this fraction of the episodes, those with the highest returns
    returns: bool = False  # condition on the return-to-go (Decision Transformer)
    patch_size: int | None = None  # height and width of an image patch in pixels; default: the divisor nearest to 10
    num_actions: int = fitted()
    observation_norm: dict[str, Any] = fitted()  # shape and scales of observations
    mean: list[float] = fitted()  # of return-to-go and step number
    std: list[float] = fitted()
    max_return: float = fitted()  # of the training episodes

    def __post_init__(self) -> None:
        check_fields(
            self,
            top_fraction=(0 < self.top_fraction <= 1, "above 0 and at most 1"),
            patch_size=(self.patch_size is None or self.patch_size >= 1, "at least 1"),
            num_actions=(self.num_actions >= 2, "at least 2"),
            mean=(len(self.mean) == 2 and all(map(math.isfinite, self.mean)), "two numbers"),
            std=(len(self.std) == 2 and all(0 < value < math.inf for value in self.std), "two above 0"),
            max_return=(math.isfinite(self.max_return), "finite"),
        )
        self.normalizer = ObservationNorm(**self.observation_norm)

    description = "observations and actions so far in, the next action out"
    file_formats = ".npz or .jsonl of episodes: observations, actions, rewards"
    bundled_data = "CartPole, played by policies of different skill"
    requires = ("foresees",)
    default = "world_model"
    head_fields = ("num_actions", "observation_norm", "mean", "std")
    throughput_unit = "steps"
    eval_limit = 500
    ignored_options = frozenset({"fields", "max_words"})
    decode_options = DecideOptions
    can_play = True

    @classmethod
    def default_overrides(cls, ability: str) -> dict[str, Any]:
        """A longer context than in `predict`: it takes many steps to recognise the policy of an episode."""
        return {"context": 20}

    @classmethod
    def rows(
        cls,
        paths: tuple[str, ...],
        fields: tuple[str, ...] | None,
        ability: str,
        dialect: Dialect = UTF8,
        **task_options: Any,
    ) -> Rows:
        return top_episodes(read_episodes(paths, dialect), task_options["top_fraction"])

    @classmethod
    def bundled_rows(cls, ability: str, **task_options: Any) -> dict[str, Rows]:
        """CartPole, played by policies of different skill."""
        parts: dict[str, list[Any]] = {"train": [], "valid": [], "test": []}
        for episode in cart.carts():
            parts[cart.split(episode)].append(episode)
        return {name: top_episodes(part, task_options["top_fraction"]) for name, part in parts.items()}

    @classmethod
    def fit(
        cls,
        rows: Any,
        ability: str,
        input_options: dict[str, Any],
        preprocessors: dict[str, Any],
        **task_options: Any,
    ) -> Decide:
        for row in rows:
            require_actions(row)
        num_actions = 1 + max(int(row.actions.max()) for row in rows)
        if len({int(action) for row in rows for action in row.actions}) < 2:
            raise ValueError(f"{rows[0].file}: every action is {rows[0].actions[0]}: at least two are needed")
        conditions = np.concatenate([compute_returns_to_go(row.rewards, row.rewards.sum())[:-1] for row in rows])
        scales = {"mean": conditions.mean(0).tolist(), "std": nonzero_std(conditions.std(0)).tolist()}
        norm = asdict(ObservationNorm.fit(rows, task_options["patch_size"]))
        max_return = max(float(row.rewards.sum()) for row in rows)
        return cls(**task_options, num_actions=num_actions, observation_norm=norm, **scales, max_return=max_return)

    def sizes(self) -> dict[str, int]:
        sizes = self.normalizer.sizes
        return sizes | {"observation_dim": sizes["observation_dim"] + 2 * self.returns, "num_actions": self.num_actions}

    def head(self, body: Any) -> Model:
        return Model(body, TokenClassifier(body.config.dim, self.num_actions, body.config.dropout))

    def normalize_observations(self, observations: Floats, returns_to_go: Any) -> Floats:
        """Observations (L,...), and with `returns` the returns-to-go (L,2), scaled to mean 0 and std 1, (L,K,O)."""
        x = self.normalizer.normalize(torch.from_numpy(observations)[None])[0]
        if self.returns:
            scaled = torch.from_numpy((returns_to_go - np.array(self.mean)) / np.array(self.std)).to(x)
            x = torch.cat((x, scaled[:, None].expand(-1, x.size(1), -1)), -1)
        return x.numpy()

    def history(self, row: Episode, total: float) -> tuple[Floats, Ints]:
        """Inputs of all L+1 steps of an episode with the return `total`, and the action before each; `num_actions`
        stands for none."""
        assert row.actions is not None
        inputs = self.normalize_observations(row.as_float(), compute_returns_to_go(row.rewards, total))
        return inputs, np.append(self.num_actions, row.actions)

    def encode(self, rows: Sequence[Episode], context: int) -> EpisodeChunks:
        for row in rows:
            self.check_episode(row)
        histories = [self.history(row, float(row.rewards.sum())) for row in rows]
        inputs, previous = (np.concatenate([history[i][:-1] for history in histories]) for i in (0, 1))
        actions = np.concatenate([row.actions for row in rows if row.actions is not None])
        lengths = np.array([row.steps for row in rows])
        return EpisodeChunks(lengths, (inputs, previous, actions), context, inputs.shape[1] + 1)

    def check_episode(self, row: Episode) -> None:
        require_actions(row)
        assert row.actions is not None
        shape, expected = list(row.observations.shape[1:]), self.normalizer.shape
        if shape != expected:
            raise ValueError(
                f"{row.file}:{row.line}: observations of shape {shape}, but the training data have {expected}"
            )
        if row.actions.max(initial=0) >= self.num_actions:
            problem = f"action {row.actions.max()}, but the training data have 0 to {self.num_actions - 1}"
            raise ValueError(f"{row.file}:{row.line}: {problem}")

    def collate(self, examples: EpisodeChunks, rows: Ints) -> DecisionBatch:
        arrays = examples.padded(rows, (0.0, self.num_actions, PADDING))
        return DecisionBatch(*map(torch.from_numpy, arrays))

    def logits(self, model: Model, observations: Tensor, previous_actions: Tensor) -> Tensor:
        """From the last vector of a step; its own action is input of the next step only."""
        return model.head(model.body(observations, previous_actions)[:, :, -1])  # (B,T,actions)

    def loss(self, model: Model, batch: DecisionBatch) -> Loss:
        logits = self.logits(model, batch.observations, batch.previous_actions).flatten(0, 1)
        total = F.cross_entropy(logits, batch.targets.flatten(), ignore_index=PADDING, reduction="sum")
        return Loss(total, int((batch.targets != PADDING).sum()))

    def describe_examples(self, rows: Any, examples: EpisodeChunks, numbers: Ints) -> list[dict[str, Any]]:
        chunks = [examples.locate(int(number)) for number in numbers]
        return [{"file": rows[e].file, "line": rows[e].line, "text": f"{n} steps from {at}"} for e, at, n in chunks]

    def count_examples(self, rows: Any) -> str:
        return f"{len(rows):,} episodes of {sum(row.steps for row in rows):,} steps"

    @torch.inference_mode()
    def score(self, model: Model, rows: Sequence[Episode], options: DecideOptions | None = None) -> dict[str, Any]:
        """Loss and accuracy of the recorded actions."""
        examples, device = self.encode(rows, model.body.config.context), next(model.parameters()).device
        total, predicted = 0.0, list[Ints]()
        windows = examples.sequential_chunks()
        for chunk in (windows[i : i + 256] for i in range(0, len(windows), 256)):
            batch = to_device(self.collate(examples, chunk), device)
            logits = self.logits(model, batch.observations, batch.previous_actions).float()
            real = batch.targets != PADDING
            total += F.cross_entropy(logits[real], batch.targets[real], reduction="sum").item()
            predicted.append(logits[real].argmax(-1).cpu().numpy())
        ends = np.cumsum([row.steps for row in rows])[:-1]
        both: list[list[Any]] = [[row.actions for row in rows], np.split(np.concatenate(predicted), ends)]
        correct = accuracy(*(list(map(str, np.concatenate(episodes).tolist())) for episodes in both))
        targets, predictions = (
            [" ".join(map(str, actions[:SAMPLE_ACTIONS].tolist())) for actions in episodes] for episodes in both
        )
        sources = [f"{row.file}:{row.line}, return {row.rewards.sum():g}" for row in rows]
        scores = {"loss": total / examples.units, "accuracy": correct}
        return {**scores, "predictions": predictions, "samples": make_samples(sources, targets, predictions)}

    def rank(self, scores: dict[str, Any]) -> tuple[float, ...]:
        return (-round(scores["loss"], 4),)

    def example(self) -> str:
        return "episodes.npz"

    def resolve_target_return(self, options: DecideOptions) -> float:
        if options.target_return is not None and not self.returns:
            raise ValueError(
                "this model is not conditioned on returns: leave out --target-return, or train it with --returns"
            )
        return self.max_return if options.target_return is None else options.target_return

    def action_log_probs(self, model: Model, inputs: Floats, previous_actions: Ints) -> Tensor:
        """Log-probabilities (B,actions) of the next action, from the last `context` steps of (B,T,K,O)."""
        device, context = next(model.parameters()).device, model.body.config.context
        window = (torch.from_numpy(array[:, -context:]).to(device) for array in (inputs, previous_actions))
        return check_finite(self.logits(model, *window)[:, -1].float()).log_softmax(-1).cpu()

    @torch.inference_mode()
    def predict(
        self, model: Model, raw: Iterable[str], options: DecideOptions, first: int = 0
    ) -> Iterator[list[Prediction]]:
        """An input is the name of a file of episodes, or one unfinished episode as JSON; predicts the next action of
        each episode."""
        target_return = self.resolve_target_return(options)
        for number, text in enumerate(raw, first + 1):
            logprobs = []
            for row in parse_episodes(text, number):
                self.check_episode(row)
                inputs, previous = self.history(row, target_return)
                logprobs.append(self.action_log_probs(model, inputs[None], previous[None])[0])
            best = torch.stack(logprobs).topk(min(options.num_return, self.num_actions))  # (episodes, num_return)
            ranked = zip(best.values.T.tolist(), best.indices.T.tolist(), strict=True)
            yield [Prediction(" ".join(map(str, actions)), sum(p), math.exp(min(p))) for p, actions in ranked]
