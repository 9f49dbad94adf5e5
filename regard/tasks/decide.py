"""Decide: offline reinforcement learning as sequence modelling. It predicts the next action of recorded episodes.

    behaviour cloning      loss = - Σ log p(a_t | o_≤t, a_<t)
    top episodes only      the same, of the episodes with the highest returns (--top-fraction 0.1)
    return-conditioned     p(a_t | o_≤t, R_≤t, a_<t),   return-to-go R_t = Σ of the rewards from t on (--returns)

Return conditioning is the Decision Transformer (Chen et al. 2021): in training the input holds the return-to-go of each
step, in play that of a target return. Here the return-to-go and the step number are two more observation entries.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.batches import Ints, to_device
from regard.data.episode_chunks import EpisodeChunks
from regard.data.episodes import Episode, EpisodeRow, Floats
from regard.data.observation_norm import nonzero_std
from regard.metrics import accuracy
from regard.modalities.protocols import Inputs, Preprocessor, Target
from regard.modalities.step_preprocessor import StepPreprocessor
from regard.parts.heads import Body, Model, TokenClassifier, check_finite
from regard.tasks.inference import context_of, numbered_rows
from regard.tasks.task import DecodeOptions, Loss, Prediction, Predictions, Scores, Task, fitted, make_scores
from regard.validate import check_fields

PADDING = -100  # target of a padded step, which the loss ignores
SAMPLE_ACTIONS = 20  # actions of an episode in a sample


class DecisionBatch(NamedTuple):
    inputs: Inputs  # (B,T,K,O) observations
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
    returns: bool = False  # condition on the return-to-go (Decision Transformer)
    preprocessor: StepPreprocessor = fitted()
    mean: list[float] = fitted()  # of return-to-go and step number
    std: list[float] = fitted()
    max_return: float = fitted()  # of the training episodes

    def __post_init__(self) -> None:
        check_fields(
            self,
            mean=(len(self.mean) == 2 and all(map(math.isfinite, self.mean)), "two numbers"),
            std=(len(self.std) == 2 and all(0 < value < math.inf for value in self.std), "two above 0"),
            max_return=(math.isfinite(self.max_return), "finite"),
        )
        check_fields(self.preprocessor, num_actions=(self.num_actions >= 2, "at least 2"))

    description = "observations and actions so far in, the next action out"
    target = Target.ACTION
    structures = ("dynamics",)
    default = "world_model"
    head_fields = ("preprocessor", "mean", "std")
    throughput_unit = "steps"
    eval_limit = 500
    default_overrides = {"context": 20}  # it takes many steps to recognise the policy of an episode
    decode_options = DecideOptions
    can_play = True

    @classmethod
    def fitted_fields(
        cls, rows: Sequence[EpisodeRow], preprocessor: Preprocessor, **options: object
    ) -> dict[str, object]:
        episodes = [row.input for row in rows]
        actions = np.concatenate([episode.actions for episode in episodes if episode.actions is not None])
        if actions.min() == actions.max():
            raise ValueError(f"{rows[0].file}: every action is {actions[0]}: at least two are needed")
        conditions = np.concatenate([returns_to_go(e.rewards, e.rewards.sum())[:-1] for e in episodes])
        mean, std = conditions.mean(0).tolist(), nonzero_std(conditions.std(0)).tolist()
        return {"mean": mean, "std": std, "max_return": max(episode.total_reward for episode in episodes)}

    @property
    def num_actions(self) -> int:
        return self.preprocessor.num_actions

    def sizes(self) -> dict[str, int]:
        sizes = super().sizes()
        return sizes | {"observation_dim": sizes["observation_dim"] + 2 * self.returns}

    def head(self, body: Body) -> Model:
        return Model(body, TokenClassifier(body.config.dim, self.num_actions, body.config.dropout))

    def normalize_observations(self, observations: Floats, returns_to_go: npt.NDArray[np.float64]) -> Floats:
        """Observations (L,...), and with `returns` the returns-to-go (L,2), scaled to mean 0 and std 1, (L,K,O)."""
        x = self.preprocessor.norm.normalize(torch.from_numpy(observations)[None])[0]
        if self.returns:
            scaled = torch.from_numpy((returns_to_go - np.array(self.mean)) / np.array(self.std)).to(x)
            x = torch.cat((x, scaled[:, None].expand(-1, x.size(1), -1)), -1)
        return x.numpy()

    def history(self, episode: Episode, total: float) -> tuple[Floats, Ints]:
        """Inputs of all L+1 steps of an episode with the return `total`, and the action before each; `num_actions`
        stands for none."""
        assert episode.actions is not None
        inputs = self.normalize_observations(episode.as_float(), returns_to_go(episode.rewards, total))
        return inputs, np.append(self.num_actions, episode.actions)

    def encode(self, rows: Sequence[EpisodeRow], context: int) -> EpisodeChunks:
        for row in rows:
            self.preprocessor.require_fit(row)
        episodes = [row.input for row in rows]
        histories = [self.history(episode, episode.total_reward) for episode in episodes]
        inputs, previous = (np.concatenate([history[i][:-1] for history in histories]) for i in (0, 1))
        actions = np.concatenate([episode.actions for episode in episodes if episode.actions is not None])
        lengths = np.array([episode.steps for episode in episodes])
        return EpisodeChunks(lengths, (inputs, previous, actions), context, inputs.shape[1] + 1)

    def collate(self, examples: EpisodeChunks, rows: Ints, training: bool = True) -> DecisionBatch:
        observations, *rest = examples.padded(rows, (0.0, self.num_actions, PADDING))
        return DecisionBatch(Inputs(torch.from_numpy(observations)), *map(torch.from_numpy, rest))

    def outputs(self, model: Model, batch: DecisionBatch) -> Tensor:
        return self.logits(model, batch.inputs.x, batch.previous_actions)

    def logits(self, model: Model, observations: Tensor, previous_actions: Tensor) -> Tensor:
        """From the last vector of a step; its own action is input of the next step only."""
        return model.head(model.body(observations, previous_actions)[:, :, -1])  # (B,T,actions)

    def loss(self, model: Model, batch: DecisionBatch) -> Loss:
        logits = self.outputs(model, batch).flatten(0, 1)
        total = F.cross_entropy(logits, batch.targets.flatten(), ignore_index=PADDING, reduction="sum")
        return Loss(total, int((batch.targets != PADDING).sum()))

    def describe_examples(
        self, rows: Sequence[EpisodeRow], examples: EpisodeChunks, numbers: Ints
    ) -> list[dict[str, object]]:
        chunks = [examples.locate(int(number)) for number in numbers]
        return [{"file": rows[e].file, "line": rows[e].line, "text": f"{n} steps from {at}"} for e, at, n in chunks]

    @torch.inference_mode()
    def score(self, model: Model, rows: Sequence[EpisodeRow], options: DecideOptions | None = None) -> Scores:
        """Loss and accuracy of the recorded actions."""
        examples, device = self.encode(rows, context_of(model)), next(model.parameters()).device
        total, predicted = 0.0, list[Ints]()
        windows = examples.sequential()
        for chunk in (windows[i : i + 256] for i in range(0, len(windows), 256)):
            batch = to_device(self.collate(examples, chunk), device)
            logits = self.outputs(model, batch).float()
            real = batch.targets != PADDING
            total += F.cross_entropy(logits[real], batch.targets[real], reduction="sum").item()
            predicted.append(logits[real].argmax(-1).cpu().numpy())
        episodes = [row.input for row in rows]
        ends = np.cumsum([episode.steps for episode in episodes])[:-1]
        recorded = [episode.actions for episode in episodes if episode.actions is not None]
        both = recorded, np.split(np.concatenate(predicted), ends)
        correct = accuracy(*(list(map(str, np.concatenate(side).tolist())) for side in both))
        targets, predictions = (
            [" ".join(map(str, actions[:SAMPLE_ACTIONS].tolist())) for actions in side] for side in both
        )
        sources = [f"{self.preprocessor.show(row)}, return {row.input.total_reward:g}" for row in rows]
        return make_scores({"loss": total / examples.units, "accuracy": correct}, sources, targets, predictions)

    def resolve_target_return(self, options: DecideOptions) -> float:
        if options.target_return is not None and not self.returns:
            raise ValueError(
                "this model is not conditioned on returns: leave out --target-return, or train it with --returns"
            )
        return self.max_return if options.target_return is None else options.target_return

    def action_log_probs(self, model: Model, inputs: Floats, previous_actions: Ints) -> Tensor:
        """Log-probabilities (B,actions) of the next action, from the last `context` steps of (B,T,K,O)."""
        device, context = next(model.parameters()).device, context_of(model)
        window = (torch.from_numpy(array[:, -context:]).to(device) for array in (inputs, previous_actions))
        return check_finite(self.logits(model, *window)[:, -1].float()).log_softmax(-1).cpu()

    @torch.inference_mode()
    def predict(self, model: Model, raw: Iterable[str], options: DecideOptions, first: int = 0) -> Predictions:
        """An input is the name of a file of episodes, or one unfinished episode as JSON; predicts the next action of
        each episode."""
        target_return = self.resolve_target_return(options)
        for number, text in enumerate(raw, first + 1):
            logprobs = []
            for row in numbered_rows(self.preprocessor.parse_all, text, number):
                self.preprocessor.require_fit(row)
                inputs, previous = self.history(row.input, target_return)
                logprobs.append(self.action_log_probs(model, inputs[None], previous[None])[0])
            best = torch.stack(logprobs).topk(min(options.num_return, self.num_actions))  # (episodes, num_return)
            ranked = zip(best.values.T.tolist(), best.indices.T.tolist(), strict=True)
            yield [Prediction(" ".join(map(str, actions)), sum(p), math.exp(min(p))) for p, actions in ranked]


def returns_to_go(rewards: Floats, total: float) -> npt.NDArray[np.float64]:
    """(L+1,2): the return-to-go at each step of an episode with the return `total`, which is the total less the rewards
    before the step; and the number of the step."""
    obtained = np.append(0.0, rewards.cumsum(dtype=np.float64))
    return np.stack((total - obtained, np.arange(len(obtained))), 1)
