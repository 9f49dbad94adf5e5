"""Golden answers: the weights of a run still give the answers that its best evaluation recorded.

A run records a few sources with its own answers in metrics.jsonl. So this check finds weights that changed or were
swapped since, without the data, even where transformers reads the same wrong file.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from regard.check.check_result import CheckResult
from regard.json_files import MAX_METRICS, lexists, read_bounded
from regard.loaded_model import LoadedModel
from regard.tasks.task import Task

MAX_SOURCE_CHARS = 300  # where recorded sources are truncated


def golden_answers(loaded: LoadedModel, folder: Path) -> list[CheckResult]:
    """For tasks whose recorded sources are whole requests."""
    samples = recorded_samples(folder, loaded.task)
    answers = [loaded.task.repeat_sample(loaded.model, sample["source"]) for sample in samples]
    if not answers or None in answers:
        return []
    same = [answer == sample["prediction"] for answer, sample in zip(answers, samples, strict=True)]
    message = f"{sum(same)} of {len(same)} answers equal those that the run recorded"
    if all(same):
        return [CheckResult("golden answers", "ok", message, 0, 0)]
    advice = "The weights differ from those evaluated: restore them (or another machine rounds otherwise)."
    all_differ = len(same) > 1 and not any(same)
    return [CheckResult("golden answers", "FAILS" if all_differ else "note", message, len(same) - sum(same), 0, advice)]


def recorded_samples(folder: Path, task: Task) -> list[dict[str, str]]:
    """Sources and answers of the best evaluation."""
    best: dict[str, Any] = {}
    file = folder / "metrics.jsonl"
    if lexists(file):
        for line in read_bounded(file, MAX_METRICS).decode().splitlines():
            with suppress(ValueError, KeyError, TypeError):
                record = json.loads(line)
                if not best or task.rank(record["valid"]) > task.rank(best["valid"]):
                    best = record if record["samples"] else best
    return [sample for sample in best.get("samples", []) if len(sample["source"]) < MAX_SOURCE_CHARS]
