"""Offline reinforcement learning in CartPole-v1: behaviour cloning, the best episodes, Decision Transformer, GAIL.

    python benchmarks/offline.py [--minutes 2] [-o runs/offline] [--seed 1] [options of regard train decide]

The data set is the replay of one learner, recorded once: all its episodes while PPO trained it in the environment,
until a tenth of them had the highest return. So most steps are those of a poor policy with consistent faults, such as
drifting, which averaging does not remove; and the best tenth is good.

Every method trains on the same file, on one thread, for at most so many minutes, and then plays the same 50 episodes,
which select nothing. GAIL also acts in the environment, without its rewards; the others never use it. Goals: a Decision
Transformer with target return 500 is at least as good as cloning the best tenth, which is better than cloning all; with
target return 50 it gets less than 150.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from recipes import describe_machine, parse_args, train_or_load, training_seconds

from regard.data.episodes import Episode, EpisodeRow
from regard.data.rows import Row
from regard.modalities.trajectory.episode_files import read_episodes, write_episodes
from regard.modalities.trajectory.modality import top_episodes
from regard.rl.environment import Environment, episode_returns, record_episodes
from regard.rl.gail import GAILOptions, collect_episodes, imitate
from regard.rl.policy import Policy, PolicyConfig, greedy_policy
from regard.rl.ppo import PPOConfig, batch_from_episodes, make_optimizer, ppo_update
from regard.rl.sequence_policy import SequencePolicy, play_in_parallel
from regard.tasks.decide import DecideOptions

ENV, EPISODES, TEST = "CartPole-v1", 50, 777_000  # the seed of the test, far from all others
ROUND, MAX_ROUNDS, PERFECT = 1000, 200, 500  # real steps of a round of the learner, rounds, the highest return
RECIPE = {
    "--context": 20, "--dim": 64, "--layers": 2, "--heads": 4, "--hidden": 256, "--valid-share": 0.1, "--threads": 1,
}  # fmt: skip
BEST = 0.1  # share of the episodes, those with the highest returns
METHODS: dict[str, dict[str, Any]] = {
    "behaviour cloning": {},
    "cloning the best tenth": {"--top-fraction": BEST},
    "Decision Transformer": {"--returns": True},
}
TARGET_RETURNS = (500, 150, 50)


def recorded_episodes(file: Path, seed: int) -> list[EpisodeRow]:
    """The episodes of a learner, from the file if it exists."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_episodes(file, learner_episodes(seed))
    return [row for row in read_episodes([file]) if isinstance(row, Row)]


def learner_episodes(seed: int) -> list[Episode]:
    environment, config, episodes = Environment(ENV), PPOConfig(), list[Episode]()
    torch.manual_seed(seed)
    policy = Policy(PolicyConfig(environment.observation_dim, environment.num_actions))
    optimizer = make_optimizer(policy, config)
    for number in range(MAX_ROUNDS):
        collected = collect_episodes(environment, policy, ROUND, seed * 1000 + number)
        episodes += collected
        print(f"  round {number + 1}: {len(collected)} episodes, mean return {mean_return(collected):.1f}", flush=True)
        if np.mean([episode.rewards.sum() == PERFECT for episode in episodes]) >= BEST:
            break
        if number == 0:
            policy.fit_scales(collected, config.discount)
        ppo_update(policy, optimizer, batch_from_episodes(policy, collected, config), config, seed + number)
    return episodes


def mean_return(episodes: list[Episode]) -> float:
    return float(np.mean([episode.rewards.sum() for episode in episodes]))


def format_row(name: str, returns: list[float], seconds: float) -> str:
    return f"{name:<34}{np.mean(returns):8.1f} ± {np.std(returns):5.1f}{min(returns):8.0f}{seconds:8.0f} s"


def train_gail(expert: list[EpisodeRow], minutes: float, seed: int) -> tuple[list[float], float]:
    """Returns of the greedy policy after so many minutes of GAIL, and the seconds of training."""
    start, policy = time.perf_counter(), None
    for result in imitate(Environment(ENV), expert, GAILOptions(steps=10**9), PPOConfig(), seed):
        policy = result.policy
        if time.perf_counter() - start > minutes * 60:
            break
    seconds = time.perf_counter() - start
    assert policy is not None
    return episode_returns(Environment(ENV), greedy_policy(policy), EPISODES, TEST), seconds


def main() -> None:
    args, extra = parse_args(str(__doc__), 2, "runs/offline")
    torch.set_num_threads(1)
    file = args.output_dir / f"episodes-{args.seed}.npz"
    print(f"{describe_machine()}, seed {args.seed}; {EPISODES} episodes each, from the seed {TEST}")
    rows = recorded_episodes(file, args.seed)
    episodes = [row.input for row in rows]
    returns = np.array([episode.rewards.sum() for episode in episodes])
    steps, best_tenth = sum(episode.steps for episode in episodes), np.sort(returns)[-len(returns) // 10 :]
    summary = f"mean {returns.mean():.1f}, best tenth {best_tenth.mean():.1f}, highest {returns.max():.0f}"
    print(f"recorded: {len(returns)} episodes, {steps:,} steps, {summary}")
    lines = [format_row("recorded", returns.tolist(), 0)]
    rng = np.random.default_rng(args.seed)
    random_episodes = record_episodes(Environment(ENV), lambda trajectory: int(rng.integers(2)), EPISODES, TEST)
    lines.append(format_row("random policy", [float(episode.rewards.sum()) for episode in random_episodes], 0))
    for name, recipe in METHODS.items():
        folder = args.output_dir / f"{name.replace(' ', '-')}-{args.seed}"
        recipe = RECIPE | recipe | {"--data": [file], "--minutes": args.minutes, "--seed": args.seed}
        loaded: Any = train_or_load("decide", folder, recipe, extra)
        for target in TARGET_RETURNS if "--returns" in recipe else (None,):
            policy = SequencePolicy(loaded.model, loaded.task, DecideOptions(target_return=target))
            played = play_in_parallel([Environment(ENV) for _ in range(EPISODES)], policy, TEST)
            suffix = f", target {target}" if target else ""
            test_returns = [float(episode.rewards.sum()) for episode in played]
            lines.append(format_row(name + suffix, test_returns, training_seconds(folder)))
    expert = [row for row in top_episodes(rows, BEST) if isinstance(row, Row)]
    lines.append(format_row("GAIL of the best tenth", *train_gail(expert, args.minutes, args.seed)))
    print(f"\n{'':<34}{'return':>8}{'':>8}{'worst':>8}{'training':>10}")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
