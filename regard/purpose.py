"""A task in a folder: task.json says what it is and what it learnt, and beside it stands what reads its input.

In a folder that we did not write, the name of its architecture says what it is for, and its config what the labels are.
"""

from __future__ import annotations

import warnings
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from regard.atomic import write_json
from regard.data.hearing import Hearing
from regard.data.mels import FILE as SOUNDS
from regard.data.mels import Mels
from regard.data.molecules import FILE as MOLECULES
from regard.data.molecules import Molecules
from regard.data.pictures import Pictures
from regard.data.tokens import Tokenizer
from regard.data.views import Views
from regard.generate import PROCESSOR_KEYS, SUPPORTED_KEYS, unsupported_settings
from regard.hub.files import read_json, there
from regard.hub.folder import asked_in, ends_of, said_of
from regard.hub.sentences import read_modules
from regard.hub.tables import KNOWN, classes_of, must_be_supported
from regard.hub.weights import INDEX, WHOLE, stored_in
from regard.parts.pooling import AtEnd
from regard.sampling import LogitsProcessor
from regard.tasks import TASKS
from regard.tasks.task import Task
from regard.tasks.translate import Translate
from regard.tasks.write import Write
from regard.validate import ModelWarning, check_choice, matches_type

READERS: dict[str, Any] = {
    "tokenizer": Tokenizer,
    "pictures": Pictures,
    "sounds": Mels,
    "molecules": Molecules,
}
FILES = {  # where they usually are
    "tokenizer": "tokenizer.json",
    "pictures": "preprocessor_config.json",
    "sounds": SOUNDS,
    "molecules": MOLECULES,
}
CHANGES: dict[str, Any] = {"views": Views, "hearing": Hearing}  # what is done to them in training


def write_task(folder: Path, task: Task) -> None:
    told: dict[str, Any] = {"task": next(name for name, kind in TASKS.items() if type(task) is kind)}
    for field in fields(task):  # type: ignore[arg-type]
        value = getattr(task, field.name)
        if field.name not in READERS:
            told[field.name] = value
        elif value is not None:
            value.save(folder)
    write_json(folder / "task.json", told)
    task.leave(folder)


def facts_of(task: Task) -> dict[str, Any]:
    """What a config.json says of a task: the names of its answers, and the tokens that begin and end a text."""
    return answers_of(task) | tokens_of(task)


def answers_of(task: Task) -> dict[str, Any]:
    names = getattr(task, "labels", None) or getattr(task, "tags", None)
    return {"id2label": dict(enumerate(names)), "label2id": {n: i for i, n in enumerate(names)}} if names else {}


def tokens_of(task: Task) -> dict[str, Any]:
    if isinstance(task, Translate):
        return {"eos_token_id": task.tokenizer.end, "decoder_start_token_id": task.first}
    if not isinstance(task, Write):
        return {}
    begin, end, pad = task.tokenizer.begin, task.tokenizer.end, task.tokenizer.pad
    ends = [end, *(other for other in task.ends if other != end)]
    return {"bos_token_id": begin, "eos_token_id": ends if len(ends) > 1 else end, "pad_token_id": pad}


ENDINGS = {  # of the names of their architectures
    "ForMaskedLM": "fill",
    "ForPreTraining": "fill",
    "ForSequenceClassification": "classify",
    "ForImageClassification": "classify",
    "ForTokenClassification": "tag",
    "ForQuestionAnswering": "answer",
    "ForCausalLM": "write",
    "LMHeadModel": "write",
    "MTModel": "translate",
    "ModelWithProjection": "embed",
    "ForConditionalGeneration": "translate",
    "CLIPModel": "match",
    "Model": "embed",
}


WIDEST = 2**16  # numbers of a vector after a projection
PROBLEMS = ("regression", "single_label_classification", "multi_label_classification")
POOLED = {"cls": "first", "mean": "mean"}  # as ModernBERT says it
SEEING = ("vit", "clip_vision_model")  # families that see
WITH_HEADS = ("bert", "roberta", "modernbert", "vit")  # families whose heads for labels, values, tags and spans we have


def task_of(folder: Path) -> str:
    """What the model of a folder is for."""
    file = folder / "task.json"
    if there(file):
        name = read_json(file).get("task")
        check_choice(f"task (in {file})", name, TASKS)
        return str(name)
    config = read_json(folder / "config.json")
    if str(config.get("model_type")).startswith("regard-"):
        raise ValueError(f"{folder} has no task.json, which tells what a model of ours is for")
    said = config.get("architectures")
    said = [architecture_of(folder, config)] if said is None else said  # as older folders have it
    if not isinstance(said, list) or not said:
        raise ValueError(f"{folder / 'config.json'}: architectures must be a list of names, not {said!r:.80}")
    architecture = str(said[0])
    found = next((task for ending, task in ENDINGS.items() if architecture.endswith(ending)), None)
    if found is None:
        if names := KNOWN.get(str(config.get("model_type"))):
            must_be_supported(names, config, stored_names(folder), folder)
        raise ValueError(
            f"{folder / 'config.json'}: no task is known for the architecture {architecture}: "
            f"those that are end in {', '.join(ENDINGS)}"
        )
    problem = config.get("problem_type")
    if problem not in (None, *PROBLEMS):
        raise ValueError(f"{folder / 'config.json'}: problem_type is {problem!r:.80}, and not {', '.join(PROBLEMS)}")
    one = found == "classify" and (problem == "regression" or len(labels_of(config, folder)) == 1)
    return "regress" if one else found


