"""regard tasks: what models are for, what each task reads, and which models fit."""

from __future__ import annotations

from regard.models import MODELS
from regard.tasks import TASKS


def main(args: list[str]) -> int:
    if args:
        raise ValueError(f"regard tasks takes no options, and not {args[0]!r}; regard train TASK --help has them")
    for name, task in TASKS.items():
        fit = [model for model, family in MODELS.items() if set(task.requires) & set(family.bodies)]
        first = [task.default, *(model for model in fit if model != task.default)]
        print(f"{name:<11}{task.description}")
        print(f"{'':<11}reads {task.file_formats}")
        print(f"{'':<11}models: {', '.join(first)}")
        print(f"{'':<11}without --data: {task.bundled_data}\n")
    return 0
