"""Questions and the documents that answer them, from JSON in SQuAD's forms (Rajpurkar et al. 2016); plain or gzip.

    {"question": ..., "context": ..., "answers": {"text": [...], "answer_start": [...]}}        one object a line
    {"data": [{"paragraphs": [{"context": ..., "qas": [{"question": ..., "answers": [...]}]}]}]}        one nested file

Every question gives exactly one `Question` or one `BadRow`; in the nested form its line is the question's number.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from regard.data.lines import UTF8, BadRow, Dialect, Lines, Note
from regard.data.parallel_text import file_suffixes, json_objects, strings, value_at
from regard.data.text_checks import check_text
from regard.hub.files import NESTED, once


class QuestionRow(NamedTuple):
    question: str
    document: str
    answers: tuple[tuple[str, int], ...]  # text and where it starts in the document; none: it holds no answer
    file: str
    line: int

    @property
    def input_key(self) -> str:
        return self.document  # who has trained on one question about it knows much of the next

    @property
    def row_key(self) -> str:
        return "\t".join((self.question, self.document, *(f"{start} {text}" for text, start in self.answers)))

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.question,)  # a document may be long: it is read window by window


def read_questions(
    files: Sequence[str | Path], fields: Sequence[str] | None = None, dialect: Dialect = UTF8
) -> Iterator[QuestionRow | BadRow | Note]:
    """One file, .jsonl or .json; `fields` are the names of question, document and answers in JSON lines."""
    if fields and len(fields) != 3:
        raise ValueError(f"fields are question, document and answers, not {' '.join(fields)}")
    kinds = file_suffixes(files, dialect)
    if len(files) != 1 or kinds[0] not in (".jsonl", ".json"):
        raise ValueError(
            f"questions come from one .jsonl or .json file, not from {' '.join(map(str, files)) or 'none'}"
        )
    lines = Lines(files[0], dialect.encoding)
    nested = whole(lines) if kinds[0] == ".json" else None
    if nested is not None:
        yield from from_nested(nested, lines.file)
        return
    question, document, answers = fields or ("question", "context", "answers")
    for item in json_objects(lines):
        if isinstance(item, BadRow):
            yield item
            continue
        number, row = item
        texts = strings(row, (question, document), lines.file, number)
        if isinstance(texts, BadRow):
            yield texts
            continue
        value = value_at(row, answers, lines.file, number)
        yield value if isinstance(value, BadRow) else checked(texts[0], texts[1], value, lines.file, number)
    yield from lines.notes()


def whole(lines: Lines) -> dict[str, Any] | None:
    """The nested form, if the file as a whole is one."""
    parts, size = [], 0
    for chunk in lines.utf8():
        parts.append(chunk)
        size += len(chunk)
        if size > NESTED:
            raise ValueError(f"{lines.file}: over {NESTED >> 20} MB; cut it, or write one question a line (.jsonl)")
    try:
        tree: Any = json.loads(b"".join(parts), object_pairs_hook=once)
    except (ValueError, RecursionError):
        return None
    return tree if isinstance(tree, dict) and "data" in tree else None


def from_nested(tree: dict[str, Any], file: str) -> Iterator[QuestionRow | BadRow]:
    number = 0
    try:
        for article in tree["data"]:
            for paragraph in article["paragraphs"]:
                document = paragraph["context"]
                for asked in paragraph["qas"]:
                    number += 1
                    yield checked(asked["question"], document, asked["answers"], file, number)
    except (KeyError, TypeError) as error:
        form = "data, paragraphs, context and qas, question, answers"
        raise ValueError(f"{file}: not SQuAD's form ({form}) after question {number}: {error}") from error
    if not number:
        raise ValueError(f"{file}: there is no question in it")


def checked(question: Any, document: Any, answers: Any, file: str, line: int) -> QuestionRow | BadRow:
    for name, text in ("question", question), ("document", document):
        if not isinstance(text, str):
            return BadRow(file, line, "wrong type", f"the {name} is a {type(text).__name__}, not a string")
        if bad := check_text(name, text.replace("\r\n", "\n"), file, line):
            return bad
    found = pairs_of(answers)
    if isinstance(found, str):
        return BadRow(file, line, "wrong type", found)
    for text, start in found:
        if not text.strip():
            return BadRow(file, line, "empty", "the answer is empty")
        if start < 0 or not document.startswith(text, start):
            return BadRow(
                file, line, "misplaced answer", f"{text[:40]!r} does not stand at {start}, {where(text, document)}"
            )
    return QuestionRow(question, document, tuple(dict.fromkeys(found)), file, line)


def pairs_of(answers: Any) -> list[tuple[str, int]] | str:
    """Text and start of each answer, from either form; what is wrong, if they are neither."""
    if isinstance(answers, dict):
        texts, starts = answers.get("text"), answers.get("answer_start")
        if not isinstance(texts, list) or not isinstance(starts, list):
            return "the answers are no object with the lists text and answer_start"
        if len(texts) != len(starts):
            return f"{len(texts)} answers, but {len(starts)} starts"
        found = [*zip(texts, starts, strict=True)]
    elif isinstance(answers, list) and all(isinstance(one, dict) for one in answers):
        found = [(one.get("text"), one.get("answer_start")) for one in answers]
    else:
        return f"the answers are a {type(answers).__name__} without text and answer_start"
    for text, start in found:
        if not isinstance(text, str) or not isinstance(start, int) or isinstance(start, bool):
            return "an answer is a text, and its start a whole number"
    return found


def where(text: str, document: str) -> str:
    times = document.count(text)
    return f"but at {document.find(text)}" if times == 1 else f"and the document has it {times} times"
