"""The model card: what the model is, how it was made and how to use it, as the README.md of its folder."""

from __future__ import annotations

import platform
from typing import Any

import torch

from regard import __version__
from regard.device import cpu_name

CARD = """---
library_name: {library}
tags: [regard, {task}, {model}]
---

# {title}

{parameters:,} parameters, trained {start} on {amount} from {data} in {steps:,} steps.

```
regard run THIS_FOLDER "your text"
```
```python
import regard

model = regard.load("THIS_FOLDER")
model("your text")
```
{opens}
| score | validation | test |
|---|---|---|
{scores}

Validation is on {valid}, with the weights of step {best}.{how}

Every setting is in `train.json`, every step in `metrics.jsonl`. Made by regard {regard} with PyTorch {torch}, Python
{python}, {threads} threads of {processor}, seed {seed}, data {fingerprint}. The same of all these gives the same bits;
another number of threads does not.
"""
TRANSLATES = """
The folder is a Hugging Face folder: transformers opens it with `AutoModelForSeq2SeqLM.from_pretrained`, and
CTranslate2's `ct2-transformers-converter` takes it as it is.
"""


def card(
    settings: dict[str, Any],
    parameters: int,
    amount: str,
    valid: str,
    best: dict[str, Any],
    test: dict[str, Any],
    family: str,
    fingerprint: str,
) -> str:
    rows = [
        f"| {name} | {value:.2f} | {format(test[name], '.2f') if name in test else ''} |"
        for name, value in best.items()
        if name != "step"
    ]
    translates = family in ("marian", "pegasus")
    beams = (
        " Validation is greedy, the test uses beam search; BLEU is sacreBLEU's, cased, 13a." if "bleu" in best else ""
    )
    return CARD.format(
        library="regard" if family.startswith("regard-") else "transformers",
        title=f"A {settings['model']} that does: {settings['task']}",
        task=settings["task"],
        model=settings["model"],
        start=started(settings),
        parameters=parameters,
        amount=amount,
        valid=valid,
        data=" and ".join(f"`{name}`" for name in settings["data"]) or "regard's bundled data",
        steps=settings["steps"],
        opens=TRANSLATES if translates else "",
        scores="\n".join(rows),
        how=beams,
        best=best["step"],
        regard=__version__,
        torch=torch.__version__,
        python=platform.python_version(),
        threads=torch.get_num_threads(),
        processor=cpu_name(),
        seed=settings["seed"],
        fingerprint=fingerprint,
    )


def started(settings: dict[str, Any]) -> str:
    if not settings["from_"]:
        return "from scratch"
    head = "under a new head" if settings["new_head"] else "with its head"
    frozen = f", without {', '.join(settings['freeze'])}" if settings["freeze"] else ""
    return f"from `{settings['from_']}` {head}{frozen}"