def architecture_of(folder: Path, config: dict[str, Any]) -> str:
    """That of a body alone. If there is a head, the folder has to say which."""
    names = KNOWN.get(str(config.get("model_type")))
    if names and (fitting := classes_of(stored_names(folder), [names])) and fitting[0].head:
        told = f'its weights are those of {fitting[0].architecture}: add "architectures": ["{fitting[0].architecture}"]'
        raise ValueError(f"{folder / 'config.json'} has no architectures, and {told}")
    return "Model"


def stored_names(folder: Path) -> list[str]:
    return [*stored_in(folder)] if there(folder / WHOLE) or there(folder / INDEX) else []


def labels_of(config: dict[str, Any], folder: Path) -> list[str]:
    """The names of the answers, in the order of their numbers. Without names there are two, as they have it."""
    names = config.get("id2label")
    if names is None:
        count = config.get("num_labels", 2)
        if type(count) is not int or not 0 < count < 10**6:
            raise ValueError(f"{folder / 'config.json'}: num_labels must be a number of labels, not {count!r:.80}")
        names = {str(i): f"LABEL_{i}" for i in range(count)}
    elif isinstance(names, dict) and type(count := config.get("num_labels")) is int and count < 10**6:
        names = {str(i): f"LABEL_{i}" for i in range(len(names), count)} | names  # some name only the first two
    numbered = isinstance(names, dict) and set(names) == {str(i) for i in range(len(names))}
    if not numbered or not all(isinstance(name, str | int) for name in names.values()):
        raise ValueError(f"{folder / 'config.json'}: id2label must name the labels 0, 1, 2 ..., not {names!r:.100}")
    return [str(names[str(i)]) for i in range(len(names))]


def told_by_config(task: str, folder: Path) -> dict[str, Any]:
    """What a folder of theirs says about its task."""
    config = read_json(folder / "config.json")
    if task == "embed":
        return read_modules(folder)._asdict() | ({} if there(folder / "modules.json") else vector_of(config, folder))
    if task == "translate":
        start = said_of(folder, config, "decoder_start_token_id")
        return {"start": start, "generation": generation_of(folder, config, task)}
    if task == "write":
        return {"ends": ends_of(folder, config), "generation": generation_of(folder, config, task)}
    if task in ("tag", "classify", "regress", "answer") and config.get("model_type") not in WITH_HEADS:
        raise ValueError(
            f"{folder}: a {config.get('model_type')} is read without its head for the task {task}: "
            f"regard train {task} --from {folder} --new-head trains another one"
        )
    if task == "tag":
        return {"tags": labels_of(config, folder)}
    pooling = pooling_of(config, folder)
    if task == "classify":
        many = config.get("problem_type") == "multi_label_classification"
        return {"labels": labels_of(config, folder), "many": many, "pooling": pooling}
    return {"mean": 0.0, "spread": 1.0, "pooling": pooling} if task == "regress" else {}


def vector_of(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """How a body alone makes one vector, where that is not the mean."""
    family = str(config["model_type"])
    told = {"pooling": "first"} if family in SEEING else {"pooling": "last"} if family == "clip_text_model" else {}
    if str((config.get("architectures") or [""])[0]).endswith("WithProjection"):
        width = config.get("projection_dim", 512)
        if type(width) is not int or not 0 < width <= WIDEST:
            raise ValueError(f"{folder / 'config.json'}: projection_dim must be from 1 to {WIDEST}, not {width!r:.80}")
        return told | {"projection": width}
    return told


def must_end(folder: Path, tokenizer: Tokenizer) -> None:
    """Refuse a text tower of CLIP whose vector is not that of the last token; 2 stands for the highest id."""
    end = read_json(folder / "config.json").get("eos_token_id", 49_407)
    [ids] = tokenizer.encode(["a"])
    if ids[-1:] != [len(tokenizer) - 1 if end == AtEnd.HIGHEST else end] or ids[-1] in ids[:-1]:
        told = f"{folder / 'config.json'}: eos_token_id is {end!r:.80}, but the tokenizer ends a text with {ids[-1:]}"
        raise ValueError(f"{told}: a CLIP takes its vector from there, so the two must agree")


def pooling_of(config: dict[str, Any], folder: Path) -> str:
    """How a family of theirs makes one vector of all."""
    match config.get("model_type"):
        case "vit":
            return "first"
        case "modernbert":
            said = config.get("classifier_pooling", "cls")
            if said not in POOLED:
                raise ValueError(
                    f'{folder / "config.json"}: classifier_pooling is {said!r}, but must be "cls" or "mean"'
                )
            return POOLED[said]
    return "pooler"


def generation_of(folder: Path, config: dict[str, Any], task: str) -> dict[str, Any] | None:
    """What generation_config.json asks for, or, in older folders, config.json; of what we can do."""
    told, file = asked_in(folder, config)
    heeded = {key: told[key] for key in SUPPORTED_KEYS if told.get(key) is not None}
    try:
        TASKS[task].ways(**TASKS[task].way_defaults(heeded))
        LogitsProcessor(**{key: value for key, value in heeded.items() if key in PROCESSOR_KEYS})
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file}: {error}") from None
    return heeded or None


