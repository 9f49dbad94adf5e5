"""Acting, as regard train and regard run show it: rounds of living and learning; episodes in the real environment."""

from __future__ import annotations

import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from regard.choose import fits, must
from regard.cli.leaving import already, go_on, politely
from regard.data.episodes import Floats, write_episodes
from regard.load import Loaded
from regard.rl.cartpole import world_of
from regard.rl.dyna import live
from regard.rl.environment import Environment, Past, Player, played
from regard.rl.policy import CONFIG, Policy, greedy, is_policy
from regard.rl.sequence_policy import Decider, must_suit
from regard.rl.session import Life, prepare
from regard.tasks.decide import Wishes
from regard.training.loop import Step, parameters
from regard.training.settings import Settings

SHOWN = 0.02  # seconds that a step is seen on a terminal


def act(settings: Settings) -> int:
    """Somebody who learns to act, round by round. A first Ctrl-C or SIGTERM leaves with the last whole round."""
    life = prepare(settings)
    if settings.keeping.resume and life.run.finished:
        life.lock.release()
        print(already(life.run.folder))
        return 0
    introduce(life)
    folder, rounds = life.run.folder, len(life.plan)
    with politely("leaving; whole rounds are saved") as stop:
        for step in live(life):
            if step.scores:
                print(f"round {life.rounds}/{rounds}  {round_line(step)}", flush=True)
            if stop:
                return left(life, stop.code)
    draw(life)
    print(f"the model expects {life.expected:.1f} of the last policy; what {life.environment.name} says:")
    print(f"  regard run {shlex.quote(str(folder))} --play")
    return 0


def introduce(life: Life) -> None:
    for trouble in life.troubles:
        print(f"passed over a damaged save: {trouble}")
    where, s = life.environment, life.settings
    print(f"{where.name}: {where.observation} numbers to see, {where.actions} actions to choose from")
    if where.note:
        print(where.note)
    sizes = f"{parameters(life.progress.model):,} parameters, its policy {parameters(life.policy):,}"
    print(f"{s.model} {s.size} with {sizes}; {life.experience.real_steps:,} real steps, --seed {life.seed}")
    if life.rounds:
        print(f"going on after round {life.rounds}, {life.lived:,} real steps")


def round_line(step: Step) -> str:
    told = step.scores
    said = f"real steps {told['real_steps']:,.0f} in {told['episodes']:.0f} episodes  model loss {step.loss:.3f}"
    expected = f"imagined {told['imagined']:.1f}" if "imagined" in told else "by chance"
    so_far = "" if told["finished"] else " so far"
    return f"{said}  return: {expected}, obtained {told['obtained']:.1f}{so_far}"


def left(life: Life, code: int) -> int:
    """What is there after Ctrl-C, and how to go on."""
    folder = life.run.folder
    if not life.rounds:
        print(f"\nstopped; no round was finished, so {folder} starts again with the same command", flush=True)
        return code
    draw(life)
    said = f"stopped; {folder} is saved as it was after round {life.rounds}. Go on with:"
    print(f"\n{said}\n  {go_on(life.settings.task, folder)}", flush=True)
    return code


def draw(life: Life) -> None:
    from regard.view.return_curves import returns_by_round

    returns_by_round(life.run.metrics(), life.run.folder / "returns.png")


@dataclass(frozen=True)
class Playing:
    """How long to play in an environment, and what is kept of it."""

    episodes: int = 20  # with --play: how many are played
    play_seed: int = 1  # with --play: where they begin follows from it
    record: str | None = None  # with --play: keep the episodes in this .npz or .jsonl file
    gif: str | None = None  # with --play: keep the first episode of a cart as an animation

    def __post_init__(self) -> None:
        must(
            self,
            episodes=(1 <= self.episodes <= 10**6, "at least 1, and at most 1,000,000"),
            play_seed=(0 <= self.play_seed < 2**63, "0 or more, and below 2^63"),
            record=(not self.record or self.record.endswith((".npz", ".jsonl")), "a .npz or .jsonl file"),
            gif=(not self.gif or self.gif.endswith(".gif"), "a .gif file"),
        )


def play_policy(folder: Path, how: Playing) -> int:
    """A policy alone or that of a run, in the environment that it learnt in."""
    folder = folder if is_policy(folder) else folder / "policy"
    policy, told = Policy.load(folder)
    where, hide = told.get("env"), told.get("hide", [])
    if not fits(where, str) or not fits(hide, list[int]):
        raise ValueError(f"{folder / CONFIG} does not tell where to act: env and hide, as they were written")
    return play(world_of(where, tuple(hide)), greedy(policy), how)


def play_decider(loaded: Loaded, wishes: Wishes, how: Playing) -> int:
    """A model that decides, in an environment or in the cart that ships."""
    task: Any = loaded.task
    world = world_of(wishes.env)
    must_suit(world, task)
    return play(world, Decider(loaded.model, task, wishes, how.play_seed), how)


def play(environment: Environment, player: Player, how: Playing) -> int:
    """Each return as it is known, then their mean. On a terminal a cart is seen while it goes. A first Ctrl-C
    keeps what was played."""
    states: list[Floats] = []  # of the first episode
    cart = environment.is_cart
    if how.gif and not cart:
        raise ValueError(f"--gif draws a cart and its pole, and {environment.name} has none")
    for file in filter(None, (how.record, how.gif)):
        if not Path(file).parent.is_dir():
            raise ValueError(f"{file}: there is no folder {Path(file).parent}, so nothing could be kept there")
    if environment.note:
        print(environment.note, flush=True)
    looked = seen_by(environment, player, states, cart and sys.stdout.isatty())
    kept: list[Past] = []
    with politely("finishing this episode") as stop:
        for number, past in enumerate(played(environment, looked, how.episodes, how.play_seed), 1):
            print(f"episode {number}: {past.total:g} in {len(past.actions)} steps", flush=True)
            kept.append(past)
            if stop:
                break
    got = np.array([past.total for past in kept])
    print(f"mean {got.mean():.1f}, worst {got.min():g}, best {got.max():g} of {len(got)} episodes")
    if how.record:
        write_episodes(how.record, [past.episode(environment.name) for past in kept])
        print(f"the episodes are in {how.record}")
    if how.gif:
        from regard.view.render_cartpole import animate

        animate(states, how.gif)
        print(f"the first episode is in {how.gif}")
    return stop.code if stop else 0


def seen_by(environment: Environment, player: Player, states: list[Floats], shown: bool) -> Player:
    """The same player, watched while the first episode lasts."""
    from regard.view.render_cartpole import as_text

    def choose(past: Past) -> int:
        if past.number == 0:
            states.append(environment.whole.copy())
            if shown:
                lines = as_text(environment.whole)
                print("\n".join(lines) + f"\033[{len(lines) - 1}A\r", end="", flush=True)
                time.sleep(SHOWN)
        return player(past)

    return choose
