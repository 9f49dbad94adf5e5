"""Hugging Face's names of tasks (the pipeline tags of the hub), as aliases of ours."""

from __future__ import annotations

TASK_ALIASES: dict[str, tuple[str, str | None]] = {  # our task, and the model if it is not the task's default
    "translation": ("translate", None),
    "summarization": ("translate", None),
    "text2text-generation": ("translate", None),
    "automatic-speech-recognition": ("translate", "speech2text"),
    "text-generation": ("write", None),
    "fill-mask": ("fill", None),
    "text-classification": ("classify", None),
    "image-classification": ("classify", "vit"),
    "audio-classification": ("classify", "audio_encoder"),
    "token-classification": ("tag", None),
    "question-answering": ("answer", None),
    "feature-extraction": ("embed", None),
    "sentence-similarity": ("embed", None),
    "zero-shot-image-classification": ("match", None),
}


def resolve_task(name: str) -> tuple[str, str | None]:
    """Our name of a task, and the model that the alias implies; any other name is returned as it is."""
    return TASK_ALIASES.get(name, (name, None))
