"""regard imitate --data episodes.npz --env CartPole-v1: imitate an expert by GAIL, acting in an environment."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regard.cli.interrupts import stop_on_signal
from regard.cli.options import parse
from regard.data.bundled import cart
from regard.data.episodes import Episode, read_episodes
from regard.data.lint import lint
from regard.rl.cartpole import make_environment
from regard.rl.environment import episode_returns
from regard.rl.gail import GAILOptions, imitate
from regard.rl.policy import greedy_policy
from regard.rl.ppo import PPOConfig
from regard.tasks.returns import top_episodes
from regard.training.settings import options_of
from regard.validate import check_fields


@dataclass(frozen=True)
class ImitateOptions:
    """The expert's episodes, the environment, and the output folder."""

    data: tuple[str, ...] = ()  # episode files; default: the bundled CartPole episodes
    top_fraction: float = 0.1  # fraction of the episodes, those with the highest returns, to imitate
    env: str | None = None  # gymnasium environment to act in; default: the bundled CartPole
    output_dir: str = "runs/imitate"  # folder for the policy
    episodes: int = 20  # episodes to evaluate the final policy on, with greedy actions
    seed: int = 1  # random seed

    def __post_init__(self) -> None:
        check_fields(
            self,
            top_fraction=(0 < self.top_fraction <= 1, "above 0 and at most 1"),
            episodes=(self.episodes >= 1, "at least 1"),
            seed=(0 <= self.seed < 2**63, "0 or more, and below 2^63"),
        )


def main(args: list[str]) -> int:
    values = parse("regard imitate", args, options_of(ImitateOptions) | options_of(GAILOptions), str(__doc__))
    options = ImitateOptions(**{name: values.pop(name) for name in options_of(ImitateOptions)})
    folder, gail_options = Path(options.output_dir), GAILOptions(**values)
    if folder.exists():
        raise ValueError(f"{folder} exists: choose another --output-dir, or remove the folder")
    environment = make_environment(options.env)
    expert = expert_episodes(options)
    mean, steps = np.mean([episode.rewards.sum() for episode in expert]), sum(episode.steps for episode in expert)
    print(f"{len(expert)} expert episodes of {steps:,} steps, mean return {mean:.1f}")
    if environment.note:
        print(environment.note)
    with stop_on_signal("finishing this round, then saving its policy") as stop:
        for number, result in enumerate(imitate(environment, expert, gail_options, PPOConfig(), options.seed), 1):
            result.policy.save(folder, env=environment.name)
            scores = f"return {np.mean(result.returns):.1f}  discriminator accuracy {result.discriminator_accuracy:.0%}"
            print(f"round {number}  steps {result.steps:,}  {scores}", flush=True)
            if stop:
                break
    if not stop:
        returns = episode_returns(environment, greedy_policy(result.policy), options.episodes, options.seed)
        print(
            f"{environment.name}: mean return {np.mean(returns):.1f} ± {np.std(returns):.1f} of {len(returns)} episodes"
        )
    print(f"wrote the policy to {folder}. Run it with:\n  regard run {shlex.quote(str(folder))} --play")
    return stop.exit_code if stop else 0


def expert_episodes(options: ImitateOptions) -> list[Episode]:
    rows = read_episodes(options.data) if options.data else (row for row in cart.carts() if cart.split(row) == "train")
    return list(top_episodes(lint({"data": rows})[0]["data"], options.top_fraction))
