"""regard models: list all models, with their sizes and the tasks that they fit."""

from __future__ import annotations

from dataclasses import fields

import torch

from regard.models import MODELS, STRUCTURES, Family
from regard.tasks import TASKS
from regard.tasks.compatibility import fitting_modalities
from regard.training.loop import num_parameters

EXAMPLE_SIZES = {  # for counting parameters; in training the data determine them
    **{"vocab": 8000, "image_size": 32, "channels": 3, "mels": 40, "stride": 2},
    **{"atom_features": 40, "pair_kinds": 26, "observation_dim": 100, "observation_tokens": 9},
}


def main(args: list[str]) -> int:
    if args:
        raise ValueError(f"regard models takes no arguments, not {args[0]!r}; regard train TASK --help lists options")
    for name, family in MODELS.items():
        doc = str(__import__(family.config.__module__, fromlist=["_"]).__doc__)
        print(f"{name:<17}{doc.splitlines()[0]}")
        print(f"{'':<17}{'; '.join(STRUCTURES[structure] for structure in family.bodies)}")
        tasks = [task for task, kind in TASKS.items() if fitting_modalities(kind, name)]
        print(f"{'':<17}tasks: {', '.join(tasks)}")
        counts = [f"{size} {format_count(body_parameters(family, size))}" for size in family.sizes]
        print(f"{'':<17}sizes: {', '.join(counts)}\n")
    print("Sizes are parameters of the body, for 8,000 tokens, images of 32 x 32 colour pixels and 40 mel filters.")
    return 0


def body_parameters(family: Family, size: str) -> int:
    """The number of parameters, without allocating them."""
    names = {field.name for field in fields(family.config)}
    config = family.config(**{n: v for n, v in EXAMPLE_SIZES.items() if n in names} | family.sizes[size])
    with torch.device("meta"):
        return num_parameters(next(iter(family.bodies.values()))(config))


def format_count(number: int) -> str:
    for unit, power in (("B", 9), ("M", 6), ("k", 3)):
        if number >= 10**power:
            return f"{number / 10**power:.3g}{unit}"
    return str(number)
