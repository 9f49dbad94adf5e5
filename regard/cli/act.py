"""Reinforcement learning in `regard train` and `regard run`: Dyna rounds, and episodes in the real environment."""

from __future__ import annotations

import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regard.cli.interrupts import finished_message, resume_command, stop_on_signal
from regard.data.episodes import Floats
from regard.loaded_model import LoadedModel
from regard.rl.cartpole import make_environment, record_states
from regard.rl.dyna_job import DynaJob
from regard.rl.environment import Environment, PolicyFn, play_episodes, save_record
from regard.rl.policy import CONFIG, Policy, greedy_policy, is_policy
from regard.rl.sequence_policy import SequencePolicy, check_spaces
from regard.tasks.decide import Decide, DecideOptions
from regard.training.loop import Step, num_parameters
from regard.training.settings import Settings
from regard.training.tracking import track
from regard.validate import check_fields, matches_type

FRAME_SECONDS = 0.02  # pause after each frame drawn on a terminal


def train_policy(settings: Settings) -> int:
    """Train in an environment. A first Ctrl-C or SIGTERM stops the run and keeps the last complete round."""
    job = DynaJob.open(settings)
    if job.is_finished:
        job.lock.release()
        print(finished_message(job.run.folder))
        return 0
    job.plan()
    print_job(job)
    with stop_on_signal("stopping; complete rounds are saved") as stop:
        for step in track(job):
            if step.scores:
                print(f"round {job.rounds}/{len(job.schedule)}  {format_round(step)}", flush=True)
            if stop:
                return report_interrupt(job, stop.exit_code)
    draw_returns(job)
    print(f"predicted return of the last policy: {job.predicted_return:.1f}. In {job.environment.name} itself:")
    print(f"  regard run {shlex.quote(str(job.run.folder))} --play")
    return 0


def print_job(job: DynaJob) -> None:
    for damage in job.damaged_saves:
        print(f"skipped a damaged checkpoint: {damage}")
    environment, s = job.environment, job.settings
    print(f"{environment.name}: {environment.observation_dim} observation entries, {environment.num_actions} actions")
    if environment.note:
        print(environment.note)
    sizes = f"{num_parameters(job.progress.model):,} parameters, its policy {num_parameters(job.policy):,}"
    print(f"{s.model} {s.size} with {sizes}; {job.env_options.real_steps:,} real steps, --seed {job.seed}")
    if job.rounds:
        print(f"resuming after round {job.rounds}, {job.real_steps:,} real steps")


def format_round(step: Step) -> str:
    scores = step.scores
    steps = f"real steps {scores['real_steps']:,.0f} in {scores['episodes']:.0f} episodes  model loss {step.loss:.3f}"
    predicted = f"predicted {scores['predicted_return']:.1f}" if "predicted_return" in scores else "random policy"
    so_far = "" if scores["finished_episodes"] else " so far"
    return f"{steps}  return: {predicted}, real {scores['mean_return']:.1f}{so_far}"


def report_interrupt(job: DynaJob, code: int) -> int:
    """Print the last complete round, and the command that resumes."""
    folder = job.run.folder
    if not job.rounds:
        print(f"\nstopped before the first round was complete; the same command starts {folder} again", flush=True)
        return code
    draw_returns(job)
    message = f"stopped; {folder} is saved as it was after round {job.rounds}. Resume with:"
    print(f"\n{message}\n  {resume_command(job.settings.task, folder)}", flush=True)
    return code


def draw_returns(job: DynaJob) -> None:
    from regard.view.training_history import save_return_curves

    save_return_curves(job.run.metrics(), job.run.folder / "returns.png")


@dataclass(frozen=True)
class PlayOptions:
    """How long to act in an environment, and what to record."""

    episodes: int = 20  # with --play: number of episodes
    play_seed: int = 1  # with --play: random seed of the initial states and of sampled actions
    record: str | None = None  # with --play: write the episodes to this .npz or .jsonl file
    gif: str | None = None  # with --play: write the first episode of a CartPole as an animation

    def __post_init__(self) -> None:
        check_fields(
            self,
            episodes=(1 <= self.episodes <= 10**6, "at least 1, and at most 1,000,000"),
            play_seed=(0 <= self.play_seed < 2**63, "0 or more, and below 2^63"),
            record=(not self.record or self.record.endswith((".npz", ".jsonl")), "a .npz or .jsonl file"),
            gif=(not self.gif or self.gif.endswith(".gif"), "a .gif file"),
        )


def play_policy(folder: Path, options: PlayOptions) -> int:
    """Play a policy folder, or the policy of a run, in the environment that it was trained in."""
    folder = folder if is_policy(folder) else folder / "policy"
    policy, metadata = Policy.load(folder)
    name, hide = metadata.get("env"), metadata.get("hide", [])
    if not matches_type(name, str) or not matches_type(hide, list[int]):
        raise ValueError(f"{folder / CONFIG}: env must name an environment, and hide must list indices: restore them")
    return play(make_environment(name, tuple(hide)), greedy_policy(policy), options)


def play_sequence_policy(loaded: LoadedModel, decoding: DecideOptions, options: PlayOptions) -> int:
    """Play a `decide` model in a gymnasium environment or in the bundled CartPole."""
    task, environment = loaded.task, make_environment(decoding.env)
    assert isinstance(task, Decide)
    check_spaces(environment, task)
    return play(environment, SequencePolicy(loaded.model, task, decoding, options.play_seed), options)


def play(environment: Environment, policy_fn: PolicyFn, options: PlayOptions) -> int:
    """Print each return, then the mean. A terminal shows the first episode of a CartPole. A first Ctrl-C keeps the
    episodes so far."""
    states: list[Floats] = []  # of the first episode
    if options.gif and not environment.is_cartpole:
        raise ValueError(f"--gif draws CartPole only, not {environment.name}: leave it out")
    for file in filter(None, (options.record, options.gif)):
        if not Path(file).parent.is_dir():
            raise ValueError(f"{file}: the folder {Path(file).parent} does not exist: create it, or choose another")
    if environment.note:
        print(environment.note, flush=True)
    show = draw_state if environment.is_cartpole and sys.stdout.isatty() else None
    recorder, episodes = record_states(environment, policy_fn, states, show), []
    with stop_on_signal("finishing this episode") as stop:
        for episode in play_episodes(environment, recorder, options.episodes, options.play_seed):
            episodes.append(episode)
            number, steps = len(episodes), len(episode.actions)
            print(f"episode {number}: {episode.episode_return:g} in {steps} steps", flush=True)
            if stop:
                break
    returns = np.array([episode.episode_return for episode in episodes])
    print(f"mean {returns.mean():.1f}, worst {returns.min():g}, best {returns.max():g} of {len(returns)} episodes")
    if options.record:
        save_record(options.record, episodes)
        print(f"wrote episodes {options.record}")
    if options.gif:
        from regard.view.render_cartpole import animate

        animate(states, options.gif)
        print(f"wrote the first episode {options.gif}")
    return stop.exit_code if stop else 0


def draw_state(state: Floats) -> None:
    from regard.view.render_cartpole import as_text

    lines = as_text(state)
    print("\n".join(lines) + f"\033[{len(lines) - 1}A\r", end="", flush=True)
    time.sleep(FRAME_SECONDS)
