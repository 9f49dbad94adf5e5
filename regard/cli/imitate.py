"""regard imitate --data episodes.npz --env CartPole-v1: imitate an expert by GAIL, acting in an environment."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regard.cli.interrupts import stop_on_signal
from regard.cli.options import parse
from regard.options import make, options_of
from regard.rl.cartpole import make_environment
from regard.rl.environment import episode_returns
from regard.rl.gail import GAILOptions, expert_episodes, imitate
from regard.rl.policy import greedy_policy
from regard.rl.ppo import PPOConfig
from regard.validate import check_fields, check_minimum


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
        check_minimum(self, 1, "episodes")
        check_fields(self, top_fraction=(0 < self.top_fraction <= 1, "above 0 and at most 1"))
        check_fields(self, seed=(0 <= self.seed < 2**63, "0 or more, and below 2^63"))


def main(args: list[str]) -> int:
    values = parse("regard imitate", args, options_of(ImitateOptions) | options_of(GAILOptions), str(__doc__))
    options, gail_options = make(ImitateOptions, values), make(GAILOptions, values)
    folder = Path(options.output_dir)
    if folder.exists():
        raise ValueError(f"{folder} exists: choose another --output-dir, or remove the folder")
    environment = make_environment(options.env)
    expert = expert_episodes(options.data, options.top_fraction)
    mean, steps = np.mean([row.input.total_reward for row in expert]), sum(row.input.steps for row in expert)
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
        result_text = f"mean return {np.mean(returns):.1f} ± {np.std(returns):.1f} of {len(returns)} episodes"
        print(f"{environment.name}: {result_text}")
    print(f"wrote the policy to {folder}. Run it with:\n  regard run {shlex.quote(str(folder))} --play")
    return stop.exit_code if stop else 0
