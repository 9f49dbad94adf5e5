"""Questions and the documents that answer them, from JSON in SQuAD formats (Rajpurkar et al. 2016), plain or gzip.

    {"question": ..., "context": ..., "answers": {"text": [...], "answer_start": [...]}}        one object per line
    {"data": [{"paragraphs": [{"context": ..., "qas": [{"question": ..., "answers": [...]}]}]}]}        one nested file

Every question gives exactly one `QuestionRow` or one `BadRow`; in a nested file its line is the question's number.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from regard.data.fields import OBJECT_SUFFIXES, field_value, file_suffixes, read_objects, string_fields
from regard.data.lines import UTF8, BadRow, Dialect, Lines, Note
from regard.data.rows import Answers, Question, QuestionRow, Row
from regard.data.text_checks import check_text
from regard.json_files import MAX_SQUAD, reject_duplicate_keys


def question_row(question: str, document: str, answers: Answers, file: str, line: int) -> QuestionRow:
    """All questions about a document stay in the same split."""
    return Row(Question(question, document), answers, file, line, f"{question}\t{document}", document)


def read_questions(
    files: Sequence[str | Path], fields: Sequence[str] | None = None, dialect: Dialect = UTF8
) -> Iterator[QuestionRow | BadRow | Note]:
    """Nested files (.json), JSON lines, Parquet or Arrow; `fields` are question, document and answers."""
    if fields and len(fields) != 3:
        raise ValueError(f"fields are question, document and answers, not {' '.join(fields)}")
    suffixes = file_suffixes(files, dialect)
    if not files or not {*suffixes} <= {*OBJECT_SUFFIXES}:
        names = " ".join(map(str, files)) or "none"
        raise ValueError(f"questions come from .jsonl, .json or .parquet files, not from {names}")
    for file, suffix in zip(files, suffixes, strict=True):
        lines = Lines(file, dialect.encoding)
        nested = read_nested(lines) if suffix == ".json" else None
        if nested is None:
            yield from rows_from_objects(lines, fields or ("question", "context", "answers"))
        else:
            yield from rows_from_nested(nested, lines.file)


def rows_from_objects(lines: Lines, fields: Sequence[str]) -> Iterator[QuestionRow | BadRow | Note]:
    question, document, answers = fields
    for item in read_objects(lines, lambda columns: fields):
        if isinstance(item, BadRow):
            yield item
            continue
        number, row = item
        texts = string_fields(row, (question, document), lines.file, number)
        if isinstance(texts, BadRow):
            yield texts
            continue
        value = field_value(row, answers, lines.file, number)
        yield value if isinstance(value, BadRow) else check_question(texts[0], texts[1], value, lines.file, number)
    yield from lines.notes()


def read_nested(lines: Lines) -> dict[str, Any] | None:
    """The nested object, or None if the file is not one JSON object with `data`."""
    parts, size = [], 0
    for chunk in lines.utf8_chunks():
        parts.append(chunk)
        size += len(chunk)
        if size > MAX_SQUAD:
            remedy = "split it, or write one question per line (.jsonl)"
            raise ValueError(f"{lines.file}: over {MAX_SQUAD >> 20} MB; {remedy}")
    try:
        tree = json.loads(b"".join(parts), object_pairs_hook=reject_duplicate_keys)
    except (ValueError, RecursionError):
        return None
    return tree if isinstance(tree, dict) and "data" in tree else None


def rows_from_nested(tree: dict[str, Any], file: str) -> Iterator[QuestionRow | BadRow]:
    number = 0
    try:
        for article in tree["data"]:
            for paragraph in article["paragraphs"]:
                document = paragraph["context"]
                for item in paragraph["qas"]:
                    number += 1
                    yield check_question(item["question"], document, item["answers"], file, number)
    except (KeyError, TypeError) as error:
        keys = "data, paragraphs, context and qas, question, answers"
        raise ValueError(f"{file}: not in SQuAD's format ({keys}) after question {number}: {error}") from error
    if not number:
        raise ValueError(f"{file}: the file contains no question")


def check_question(question: object, document: object, answers: object, file: str, line: int) -> QuestionRow | BadRow:
    for name, text in ("question", question), ("document", document):
        if not isinstance(text, str):
            return BadRow(file, line, "wrong type", f"the {name} is a {type(text).__name__}, not a string")
        if bad := check_text(name, text.replace("\r\n", "\n"), file, line):
            return bad
    assert isinstance(question, str)
    assert isinstance(document, str)
    spans = parse_answers(answers)
    if isinstance(spans, str):
        return BadRow(file, line, "wrong type", spans)
    for text, start in spans:
        if not text.strip():
            return BadRow(file, line, "empty", "the answer is empty")
        if start < 0 or not document.startswith(text, start):
            detail = f"{text[:40]!r} is not at {start}, {locate_answer(text, document)}"
            return BadRow(file, line, "misplaced answer", detail)
    return question_row(question, document, tuple(dict.fromkeys(spans)), file, line)


def parse_answers(answers: object) -> list[tuple[str, int]] | str:
    """Text and start of each answer, from either format; a message if they are in neither."""
    if isinstance(answers, dict):
        texts, starts = answers.get("text"), answers.get("answer_start")
        if not isinstance(texts, list) or not isinstance(starts, list):
            return "the answers are not an object with the lists text and answer_start"
        if len(texts) != len(starts):
            return f"{len(texts)} answers, but {len(starts)} starts"
        spans = [*zip(texts, starts, strict=True)]
    elif isinstance(answers, list) and all(isinstance(answer, dict) for answer in answers):
        spans = [(answer.get("text"), answer.get("answer_start")) for answer in answers]
    else:
        return f"the answers are a {type(answers).__name__} without text and answer_start"
    for text, start in spans:
        if not isinstance(text, str) or not isinstance(start, int) or isinstance(start, bool):
            return "an answer is a string, and its start an integer"
    return spans


def locate_answer(text: str, document: str) -> str:
    count = document.count(text)
    return f"but at {document.find(text)}" if count == 1 else f"and the document contains it {count} times"
