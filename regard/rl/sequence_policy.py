"""A policy made of a `decide` model: behaviour cloning, or a Decision Transformer (Chen et al. 2021), that acts.

aₜ = argmax p(a | the last `context` steps), or a sample of p^(1/temperature)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from regard.data.episodes import Episode
from regard.parts.heads import Model
from regard.rl.environment import Environment, Trajectory, action_noise, start_episode
from regard.tasks.decide import Decide, DecideOptions, returns_to_go


class SequencePolicy:
    """A PolicyFn: `policy(trajectory)` is an action; `act` chooses one for each of several trajectories."""

    def __init__(self, model: Model, task: Decide, options: DecideOptions, seed: int = 1):
        self.model, self.task, self.temperature = model.eval(), task, options.temperature
        self.target_return, self.seed = task.resolve_target_return(options), seed

    def __call__(self, trajectory: Trajectory) -> int:
        return self.act([trajectory])[0]

    @torch.inference_mode()
    def act(self, trajectories: Sequence[Trajectory]) -> list[int]:
        """One action for each trajectory; all have the same length."""
        task, context = self.task, self.model.body.config.context
        inputs, previous_actions = [], []
        for trajectory in trajectories:
            conditions = returns_to_go(np.array(trajectory.rewards, np.float32), self.target_return)[-context:]
            inputs.append(task.normalize_observations(np.stack(trajectory.observations[-context:]), conditions))
            previous_actions.append([task.num_actions, *trajectory.actions][-context:])
        log_probs = task.action_log_probs(self.model, np.stack(inputs), np.array(previous_actions))  # (B,A)
        if not self.temperature:
            return log_probs.argmax(-1).tolist()
        cdf = (log_probs.double() / self.temperature).softmax(-1).cumsum(-1)[:, :-1]
        rows = zip(cdf, trajectories, strict=True)
        return [int((row <= action_noise(trajectory, self.seed)).sum()) for row, trajectory in rows]


def play_in_parallel(environments: Sequence[Environment], policy: SequencePolicy, seed: int) -> list[Episode]:
    """One episode in each environment, all in one batch: the same episodes as one after the other, and faster."""
    for environment in environments:
        check_spaces(environment, policy.task)
    pairs = [(environment, start_episode(environment, seed, i)) for i, environment in enumerate(environments)]
    while active := [(environment, trajectory) for environment, trajectory in pairs if not trajectory.done]:
        for (environment, trajectory), action in zip(active, policy.act([pair[1] for pair in active]), strict=True):
            trajectory.append(action, environment.step(action))
    return [trajectory.to_episode() for _, trajectory in pairs]


def check_spaces(environment: Environment, task: Decide) -> None:
    """Refuse an environment whose observations or actions differ from the training data's."""
    shape = task.preprocessor.norm.shape
    if [environment.observation_dim] != shape or environment.num_actions != task.num_actions:
        raise ValueError(
            f"{environment.name} has {environment.observation_dim} observation entries and {environment.num_actions} "
            f"actions, but this model was trained on shape {shape} and {task.num_actions} actions"
        )
