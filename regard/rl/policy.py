"""A policy and its value function: two small MLPs on the last few observations and actions.

π(a | history)   two tanh layers, then a logit for each action
V(history)       two tanh layers of its own, then a scalar: the discounted return

The input is the latest observation and the *differences* between the ones before it, each divided by its standard
deviation: slow and fast entries then have the same scale, and a hidden velocity shows as a difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from regard.atomic import replace_file, write_json
from regard.data.episodes import Episode, Floats, Ints
from regard.hub.folder import write_tensors
from regard.json_files import read_json
from regard.rl.environment import PolicyFn, Trajectory, action_noise
from regard.validate import check_minimum, matches_type

CONFIG, WEIGHTS = "config.json", "model.safetensors"  # in a policy folder
NO_ACTION = -1  # before the first action of an episode
MIN_STD = 1e-6  # a smaller standard deviation is that of a constant


@dataclass(frozen=True)
class PolicyConfig:
    observation_dim: int  # entries of an observation
    num_actions: int
    history_length: int = 1  # latest observations in the input, with the actions between them
    hidden: int = 64  # width of each layer

    def __post_init__(self) -> None:
        check_minimum(self, 1, *asdict(self))

    @property
    def input_dim(self) -> int:
        return self.observation_dim + (self.history_length - 1) * (self.observation_dim + self.num_actions)


class History(NamedTuple):
    """The input of a policy, for any number of rows and steps."""

    observations: Tensor  # (...,M,O), the latest last; padded on the left with the first one
    actions: Tensor  # (...,M-1) between them, padded with NO_ACTION


class PolicyOutput(NamedTuple):
    logits: Tensor  # (...,A)
    value: Tensor  # (...)


class Policy(nn.Module):
    mean: Tensor
    std: Tensor
    delta_std: Tensor
    value_scale: Tensor

    def __init__(self, c: PolicyConfig):
        super().__init__()
        self.config = c
        self.register_buffer("mean", torch.zeros(c.observation_dim))
        self.register_buffer("std", torch.ones(c.observation_dim))
        self.register_buffer("delta_std", torch.ones(c.observation_dim))  # of the differences from step to step
        self.register_buffer("value_scale", torch.ones(()))  # unit of the values, so that the critic's output is near 1
        self.actor = mlp(c.input_dim, c.hidden, c.num_actions, 0.01)  # starts almost uniform
        self.critic = mlp(c.input_dim, c.hidden, 1, 1.0)

    def forward(self, history: History) -> PolicyOutput:
        x = self.features(history)
        return PolicyOutput(self.actor(x), self.critic(x)[..., 0] * self.value_scale)

    def features(self, history: History) -> Tensor:
        o = history.observations
        latest = (o[..., -1, :] - self.mean) / self.std
        deltas = (o[..., 1:, :] - o[..., :-1, :]) / self.delta_std  # (...,M-1,O)
        actions = F.one_hot(history.actions + 1, self.config.num_actions + 1)[..., 1:].to(latest)  # (...,M-1,A)
        return torch.cat([latest, deltas.flatten(-2), actions.flatten(-2)], -1)

    @torch.no_grad()
    def fit_scales(self, episodes: Sequence[Episode], discount: float) -> None:
        """Set mean and standard deviations to those of these episodes. The outputs stay the same: the first layers
        absorb the new scales of their input."""
        observations = np.concatenate([episode.observations for episode in episodes])
        deltas = np.concatenate([np.diff(episode.observations, axis=0) for episode in episodes])
        rewards = np.concatenate([episode.rewards for episode in episodes])
        mean = torch.from_numpy(observations.mean(0)).float()
        stds = (torch.from_numpy(x.std(0)).float() for x in (observations, deltas))
        std, delta_std = (torch.where(x < MIN_STD, 1.0, x) for x in stds)
        value_scale = torch.tensor(max(float(np.abs(rewards).mean()), MIN_STD) / (1 - discount))
        previous = self.config.history_length - 1
        scales = std / self.std, (delta_std / self.delta_std).repeat(previous)
        scale = torch.cat([*scales, torch.ones(previous * self.config.num_actions)])
        shift = F.pad((mean - self.mean) / self.std, (0, len(scale) - len(mean)))
        for network in (self.actor, self.critic):
            layer: Any = network[0]
            layer.bias += layer.weight @ shift
            layer.weight *= scale
        for weight in self.critic[-1].parameters():
            weight.mul_(self.value_scale / value_scale)
        for name, new in {"mean": mean, "std": std, "delta_std": delta_std, "value_scale": value_scale}.items():
            self.get_buffer(name).copy_(new)

    def save(self, folder: Path, **metadata: Any) -> None:
        """Weights, sizes and metadata, such as the environment that the policy is for."""
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: tensor.contiguous() for name, tensor in self.state_dict().items()}
        replace_file(folder / WEIGHTS, lambda file: write_tensors(file, tensors))
        write_json(folder / CONFIG, asdict(self.config) | metadata)

    @classmethod
    def load(cls, folder: Path) -> tuple[Policy, dict[str, Any]]:
        """A policy and its metadata."""
        if not (folder / CONFIG).is_file() or not (folder / WEIGHTS).is_file():
            raise ValueError(f"{folder} holds no policy: train one with regard train predict --env CartPole-v1")
        metadata = read_json(folder / CONFIG)
        sizes = {name: metadata.pop(name, None) for name in PolicyConfig.__dataclass_fields__}
        for name, size in sizes.items():
            if not matches_type(size, int) or not 1 <= size < 2**20:
                raise ValueError(f"{folder / CONFIG}: {name} must be a size, not {size!r:.80}")
        policy = cls(PolicyConfig(**sizes))
        try:
            stored, expected = load_file(folder / WEIGHTS), policy.state_dict()
        except SafetensorError as error:
            raise ValueError(f"{folder / WEIGHTS} cannot be read: {error}") from None
        for name in sorted({*stored, *expected}):
            if name not in stored or name not in expected or stored[name].shape != expected[name].shape:
                raise ValueError(f"{folder / WEIGHTS}: {name} does not match {folder / CONFIG}")
        policy.load_state_dict(stored)
        return policy, metadata


def is_policy(folder: Path) -> bool:
    """Whether a folder holds a policy and no model, as `regard imitate` writes it."""
    file = folder / CONFIG
    return file.is_file() and not (folder / "task.json").exists() and "env" in read_json(file)


def mlp(inputs: int, hidden: int, outputs: int, gain: float) -> nn.Sequential:
    layers = nn.Linear(inputs, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, outputs)
    for layer in layers:
        nn.init.orthogonal_(layer.weight, gain if layer is layers[-1] else 2**0.5)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])


def history_at(observations: Floats, actions: Ints, length: int, times: Ints) -> History:
    """The histories at these times of one episode: (N,M,O) and (N,M-1)."""
    indices = times[:, None] + np.arange(1 - length, 1)  # (N,M), below 0 before the first step
    previous = indices[:, :-1]
    previous_actions = actions[previous.clip(0)] if len(actions) else np.zeros(previous.shape, np.int64)
    padded = np.where(previous < 0, NO_ACTION, previous_actions)
    return History(torch.from_numpy(observations[indices.clip(0)]), torch.from_numpy(padded))


def latest_history(trajectory: Trajectory, length: int) -> History:
    """The history at the end of a trajectory: (M,O) and (M-1,)."""
    observations = np.stack(trajectory.observations[-length:])
    missing = length - len(observations)
    observations = np.concatenate([np.repeat(observations[:1], missing, 0), observations])
    actions = [NO_ACTION] * missing + trajectory.actions[max(0, len(trajectory.actions) - length + 1) :]
    return History(torch.from_numpy(observations), torch.tensor(actions, dtype=torch.int64))


def greedy_policy(policy: Policy) -> PolicyFn:
    """The most probable action."""

    @torch.inference_mode()
    def choose(trajectory: Trajectory) -> int:
        return int(policy(latest_history(trajectory, policy.config.history_length)).logits.argmax())

    return choose


def sampling_policy(policy: Policy, seed: int) -> PolicyFn:
    """An action sampled from the policy's distribution."""

    @torch.inference_mode()
    def choose(trajectory: Trajectory) -> int:
        probs = policy(latest_history(trajectory, policy.config.history_length)).logits.double().softmax(-1)
        return int((probs.cumsum(-1)[:-1] <= action_noise(trajectory, seed)).sum())

    return choose
