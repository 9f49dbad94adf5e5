"""regard tasks: list all tasks, the files that each reads, and the models that fit."""

from __future__ import annotations

from regard.modalities import MODALITIES
from regard.tasks import TASKS
from regard.tasks.compatibility import default_model, fitting_models
from regard.training.task_aliases import TASK_ALIASES


def main(args: list[str]) -> int:
    if args:
        raise ValueError(f"regard tasks takes no arguments, not {args[0]!r}; regard train TASK --help lists options")
    for name, task in TASKS.items():
        modalities = [modality for modality in MODALITIES.values() if fitting_models(task, modality)]
        aliases = [alias for alias, (target, _) in TASK_ALIASES.items() if target == name]
        print(f"{name:<11}{task.description}")
        for modality in modalities:
            default, models = default_model(task, modality), fitting_models(task, modality)
            print(f"{'':<11}reads {modality.unit}: {modality.formats[task.target]}")
            print(f"{'':<13}models: {', '.join(sorted(models, key=lambda model: model != default))}")
            print(f"{'':<13}without --data: {modality.synthetic_data[task.target]}")
        print(f"{'':<11}Hugging Face: {', '.join(aliases) or 'none'}\n")
    return 0
