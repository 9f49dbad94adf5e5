"""The model card: what the model is, how it was made and how to use it, as the README.md of its folder."""

from __future__ import annotations

import platform
from typing import Any

import torch

from regard import __version__

CARD = """---
library_name: transformers
tags: [regard, {task}, {model}]
---

# {title}

{parameters:,} parameters, trained from scratch on {pairs:,} sentence pairs from {data} in {steps:,} steps.

```
regard run THIS_FOLDER "your sentence"
```
```python
import regard

translate = regard.load("THIS_FOLDER")
translate("your sentence")
```

The folder is a Hugging Face folder: transformers opens it with `AutoModelForSeq2SeqLM.from_pretrained`, and
CTranslate2's `ct2-transformers-converter` takes it as it is.

| score | validation | test |
|---|---|---|
{scores}

Validation is greedy, on {valid:,} pairs, with the weights of step {best}; the test uses beam search. BLEU is
sacreBLEU's, cased, 13a.

Every setting is in `train.json`, every step in `metrics.jsonl`. Made by regard {regard} with PyTorch {torch}, Python
{python}, {threads} threads, seed {seed}.
"""


def card(
    settings: dict[str, Any], parameters: int, pairs: int, valid: int, best: dict[str, Any], test: dict[str, Any]
) -> str:
    rows = [
        f"| {name} | {best[name]:.2f} | {format(test[name], '.2f') if name in test else ''} |"
        for name in ("loss", "perplexity", "bleu", "chrf")
        if name in best
    ]
    return CARD.format(
        title=f"A {settings['model']} that does: {settings['task']}",
        task=settings["task"],
        model=settings["model"],
        parameters=parameters,
        pairs=pairs,
        valid=valid,
        data=" and ".join(f"`{name}`" for name in settings["data"]) or "regard's phrasebook",
        steps=settings["steps"],
        scores="\n".join(rows),
        best=best["step"],
        regard=__version__,
        torch=torch.__version__,
        python=platform.python_version(),
        threads=torch.get_num_threads(),
        seed=settings["seed"],
    )
