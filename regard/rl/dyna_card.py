"""The model card of a Dyna run: model and policy, training data, and the command that plays it."""

from __future__ import annotations

from regard.tasks.predict import EnvOptions
from regard.training.card import platform_fields

CARD = """---
library_name: regard
tags: [regard, predict, world, {env}]
---

# A world model of {env}, and a policy trained in it

{model_parameters:,} parameters of the model and {policy_parameters:,} of the policy, trained on {steps:,} real steps in
{episodes:,} episodes{hidden}. The policy was trained by PPO on rollouts in the model only. In the last round it acted
with sampled actions, with a mean return of {mean_return:.1f}; the model predicts a return of {predicted_return:.1f} for
the final policy.

```
regard run THIS_FOLDER --play
```
```python
from pathlib import Path

from regard.rl.environment import Environment, episode_returns
from regard.rl.policy import Policy, greedy_policy

policy, metadata = Policy.load(Path("THIS_FOLDER/policy"))
environment = Environment(metadata["env"], tuple(metadata["hide"]))
print(episode_returns(environment, greedy_policy(policy), episodes=20, seed=1))
```

No evaluation episodes selected the policy: it is the last one. Every setting is in `train.json`, every step in
`metrics.jsonl`, every real episode in `episodes.npz`. Made by regard {regard} with PyTorch {torch}, Python {python},
{threads} threads of {processor}, seed {seed}. The same of all these gives the same bits; another number of threads does
not.
"""


def dyna_card(options: EnvOptions, seed: int, **numbers: float) -> str:
    """`numbers` are parameters, real steps and episodes, and returns."""
    hidden = f", with observation entries {', '.join(map(str, options.hide))} hidden" if options.hide else ""
    return CARD.format(env=options.env, hidden=hidden, seed=seed, **numbers, **platform_fields())
