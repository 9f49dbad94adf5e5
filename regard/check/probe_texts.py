"""Bundled texts for each task, as training rows and as requests of a user.

Labels that a text does not contain are made up: the checks of the loss hold for any labels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from regard.data.audio_files import LabelledAudio, TranscribedAudio
from regard.data.bundled import chains, numbers, phrasebook, quiz, shapes, stories
from regard.data.documents import documents_from_memory
from regard.data.image_files import CaptionedImage, LabelledImage
from regard.data.labelled_text import LabelledText, RegressionText
from regard.data.questions import QuestionRow
from regard.tasks.answer import QuestionAnswering
from regard.tasks.classify import Classify
from regard.tasks.embed import Embed
from regard.tasks.fill import MASK, Fill
from regard.tasks.match import Match
from regard.tasks.regress import Regress
from regard.tasks.tag import Tag
from regard.tasks.translate import Translate
from regard.tasks.write import Write

PROBE_COUNT = 6  # texts
MAX_RESIDUES = 24  # of a protein
TextPairs = list[tuple[str, str]]  # (source, target); the target may be empty


def bundled_texts(task: Any) -> TextPairs:
    if getattr(task, "reads_proteins", False):
        return [(protein.residues[:MAX_RESIDUES], "") for protein in chains.chains(PROBE_COUNT)]
    match task:
        case Write():
            return [(story, "") for story in stories.stories(PROBE_COUNT)]
        case Regress():
            return [(number.text, "") for number in numbers.numbers(PROBE_COUNT)]
        case QuestionAnswering():
            return [(item.question, item.document) for item in quiz.quiz(PROBE_COUNT)]
        case Tag():
            return [(phrase.german, "") for phrase in phrasebook.phrases(PROBE_COUNT)]
        case Match():
            return [(scene.caption, "") for scene in shapes.shapes(PROBE_COUNT)]
    return [(phrase.english, phrase.german) for phrase in phrasebook.phrases(PROBE_COUNT)]


def split_pair(line: str) -> tuple[str, str]:
    source, _, target = line.partition("\t")
    return source.strip(), target.partition("\t")[0].strip()


def first_words(text: str, words: int = 6) -> str:
    return " ".join(text.split()[:words])


def classify_rows(task: Classify, pairs: TextPairs, pictures: list[Any]) -> list[Any]:
    labels = [(task.labels[i % len(task.labels)],) for i in range(PROBE_COUNT)]
    if task.feature_extractor is not None:
        return [
            LabelledAudio(clip, task.feature_extractor.sampling_rate, labels[i], "sample", i + 1)
            for i, clip in enumerate(pictures)
        ]
    if pictures:
        return [
            LabelledImage(pixels, label, "sample", i)
            for i, (pixels, label) in enumerate(zip(pictures, labels, strict=True))
        ]
    return [LabelledText(text, None, labels[i], "sample", i + 1) for i, (text, _) in enumerate(pairs)]


def regress_rows(task: Regress, pairs: TextPairs, _: Any) -> list[Any]:
    return [
        RegressionText(text, None, task.mean + task.std * (i % 3), "sample", i + 1) for i, (text, _) in enumerate(pairs)
    ]


def tag_rows(task: Tag, pairs: TextPairs, _: Any) -> list[Any]:
    rows = [task.parse_words(text) for text, _ in pairs]
    tags = [tuple(task.tags[j % len(task.tags)] for j in range(len(row.words))) for row in rows]
    return [
        row._replace(tags=tags_of_row, file="sample")
        for row, tags_of_row in zip(rows, tags, strict=True)
        if tags_of_row
    ]


def answer_rows(task: QuestionAnswering, pairs: TextPairs, _: Any) -> list[Any]:
    """The answer is the first word of the document. Questions are one word, so that the document fits the context."""
    question_pairs = [(first_words(text, 1), target or text) for text, target in pairs]
    return [
        QuestionRow(q, text, ((first_words(text, 1), 0),), "sample", i + 1)
        for i, (q, text) in enumerate(question_pairs)
    ]


def translate_rows(task: Translate, pairs: TextPairs, clips: list[Any]) -> list[Any]:
    filled_pairs = [(text, target or text) for text, target in pairs]
    if task.feature_extractor is None:
        return filled_pairs
    sampling_rate = task.feature_extractor.sampling_rate
    return [
        TranscribedAudio((c,), b[1], sampling_rate, "sample", i)
        for i, (c, b) in enumerate(zip(clips, filled_pairs, strict=False), 1)
    ]


# Training rows of each task.
TRAINING_ROWS: dict[type, Callable[[Any, TextPairs, list[Any]], Any]] = {
    Translate: translate_rows,
    Embed: lambda task, pairs, _: [(text, target or text) for text, target in pairs],
    Write: lambda task, pairs, _: documents_from_memory([text for text, _ in pairs], "sample"),
    Fill: lambda task, pairs, _: documents_from_memory([text for text, _ in pairs], "sample"),
    Classify: classify_rows,
    Regress: regress_rows,
    Tag: tag_rows,
    QuestionAnswering: answer_rows,
    Match: lambda task, pairs, images: [
        CaptionedImage(image, text, "sample", 1) for image, (text, _) in zip(images, pairs, strict=False)
    ],
}


def masked_request(text: str, _: str) -> str:
    first, *rest = first_words(text).split(" ")
    return " ".join([first, MASK, *rest[1:]])


# Requests of a user, for tasks that take more than a text.
REQUESTS: dict[type, Callable[[str, str], str]] = {
    Fill: masked_request,
    Embed: lambda text, target: f"{first_words(text)}\t{first_words(target or text)}\tsomething else",
    QuestionAnswering: lambda text, target: f"{first_words(text, 3)}\t{target or text}",
}
