"""Which models fit a task and a modality: it follows from what each of them declares.

task          structures and kind of target that it needs        classify: an encoder; labels
modality      targets that it reads, and its representation      image: labels, text; pixels
model         bodies by structure, and the modality they read    vit: encoder of images
"""

from __future__ import annotations

from typing import NamedTuple

from regard.modalities import MODALITIES
from regard.modalities.protocols import Modality
from regard.models import MODELS, STRUCTURES, Structure
from regard.parts.heads import Body
from regard.tasks.task import Task
from regard.validate import check_choice


class Fit(NamedTuple):
    structure: Structure
    body: type[Body]
    modality: Modality
    output: Modality | None  # of targets that have a modality of their own


def structure_of(task: type[Task], model: str) -> Structure | None:
    """The first structure that the task needs and the model has."""
    return next((structure for structure in task.structures if structure in MODELS[model].bodies), None)


def fits(task: type[Task], model: str, modality: Modality) -> bool:
    """Whether the model is made for the modality, or for one with inputs of the same shape, and fits the task."""
    is_read = task.target in modality.formats and MODELS[model].inputs[0] in (modality.name, *modality.like)
    return is_read and structure_of(task, model) is not None


def fitting_models(task: type[Task], modality: Modality) -> list[str]:
    return [model for model in MODELS if fits(task, model, modality)]


def fitting_modalities(task: type[Task], model: str) -> list[Modality]:
    """The modality that the model is made for comes first."""
    own = MODELS[model].inputs[0]
    fitting = [modality for modality in MODALITIES.values() if fits(task, model, modality)]
    return sorted(fitting, key=lambda modality: modality.name != own)


def default_model(task: type[Task], modality: Modality) -> str:
    """The task's own default if it is made for the modality, else the modality's."""
    if MODELS[task.default].inputs[0] == modality.name:
        return task.default
    fitting = fitting_models(task, modality)
    names = (modality.default_models.get(structure) for structure in task.structures)
    return next((name for name in (*names, *fitting) if name in fitting), task.default)


def find_fit(name: str, task: type[Task], model: str, modality: str | None = None) -> Fit:
    """The body for a task, a model and a modality, by default the first that both read; ValueError names the models
    that fit."""
    check_choice("model", model, MODELS)
    if modality is not None:
        check_choice("modality", modality, MODALITIES)
    fitting = fitting_modalities(task, model) or [MODALITIES[MODELS[model].inputs[0]]]
    kind = MODALITIES[modality] if modality else fitting[0]
    structure = structure_of(task, model)
    if structure is None or not fits(task, model, kind):
        raise ValueError(refusal(name, task, model, kind))
    return Fit(structure, MODELS[model].bodies[structure], kind, output_modality(model, structure))


def body_class(task: Task, model: str) -> type[Body]:
    """The body of a fitted task."""
    structure = structure_of(type(task), model)
    if structure is None:
        modality = MODALITIES[task.preprocessor.modality]
        raise ValueError(refusal(type(task).__name__.lower(), type(task), model, modality))
    return MODELS[model].bodies[structure]


def output_modality(model: str, structure: Structure) -> Modality | None:
    family = MODELS[model]
    names = {"encoder-decoder": family.output, "two-tower": family.inputs[-1]}
    return MODALITIES[names[structure]] if structure in names else None


def refusal(name: str, task: type[Task], model: str, modality: Modality) -> str:
    """One sentence: what the task needs, what the model is, and which models fit."""
    models = fitting_models(task, modality)
    if not models:
        readable = [other for other in MODALITIES.values() if fitting_models(task, other)]
        units = ", ".join(other.unit for other in readable)
        models = [*dict.fromkeys(default_model(task, other) for other in readable)]
        return f"{name} reads {units}, not {modality.unit}: choose --model {' or '.join(models)}"
    needs = " or ".join(STRUCTURES[structure] for structure in task.structures)
    has = " and ".join(STRUCTURES[structure] for structure in MODELS[model].bodies)
    units = MODALITIES[MODELS[model].inputs[0]].unit
    return (
        f"{name} of {modality.unit} needs a model with {needs}, and {model} has {has} of {units}: "
        f"choose --model {' or '.join(models)}"
    )
