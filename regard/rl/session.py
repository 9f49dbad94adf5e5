"""A run of somebody who acts, and its folder: that of any model, and beside it the policy and what was lived.

policy/           what it does: config.json, model.safetensors
episodes.npz      what was lived, as `read_episodes` reads it
step-N/           the last whole rounds: model, policy, both optimisers, episodes; the world is lived again up to there
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

from regard.atomic import as_json, flush, replace_file
from regard.data.episodes import Episode, read_episodes, write_episodes
from regard.data.experience import Experience
from regard.device import use_threads
from regard.hub.folder import write_tensors
from regard.purpose import write_task
from regard.rl.dynamics_model import unscaled
from regard.rl.environment import Environment, Past, edition
from regard.rl.policy import Policy, PolicyConfig
from regard.rl.ppo import PPO, optimizer_of
from regard.tasks.predict import Predict
from regard.training.begin import make_model
from regard.training.changes import flag, made_with, plain, refuse_changes
from regard.training.loop import Progress, number_from
from regard.training.run import DESCRIPTION, SPARE, Lock, Run, tensors_of
from regard.training.save import keep_newest, save_folder
from regard.training.settings import Settings, options

FIRST, ROUND = 800, 200  # real steps before the model first learns, and between two rounds
FIT, REFIT = 600, 150  # steps of the model's in the first round, and in each that follows
FOR_FILES = (  # options that mean nothing to somebody who acts
    *("data", "valid", "test", "separator", "encoding", "held_out", "skip_bad"),
    *("from_", "download", "freeze", "vectors", "new_head", "patch"),
    *("checks", "check_examples", "patience", "average_last"),
)
LENGTHS = ("steps", "epochs", "minutes")
SCALES = ("sensed", "reward")  # of a task: they follow from what was lived


@dataclass
class Life:
    """A run that is ready to start, or to go on."""

    settings: Settings
    run: Run
    lock: Lock
    environment: Environment
    task: Predict
    progress: Progress
    policy: Policy
    optimizer: Adam
    asked: dict[str, Any]
    how: PPO = field(default_factory=PPO)
    made: dict[str, Any] = field(default_factory=dict)
    pasts: list[Past] = field(default_factory=list)
    lives: Iterator[Past] | None = None  # what happens next
    rounds: int = 0  # done
    obtained: float = math.nan  # the return of the episodes in the last round
    expected: float = math.nan  # that of the policy as it is now, in imagination
    troubles: list[str] = field(default_factory=list)  # saves that could not be used

    @property
    def experience(self) -> Experience:
        return experience_of(self.settings)

    @property
    def plan(self) -> list[int]:
        return real_steps(self.experience.real_steps)

    @property
    def lived(self) -> int:
        return sum(len(past.actions) for past in self.pasts)

    @property
    def seed(self) -> int:
        return self.settings.plan.seed

    def draw(self, what: str) -> int:
        """A seed for something in this round that nothing else shares."""
        return number_from(self.seed, int.from_bytes(f"{what} {self.rounds}".encode()))


def experience_of(settings: Settings) -> Experience:
    told = {name: settings.reading[name] for name in Experience.__dataclass_fields__}
    return Experience(**told | {"hide": tuple(told["hide"])})


def real_steps(total: int) -> list[int]:
    """Of each round."""
    first = min(FIRST, total // 2)
    rest = total - first
    return [first, *([ROUND] * (rest // ROUND)), *([rest % ROUND] if rest % ROUND else [])]


def prepare(settings: Settings) -> Life:
    asked, keeping = plain(settings.flat()), settings.keeping
    if not keeping.resume:
        refuse_others(settings)
    folder = Path(keeping.out or f"runs/{settings.task}")
    run = Run(folder) if keeping.resume else Run.new(folder, keeping.overwrite)
    lock = Lock(folder)
    try:
        if keeping.threads:
            use_threads(keeping.threads)
        experience = experience_of(settings)
        environment = Environment(str(experience.env), experience.hide)
        task = unscaled(environment.observation, environment.actions)
        steps = FIT + (len(real_steps(experience.real_steps)) - 1) * REFIT
        rate = settings.plan.rate or 0.64 / settings.body["dim"]
        warmup = min(100, steps // 10) if settings.plan.warmup is None else settings.plan.warmup
        plan = replace(settings.plan, steps=steps, rate=rate, warmup=warmup)
        settings = replace(settings, plan=plan)
        progress = Progress.new(make_model(settings, task), plan)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(number_from(plan.seed, 0))
            sizes = PolicyConfig(environment.observation, environment.actions, experience.remembers)
            policy = Policy(sizes)
        optimizer = optimizer_of(policy, PPO())
        life = Life(settings, run, lock, environment, task, progress, policy, optimizer, asked)
        kept = {**settings.flat(), "resume": False, "overwrite": False}
        if keeping.resume:
            take_up(life, kept)
        else:
            run.clear()
            run.describe(progress.model, task, kept | {"asked": asked})
            life.made = made_of(kept, folder)
    except BaseException:
        lock.release()
        run.abandon()
        raise
    return life


def refuse_others(settings: Settings) -> None:
    """Options that mean nothing to somebody who acts."""
    said, known = settings.flat(), options(settings.task, settings.model, settings.size)
    for name in (*FOR_FILES, *LENGTHS):
        if said[name] != known[name].default:
            remedy = "--real-steps says how long" if name in LENGTHS else "it is for what learns from files"
            raise ValueError(f"{flag(name)} does not go with --env: {remedy}")


def made_of(kept: dict[str, Any], folder: Path) -> dict[str, Any]:
    made = made_with(kept, folder, [name for name in DESCRIPTION if name != "task.json"])  # scales change on the way
    return made | {"versions": made["versions"] | {"gymnasium": edition()}}


def keep(life: Life, episodes: list[Episode]) -> None:
    """A save to go on from, and what is of use."""
    progress, folder = life.progress, life.run.folder
    tensors, mind = tensors_of(progress), mind_of(life)
    facts = {
        "step": progress.step, "position": list(progress.position), "skipped": progress.skipped, "made": life.made,
        "rounds": life.rounds, "obtained": life.obtained, "expected": life.expected, "goes_on": not life.pasts[-1].over,
        "scales": {name: getattr(life.task, name) for name in SCALES},
    }  # fmt: skip
    save_folder(
        folder,
        f"step-{progress.step}",
        {
            "state.safetensors": lambda file: write_tensors(file, tensors),
            "state.json": lambda file: file.write_bytes(as_json(facts)),
            "policy.safetensors": lambda file: write_tensors(file, mind),
            "episodes.npz": lambda file: write_episodes(file, episodes),
        },
        room=sum(tensor.nbytes for tensor in tensors.values()) + SPARE,
    )
    keep_newest(folder, life.settings.keeping.keep)
    publish(life, episodes)


def publish(life: Life, episodes: list[Episode]) -> None:
    """At the root what is of use: model, policy, episodes. Under other scales than its own a model says something else,
    and nobody would see it: while the two change there is no task.json, and a folder without it is refused."""
    run, progress, folder, experience = life.run, life.progress, life.run.folder, life.experience
    (folder / "task.json").unlink(missing_ok=True)
    flush(folder)
    with progress.average.in_place() if progress.average is not None else nullcontext():
        run.publish(progress.model)
    write_task(folder, life.task)
    life.policy.save(folder / "policy", env=experience.env, hide=list(experience.hide))
    replace_file(folder / "episodes.npz", lambda file: write_episodes(file, episodes))


def mind_of(life: Life) -> dict[str, Tensor]:
    """The policy, and what its optimiser remembers."""
    found = {f"policy/{name}": tensor for name, tensor in life.policy.state_dict().items()}
    for name, weight in life.policy.named_parameters():
        found |= {f"{moment}/{name}": value for moment, value in life.optimizer.state.get(weight, {}).items()}
    return {name: tensor.contiguous() for name, tensor in found.items()}


def take_up(life: Life, kept: dict[str, Any]) -> None:
    """All of it as it was after the last whole round, at the root too: a crash may have come between."""
    folder, facts, life.troubles = life.run.newest()
    life.made = made_of(kept, life.run.folder)
    refuse_changes(folder, facts["made"], life.made, life.settings.keeping.allow_changed)
    life.run.take(life.progress, folder, facts)
    life.task = replace(life.task, **facts["scales"])
    mind = load_file(folder / "policy.safetensors")
    policy = {name.removeprefix("policy/"): value for name, value in mind.items() if name.startswith("policy/")}
    life.policy.load_state_dict(policy)
    for name, weight in life.policy.named_parameters():
        moments = {key.split("/")[0]: value for key, value in mind.items() if key.endswith(f"/{name}")}
        life.optimizer.state[weight] = {key: value for key, value in moments.items() if key != "policy"}
    episodes = [one for one in read_episodes([folder / "episodes.npz"]) if isinstance(one, Episode)]
    lasts = [False] * (len(episodes) - 1) + [facts["goes_on"]]
    life.pasts = [Past.of(one, last) for one, last in zip(episodes, lasts, strict=True)]
    life.rounds, life.obtained, life.expected = facts["rounds"], facts["obtained"], facts["expected"]
    if not life.run.finished:
        publish(life, episodes)
