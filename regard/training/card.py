"""The model card (Mitchell et al. 2019): what the model is, how it was trained and how to use it, as README.md."""

from __future__ import annotations

import platform
from collections.abc import Mapping

import torch

from regard import __version__
from regard.device import cpu_name
from regard.hub.folder import find_family_map
from regard.parts.heads import Model
from regard.training.loop import num_parameters
from regard.training.settings import RunOptions, Settings

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
    settings: Settings, model: Model, best: Mapping[str, float], test: Mapping[str, float], **facts: object
) -> str:
    """`facts` are steps, amount, valid and fingerprint."""
    facts |= {"parameters": num_parameters(model), "family": find_family_map(model.body).family}
    test_texts = {name: f"{value:.2f}" for name, value in test.items()}
    rows = [f"| {name} | {value:.2f} | {test_texts.get(name, '')} |" for name, value in best.items() if name != "step"]
    decoding = " Validation is greedy, the test uses beam search; BLEU is sacreBLEU's, cased, 13a."
    return TEMPLATE.format(
        library="regard" if str(facts["family"]).startswith("regard-") else "transformers",
        title=f"{settings.model}, trained for the task {settings.task}",
        task=settings.task,
        model=settings.model,
        start=describe_start(settings.run_options),
        data=" and ".join(f"`{name}`" for name in settings.files.data) or "regard's bundled data",
        compatible=SEQ2SEQ if facts["family"] in ("marian", "pegasus") else "",
        scores="\n".join(rows),
        decoding=decoding if "bleu" in best else "",
        best=best["step"],
        seed=settings.train_options.seed,
        **facts,
        **platform_fields(),
    )


def platform_fields() -> dict[str, object]:
    """Versions, processor and threads, on which the bits of the weights depend."""
    return {
        "regard": __version__, "torch": torch.__version__, "python": platform.python_version(),
        "threads": torch.get_num_threads(), "processor": cpu_name(),
    }  # fmt: skip


def describe_start(options: RunOptions) -> str:
    if not options.from_:
        return "from scratch"
    head = "with a new head" if options.new_head else "with its head"
    frozen = f", with {', '.join(options.freeze)} frozen" if options.freeze else ""
    return f"from `{options.from_}` {head}{frozen}"
