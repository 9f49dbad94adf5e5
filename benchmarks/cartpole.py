"""CartPole-v1 with few real steps: a policy that practised in the imagination of a world model, beside PPO.

    python benchmarks/cartpole.py [--seeds 10] [--hidden] [--steps 3000] [--out runs/cartpole]

The mean return of 20 episodes, played greedily by the last policy; median and worst over the seeds. No episode that is
counted here decided anything. --hidden takes the velocities away, so that memory is needed. Bars: median 475 and worst
300, hidden median 450. Beside it, at the same number of real steps, PPO of stable-baselines3 with the settings of its
zoo, if it is installed (pip install stable-baselines3; it is not needed otherwise).
"""

from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
from recipes import machine

import regard
from regard.device import use_threads
from regard.rl.environment import Environment, Past, returns
from regard.rl.policy import Policy, greedy

EPISODES = 20
HIDDEN = (1, 3)  # velocities of cart and pole
UNSEEN = 1_000_000  # where the seeds of the episodes begin that are counted


def ours(seed: int, steps: int, hide: tuple[int, ...], out: Path) -> float:
    folder = out / f"{'hidden-' if hide else ''}{steps}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    for step in regard.train(
        "predict", env="CartPole-v1", hide=hide, real_steps=steps, seed=seed, threads=1, out=folder
    ):
        told = step.scores
        if told and "imagined" in told:
            expected = f"imagined {told['imagined']:6.1f}  obtained {told['obtained']:6.1f}"
            print(f"    {told['real_steps']:5.0f} real steps  {expected}", flush=True)
    policy, _ = Policy.load(folder / "policy")
    return float(np.mean(returns(Environment("CartPole-v1", hide), greedy(policy), EPISODES, UNSEEN + seed)))


def theirs(seed: int, steps: int, hide: tuple[int, ...]) -> float:
    """n_envs, n_steps ... as rl-baselines3-zoo has them for CartPole-v1."""
    import gymnasium
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    shown = [number for number in range(4) if number not in hide]

    def part(world: Any) -> Any:
        space = gymnasium.spaces.Box(-np.inf, np.inf, (len(shown),), np.float32)
        return gymnasium.wrappers.TransformObservation(world, lambda seen: seen[shown], space)

    worlds = make_vec_env("CartPole-v1", 8, seed=seed, wrapper_class=part)
    model = PPO(
        "MlpPolicy", worlds, n_steps=32, batch_size=256, gae_lambda=0.8, gamma=0.98, n_epochs=20, ent_coef=0.0,
        learning_rate=lambda left: 1e-3 * left, clip_range=lambda left: 0.2 * left, seed=seed, device="cpu",
    )  # fmt: skip
    model.learn(steps)

    def choose(past: Past) -> int:
        return int(model.predict(past.observations[-1], deterministic=True)[0])

    return float(np.mean(returns(Environment("CartPole-v1", hide), choose, EPISODES, UNSEEN + seed)))


def installed() -> bool:
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
    parser.add_argument("--hidden", action="store_true", help="without the velocities")
    parser.add_argument("--out", type=Path, default=Path("runs/cartpole"))
    given = parser.parse_args()
    use_threads(1)
    hide = HIDDEN if given.hidden else ()
    found: dict[str, list[float]] = {"regard": [], "stable-baselines3 PPO": []}
    print(f"{machine()}; {given.steps} real steps{', velocities hidden' if hide else ''}", flush=True)
    for seed in range(given.first, given.first + given.seeds):
        runs = {"regard": lambda seed=seed: ours(seed, given.steps, hide, given.out)}
        if installed():
            runs["stable-baselines3 PPO"] = lambda seed=seed: theirs(seed, given.steps, hide)
        for name, run in runs.items():
            began = time.perf_counter()
            found[name].append(run())
            took = time.perf_counter() - began
            print(f"seed {seed}  {name:<22}{found[name][-1]:6.1f}  {took:5.0f} s", flush=True)
    for name, got in found.items():
        if got:
            print(f"{name:<22}median {np.median(got):.1f}  worst {min(got):.1f}  of {len(got)} seeds")
        else:
            print(f"{name:<22}not installed: pip install stable-baselines3")


if __name__ == "__main__":
    main()
