"""Learning to act from a recording: cloning, the best only, GAIL, and by returns, side by side in CartPole-v1.

    python benchmarks/offline.py [--minutes 2] [--out runs/offline] [--seed 1] [any other option of regard train decide]

The recording is the life of one learner, made once: all that it did from its first step on, while it learnt by PPO in
the real environment, until a tenth of its episodes were without a fault. So most of the steps are those of one who
cannot do it yet, and who has firm habits that are wrong: it drifts, which no averaging undoes; and the best tenth are
good.

Every method learns from the same file, on one thread, for at most so many minutes, and then plays the same 50 episodes,
which nothing was chosen by. GAIL also acts in the environment, without its rewards; the others never see it. The bar:
by returns, asked for 500, is at least as good as the best tenth, which is better than cloning all; asked for 50, it
gets less than 150.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from recipes import machine, options, seconds, trained

from regard.data.episodes import Episode, read_episodes, write_episodes
from regard.rl.environment import Environment, record, returns
from regard.rl.gail import Imitation, imitate, some
from regard.rl.policy import Policy, PolicyConfig, greedy
from regard.rl.ppo import PPO, improve, optimizer_of, rows_of
from regard.rl.sequence_policy import Decider, together
from regard.tasks.decide import Wishes
from regard.tasks.steps import the_best

ENV, EPISODES, TEST = "CartPole-v1", 50, 777_000  # the seed of the test, far from all others
ROUND, MOST, PERFECT = 1000, 200, 500  # real steps of a round of the learner, rounds at most, the highest return
RECIPE = {"context": 20, "dim": 64, "layers": 2, "heads": 4, "hidden": 256, "held-out": 0.1, "threads": 1}
BEST = 0.1  # share of the episodes that counts as good
METHODS: dict[str, dict[str, Any]] = {
    "cloning": {},
    "the best tenth": {"best": BEST},
    "by returns": {"returns": True},
}
WISHES = (500, 150, 50)


def recording(file: Path, seed: int) -> list[Episode]:
    """The history of a learner, from the file if it is there."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_episodes(file, history(seed))
    return [one for one in read_episodes([file]) if isinstance(one, Episode)]


def history(seed: int) -> list[Episode]:
    world, how, found = Environment(ENV), PPO(), list[Episode]()
    torch.manual_seed(seed)
    policy = Policy(PolicyConfig(world.observation, world.actions))
    optimizer = optimizer_of(policy, how)
    for number in range(MOST):
        played = some(world, policy, ROUND, seed * 1000 + number)
        found += played
        print(f"  round {number + 1}: {len(played)} episodes, mean return {mean(played):.1f}", flush=True)
        if np.mean([one.rewards.sum() == PERFECT for one in found]) >= BEST:
            break
        if number == 0:
            policy.fit_scales(played, how.discount)
        improve(policy, optimizer, rows_of(policy, played, how), how, seed + number)
    return found


def mean(episodes: list[Episode]) -> float:
    return float(np.mean([one.rewards.sum() for one in episodes]))


def line(name: str, got: list[float], took: float) -> str:
    return f"{name:<28}{np.mean(got):8.1f} ± {np.std(got):5.1f}{min(got):8.0f}{took:8.0f} s"


def imitated(expert: list[Episode], minutes: float, seed: int) -> tuple[list[float], float]:
    """GAIL for so long; then the policy does what it thinks best."""
    began, policy = time.perf_counter(), None
    for found in imitate(Environment(ENV), expert, Imitation(steps=10**9), PPO(), seed):
        policy = found.policy
        if time.perf_counter() - began > minutes * 60:
            break
    took = time.perf_counter() - began
    assert policy is not None
    return returns(Environment(ENV), greedy(policy), EPISODES, TEST), took


def main() -> None:
    given, more = options(str(__doc__), 2, "runs/offline")
    torch.set_num_threads(1)
    out = Path(given.out)
    file = out / f"episodes-{given.seed}.npz"
    print(f"{machine()}, seed {given.seed}; {EPISODES} episodes each, from the seed {TEST}")
    episodes = recording(file, given.seed)
    got = np.array([one.rewards.sum() for one in episodes])
    print(f"recorded: {len(got)} episodes, {sum(one.steps for one in episodes):,} steps, mean {got.mean():.1f}, "
          f"best tenth {np.sort(got)[-len(got) // 10 :].mean():.1f}, most {got.max():.0f}")  # fmt: skip
    told = [line("recorded", got.tolist(), 0)]
    chance = np.random.default_rng(given.seed)
    by_chance = record(Environment(ENV), lambda past: int(chance.integers(2)), EPISODES, TEST)
    told.append(line("by chance", [float(one.rewards.sum()) for one in by_chance], 0))
    for name, recipe in METHODS.items():
        folder = out / f"{name.replace(' ', '-')}-{given.seed}"
        recipe = RECIPE | recipe | {"data": [file], "minutes": given.minutes, "seed": given.seed}
        loaded: Any = trained("decide", folder, recipe, more)
        for wish in WISHES if "returns" in recipe else (None,):
            player = Decider(loaded.model, loaded.task, Wishes(wish=wish))
            played = together([Environment(ENV) for _ in range(EPISODES)], player, TEST)
            asked = f", asked for {wish}" if wish else ""
            told.append(line(name + asked, [float(one.rewards.sum()) for one in played], seconds(folder)))
    expert = list(the_best(episodes, BEST))
    told.append(line("GAIL, of the best tenth", *imitated(expert, given.minutes, given.seed)))
    print(f"\n{'':<28}{'return':>8}{'':>8}{'worst':>8}{'learnt':>10}")
    print("\n".join(told))


if __name__ == "__main__":
    main()
