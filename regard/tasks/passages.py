"""Texts longer than a sentence: cut into lines and sentences, answered piece by piece, and put together again.

Line breaks and the spaces between sentences are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from regard.tasks.task import Answer

NOTHING = Answer("")


def answer_passages(
    texts: Sequence[str], cut: Callable[[str], list[str]], answer: Callable[[list[str]], list[list[Answer]]]
) -> list[list[Answer]]:
    """The best answers to each text. `cut` gives the sentences of a line, each with the space that follows it."""
    layouts = [[part for line in text.split("\n") for part in (*cut(line), "\n")][:-1] for text in texts]
    found = iter(answer([part.strip() for layout in layouts for part in layout if part.strip()]))
    return [put_together([(part, next(found) if part.strip() else []) for part in layout]) for layout in layouts]


def put_together(parts: list[tuple[str, list[Answer]]]) -> list[Answer]:
    """The first answer to the whole is made of the first answers to its parts, and so on."""
    best = max((len(answers) for _, answers in parts), default=0)
    whole = [NOTHING] * max(1, best)
    for part, answers in parts:
        space = part[len(part.rstrip()) :]
        for i, so_far in enumerate(whole):
            new = answers[min(i, len(answers) - 1)] if answers else NOTHING
            text = so_far.text + new.text + space
            whole[i] = Answer(text, so_far.logp + new.logp, so_far.score + new.score)
    return whole
