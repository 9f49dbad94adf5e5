"""regard imitate --data episodes.npz --env CartPole-v1: act in a world so that nobody can tell it from the expert."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regard.choose import must
from regard.cli.leaving import politely
from regard.cli.options import parse
from regard.data.bundled import cart
from regard.data.episodes import Episode, read_episodes
from regard.data.lint import lint
from regard.rl.cartpole import world_of
from regard.rl.environment import returns
from regard.rl.gail import Imitation, imitate
from regard.rl.policy import greedy
from regard.rl.ppo import PPO
from regard.tasks.steps import the_best
from regard.training.settings import options_of


@dataclass(frozen=True)
class Whom:
    """Whom to imitate, where, and where the policy goes."""

    data: tuple[str, ...] = ()  # files of episodes; those of the cart that ships if none
    best: float = 0.1  # share of the episodes that are the expert's, those with the highest returns
    env: str | None = None  # where to act, an environment of gymnasium; the cart that ships unless given
    out: str = "runs/imitate"  # folder of the policy
    episodes: int = 20  # played at the end, as the policy thinks best
    seed: int = 1  # of everything random

    def __post_init__(self) -> None:
        must(
            self,
            best=(0 < self.best <= 1, "above 0 and at most 1"),
            episodes=(self.episodes >= 1, "at least 1"),
            seed=(0 <= self.seed < 2**63, "0 or more, and below 2^63"),
        )


def main(args: list[str]) -> int:
    given = parse("regard imitate", args, options_of(Whom) | options_of(Imitation), str(__doc__))
    whom = Whom(**{name: given.pop(name) for name in options_of(Whom)})
    folder, how = Path(whom.out), Imitation(**given)
    if folder.exists():
        raise ValueError(f"{folder} is there already: choose another --out, or move it away")
    world = world_of(whom.env)
    expert = experts(whom)
    mean = np.mean([one.rewards.sum() for one in expert])
    print(f"{len(expert)} episodes of {sum(one.steps for one in expert):,} steps to imitate, mean return {mean:.1f}")
    if world.note:
        print(world.note)
    with politely("finishing this round; its policy is kept") as stop:
        for number, found in enumerate(imitate(world, expert, how, PPO(), whom.seed), 1):
            found.policy.save(folder, env=world.name)
            said = f"steps {found.steps:,}  return {np.mean(found.returns):.1f}  told apart {found.told_apart:.0%}"
            print(f"round {number}  {said}", flush=True)
            if stop:
                break
    if not stop:
        got = returns(world, greedy(found.policy), whom.episodes, whom.seed)
        print(f"{world.name}: mean return {np.mean(got):.1f} ± {np.std(got):.1f} of {len(got)} episodes")
    print(f"the policy is in {folder}. Let it act:\n  regard run {shlex.quote(str(folder))} --play")
    return stop.code if stop else 0


def experts(whom: Whom) -> list[Episode]:
    rows = read_episodes(whom.data) if whom.data else (one for one in cart.carts() if cart.split(one) == "train")
    return list(the_best(lint({"data": rows})[0]["data"], whom.best))
