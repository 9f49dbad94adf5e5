"""Texts as model inputs; requests of texts, pairs of texts, words and questions."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from regard.data.rows import Question, Row
from regard.modalities.protocols import Target, request_row
from regard.modalities.synthetic import numbers, phrasebook, quiz, stories
from regard.modalities.text.sentence_split import split_sentences
from regard.modalities.token_preprocessor import TokenPreprocessor


class TextPreprocessor(TokenPreprocessor):
    modality = "text"

    def parse(self, raw: str, target: Target) -> Row[Any, None]:
        """Two texts are separated by a tab; so are a question and a document, which may also be JSON."""
        if target is Target.SPAN:
            return request_row(parse_question(raw), raw)
        if target is Target.TAGS:
            return request_row(tuple(self.words(raw)), raw)
        first, _, second = raw.partition("\t")
        is_pair = bool(second) and target in (Target.LABELS, Target.NUMBER)
        return request_row((first, second) if is_pair else (raw,), raw)

    def probes(self, count: int, target: Target) -> list[Row[Any, object]]:
        match target:
            case Target.NEXT:
                return [request_row((text,), text) for text in stories.stories(count)]
            case Target.NUMBER:
                return [request_row((number.text,), number.text) for number in numbers.numbers(count)]
            case Target.SPAN:
                return [request_row(Question(item.question, item.document), item.question) for item in quiz.quiz(count)]
            case Target.TAGS:
                return [self.parse(phrase.german, target) for phrase in phrasebook.phrases(count)]
        return [Row((phrase.english,), phrase.german, "", 1, phrase.english) for phrase in phrasebook.phrases(count)]

    def passages(self, raw: str, max_tokens: int) -> list[tuple[str | None, str]]:
        """Line breaks are preserved, and a line of more than `max_tokens` is split into sentences."""
        parts: list[tuple[str | None, str]] = []
        for number, line in enumerate(raw.split("\n")):
            if number:
                parts.append((None, "\n"))
            is_short = len(self.tokenizer.encode([line])[0]) <= max_tokens
            for part in [line] if is_short else split_sentences(line):
                parts.append((part.strip() or None, part[len(part.rstrip()) :]))
        return parts


def parse_question(raw: str) -> Question:
    question, _, document = raw.partition("\t")
    if raw.startswith("{"):
        with suppress(ValueError, KeyError, TypeError):
            fields = json.loads(raw)
            question, document = fields["question"], fields["context"]
    if not all(isinstance(part, str) and part.strip() for part in (question, document)):
        formats = 'a question and a document separated by a tab, or {"question": ..., "context": ...}'
        raise ValueError(f"give {formats}, not {raw[:60]!r}")
    return Question(question, document)
