"""Text: sentences and pairs of sentences, words with tags, questions about documents, and running text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from regard.data import documents
from regard.data.document_files import DocumentUnit, has_objects, read_text_file
from regard.data.documents import DocumentOptions, DocumentStream, RowSet
from regard.data.lines import BadRow
from regard.data.rows import Labels, Question, Row
from regard.data.splits import Data, DataOptions, Rows
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_train import TokenizerOptions, train_tokenizer
from regard.modalities.protocols import FitOptions, Modality, Preprocessor, ReadOptions, Target, stored_value
from regard.modalities.synthetic import numbers, phrasebook, quiz, stories
from regard.modalities.synthetic.distinct import split_items
from regard.modalities.text.labelled_text import read_labelled, read_regression
from regard.modalities.text.parallel_text import pairs_from_memory, read_pairs
from regard.modalities.text.preprocessor import TextPreprocessor
from regard.modalities.text.questions import question_row, read_questions
from regard.modalities.text.tagged_text import read_tagged, tagged_row
from regard.validate import check_fields

MAX_WORD_CHARACTERS = 10  # on average; limits texts of languages without spaces
TABLES = ".tsv, .csv, .jsonl or .parquet of texts"
PAIRS = "one file of pairs (.tsv, .csv, .jsonl, .parquet) or two parallel ones"
DOCUMENTS = (Target.MASKED, Target.NEXT)  # targets of running text


@dataclass(frozen=True)
class TextOptions:
    """The length of a text."""

    max_words: int = 250  # maximum words per text; a line with more is a bad line

    def __post_init__(self) -> None:
        check_fields(self, max_words=(self.max_words >= 1, "at least 1"))


class TextModality(Modality):
    name = "text"
    unit = "texts"
    file = "tokenizer.json"
    size_names = ("vocab", "pad", "sep", "segment_start")
    formats = {
        Target.LABELS: f"{TABLES} and labels",
        Target.NUMBER: f"{TABLES} and numbers",
        Target.TAGS: "CoNLL, CoNLL-U, .jsonl or .parquet of words and tags, or two parallel files",
        Target.SPAN: ".jsonl, .json or .parquet in the format of SQuAD",
        Target.TEXT: PAIRS,
        Target.PAIR: PAIRS,
        Target.MASKED: "text files, one document a line, or .jsonl or .parquet with a field of text",
        Target.NEXT: "text files, or .jsonl or .parquet with a field of text",
    }
    synthetic_data = {
        Target.LABELS: "kinds of sentences",
        Target.NUMBER: "numbers in words, and their values",
        Target.TAGS: "parts of speech in the phrasebook's German",
        Target.SPAN: "a quiz about small documents",
        Target.TEXT: "the phrasebook, English and German",
        Target.PAIR: "the phrasebook, English and German",
        Target.MASKED: "the English sentences of the phrasebook",
        Target.NEXT: "stories, the transcripts of text adventures",
    }
    default_models = {"encoder": "modernbert", "decoder": "nanochat", "encoder-decoder": "transformer"}
    input_name = "input_ids"

    def option_groups(self, target: Target) -> tuple[type, ...]:
        return (TokenizerOptions, DocumentOptions) if target in DOCUMENTS else (TextOptions, TokenizerOptions)

    def read(self, paths: Sequence[str], how: ReadOptions) -> Rows:
        match how.target:
            case Target.LABELS:
                return read_labelled(paths, how.fields, how.multi_label, how.dialect)
            case Target.NUMBER:
                return read_regression(paths, how.fields, how.dialect)
            case Target.TAGS:
                return read_tagged(paths, how.fields, how.dialect)
            case Target.SPAN:
                return read_questions(paths, how.fields, how.dialect)
        return read_pairs(paths, how.fields, how.dialect)

    def synthetic(self, target: Target) -> Mapping[str, Rows]:
        if target is Target.NUMBER:
            values, split_value = numbers.numbers(), numbers.split
            return split_items(values, split_value, lambda x, i: Row((x.text,), x.value, "numbers", i, x.text))
        if target is Target.SPAN:
            return split_items(
                quiz.quiz(),
                quiz.split,
                lambda x, i: question_row(x.question, x.document, ((x.answer, x.start),), "quiz", i),
            )
        phrases, split = phrasebook.phrases(), phrasebook.split
        if target is Target.LABELS:
            return split_items(
                phrases, split, lambda x, i: Row((x.english,), Labels((x.kind,)), "phrasebook", i, x.english)
            )
        if target is Target.TAGS:  # several English phrases may share one
            return split_items(
                phrases,
                lambda x: split(x._replace(english=x.german.casefold())),
                lambda x, i: tagged_row([w for w, _ in x.german_tags], [t for _, t in x.german_tags], "phrasebook", i),
            )
        pairs = split_items(phrases, split, lambda phrase, _: (phrase.english, phrase.german))
        return {name: pairs_from_memory(part, "phrasebook") for name, part in pairs.items()}

    def synthetic_documents(self, target: Target) -> dict[str, list[str]]:
        if target is Target.NEXT:
            return split_items(stories.stories(), stories.split, lambda story, _: story)
        return split_items(phrasebook.phrases(), phrasebook.split, lambda phrase, _: phrase.english)

    def read_sets(self, files: DataOptions, how: ReadOptions, output: Modality | None = None) -> Data:
        if how.target not in DOCUMENTS:
            return super().read_sets(files, how, output)
        unit = document_unit(files.data, how)
        open_stream = partial(open_texts, unit=unit, how=how, skip_bad=files.skip_bad)
        return documents.read_documents(files, open_stream, lambda: self.synthetic_documents(how.target), unit)

    def read_rows(
        self, paths: Sequence[str], how: ReadOptions, preprocessor: Preprocessor, skip_bad: bool = False
    ) -> RowSet:
        if how.target not in DOCUMENTS:
            return super().read_rows(paths, how, preprocessor, skip_bad)
        return open_texts(paths, document_unit(paths, how), how, skip_bad)

    def check(self, row: Row[object, object], how: ReadOptions) -> BadRow | None:
        limit = how.groups[TextOptions].max_words
        for name, text in limited_texts(row, how.target).items():
            if too_long(text, limit):
                detail = f"the {name} has {len(text.split())} words and {len(text)} characters"
                limits = f"the limits are {limit} and {limit * MAX_WORD_CHARACTERS}"
                return BadRow(row.file, row.line, "over-long", f"{detail}, {limits}")
        return None

    def fit(self, rows: RowSet, how: FitOptions) -> TextPreprocessor:
        tokenizer = how.start.tokenizer if how.start else None
        unit = how.groups[DocumentOptions].documents
        if how.target is Target.MASKED:
            unit = unit or "lines"
        elif isinstance(rows, DocumentStream) and rows.name == "bundled":
            unit = "paragraphs"
        texts = training_texts(rows, how.target)
        return TextPreprocessor(tokenizer or train_tokenizer(texts, how.groups[TokenizerOptions], how.layout), unit)

    def load(self, folder: Path, stored: Mapping[str, object]) -> TextPreprocessor | None:
        if not Tokenizer.exists_in(folder):
            return None
        unit: DocumentUnit | None = stored_value(folder, stored, "documents", DocumentUnit | None, None)
        return TextPreprocessor(Tokenizer.load(folder), unit)


def document_unit(paths: Sequence[str], how: ReadOptions) -> DocumentUnit:
    """--documents; by default a file, or a row of .jsonl or .parquet, or a line of a text to mask."""
    is_lines = how.target is Target.MASKED or all(map(has_objects, paths))
    return how.groups[DocumentOptions].documents or ("lines" if is_lines else "files")


def open_texts(paths: Sequence[str], unit: str, how: ReadOptions, skip_bad: bool) -> DocumentStream:
    field = how.fields[0] if how.fields else "text"
    read = partial(read_text_file, unit=unit, skip_bad=skip_bad, field=field, encoding=how.dialect.encoding)
    cache = Path(how.groups[DocumentOptions].cache).expanduser()
    summary_key = f"text {unit} {skip_bad} {field} {how.dialect.encoding}"
    return documents.documents_from_files(paths, read, cache, summary_key)


def training_texts(rows: RowSet, target: Target) -> Iterator[str]:
    """The texts to train a tokenizer on: inputs and targets that are texts."""
    if isinstance(rows, DocumentStream):
        yield from rows.sample()
    elif target is Target.SPAN:
        questions = [row.input for row in rows if isinstance(row.input, Question)]
        yield from (item.question for item in questions)
        yield from dict.fromkeys(item.document for item in questions)
    elif target is Target.TAGS:
        yield from (" ".join(as_texts(row.input)) for row in rows)
    else:
        for row in rows:
            yield from (text for text in (*as_texts(row.input), row.target) if isinstance(text, str))


def as_texts(value: object) -> tuple[str, ...]:
    """The texts of an input; none if it is of another modality."""
    return value if isinstance(value, tuple) and all(isinstance(text, str) for text in value) else ()


def limited_texts(row: Row[Any, object], target: Target) -> dict[str, str]:
    """The texts of a row whose length is limited, by name. The model reads a document in windows."""
    if target is Target.SPAN:
        return {"question": row.input.question}
    if target is Target.TAGS:
        return {"sentence": row.key}
    names = ("source",) if isinstance(row.target, str) else ("text", "second text")
    texts = dict(zip(names, as_texts(row.input), strict=False))
    return texts | ({"target": row.target} if isinstance(row.target, str) else {})


def too_long(text: str, max_words: int) -> bool:
    if len(text) < 2 * max_words:  # cannot have more words; avoids counting
        return False
    return len(text) > max_words * MAX_WORD_CHARACTERS or len(text.split()) > max_words
