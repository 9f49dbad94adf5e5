"""An RL session and its run folder: that of any model, and beside it the policy and the episodes.

policy/           the policy: config.json, model.safetensors
episodes.npz      all real episodes, as `read_episodes` reads them
step-N/           the last complete rounds: model, policy, both optimisers, episodes; the environment is replayed
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.optim import Adam

from regard.atomic import fsync, json_bytes, replace_file
from regard.data.env_options import EnvOptions
from regard.data.episodes import Episode, read_episodes, write_episodes
from regard.device import set_num_threads
from regard.hub.folder import write_tensors
from regard.hub.task_config import write_task
from regard.rl.dynamics_model import unfitted_task
from regard.rl.environment import Environment, Trajectory, gymnasium_version
from regard.rl.policy import Policy, PolicyConfig
from regard.rl.ppo import PPOConfig, make_optimizer
from regard.tasks.predict import Forecast
from regard.training.build import make_model
from regard.training.checkpoint import keep_newest, save_folder
from regard.training.loop import Progress, derive_seed
from regard.training.provenance import check_provenance, collect_provenance, comparable_settings, option_flag
from regard.training.run_folder import CHECKPOINT_OVERHEAD, DESCRIPTION_FILES, RunFolder, RunLock, state_tensors
from regard.training.settings import Settings, options

FIRST_STEPS, ROUND_STEPS = 800, 200  # real steps of the first round, and of each that follows
FIRST_FIT_STEPS, FIT_STEPS = 600, 150  # training steps of the model in the first round, and in each that follows
FILE_OPTIONS = (  # options of training from files, which an RL session does not have
    *("data", "valid", "test", "separator", "encoding", "valid_share", "skip_bad"),
    *("from_", "download", "freeze", "vectors", "new_head", "patch_size"),
    *("evals", "eval_examples", "patience", "average_checkpoints"),
)
LENGTH_OPTIONS = ("steps", "epochs", "minutes")
SCALES = ("observation_norm", "reward")  # fields of the task that follow from the episodes


@dataclass
class Session:
    """A session that is ready to start or to resume."""

    settings: Settings
    run: RunFolder
    lock: RunLock
    environment: Environment
    task: Forecast
    progress: Progress
    policy: Policy
    optimizer: Adam
    ppo: PPOConfig = field(default_factory=PPOConfig)
    provenance: dict[str, Any] = field(default_factory=dict)
    trajectories: list[Trajectory] = field(default_factory=list)
    rollout: Iterator[Trajectory] | None = None  # goes on from round to round
    rounds: int = 0  # completed
    mean_return: float = math.nan  # of the episodes of the last round
    predicted_return: float = math.nan  # of the current policy, in imagination
    damaged_saves: list[str] = field(default_factory=list)

    @property
    def env_options(self) -> EnvOptions:
        return env_options_of(self.settings)

    @property
    def schedule(self) -> list[int]:
        """Real steps of each round."""
        return steps_per_round(self.env_options.real_steps)

    @property
    def real_steps(self) -> int:
        return sum(len(trajectory.actions) for trajectory in self.trajectories)

    @property
    def seed(self) -> int:
        return self.settings.train_options.seed

    def round_seed(self, label: str) -> int:
        """A seed for one purpose in this round."""
        return derive_seed(self.seed, int.from_bytes(f"{label} {self.rounds}".encode()))


def env_options_of(settings: Settings) -> EnvOptions:
    values = {name: settings.input_options[name] for name in EnvOptions.__dataclass_fields__}
    return EnvOptions(**values | {"hide": tuple(values["hide"])})


def steps_per_round(total: int) -> list[int]:
    first = min(FIRST_STEPS, total // 2)
    rest = total - first
    return [first, *([ROUND_STEPS] * (rest // ROUND_STEPS)), *([rest % ROUND_STEPS] if rest % ROUND_STEPS else [])]


def open_session(settings: Settings) -> Session:
    """A new session, or the one in the folder as it was after its last complete round."""
    requested_options, run_options = comparable_settings(settings.to_dict()), settings.run_options
    if not run_options.resume:
        reject_file_options(settings)
    folder = Path(run_options.output_dir or f"runs/{settings.task}")
    run = RunFolder(folder) if run_options.resume else RunFolder.new(folder, run_options.overwrite)
    lock = RunLock(folder)
    try:
        if run_options.threads:
            set_num_threads(run_options.threads)
        env_options = env_options_of(settings)
        environment = Environment(str(env_options.env), env_options.hide)
        task = unfitted_task(environment.observation_dim, environment.num_actions)
        steps = FIRST_FIT_STEPS + (len(steps_per_round(env_options.real_steps)) - 1) * FIT_STEPS
        lr = settings.train_options.lr or 0.64 / settings.body["dim"]
        warmup_steps = (
            min(100, steps // 10)
            if settings.train_options.warmup_steps is None
            else settings.train_options.warmup_steps
        )
        train_options = replace(settings.train_options, steps=steps, lr=lr, warmup_steps=warmup_steps)
        settings = replace(settings, train_options=train_options)
        progress = Progress.new(make_model(settings, task), train_options)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(train_options.seed, 0))
            sizes = PolicyConfig(environment.observation_dim, environment.num_actions, env_options.history_length)
            policy = Policy(sizes)
        optimizer = make_optimizer(policy, PPOConfig())
        session = Session(settings, run, lock, environment, task, progress, policy, optimizer)
        run_settings = {**settings.to_dict(), "resume": False, "overwrite": False}
        if run_options.resume:
            resume_session(session, run_settings)
        else:
            run.clear()
            run.describe(progress.model, task, run_settings | {"requested_options": requested_options})
            session.provenance = provenance_of(run_settings, folder)
    except BaseException:
        lock.release()
        run.remove_if_empty()
        raise
    return session


def reject_file_options(settings: Settings) -> None:
    values, defaults = settings.to_dict(), options(settings.task, settings.model, settings.size)
    for name in (*FILE_OPTIONS, *LENGTH_OPTIONS):
        if values[name] != defaults[name].default:
            remedy = "--real-steps sets the length" if name in LENGTH_OPTIONS else "it is for training from files"
            raise ValueError(f"{option_flag(name)} does not go with --env: {remedy}")


def provenance_of(run_settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    # The scales in task.json change from round to round.
    provenance = collect_provenance(run_settings, folder, [name for name in DESCRIPTION_FILES if name != "task.json"])
    return provenance | {"versions": provenance["versions"] | {"gymnasium": gymnasium_version()}}


def save_session(session: Session, episodes: list[Episode]) -> None:
    """Write a checkpoint to resume from, then publish model, policy and episodes."""
    progress, folder = session.progress, session.run.folder
    tensors, policy_tensors = state_tensors(progress), policy_state(session)
    state = {
        "step": progress.step, "position": list(progress.position), "num_skipped": progress.num_skipped,
        "provenance": session.provenance, "rounds": session.rounds, "mean_return": session.mean_return,
        "predicted_return": session.predicted_return, "ongoing": not session.trajectories[-1].done,
        "scales": {name: getattr(session.task, name) for name in SCALES},
    }  # fmt: skip
    save_folder(
        folder,
        f"step-{progress.step}",
        {
            "state.safetensors": lambda file: write_tensors(file, tensors),
            "state.json": lambda file: file.write_bytes(json_bytes(state)),
            "policy.safetensors": lambda file: write_tensors(file, policy_tensors),
            "episodes.npz": lambda file: write_episodes(file, episodes),
        },
        room=sum(tensor.nbytes for tensor in tensors.values()) + CHECKPOINT_OVERHEAD,
    )
    keep_newest(folder, session.settings.run_options.keep)
    publish(session, episodes)


def publish(session: Session, episodes: list[Episode]) -> None:
    """Write model, policy and episodes to the root of the run folder. A model with other scales than its own would
    silently predict something else: task.json is absent while both change, and a folder without it is refused."""
    run, progress, folder, env_options = session.run, session.progress, session.run.folder, session.env_options
    (folder / "task.json").unlink(missing_ok=True)
    fsync(folder)
    with progress.ema.average_parameters() if progress.ema is not None else nullcontext():
        run.publish(progress.model)
    write_task(folder, session.task)
    session.policy.save(folder / "policy", env=env_options.env, hide=list(env_options.hide))
    replace_file(folder / "episodes.npz", lambda file: write_episodes(file, episodes))


def policy_state(session: Session) -> dict[str, Tensor]:
    """The policy and the state of its optimiser."""
    tensors = {f"policy/{name}": tensor for name, tensor in session.policy.state_dict().items()}
    for name, weight in session.policy.named_parameters():
        tensors |= {f"{moment}/{name}": value for moment, value in session.optimizer.state.get(weight, {}).items()}
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def resume_session(session: Session, run_settings: dict[str, Any]) -> None:
    """Restore the last complete round, in the root of the folder too: a crash may have come before `publish` ended."""
    folder, state, session.damaged_saves = session.run.newest_checkpoint()
    session.provenance = provenance_of(run_settings, session.run.folder)
    check_provenance(folder, state["provenance"], session.provenance, session.settings.run_options.allow_changed)
    session.run.restore(session.progress, folder, state)
    session.task = replace(session.task, **state["scales"])
    tensors = load_file(folder / "policy.safetensors")
    policy = {name.removeprefix("policy/"): value for name, value in tensors.items() if name.startswith("policy/")}
    session.policy.load_state_dict(policy)
    for name, weight in session.policy.named_parameters():
        moments = {key.split("/")[0]: value for key, value in tensors.items() if key.endswith(f"/{name}")}
        session.optimizer.state[weight] = {key: value for key, value in moments.items() if key != "policy"}
    episodes = [row for row in read_episodes([folder / "episodes.npz"]) if isinstance(row, Episode)]
    ongoing = [False] * (len(episodes) - 1) + [state["ongoing"]]
    session.trajectories = [Trajectory.from_episode(*pair) for pair in zip(episodes, ongoing, strict=True)]
    session.rounds = state["rounds"]
    session.mean_return, session.predicted_return = state["mean_return"], state["predicted_return"]
    if not session.run.is_finished:
        publish(session, episodes)
