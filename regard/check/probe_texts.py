"""Texts of the kind that ships for a task, as rows that it can learn from, and as a user would ask.

Right answers are made up where nobody knows them: a loss has to add up whatever was wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from regard.data.bundled import chains, numbers, phrasebook, quiz, shapes, stories
from regard.data.documents import from_memory
from regard.data.images import Captioned, Picture
from regard.data.labelled import Labelled, Measured
from regard.data.questions import Question
from regard.data.sounds import Sound, Spoken
from regard.tasks.answer import Answering
from regard.tasks.classify import Classify
from regard.tasks.embed import Embed
from regard.tasks.fill import MASK, Fill
from regard.tasks.match import Match
from regard.tasks.regress import Regress
from regard.tasks.tag import Tag
from regard.tasks.translate import Translate
from regard.tasks.write import Write

MANY = 6  # texts
SHORT = 24  # residues of a protein
Halves = list[tuple[str, str]]  # texts, each with its other half if it has one


def bundled(task: Any) -> Halves:
    if getattr(task, "spelled", False):
        return [(protein.residues[:SHORT], "") for protein in chains.chains(MANY)]
    match task:
        case Write():
            return [(story, "") for story in stories.stories(MANY)]
        case Regress():
            return [(number.text, "") for number in numbers.numbers(MANY)]
        case Answering():
            return [(item.question, item.document) for item in quiz.quiz(MANY)]
        case Tag():
            return [(phrase.german, "") for phrase in phrasebook.phrases(MANY)]
        case Match():
            return [(scene.caption, "") for scene in shapes.shapes(MANY)]
    return [(phrase.english, phrase.german) for phrase in phrasebook.phrases(MANY)]


def halves(line: str) -> tuple[str, str]:
    one, _, other = line.partition("\t")
    return one.strip(), other.partition("\t")[0].strip()


def short(text: str, words: int = 6) -> str:
    return " ".join(text.split()[:words])


def labelled(task: Classify, pairs: Halves, pictures: list[Any]) -> list[Any]:
    wanted = [(task.labels[i % len(task.labels)],) for i in range(MANY)]
    if task.sounds is not None:
        return [Sound(clip, task.sounds.rate, wanted[i], "sample", i + 1) for i, clip in enumerate(pictures)]
    if pictures:
        return [
            Picture(pixels, label, "sample", i) for i, (pixels, label) in enumerate(zip(pictures, wanted, strict=True))
        ]
    return [Labelled(text, None, wanted[i], "sample", i + 1) for i, (text, _) in enumerate(pairs)]


def measured(task: Regress, pairs: Halves, _: Any) -> list[Any]:
    return [
        Measured(text, None, task.mean + task.spread * (i % 3), "sample", i + 1) for i, (text, _) in enumerate(pairs)
    ]


def tagged(task: Tag, pairs: Halves, _: Any) -> list[Any]:
    rows = [task.words(text) for text, _ in pairs]
    tags = [tuple(task.tags[j % len(task.tags)] for j in range(len(row.words))) for row in rows]
    return [row._replace(tags=made, file="sample") for row, made in zip(rows, tags, strict=True) if made]


def asked_about(task: Answering, pairs: Halves, _: Any) -> list[Any]:
    """The first word of a document is the answer. Of a question only as much as leaves room."""
    both = [(short(text, 1), other or text) for text, other in pairs]
    return [Question(asked, told, ((short(told, 1), 0),), "sample", i + 1) for i, (asked, told) in enumerate(both)]


def translated(task: Translate, pairs: Halves, clips: list[Any]) -> list[Any]:
    both = [(text, other or text) for text, other in pairs]
    if task.sounds is None:
        return both
    rate = task.sounds.rate
    return [Spoken((c,), b[1], rate, "sample", i) for i, (c, b) in enumerate(zip(clips, both, strict=False), 1)]


# Rows that each task can learn from.
LEARNT: dict[type, Callable[[Any, Halves, list[Any]], Any]] = {
    Translate: translated,
    Embed: lambda task, pairs, _: [(text, other or text) for text, other in pairs],
    Write: lambda task, pairs, _: from_memory([text for text, _ in pairs], "sample"),
    Fill: lambda task, pairs, _: from_memory([text for text, _ in pairs], "sample"),
    Classify: labelled,
    Regress: measured,
    Tag: tagged,
    Answering: asked_about,
    Match: lambda task, pairs, seen: [
        Captioned(p, text, "sample", 1) for p, (text, _) in zip(seen, pairs, strict=False)
    ],
}


def hidden(text: str, _: str) -> str:
    first, *others = short(text).split(" ")
    return " ".join([first, MASK, *others[1:]])


# As a user would ask, where that is more than a short text.
ASKED: dict[type, Callable[[str, str], str]] = {
    Fill: hidden,
    Embed: lambda text, other: f"{short(text)}\t{short(other or text)}\tsomething else",
    Answering: lambda text, other: f"{short(text, 3)}\t{other or text}",
}
