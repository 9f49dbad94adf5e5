"""Dyna (Sutton 1990): learn to act from few real steps, by training the policy inside a learned model.

    collect real steps with a random policy
    every round:   model ← all real episodes    policy ← PPO in the model's imagination    collect real steps

No evaluation episodes select the policy: it is the last one. The seed determines everything random, and an interrupted
run resumes bit-exactly from its last complete round.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import islice
from os import PathLike
from typing import Any

import numpy as np

from regard.atomic import replace_file
from regard.data.episodes import Episode
from regard.rl.dynamics_model import BurnInTask, ReplayBuffer, as_transition_model, refit_scales
from regard.rl.environment import Trajectory, random_policy, rollout
from regard.rl.imagine import imagine, predicted_return, sample_starts, start_states
from regard.rl.policy import sampling_policy
from regard.rl.ppo import ppo_update
from regard.rl.session import FIRST_FIT_STEPS, FIT_STEPS, Session, open_session, save_session
from regard.rl.session_card import session_card
from regard.training import job as file_training
from regard.training.loop import NonFiniteError, Step, derive_seed, train_steps
from regard.training.run_folder import metrics_line
from regard.training.settings import make_settings

Names = str | PathLike[str] | Sequence[str | PathLike[str]]  # of one file or several
POLICY_UPDATES = 12  # in a round
IMAGINED_ROWS, HORIZON = 128, 48  # rollouts of an update, and their steps
INITIAL_SHARE = 1 / 3  # of them start in an initial state of an episode
EVAL_ROWS = 16  # rollouts that estimate the return of the policy
MAX_EVAL_STEPS = 1000  # their length, unless the environment has a shorter time limit


def train(
    task: str = "translate",
    *,
    model: str | None = None,
    size: str | None = None,
    data: Names | None = None,
    valid: Names | None = None,
    test: Names | None = None,
    fields: Sequence[str] | None = None,
    output_dir: str | PathLike[str] | None = None,
    from_: str | PathLike[str] | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    minutes: float | None = None,
    batch_tokens: int | None = None,
    lr: float | None = None,
    seed: int | None = None,
    evals: int | None = None,
    patience: int | None = None,
    device: str | None = None,
    threads: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    **options: Any,
) -> Iterator[Step]:
    """Train from files, or with `env` in an environment, and yield every step; the run folder is complete after the
    last one.

        for step in regard.train("tag", data="train.conllu", size="mini", epochs=20):
            print(step.number, step.loss, step.scores)

    task           translate, write, fill, classify, regress, tag, answer, embed, match, predict or decide
    model, size    the model and its named size; `regard models` lists them. Each task has a default
    data           training file or files; default: the data that ships with the task
    valid, test    validation files (default: a share of the data), and test files for the finished model
    fields         columns or keys to read: the inputs, then the target
    output_dir     the run folder; default runs/TASK
    from_          initialise from this model: a folder, or a name on the hub
    steps, epochs, minutes     length of the training: one of the three; default 3 minutes
    batch_tokens, lr, seed     tokens of a batch, the peak learning rate, the random seed
    evals, patience            number of validations; how many without improvement stop the training
    device, threads            cpu, cuda or mps; processor threads, default all cores
    resume, overwrite          resume the run in `output_dir`, or replace it

    `options` are all others of the task and the model, by the names that `regard train TASK --help` lists, with _ for
    each -. None leaves an option at its default. A wrong name or value raises ValueError at once.
    """
    explicit: dict[str, Any] = {
        "data": data, "valid": valid, "test": test, "fields": fields, "output_dir": output_dir, "from_": from_,
        "steps": steps, "epochs": epochs, "minutes": minutes, "batch_tokens": batch_tokens, "lr": lr, "seed": seed,
        "evals": evals, "patience": patience, "device": device, "threads": threads,
        "resume": resume or None, "overwrite": overwrite or None,
    }  # fmt: skip
    explicit_options = {name: value for name, value in explicit.items() if value is not None}
    settings = make_settings(task, model, size, **explicit_options, **options)
    if settings.input_options.get("env"):
        return run_session(open_session(settings))
    return file_training.run_training(file_training.plan_run(file_training.prepare(settings)))


def run_session(session: Session) -> Iterator[Step]:
    """Round after round; the last step of each has its scores."""
    try:
        while session.rounds < len(session.schedule):
            yield from run_round(session)
        replace_file(session.run.folder / "README.md", session_card(session).encode())
    except NonFiniteError as error:
        raise FloatingPointError(f"{error}: take a smaller --lr") from None
    finally:
        session.lock.release()


def run_round(session: Session) -> Iterator[Step]:
    start_time = time.perf_counter()
    session.mean_return, finished = collect_steps(session, session.schedule[session.rounds])
    scores = {
        "real_steps": float(session.real_steps), "episodes": float(len(session.trajectories)),
        "mean_return": session.mean_return, "finished_episodes": float(finished),
    }  # fmt: skip
    if not math.isnan(session.predicted_return):  # there is none for the random policy
        scores["predicted_return"] = session.predicted_return
    episodes = [trajectory.to_episode(session.environment.name) for trajectory in session.trajectories]
    last: Step | None = None
    for step in fit_model(session, episodes):
        if last:
            yield last
        last = step
    improve_policy(session, episodes)
    session.rounds += 1
    assert last
    round_log = {"round": session.rounds, **scores, "next_predicted_return": session.predicted_return}
    session.run.log(step=last.number, **round_log, round_seconds=round(time.perf_counter() - start_time, 3))
    save_session(session, episodes)
    yield replace(last, scores=scores)


def collect_steps(session: Session, steps: int) -> tuple[float, int]:
    """Take real steps. Returns the mean return of the episodes that finished and their number; if none finished, the
    return so far of the current one."""
    session.rollout = session.rollout or session_rollout(session)
    visited: list[Trajectory] = []
    for trajectory in islice(session.rollout, steps):
        if not session.trajectories or trajectory is not session.trajectories[-1]:
            session.trajectories.append(trajectory)
        if not visited or trajectory is not visited[-1]:
            visited.append(trajectory)
    finished = [trajectory for trajectory in visited if trajectory.done]
    return float(np.mean([trajectory.episode_return for trajectory in finished or visited])), len(finished)


def session_rollout(session: Session) -> Iterator[Trajectory]:
    """Random actions in the first round, then the current policy; an episode may span rounds."""
    seed = derive_seed(session.seed, 1)
    explore, act = random_policy(session.environment, seed), sampling_policy(session.policy, seed)

    def policy_fn(trajectory: Trajectory) -> int:
        return act(trajectory) if session.rounds else explore(trajectory)

    return rollout(
        session.environment,
        policy_fn,
        derive_seed(session.seed, 2),
        session.trajectories[-1] if session.trajectories else None,
    )


def fit_model(session: Session, episodes: list[Episode]) -> Iterator[Step]:
    """Train the model on all real episodes."""
    session.task = refit_scales(session.task, session.progress, episodes)
    train_options, config = session.settings.train_options, session.progress.model.body.config
    examples, task = ReplayBuffer(episodes, config.context, 2), BurnInTask.from_task(session.task)
    steps = FIT_STEPS if session.rounds else FIRST_FIT_STEPS
    for step in islice(train_steps(session.progress, task, examples, train_options), steps):
        session.run.log(**metrics_line(step))
        yield step


def improve_policy(session: Session, episodes: list[Episode]) -> None:
    """Train the policy by PPO on imagined rollouts, then estimate its return by longer ones."""
    policy, ppo, ema = session.policy, session.ppo, session.progress.ema
    policy.fit_scales(episodes, ppo.discount)
    transition_model = as_transition_model(session.task, session.progress.model.eval())
    starts = start_states(episodes, max(transition_model.context, policy.config.history_length))
    with ema.average_parameters() if ema is not None else nullcontext():
        for number in range(POLICY_UPDATES):
            seed = session.round_seed(f"practise {number}")
            update_starts = sample_starts(starts, IMAGINED_ROWS, INITIAL_SHARE, seed)
            ppo_update(
                policy, session.optimizer, imagine(transition_model, policy, update_starts, HORIZON, seed), ppo, seed
            )
        seed = session.round_seed("promise")
        steps = min(session.environment.max_episode_steps or MAX_EVAL_STEPS, MAX_EVAL_STEPS)
        eval_starts = sample_starts(starts, EVAL_ROWS, 1.0, seed)
        session.predicted_return = predicted_return(imagine(transition_model, policy, eval_starts, steps, seed))
