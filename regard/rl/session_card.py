"""The model card of somebody who acts: what it is, what it lived through, and how to see it play."""

from __future__ import annotations

import platform

import torch

from regard import __version__
from regard.device import processor
from regard.rl.session import Life
from regard.training.loop import parameters

CARD = """---
library_name: regard
tags: [regard, predict, world, {env}]
---

# A model of {env}, and a policy that learnt in it

{parameters:,} parameters of the model and {small:,} of the policy, learnt from {steps:,} real steps in
{episodes:,} episodes{hidden}. The policy practised only in the imagination of the model. In the last round of
acting, with chance in it, an episode brought {obtained:.1f}; the model expects {expected:.1f} of the policy that is
kept.

```
regard run THIS_FOLDER --play
```
```python
from pathlib import Path

from regard.rl.environment import Environment, returns
from regard.rl.policy import Policy, greedy

policy, told = Policy.load(Path("THIS_FOLDER/policy"))
print(returns(Environment(told["env"], tuple(told["hide"])), greedy(policy), episodes=20, seed=1))
```

Nothing was chosen by playing: the policy is the last one. Every setting is in `train.json`, every step in
`metrics.jsonl`, all that was lived in `episodes.npz`. Made by regard {regard} with PyTorch {torch}, Python {python},
{threads} threads of {processor}, seed {seed}. The same of all these gives the same bits; another number of threads does
not.
"""


def card(life: Life) -> str:
    experience = life.experience
    return CARD.format(
        env=experience.env,
        parameters=parameters(life.progress.model),
        small=parameters(life.policy),
        steps=life.lived,
        episodes=len(life.pasts),
        hidden=f", seen without the numbers {', '.join(map(str, experience.hide))}" if experience.hide else "",
        obtained=life.obtained,
        expected=life.expected,
        regard=__version__,
        torch=torch.__version__,
        python=platform.python_version(),
        threads=torch.get_num_threads(),
        processor=processor(),
        seed=life.seed,
    )
