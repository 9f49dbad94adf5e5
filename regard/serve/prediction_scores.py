"""Scores of labels, as TEI's routes answer them, from the predictions of `classify` and `regress` models.

probability p       softmax over the labels, or a sigmoid for each
raw score           multi-label: log p / (1 - p), the logit; one label: log p, the logit up to a constant
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from regard.loaded_model import LoadedModel
from regard.serve.errors import INVALID, ApiError
from regard.serve.schemas_embedding import LabelScore
from regard.tasks.task import Prediction, Task

VALUE = "LABEL_0"  # what transformers calls the output of a regression
RELEVANT = ("1", "yes", "true", "relevant", "entailment", "positive", "same", "label_1")
SMALLEST = 1e-38  # near the smallest positive float32


def all_labels(loaded: LoadedModel) -> object:
    """Options with which a prediction has the scores of all labels."""
    labels = getattr(loaded.task, "labels", None)
    return loaded.make_options(**({"num_return": max(2, len(labels))} if labels else {}))


def label_scores(task: Task, predictions: Sequence[Prediction], is_raw: bool) -> list[LabelScore]:
    """All labels, the best first; of a regression, its value."""
    if not hasattr(task, "labels"):
        return [LabelScore(float(predictions[0].extra["value"]), VALUE)]
    return [LabelScore(raw_score(task, p.score) if is_raw else p.score, p.text) for p in predictions]


def raw_score(task: Task, probability: float) -> float:
    log = math.log(max(probability, SMALLEST))
    return log - math.log(max(1.0 - probability, SMALLEST)) if getattr(task, "multi_label", False) else log


def relevance(task: Task, predictions: Sequence[Prediction], is_raw: bool) -> float:
    """How well two texts fit: the value of a regression, or the probability of the label that says so."""
    if not hasattr(task, "labels"):
        value = float(predictions[0].extra["value"])
        return value if is_raw else sigmoid(value)
    label = relevant_label(task.labels)
    probability = next(p.score for p in predictions if p.text == label)
    return math.log(max(probability, SMALLEST) / max(1.0 - probability, SMALLEST)) if is_raw else probability


def relevant_label(labels: Sequence[str]) -> str:
    """By its name; of two labels without such a name, the second."""
    named = [label for label in labels if label.lower() in RELEVANT]
    if not named and len(labels) != 2:
        names = ", ".join(labels[:5])
        raise ApiError(INVALID, f"no label of this model says that two texts fit ({names}): choose another", "model")
    return named[0] if named else labels[1]


def sigmoid(value: float) -> float:
    return 1.0 / (1.0 + math.exp(-value)) if value >= 0 else math.exp(value) / (1.0 + math.exp(value))
