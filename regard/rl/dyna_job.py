"""Dyna (Sutton 1990): learn to act from few real steps, by training the policy inside a learned model.

    collect real steps with a random policy
    every round:   model ← all real episodes    policy ← PPO in the model's imagination    collect real steps

No evaluation episodes select the policy: it is the last one. The seed determines everything random, and an interrupted
run resumes bit-exactly from its last complete round. The run folder is that of any model, and beside it:

policy/           the policy: config.json, model.safetensors
episodes.npz      all real episodes, as `read_episodes` reads them
step-N/           the last complete rounds: model, policy, both optimisers, episodes; the environment is replayed
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.optim import Adam

from regard.atomic import fsync, replace_file
from regard.data.episodes import Episode
from regard.data.observation_norm import ObservationNorm
from regard.data.rows import Row
from regard.hub.folder import write_tensors
from regard.hub.task_config import write_task
from regard.modalities.trajectory.episode_files import read_episodes, write_episodes
from regard.modalities.trajectory.preprocessor import TrajectoryPreprocessor
from regard.options import option_flag
from regard.rl.dyna_card import dyna_card
from regard.rl.dynamics_model import BurnInTask, ReplayBuffer, as_transition_model, refit_scales, unfitted_task
from regard.rl.environment import Environment, Trajectory, gymnasium_version, random_policy, rollout
from regard.rl.imagine import imagine, predicted_return, sample_starts, start_states
from regard.rl.policy import Policy, PolicyConfig, sampling_policy
from regard.rl.ppo import PPOConfig, make_optimizer, ppo_update
from regard.seeds import derive_seed
from regard.tasks.predict import EnvOptions, Forecast
from regard.training.build import make_model
from regard.training.job import Job
from regard.training.loop import Progress, Step, num_parameters, train_steps
from regard.training.passes import default_dtype
from regard.training.provenance import Provenance
from regard.training.run_folder import DESCRIPTION_FILES, RunFolder, RunLock, metrics_line
from regard.training.settings import Settings, options

FIRST_STEPS, ROUND_STEPS = 800, 200  # real steps of the first round, and of each that follows
FIRST_FIT_STEPS, FIT_STEPS = 600, 150  # training steps of the model in the first round, and in each that follows
POLICY_UPDATES = 12  # in a round
IMAGINED_ROWS, HORIZON = 128, 48  # rollouts of an update, and their steps
INITIAL_SHARE = 1 / 3  # of them start in an initial state of an episode
EVAL_ROWS = 16  # rollouts that estimate the return of the policy
MAX_EVAL_STEPS = 1000  # their length, unless the environment has a shorter time limit
FILE_OPTIONS = (  # options of training from files
    *("data", "valid", "test", "separator", "encoding", "valid_share", "skip_bad"),
    *("from_", "download", "freeze", "vectors", "new_head", "patch_size"),
    *("evals", "eval_examples", "patience", "average_checkpoints"),
)
LENGTH_OPTIONS = ("steps", "epochs", "minutes")
SCALES = ("observation_norm", "reward")  # fields of task.json that follow from the episodes
RESTORED = ("rounds", "mean_return", "predicted_return")  # attributes that a checkpoint holds


class DynaJob(Job):
    task: Forecast
    environment: Environment
    policy: Policy
    optimizer: Adam  # of the policy
    fixed_files = tuple(name for name in DESCRIPTION_FILES if name != "task.json")  # whose scales change every round

    def __init__(self, settings: Settings, run: RunFolder, lock: RunLock):
        super().__init__(settings, run, lock)
        self.env_options = settings.input_options[EnvOptions]
        self.schedule = steps_per_round(self.env_options.real_steps)  # real steps of each round
        self.seed = settings.train_options.seed
        self.ppo = PPOConfig()
        self.trajectories: list[Trajectory] = []
        self.rollout: Iterator[Trajectory] | None = None  # goes on from round to round
        self.rounds = 0  # completed
        self.mean_return = math.nan  # of the episodes of the last round
        self.predicted_return = math.nan  # of the current policy, in imagination

    @property
    def real_steps(self) -> int:
        return sum(len(trajectory.actions) for trajectory in self.trajectories)

    @property
    def episodes(self) -> list[Episode]:
        return [trajectory.to_episode() for trajectory in self.trajectories]

    def prepare(self) -> None:
        if not self.is_resumed:
            reject_file_options(self.settings)
        self.environment = Environment(str(self.env_options.env), self.env_options.hide)
        sizes = self.environment.observation_dim, self.environment.num_actions
        self.task = unfitted_task(*sizes)
        train_options, steps = self.settings.train_options, FIRST_FIT_STEPS + (len(self.schedule) - 1) * FIT_STEPS
        model = make_model(self.settings, self.task)
        lr = train_options.lr or 0.64 / model.body.config.dim
        warmup_steps = min(100, steps // 10) if train_options.warmup_steps is None else train_options.warmup_steps
        dtype = train_options.dtype or default_dtype(next(model.parameters()).device)
        train_options = replace(train_options, steps=steps, lr=lr, warmup_steps=warmup_steps, dtype=dtype)
        self.settings = replace(self.settings, train_options=train_options)
        self.progress = Progress.new(model, train_options)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(self.seed, 0))
            self.policy = Policy(PolicyConfig(*sizes, self.env_options.history_length))
        self.optimizer = make_optimizer(self.policy, self.ppo)
        if self.is_resumed:
            self.restore(*self.open_checkpoint())

    def current_provenance(self) -> Provenance:
        provenance = super().current_provenance()
        return provenance | {"versions": provenance["versions"] | {"gymnasium": gymnasium_version()}}

    def restore(self, checkpoint: Path, state: dict[str, Any]) -> None:
        """Restore the last complete round, in the root of the folder too: a crash may have come before `publish`
        ended."""
        self.run.restore(self.progress, checkpoint, state)
        for name in RESTORED:
            setattr(self, name, state[name])
        norm, reward = (state["scales"][name] for name in SCALES)
        preprocessor = replace(self.task.preprocessor, norm=ObservationNorm(**norm), reward=tuple(reward))
        self.task = replace(self.task, preprocessor=preprocessor)
        tensors = load_file(checkpoint / "policy.safetensors")
        self.policy.load_state_dict({name: tensors[f"policy/{name}"] for name in self.policy.state_dict()})
        for name, weight in self.policy.named_parameters():
            moments = {key.split("/")[0]: value for key, value in tensors.items() if key.endswith(f"/{name}")}
            self.optimizer.state[weight] = {key: value for key, value in moments.items() if key != "policy"}
        rows = [row for row in read_episodes([checkpoint / "episodes.npz"]) if isinstance(row, Row)]
        ongoing = rows[-1] if state["ongoing"] else None
        self.trajectories = [Trajectory.from_episode(row.input, row.line - 1, row is ongoing) for row in rows]
        if not self.run.is_finished:
            self.publish()

    def policy_state(self) -> dict[str, Tensor]:
        """The policy and the state of its optimiser."""
        tensors = {f"policy/{name}": tensor for name, tensor in self.policy.state_dict().items()}
        for name, weight in self.policy.named_parameters():
            tensors |= {f"{moment}/{name}": value for moment, value in self.optimizer.state.get(weight, {}).items()}
        return {name: tensor.contiguous() for name, tensor in tensors.items()}

    def save(self) -> Path:
        """Write a checkpoint of the last complete round, then publish model, policy and episodes."""
        scales, tensors = self.task.preprocessor.save(self.run.folder), self.policy_state()
        state: dict[str, object] = {name: getattr(self, name) for name in RESTORED}
        state["ongoing"] = not self.trajectories[-1].done
        state["scales"] = {name: scales[name] for name in SCALES}
        files = {
            "policy.safetensors": lambda file: write_tensors(file, tensors),
            "episodes.npz": lambda file: write_episodes(file, self.episodes),
        }
        checkpoint = self.write_checkpoint(state, self.settings.run_options.keep, files)
        self.publish()
        return checkpoint

    def publish(self) -> None:
        """Write model, policy and episodes to the root of the run folder. A model with other scales than its own would
        silently predict something else: task.json is absent while both change, and a folder without it is refused."""
        folder = self.run.folder
        (folder / "task.json").unlink(missing_ok=True)
        fsync(folder)
        with self.progress.averaged():
            self.run.publish(self.progress.model)
        write_task(folder, self.task)
        self.policy.save(folder / "policy", env=self.env_options.env, hide=list(self.env_options.hide))
        replace_file(folder / "episodes.npz", lambda file: write_episodes(file, self.episodes))

    def steps_to_end(self) -> Iterator[Step]:
        """Round after round; the last step of each has its scores."""
        while self.rounds < len(self.schedule):
            yield from self.run_round()
        card = dyna_card(
            self.env_options,
            self.seed,
            model_parameters=num_parameters(self.progress.model),
            policy_parameters=num_parameters(self.policy),
            steps=self.real_steps,
            episodes=len(self.trajectories),
            mean_return=self.mean_return,
            predicted_return=self.predicted_return,
        )
        replace_file(self.run.folder / "README.md", card.encode())

    def run_round(self) -> Iterator[Step]:
        start_time = time.perf_counter()
        finished = self.collect_steps(self.schedule[self.rounds])
        scores = {"real_steps": float(self.real_steps), "episodes": float(len(self.trajectories))}
        scores |= {"mean_return": self.mean_return, "finished_episodes": float(finished)}
        if not math.isnan(self.predicted_return):  # there is none for the random policy
            scores["predicted_return"] = self.predicted_return
        last: Step | None = None
        for step in self.fit_model():
            if last:
                yield last
            last = step
        self.improve_policy()
        self.rounds += 1
        assert last
        round_log = {"round": self.rounds, **scores, "next_predicted_return": self.predicted_return}
        self.run.log(step=last.number, **round_log, round_seconds=round(time.perf_counter() - start_time, 3))
        self.save()
        yield replace(last, scores=scores)

    def collect_steps(self, steps: int) -> int:
        """Take real steps. Sets the mean return of the episodes that finished, and returns their number; if none
        finished, it is the return so far of the current one."""
        self.rollout = self.rollout or self.start_rollout()
        visited: list[Trajectory] = []
        for trajectory in islice(self.rollout, steps):
            if not self.trajectories or trajectory is not self.trajectories[-1]:
                self.trajectories.append(trajectory)
            if not visited or trajectory is not visited[-1]:
                visited.append(trajectory)
        finished = [trajectory for trajectory in visited if trajectory.done]
        self.mean_return = float(np.mean([trajectory.episode_return for trajectory in finished or visited]))
        return len(finished)

    def start_rollout(self) -> Iterator[Trajectory]:
        """Random actions in the first round, then the current policy; an episode may span rounds."""
        seed = derive_seed(self.seed, 1)
        explore, act = random_policy(self.environment, seed), sampling_policy(self.policy, seed)

        def policy_fn(trajectory: Trajectory) -> int:
            return act(trajectory) if self.rounds else explore(trajectory)

        last = self.trajectories[-1] if self.trajectories else None
        return rollout(self.environment, policy_fn, derive_seed(self.seed, 2), last)

    def fit_model(self) -> Iterator[Step]:
        """Train the model on all real episodes."""
        self.task = refit_scales(self.task, self.progress, self.episodes)
        examples = ReplayBuffer(self.episodes, self.progress.model.body.config.context, 2)
        steps = train_steps(self.progress, BurnInTask.from_task(self.task), examples, self.settings.train_options)
        for step in islice(steps, FIT_STEPS if self.rounds else FIRST_FIT_STEPS):
            self.run.log(**metrics_line(step))
            yield step

    def improve_policy(self) -> None:
        """Train the policy by PPO on imagined rollouts, then estimate its return by longer ones."""
        policy, episodes = self.policy, self.episodes
        policy.fit_scales(episodes, self.ppo.discount)
        transition_model = as_transition_model(self.task, self.progress.model.eval())
        starts = start_states(episodes, max(transition_model.context, policy.config.history_length))
        with self.progress.averaged():
            for number in range(POLICY_UPDATES):
                seed = self.round_seed(f"practise {number}")
                update_starts = sample_starts(starts, IMAGINED_ROWS, INITIAL_SHARE, seed)
                rollouts = imagine(transition_model, policy, update_starts, HORIZON, seed)
                ppo_update(policy, self.optimizer, rollouts, self.ppo, seed)
            seed = self.round_seed("promise")
            steps = min(self.environment.max_episode_steps or MAX_EVAL_STEPS, MAX_EVAL_STEPS)
            eval_starts = sample_starts(starts, EVAL_ROWS, 1.0, seed)
            self.predicted_return = predicted_return(imagine(transition_model, policy, eval_starts, steps, seed))

    def round_seed(self, label: str) -> int:
        """A seed for one purpose in this round."""
        return derive_seed(self.seed, int.from_bytes(f"{label} {self.rounds}".encode()))


def steps_per_round(total: int) -> list[int]:
    first = min(FIRST_STEPS, total // 2)
    rest = total - first
    return [first, *([ROUND_STEPS] * (rest // ROUND_STEPS)), *([rest % ROUND_STEPS] if rest % ROUND_STEPS else [])]


def reject_file_options(settings: Settings) -> None:
    values, defaults = settings.to_dict(), options(settings.task, settings.model, settings.size, settings.modality)
    for name in (*FILE_OPTIONS, *LENGTH_OPTIONS):
        if name in defaults and values[name] != defaults[name].default:
            remedy = "--real-steps sets the length" if name in LENGTH_OPTIONS else "it is for training from files"
            raise ValueError(f"{option_flag(name)} does not go with --env: {remedy}")
    if settings.modality != TrajectoryPreprocessor.modality:
        raise ValueError(f"--modality {settings.modality} does not go with --env: it is for training from files")
