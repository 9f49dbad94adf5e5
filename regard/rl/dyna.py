"""Learning to act with few real steps (Dyna, Sutton 1990): live a little, learn what the world does, practise inside.

    real steps by chance
    again and again:   model ← all that was lived    policy ← PPO in the model's imagination    real steps by the policy

Nothing is decided by playing: the policy that is kept is the last one. All that is random follows from the seed, and a
run that was interrupted goes on from its last whole round as if nothing had been.
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
from regard.rl.dynamics_model import Lived, Remembering, as_world, rescaled
from regard.rl.environment import Past, by_chance, lived
from regard.rl.imagine import imagine, predicted, some_of, starts_in
from regard.rl.policy import drawn
from regard.rl.ppo import improve
from regard.rl.session import FIT, REFIT, Life, keep, prepare
from regard.rl.session_card import card
from regard.training import train as by_files
from regard.training.loop import NotFinite, Step, learn, number_from
from regard.training.run import as_line
from regard.training.settings import start

Names = str | PathLike[str] | Sequence[str | PathLike[str]]  # of one file or several
UPDATES = 12  # of the policy in a round
DREAMS, HORIZON, FRESH = 128, 48, 1 / 3  # rows imagined at once, their steps, and the share that begins as episodes do
FORETOLD = 16  # rows imagined to the end, to tell what the policy will bring
LONGEST = 1000  # most steps of such a row; an environment has its own limit


def train(
    task: str = "translate",
    *,
    model: str | None = None,
    size: str | None = None,
    data: Names | None = None,
    valid: Names | None = None,
    test: Names | None = None,
    fields: Sequence[str] | None = None,
    out: str | PathLike[str] | None = None,
    from_: str | PathLike[str] | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    minutes: float | None = None,
    batch_tokens: int | None = None,
    rate: float | None = None,
    seed: int | None = None,
    checks: int | None = None,
    patience: int | None = None,
    device: str | None = None,
    threads: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    **options: Any,
) -> Iterator[Step]:
    """Train from files, or with `env` in an environment, and yield every step; the run folder is complete when the last
    one is out.

        for step in regard.train("tag", data="train.conllu", size="mini", epochs=20):
            print(step.number, step.loss, step.scores)

    task           translate, write, fill, classify, regress, tag, answer, embed, match, predict or decide
    model, size    the model and its named size; `regard models` lists them. The task has a usual one
    data           one file or several to learn from; the data that ships with the task if none
    valid, test    files to validate on (a share of the data if none), and to score the finished model on
    fields         columns or keys to read, in the order of input and answer
    out            the run folder; runs/TASK unless given
    from_          start from this model: a folder, or a name on the hub
    steps, epochs, minutes     how long: one of the three; 3 minutes if none is given
    batch_tokens, rate, seed   tokens of a batch, the highest learning rate, and what all that is random follows from
    checks, patience           how often to validate and save; after how many checks without a better one to stop
    device, threads            cpu, cuda or mps; processor threads, all cores unless given
    resume, overwrite          go on with the run in `out`, or start again there

    `options` are all others of the task and the model, by the names that `regard train TASK --help` lists, with _ for
    each -. None leaves an option at its default. A name or a value that makes no sense is a ValueError, at once.
    """
    named: dict[str, Any] = {
        "data": data, "valid": valid, "test": test, "fields": fields, "out": out, "from_": from_,
        "steps": steps, "epochs": epochs, "minutes": minutes, "batch_tokens": batch_tokens, "rate": rate, "seed": seed,
        "checks": checks, "patience": patience, "device": device, "threads": threads,
        "resume": resume or None, "overwrite": overwrite or None,
    }  # fmt: skip
    given = {name: value for name, value in named.items() if value is not None}
    settings = start(task, model, size, **given, **options)
    if settings.reading.get("env"):
        return live(prepare(settings))
    return by_files.carry_out(by_files.planned(by_files.prepare(settings)))


def live(life: Life) -> Iterator[Step]:
    """Round after round; the last step of each has its scores."""
    try:
        while life.rounds < len(life.plan):
            yield from one_round(life)
        replace_file(life.run.folder / "README.md", card(life).encode())
    except NotFinite as bad:
        raise FloatingPointError(f"{bad}: take a smaller --rate") from None
    finally:
        life.lock.release()


def one_round(life: Life) -> Iterator[Step]:
    began = time.perf_counter()
    life.obtained, whole = act(life, life.plan[life.rounds])
    told = {"real_steps": float(life.lived), "episodes": float(len(life.pasts)), "obtained": life.obtained}
    told["finished"] = float(whole)
    if not math.isnan(life.expected):  # who acts by chance has promised nothing
        told["imagined"] = life.expected
    episodes = [past.episode(life.environment.name) for past in life.pasts]
    last: Step | None = None
    for step in fit(life, episodes):
        if last:
            yield last
        last = step
    practise(life, episodes)
    life.rounds += 1
    assert last
    took = round(time.perf_counter() - began, 3)
    life.run.log(step=last.number, round=life.rounds, **told, expected=life.expected, round_seconds=took)
    keep(life, episodes)
    yield replace(last, scores=told)


def act(life: Life, steps: int) -> tuple[float, int]:
    """Real steps. What an episode brought that was finished, on average, and how many were; if none was, what the one
    that goes on has brought so far."""
    life.lives = life.lives or lives_of(life)
    met: list[Past] = []
    for past in islice(life.lives, steps):
        if not life.pasts or past is not life.pasts[-1]:
            life.pasts.append(past)
        if not met or past is not met[-1]:
            met.append(past)
    over = [past for past in met if past.over]
    return float(np.mean([past.total for past in over or met])), len(over)


def lives_of(life: Life) -> Iterator[Past]:
    """By chance in the first round, by the policy as it is in those that follow; an episode outlasts its round."""
    seed = number_from(life.seed, 1)
    chance, policy = by_chance(life.environment, seed), drawn(life.policy, seed)

    def player(past: Past) -> int:
        return policy(past) if life.rounds else chance(past)

    return lived(life.environment, player, number_from(life.seed, 2), life.pasts[-1] if life.pasts else None)


def fit(life: Life, episodes: list[Episode]) -> Iterator[Step]:
    """The model learns from all that was lived."""
    life.task = rescaled(life.task, life.progress, episodes)
    plan, config = life.settings.plan, life.progress.model.body.config
    examples = Lived(episodes, config.context, 2)
    asked = Remembering.of(life.task)
    for step in islice(learn(life.progress, asked, examples, plan), REFIT if life.rounds else FIT):
        life.run.log(**as_line(step))
        yield step


def practise(life: Life, episodes: list[Episode]) -> None:
    """The policy learns from what it does in imagination."""
    policy, how, average = life.policy, life.how, life.progress.average
    policy.fit_scales(episodes, how.discount)
    model = life.progress.model.eval()
    world = as_world(life.task, model)
    starts = starts_in(episodes, max(world.context, policy.config.memory))
    with average.in_place() if average is not None else nullcontext():
        for number in range(UPDATES):
            seed = life.draw(f"practise {number}")
            rows = imagine(world, policy, some_of(starts, DREAMS, FRESH, seed), HORIZON, seed)
            improve(policy, life.optimizer, rows, how, seed)
        seed = life.draw("promise")
        limit = min(life.environment.limit or LONGEST, LONGEST)
        life.expected = predicted(imagine(world, policy, some_of(starts, FORETOLD, 1.0, seed), limit, seed))
