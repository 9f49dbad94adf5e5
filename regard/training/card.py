"""The model card (Mitchell et al. 2019): what the model is, how it was trained and how to use it, as README.md."""

from __future__ import annotations

import platform
from typing import Any

import torch

from regard import __version__
from regard.device import cpu_name

TEMPLATE = """---
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
{compatible}
| score | validation | test |
|---|---|---|
{scores}

Validation is on {valid}, with the weights of step {best}.{decoding}

`train.json` holds all settings, `metrics.jsonl` every step. Trained by regard {regard} with PyTorch {torch}, Python
{python}, {threads} threads of {processor}, seed {seed}, data {fingerprint}. The same versions, processor, number of
threads, seed and data reproduce the weights bit for bit.
"""
SEQ2SEQ = """
This is a Hugging Face folder: transformers loads it with `AutoModelForSeq2SeqLM.from_pretrained`, and CTranslate2's
`ct2-transformers-converter` converts it.
"""


def model_card(
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
    decoding = " Validation is greedy, the test uses beam search; BLEU is sacreBLEU's, cased, 13a."
    return TEMPLATE.format(
        library="regard" if family.startswith("regard-") else "transformers",
        title=f"{settings['model']}, trained for the task {settings['task']}",
        task=settings["task"],
        model=settings["model"],
        start=describe_start(settings),
        parameters=parameters,
        amount=amount,
        valid=valid,
        data=" and ".join(f"`{name}`" for name in settings["data"]) or "regard's bundled data",
        steps=settings["steps"],
        compatible=SEQ2SEQ if family in ("marian", "pegasus") else "",
        scores="\n".join(rows),
        decoding=decoding if "bleu" in best else "",
        best=best["step"],
        regard=__version__,
        torch=torch.__version__,
        python=platform.python_version(),
        threads=torch.get_num_threads(),
        processor=cpu_name(),
        seed=settings["seed"],
        fingerprint=fingerprint,
    )


def describe_start(settings: dict[str, Any]) -> str:
    if not settings["from_"]:
        return "from scratch"
    head = "with a new head" if settings["new_head"] else "with its head"
    frozen = f", with {', '.join(settings['freeze'])} frozen" if settings["freeze"] else ""
    return f"from `{settings['from_']}` {head}{frozen}"
