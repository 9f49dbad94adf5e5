"""The fields of an input, for every task and modality, and the request that they make.

    {"question": "Who came?", "document": "Anna came."}  ─▶  "Who came?\tAnna came."
    upload, ["a cat", "a dog"]                            ─▶  "…/input.png\ta cat\ta dog"

A tab separates fields, so a field that contains one is refused unless nothing follows it.
"""

from __future__ import annotations

from pathlib import Path

from regard.modalities import MODALITIES
from regard.modalities.protocols import Modality, Target
from regard.serve.errors import INVALID, ApiError
from regard.serve.schemas_run import InputField, InputKind, RunRequest
from regard.tasks import TASKS

Value = str | list[str]
QUESTION = [InputField("question", "text", "Question"), InputField("document", "text", "Document")]
CANDIDATES = InputField("candidates", "texts", "Candidates to compare it with", required=False)
TEXTS = InputField("texts", "texts", "Candidate texts")
WHOLE = (Target.TEXT, Target.NEXT, Target.MASKED, Target.TAGS)  # a tab in such a request is a space like any other


def input_fields(task: str, modality: Modality) -> list[InputField]:
    """The fields of an input, in the order in which a list gives them."""
    target, structures = TASKS[task].target, TASKS[task].structures
    if target is Target.SPAN:
        return QUESTION
    first = InputField("text", "text", modality.name.capitalize())
    if modality.file_formats:
        inline = modality.is_inline("[") or modality.is_inline("{")
        first = InputField("file", "file", modality.name.capitalize(), True, modality.file_formats, inline)
    if structures == ("two-tower",):
        return [first, TEXTS]
    return [first, CANDIDATES] if target is Target.PAIR and first.kind == "text" else [first]


def input_kind(fields: list[InputField]) -> InputKind:
    if fields[0].kind == "file":
        return "file" if len(fields) == 1 else "file+texts"
    return "text" if len(fields) == 1 else "fields"


def make_request(task: str, modality_name: str, query: RunRequest, upload: Path | None) -> str:
    """The request as `LoadedModel.generate` takes it, from the fields and an uploaded file."""
    modality = MODALITIES[modality_name]
    fields = input_fields(task, modality)
    parts = ordered_parts(query, fields, upload)
    if fields[0].kind == "file":
        if upload is not None:
            parts = [str(upload), *parts]
        elif not parts or not modality.is_inline(parts[0]):
            raise ApiError(INVALID, missing_file(modality, fields[0].inline), "file", "file_required")
    check_count(parts, task, fields)
    check_tabs(parts, task)
    return "\t".join(parts)


def missing_file(modality: Modality, inline: bool) -> str:
    remedy = f"send a {modality.file_formats[0]} file as multipart/form-data, or in base64"
    return f"this model reads {modality.unit}, and never a file of the server: {remedy}{', or JSON' if inline else ''}"


def ordered_parts(query: RunRequest, fields: list[InputField], upload: Path | None) -> list[str]:
    """The texts of a request, in the order of the fields."""
    content = query.input
    if isinstance(content, str):
        return [content]
    if isinstance(content, list):
        return content
    values = dict(content or {})
    texts = [field for field in fields if field.kind != "file" or (field.inline and upload is None)]
    if unknown := [name for name in values if name not in [field.name for field in texts]]:
        names = ", ".join(field.name for field in texts) or "only a file"
        raise ApiError(INVALID, f"the input has no field {unknown[0]!r:.80}: it has {names}", f"input.{unknown[0]:.80}")
    parts: list[str] = []
    for field in texts:
        parts += field_texts(values, field)
    return parts


def field_texts(values: dict[str, Value], field: InputField) -> list[str]:
    value = values.get(field.name, [])
    if isinstance(value, str):
        return [value]
    if len(value) > 1 and field.kind != "texts":
        raise ApiError(INVALID, f"{field.name} is one text, not a list of {len(value)}", f"input.{field.name}")
    if not value and field.required and field.kind != "file":
        raise ApiError(INVALID, f"the field {field.name} is missing: add it to input", f"input.{field.name}")
    return value


def check_count(parts: list[str], task: str, fields: list[InputField]) -> None:
    """A text, all texts of a task with several fields, or two texts that a model compares."""
    least = sum(field.required for field in fields)
    most = len(fields) if fields[-1].kind != "texts" else None
    if TASKS[task].target in (Target.LABELS, Target.NUMBER) and fields[0].kind == "text":
        most = 2
    names = " and ".join(field.name for field in fields if field.required)
    if not parts or len(parts) < least:
        raise ApiError(INVALID, f"the input is incomplete: send {names}", "input")
    if most is not None and len(parts) > most:
        raise ApiError(INVALID, f"the input has {len(parts)} fields, but this model takes {names}", "input")


def check_tabs(parts: list[str], task: str) -> None:
    """A document is the last field, and may contain tabs."""
    target = TASKS[task].target
    if len(parts) == 1 and target in WHOLE:
        return
    checked = parts[:-1] if target is Target.SPAN else parts
    if any("\t" in part for part in checked):
        remedy = "replace it by a space, or send several fields as a list"
        raise ApiError(INVALID, f"a field contains a tab, which separates fields: {remedy}", "input")
