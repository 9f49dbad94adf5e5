"""regard tasks: list all tasks, the files that each reads, and the models that fit."""

from __future__ import annotations

from regard.models import MODELS
from regard.tasks import TASKS
from regard.training.task_aliases import TASK_ALIASES


def main(args: list[str]) -> int:
    if args:
        raise ValueError(f"regard tasks takes no arguments, not {args[0]!r}; regard train TASK --help lists options")
    for name, task in TASKS.items():
        models = [model for model, family in MODELS.items() if set(task.requires) & set(family.bodies)]
        default_first = [task.default, *(model for model in models if model != task.default)]
        aliases = [alias for alias, (target, _) in TASK_ALIASES.items() if target == name]
        print(f"{name:<11}{task.description}")
        print(f"{'':<11}reads {task.file_formats}")
        print(f"{'':<11}models: {', '.join(default_first)}")
        print(f"{'':<11}Hugging Face: {', '.join(aliases) or 'none'}")
        print(f"{'':<11}without --data: {task.bundled_data}\n")
    return 0
