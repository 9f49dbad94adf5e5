"""A policy: what to do, by the last few observations and actions; and what that will bring.

π(a | what was seen)   two layers of tanh, then a logit for each action
V(what was seen)       two more of its own, then a number: the rewards to come, discounted

It sees the newest observation, and of those before it the *changes* since, each divided by its spread in the data: what
is slow and what is fast are then alike, and a hidden velocity is a change that can be seen.
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
from regard.choose import fits, must
from regard.data.episodes import Episode, Floats, Ints
from regard.hub.files import read_json
from regard.hub.folder import write_tensors
from regard.rl.environment import Past, Player, luck

CONFIG, WEIGHTS = "config.json", "model.safetensors"  # in the folder of a policy
NOTHING = -1  # the action before the first
LEAST = 1e-6  # a spread below this is none: the number never changes


@dataclass(frozen=True)
class PolicyConfig:
    observation: int  # numbers that are seen
    actions: int  # to choose from
    memory: int = 1  # newest observations that count, and the actions between them
    hidden: int = 64  # width of each layer

    def __post_init__(self) -> None:
        must(self, **{name: (size >= 1, "at least 1") for name, size in asdict(self).items()})


class Seen(NamedTuple):
    """What a policy looks at, for any number of rows and steps."""

    observations: Tensor  # (...,M,O), the newest last; before the first one there was the first one
    actions: Tensor  # (...,M-1) between them, NOTHING before the first


class Thought(NamedTuple):
    logits: Tensor  # (...,A)
    value: Tensor  # (...)


class Policy(nn.Module):
    mean: Tensor
    spread: Tensor
    change: Tensor
    unit: Tensor

    def __init__(self, c: PolicyConfig):
        super().__init__()
        self.config = c
        self.register_buffer("mean", torch.zeros(c.observation))
        self.register_buffer("spread", torch.ones(c.observation))
        self.register_buffer("change", torch.ones(c.observation))  # spread of changes from step to step
        self.register_buffer("unit", torch.ones(()))  # in which values are counted, so that they are about 1
        width = c.observation + (c.memory - 1) * (c.observation + c.actions)
        self.choice = layers(width, c.hidden, c.actions, 0.01)  # at first all actions are about as likely
        self.worth = layers(width, c.hidden, 1, 1.0)

    def forward(self, seen: Seen) -> Thought:
        x = self.features(seen)
        return Thought(self.choice(x), self.worth(x)[..., 0] * self.unit)

    def features(self, seen: Seen) -> Tensor:
        o = seen.observations
        now = (o[..., -1, :] - self.mean) / self.spread
        changes = (o[..., 1:, :] - o[..., :-1, :]) / self.change  # (...,M-1,O)
        deeds = F.one_hot(seen.actions + 1, self.config.actions + 1)[..., 1:].to(now)  # (...,M-1,A)
        return torch.cat([now, changes.flatten(-2), deeds.flatten(-2)], -1)

    @torch.no_grad()
    def fit_scales(self, episodes: Sequence[Episode], discount: float) -> None:
        """Mean and spread as they are in these episodes. What the policy does and expects stays what it was: the first
        layers take up the change of their input."""
        seen = np.concatenate([episode.observations for episode in episodes])
        steps = np.concatenate([np.diff(episode.observations, axis=0) for episode in episodes])
        gains = np.concatenate([episode.rewards for episode in episodes])
        mean, spread, change = (torch.from_numpy(x).float() for x in (seen.mean(0), seen.std(0), steps.std(0)))
        spread, change = (torch.where(one < LEAST, 1.0, one) for one in (spread, change))
        unit = torch.tensor(max(float(np.abs(gains).mean()), LEAST) / (1 - discount))
        c, back = self.config, self.config.memory - 1
        times = torch.cat([spread / self.spread, (change / self.change).repeat(back), torch.ones(back * c.actions)])
        shift = F.pad((mean - self.mean) / self.spread, (0, len(times) - c.observation))
        for part in (self.choice, self.worth):
            first: Any = part[0]
            first.bias += first.weight @ shift
            first.weight *= times
        for weight in self.worth[-1].parameters():
            weight.mul_(self.unit / unit)
        for mine, new in ((self.mean, mean), (self.spread, spread), (self.change, change), (self.unit, unit)):
            mine.copy_(new)

    def save(self, folder: Path, **facts: Any) -> None:
        """Weights, sizes, and what else there is to know: which environment it is for."""
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: tensor.contiguous() for name, tensor in self.state_dict().items()}
        replace_file(folder / WEIGHTS, lambda file: write_tensors(file, tensors))
        write_json(folder / CONFIG, asdict(self.config) | facts)

    @classmethod
    def load(cls, folder: Path) -> tuple[Policy, dict[str, Any]]:
        """A policy, and what else was told of it."""
        if not (folder / CONFIG).is_file() or not (folder / WEIGHTS).is_file():
            raise ValueError(f"{folder} holds no policy: train one with regard train predict --env CartPole-v1")
        told = read_json(folder / CONFIG)
        sizes = {name: told.pop(name, None) for name in PolicyConfig.__dataclass_fields__}
        for name, size in sizes.items():
            if not fits(size, int) or not 1 <= size < 2**20:
                raise ValueError(f"{folder / CONFIG}: {name} must be a size, not {size!r:.80}")
        policy = cls(PolicyConfig(**sizes))
        try:
            stored, wanted = load_file(folder / WEIGHTS), policy.state_dict()
        except SafetensorError as error:
            raise ValueError(f"{folder / WEIGHTS} cannot be read: {error}") from None
        for name in sorted({*stored, *wanted}):
            if name not in stored or name not in wanted or stored[name].shape != wanted[name].shape:
                raise ValueError(f"{folder / WEIGHTS}: {name} is not what {folder / CONFIG} asks for")
        policy.load_state_dict(stored)
        return policy, told


def is_policy(folder: Path) -> bool:
    """Whether a folder holds a policy and no model, as regard imitate leaves it."""
    file = folder / CONFIG
    return file.is_file() and not (folder / "task.json").exists() and "env" in read_json(file)


def layers(width: int, hidden: int, out: int, gain: float) -> nn.Sequential:
    made = nn.Sequential(
        nn.Linear(width, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, out)
    )
    for layer in made:
        if isinstance(layer, nn.Linear):
            nn.init.orthogonal_(layer.weight, gain if layer is made[-1] else 2**0.5)
            nn.init.zeros_(layer.bias)
    return made


def seen_at(observations: Floats, actions: Ints, memory: int, times: Ints) -> Seen:
    """What was seen at some times of one episode: (N,M,O) and (N,M-1)."""
    places = times[:, None] + np.arange(1 - memory, 1)  # (N,M), below 0 before the beginning
    before = places[:, :-1]
    deeds = actions[before.clip(0)] if len(actions) else np.zeros(before.shape, np.int64)
    told = np.where(before < 0, NOTHING, deeds)
    return Seen(torch.from_numpy(observations[places.clip(0)]), torch.from_numpy(told))


def newest(past: Past, memory: int) -> Seen:
    """What is seen at the end of an episode so far: (M,O) and (M-1,)."""
    some, deeds = np.stack(past.observations[-memory:]), past.actions[len(past.actions) - memory + 1 :]
    missing = memory - len(some)
    if missing:
        some = np.concatenate([np.repeat(some[:1], missing, 0), some])
        deeds = [NOTHING] * missing + past.actions
    return Seen(torch.from_numpy(some), torch.tensor(deeds, dtype=torch.int64))


def greedy(policy: Policy) -> Player:
    """Always the action that it thinks best."""

    @torch.inference_mode()
    def choose(past: Past) -> int:
        return int(policy(newest(past, policy.config.memory)).logits.argmax())

    return choose


def drawn(policy: Policy, seed: int) -> Player:
    """An action by its chance: what is tried is what is thought good, and now and then something else."""

    @torch.inference_mode()
    def choose(past: Past) -> int:
        below = policy(newest(past, policy.config.memory)).logits.double().softmax(-1).cumsum(-1)
        return int((below[:-1] <= luck(past, seed)).sum())

    return choose