def name_unheeded(folder: Path, task: str) -> None:
    """Warn of what a folder asks for and we do not do."""
    config = read_json(folder / "config.json")
    told, file = asked_in(folder, config)
    context = config.get("max_position_embeddings", config.get("n_positions"))
    length = context if isinstance(context, int) else 0
    if rest := unsupported_settings(told, [*ends_of(folder, config)], length, task == "translate"):
        named = ", ".join(f"{key} {value!r:.40}" for key, value in rest.items())
        warnings.warn(f"{file} asks for what is not done here: {named}", ModelWarning, stacklevel=4)


def way_defaults(folder: Path) -> dict[str, Any]:
    """Options of an answer that have another default for this folder."""
    task = task_of(folder)
    if task not in ("write", "translate"):
        return {}
    own = folder / "task.json"
    if not there(own):
        return TASKS[task].way_defaults(generation_of(folder, read_json(folder / "config.json"), task))
    told = read_json(own).get("generation")
    return TASKS[task].way_defaults(told) if isinstance(told, dict) else {}


def read_task(folder: Path) -> Task:
    name = task_of(folder)
    own = there(folder / "task.json")
    if name in ("write", "translate") and not own:
        name_unheeded(folder, name)
    told: dict[str, Any] = read_json(folder / "task.json") if own else told_by_config(name, folder)
    kind: Any = TASKS[name]
    known = {field.name for field in fields(kind)}
    family = read_json(folder / "config.json").get("model_type")
    if name == "embed":
        known.remove("tokenizer" if family in SEEING else "pictures")
    made = {name: told[name] for name in told if name in known} | read_readers(folder, known)
    lacks = [field.name for field in fields(kind) if field.default is MISSING and field.name not in made]
    readers = [field for field in fields(kind) if field.name in READERS and field.name in known]
    either = [field.name for field in readers] if all(field.default is None for field in readers) else []
    if either and not {*either} & {*made}:
        lacks += either
    if lacks:
        files = [f"{name} ({FILES[name]})" if name in FILES else name for name in lacks]
        raise ValueError(f"{folder} lacks what its task needs: {' or '.join(files)}")
    if own:
        must_be_whole(folder / "task.json", kind, told)
    elif family == "clip_text_model":
        must_end(folder, made["tokenizer"])
    try:
        for name, options in CHANGES.items():
            if made.get(name):
                must_be_whole(folder / "task.json", options, made[name])
                options(**made[name])
        return kind(**made)
    except (ValueError, TypeError) as error:
        file = folder / ("task.json" if own else "config.json")
        raise ValueError(str(error) if str(folder) in str(error) else f"{file}: {error}") from None


def must_be_whole(file: Path, kind: Any, told: dict[str, Any]) -> None:
    """Every field of a task that we wrote is there, and of its type; those that may be nothing may be missing."""
    kinds = get_type_hints(kind)
    for field in fields(kind):
        if field.name in READERS:
            continue
        if field.name not in told and field.default is not None:
            raise ValueError(f"{file} has no {field.name}: put it back as it was, or train again")
        if not matches_type(told.get(field.name), kinds[field.name]):
            raise ValueError(f"{file}: {field.name} cannot be {told[field.name]!r:.80}: put it back, or train again")


def read_readers(folder: Path, wanted: set[str]) -> dict[str, Any]:
    """What reads the input of a folder, if the task wants it and the folder has it."""
    return {name: kind.load(folder) for name, kind in READERS.items() if name in wanted and kind.lies_in(folder)}


def agreed(config: Any, task: Task, folder: Path) -> Any:
    """The config, with what only the tokenizer knows: which token ends a sentence, and where the second segment
    of a pair begins. What the two say must agree.

    A model of theirs may have room for more tokens than there are, and a padding that is nowhere seen.
    """
    told: dict[str, Any] = {}
    for field, value in task.sizes().items():
        has = getattr(config, field, value)
        if field == "segment_start" or (field == "sep" and has < 0):
            told[field], agrees = value, True
        elif isinstance(task, Translate):
            agrees = has == value
        else:
            agrees = field in ("pad", "sep") or (has >= value if field == "vocab" else has == value)
        if not agrees:
            files = " or ".join(file for name, file in FILES.items() if getattr(task, name, None) is not None)
            raise ValueError(f"{folder}: {files} has {field} {value}, but config.json says {has}")
    return replace(config, **{field: value for field, value in told.items() if hasattr(config, field)})
