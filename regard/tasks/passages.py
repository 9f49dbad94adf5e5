"""Texts longer than a sentence: cut into lines and sentences, answered piece by piece, and put together again.

Line breaks and the spaces between sentences are kept. Pieces flow through one by one, so a text stream may be endless.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple


class Answer(NamedTuple):
    text: str
    logp: float  # joint log-probability
    score: float  # what it was ranked by


class Gap(NamedTuple):
    """White space between two pieces of a text, or the text's end."""

    space: str
    last: bool


def answer_passages(
    texts: Iterable[str], cut: Callable[[str], list[str]], answer: Callable[[Iterable[str]], Iterable[list[Answer]]]
) -> Iterator[list[Answer]]:
    """The best answers to each text. `cut` gives the sentences of a line, each with the space that follows it."""
    plan: deque[str | Gap] = deque()  # a piece to be answered, or what stands behind it

    def pieces() -> Iterator[str]:
        for text in texts:
            for i, line in enumerate(text.split("\n")):
                if i:
                    plan.append(Gap("\n", False))
                for sentence in cut(line):
                    if bare := sentence.strip():
                        plan.append(bare)
                        yield bare
                    plan.append(Gap(sentence[len(sentence.rstrip()) :], False))
            plan.append(Gap("", True))

    whole: list[Answer] = []
    for best in answer(pieces()):
        yield from _put_together(plan, whole, best)
    yield from _put_together(plan, whole, None)


def _put_together(plan: deque[str | Gap], whole: list[Answer], best: list[Answer] | None) -> Iterator[list[Answer]]:
    """Take from the plan up to the piece that is not answered yet; yield each text that is complete."""
    while plan:
        item = plan[0]
        if isinstance(item, str):
            if best is None:
                return
            plan.popleft()
            whole[:] = [_plus(whole[min(i, len(whole) - 1)], part) if whole else part for i, part in enumerate(best)]
            best = None
            continue
        plan.popleft()
        whole[:] = [a._replace(text=a.text + item.space) for a in whole or [Answer("", 0.0, 0.0)]]
        if item.last:
            yield list(whole)
            whole.clear()


def _plus(a: Answer, b: Answer) -> Answer:
    return Answer(a.text + b.text, a.logp + b.logp, a.score + b.score)
