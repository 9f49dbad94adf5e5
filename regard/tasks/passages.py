"""Texts longer than a sentence: split into lines and sentences, predicted one by one, and joined again.

Line breaks and the spaces between sentences are preserved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from regard.tasks.task import Prediction

EMPTY = Prediction("")


def predict_passages(
    texts: Sequence[str], split: Callable[[str], list[str]], predict: Callable[[list[str]], list[list[Prediction]]]
) -> list[list[Prediction]]:
    """The best predictions for each text. `split` gives the sentences of a line, each with the space after it."""
    layouts = [[part for line in text.split("\n") for part in (*split(line), "\n")][:-1] for text in texts]
    predictions = iter(predict([part.strip() for layout in layouts for part in layout if part.strip()]))
    return [
        join_predictions([(part, next(predictions) if part.strip() else []) for part in layout]) for layout in layouts
    ]


def join_predictions(parts: list[tuple[str, list[Prediction]]]) -> list[Prediction]:
    """Prediction i of a text joins prediction i of each part."""
    count = max((len(predictions) for _, predictions in parts), default=0)
    texts = [EMPTY] * max(1, count)
    for part, predictions in parts:
        space = part[len(part.rstrip()) :]
        for i, prefix in enumerate(texts):
            new = predictions[min(i, len(predictions) - 1)] if predictions else EMPTY
            text = prefix.text + new.text + space
            texts[i] = Prediction(text, prefix.logprob + new.logprob, prefix.score + new.score)
    return texts
