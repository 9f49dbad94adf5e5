"""Golden answers: the weights of a run still give the answers that its best evaluation recorded.

A run records a few sources with its own answers in metrics.jsonl. So this check finds weights that changed or were
swapped since, without the data, even where transformers reads the same wrong file.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from regard.check.check_result import CheckResult
from regard.json_files import MAX_METRICS, lexists, read_bounded
from regard.load import LoadedModel
from regard.tasks.fill import Fill, FillOptions
from regard.tasks.task import Prediction
from regard.tasks.translate import Translate
from regard.tasks.translation_decoding import GREEDY
from regard.tasks.write import Write, WriteOptions

MAX_SOURCE_CHARS = 300  # where recorded sources are truncated


def golden_answers(loaded: LoadedModel, folder: Path) -> list[CheckResult]:
    """For tasks that record whole sources."""
    samples = recorded_samples(folder, loaded.task)
    if (
        type(loaded.task) not in PREDICT_AGAIN
        or not samples
        or getattr(loaded.task, "feature_extractor", None) is not None
    ):
        return []
    same = [PREDICT_AGAIN[type(loaded.task)](loaded, sample["source"]) == sample["prediction"] for sample in samples]
    message = f"{sum(same)} of {len(same)} answers equal those that the run recorded"
    if all(same):
        return [CheckResult("golden answers", "ok", message, 0, 0)]
    advice = "The weights differ from those evaluated: restore them (or another machine rounds otherwise)."
    all_differ = len(same) > 1 and not any(same)
    return [CheckResult("golden answers", "FAILS" if all_differ else "note", message, len(same) - sum(same), 0, advice)]


def recorded_samples(folder: Path, task: Any) -> list[dict[str, str]]:
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


def predict_translation(loaded: LoadedModel, source: str) -> str:
    [best] = loaded.task.predict(loaded.model, [source], GREEDY)
    return best[0].text


def predict_continuation(loaded: LoadedModel, source: str) -> str:
    decode_options = WriteOptions(max_new_tokens=loaded.model.body.config.context // 2)
    [best] = loaded.task.predict(loaded.model, [source], decode_options)
    return str(best[0].extra["continuation"])


def predict_fillers(loaded: LoadedModel, source: str) -> str:
    [best] = loaded.task.predict(loaded.model, [source], FillOptions())
    return ", ".join(first_filler(answer) for answer in best)


def first_filler(answer: Prediction) -> str:
    return str(answer.extra["fillers"][0])


PREDICT_AGAIN: dict[type, Callable[[LoadedModel, str], str]] = {
    Translate: predict_translation,
    Write: predict_continuation,
    Fill: predict_fillers,
}
