"""regard models: the family, with sizes and what each can be used for."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch

from regard.models import ABILITIES, MODELS
from regard.tasks import TASKS
from regard.training.loop import num_parameters

GUESSES = {  # for counting; the data says otherwise
    **{"vocab": 8000, "image": 32, "channels": 3, "mels": 40, "stride": 2},
    **{"properties": 40, "pairs": 26, "observation": 100, "places": 9},
}


def main(args: list[str]) -> int:
    if args:
        raise ValueError(f"regard models takes no options, and not {args[0]!r}; regard train TASK --help has them")
    for name, family in MODELS.items():
        doc = str(__import__(family.config.__module__, fromlist=["_"]).__doc__)
        print(f"{name:<13}{doc.splitlines()[0]}")
        print(f"{'':<13}{'; '.join(ABILITIES[ability] for ability in family.bodies)}")
        fit = [task for task, kind in TASKS.items() if set(kind.asks) & set(family.bodies)]
        print(f"{'':<13}tasks: {', '.join(fit)}")
        counts = [f"{size} {short(count(family, size))}" for size in family.sizes]
        print(f"{'':<13}sizes: {', '.join(counts)}\n")
    sizes = "8,000 pieces for texts, 32 x 32 colour pixels for pictures and 40 mels for sounds"
    print(f"Parameters are those of the body, with {sizes}.")
    return 0


def count(family: Any, size: str) -> int:
    """Without taking the memory."""
    known = {field.name for field in fields(family.config)}
    config = family.config(**{n: v for n, v in GUESSES.items() if n in known} | family.sizes[size])
    with torch.device("meta"):
        return num_parameters(next(iter(family.bodies.values()))(config))


def short(number: int) -> str:
    for unit, power in (("B", 9), ("M", 6), ("k", 3)):
        if number >= 10**power:
            return f"{number / 10**power:.3g}{unit}"
    return str(number)
