"""CartPole-v1 with few real steps: a policy trained by Dyna in a learned world model, beside model-free PPO.

    python benchmarks/cartpole.py [--seeds 10] [--hidden] [--steps 3000] [-o runs/cartpole]

Prints the mean return of 20 greedy episodes of the last policy; median and worst over the seeds. These episodes select
nothing. --hidden hides the velocities, so that the policy needs a history. Goals: median 475 and worst 300, hidden
median 450. The peer is PPO of stable-baselines3 with the hyperparameters of its zoo and the same number of real steps,
if it is installed (pip install stable-baselines3; nothing else needs it).
"""

from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
from recipes import describe_machine, keywords

import regard
from regard.device import set_num_threads
from regard.rl.environment import Environment, Trajectory, episode_returns
from regard.rl.policy import Policy, greedy_policy

EPISODES = 20
HIDDEN = (1, 3)  # velocities of cart and pole
TEST_SEED = 1_000_000  # plus the seed of the run: seed of the test episodes


def train_dyna(seed: int, steps: int, hide: tuple[int, ...], output_dir: Path) -> float:
    folder = output_dir / f"{'hidden-' if hide else ''}{steps}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    recipe = {"--env": "CartPole-v1", "--hide": hide, "--real-steps": steps, "--seed": seed, "--threads": 1}
    for step in regard.train("predict", **keywords(recipe | {"--output-dir": folder})):
        scores = step.scores
        if scores and "predicted_return" in scores:
            returns = f"predicted return {scores['predicted_return']:6.1f}  real {scores['mean_return']:6.1f}"
            print(f"    {scores['real_steps']:5.0f} real steps  {returns}", flush=True)
    policy, _ = Policy.load(folder / "policy")
    return float(
        np.mean(episode_returns(Environment("CartPole-v1", hide), greedy_policy(policy), EPISODES, TEST_SEED + seed))
    )


def train_ppo(seed: int, steps: int, hide: tuple[int, ...]) -> float:
    """Hyperparameters of rl-baselines3-zoo for CartPole-v1."""
    import gymnasium
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    visible = [index for index in range(4) if index not in hide]

    def hide_entries(env: Any) -> Any:
        space = gymnasium.spaces.Box(-np.inf, np.inf, (len(visible),), np.float32)
        return gymnasium.wrappers.TransformObservation(env, lambda observation: observation[visible], space)

    envs = make_vec_env("CartPole-v1", 8, seed=seed, wrapper_class=hide_entries)
    model = PPO(
        "MlpPolicy", envs, n_steps=32, batch_size=256, gae_lambda=0.8, gamma=0.98, n_epochs=20, ent_coef=0.0,
        learning_rate=lambda remaining: 1e-3 * remaining, clip_range=lambda remaining: 0.2 * remaining, seed=seed,
        device="cpu",
    )  # fmt: skip
    model.learn(steps)

    def choose(trajectory: Trajectory) -> int:
        return int(model.predict(trajectory.observations[-1], deterministic=True)[0])

    return float(np.mean(episode_returns(Environment("CartPole-v1", hide), choose, EPISODES, TEST_SEED + seed)))


def has_stable_baselines() -> bool:
    try:
        import stable_baselines3  # noqa: F401
    except ImportError:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--steps", type=int, default=3000, help="real steps of each run")
    parser.add_argument("--hidden", action="store_true", help="hide the velocities")
    parser.add_argument("-o", "--output-dir", type=Path, default=Path("runs/cartpole"))
    args = parser.parse_args()
    set_num_threads(1)
    hide = HIDDEN if args.hidden else ()
    results: dict[str, list[float]] = {"regard": [], "stable-baselines3 PPO": []}
    print(f"{describe_machine()}; {args.steps} real steps{', velocities hidden' if hide else ''}", flush=True)
    for seed in range(args.first, args.first + args.seeds):
        runs = {"regard": lambda seed=seed: train_dyna(seed, args.steps, hide, args.output_dir)}
        if has_stable_baselines():
            runs["stable-baselines3 PPO"] = lambda seed=seed: train_ppo(seed, args.steps, hide)
        for name, run in runs.items():
            start = time.perf_counter()
            results[name].append(run())
            seconds = time.perf_counter() - start
            print(f"seed {seed}  {name:<22}{results[name][-1]:6.1f}  {seconds:5.0f} s", flush=True)
    for name, returns in results.items():
        if returns:
            print(f"{name:<22}median {np.median(returns):.1f}  worst {min(returns):.1f}  of {len(returns)} seeds")
        else:
            print(f"{name:<22}not installed: pip install stable-baselines3")


if __name__ == "__main__":
    main()
