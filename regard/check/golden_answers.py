"""Memory: whether the weights of a run still say what they said when they were the best of it.

A run notes a few questions with its own answers, so that weights which changed since, or changed places, are found
without the data, and though every program reads them alike.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from regard.check.check_result import Verdict
from regard.hub.files import METRICS, read_plain, there
from regard.load import Loaded
from regard.tasks.fill import Fill, Fillers
from regard.tasks.task import Answer
from regard.tasks.translate import Translate
from regard.tasks.translating import GREEDY
from regard.tasks.write import Write, Writing

WHOLE = 300  # letters of a question that a writer notes, at most


def memory(loaded: Loaded, folder: Path) -> list[Verdict]:
    """Of tasks that note their questions whole."""
    noted = noted_in(folder, loaded.task)
    if type(loaded.task) not in AGAIN or not noted or getattr(loaded.task, "sounds", None) is not None:
        return []
    same = [AGAIN[type(loaded.task)](loaded, one["source"]) == one["answer"] for one in noted]
    says = f"{sum(same)} of {len(same)} answers are those that the run has noted"
    if all(same):
        return [Verdict("memory", "ok", says, 0, 0)]
    advice = (
        "These weights are not those that were scored: some changed, or changed places (or another machine rounds)."
    )
    sure = len(same) > 1 and not any(same)
    return [Verdict("memory", "FAILS" if sure else "note", says, len(same) - sum(same), 0, advice)]


def noted_in(folder: Path, task: Any) -> list[dict[str, str]]:
    """Questions and answers of the check that was the best so far."""
    best: dict[str, Any] = {}
    file = folder / "metrics.jsonl"
    if there(file):
        for line in read_plain(file, METRICS).decode().splitlines():
            with suppress(ValueError, KeyError, TypeError):
                told = json.loads(line)
                if not best or task.rank(told["valid"]) > task.rank(best["valid"]):
                    best = told if told["samples"] else best
    return [one for one in best.get("samples", []) if len(one["source"]) < WHOLE]


def translated(loaded: Loaded, source: str) -> str:
    [best] = loaded.task.predict(loaded.model, [source], GREEDY)
    return best[0].text


def written(loaded: Loaded, source: str) -> str:
    how = Writing(longest=loaded.model.body.config.context // 2)
    [best] = loaded.task.predict(loaded.model, [source], how)
    return str(best[0].more["added"])


def filled(loaded: Loaded, source: str) -> str:
    [best] = loaded.task.predict(loaded.model, [source], Fillers())
    return ", ".join(first_filler(answer) for answer in best)


def first_filler(answer: Answer) -> str:
    return str(answer.more["fillers"][0])


AGAIN: dict[type, Callable[[Loaded, str], str]] = {Translate: translated, Write: written, Fill: filled}
