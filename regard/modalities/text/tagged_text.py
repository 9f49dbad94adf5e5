"""Words with one tag each, from files: CoNLL columns, CoNLL-U, JSON lines or two parallel files; plain or gzip.

Every sentence gives exactly one `TaggedText` or one `BadRow`; its line is the first line of the sentence.
"""

import json
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from pathlib import Path

from regard.data.fields import OBJECT_SUFFIXES, field_value, file_suffixes, parallel_lines, read_objects
from regard.data.lines import UTF8, BadRow, Dialect, Lines, Note
from regard.data.rows import Row
from regard.data.tables import parse_column_numbers
from regard.data.text_checks import check_label, check_text

CONLLU_COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
NON_WORD_ID = re.compile(r"\d+[-.]\d+")  # of a multiword token (3-4) or an empty node (8.1)
WORD_KEYS = ("words", "tokens")  # in JSON; the first that exists is read
TAG_KEYS = ("tags", "labels", "ner_tags", "pos_tags", "upos")


Words = tuple[str, ...]
TaggedText = Row[Words, Words]


def tagged_row(words: Sequence[str], tags: Sequence[str], file: str, line: int) -> TaggedText:
    return Row(tuple(words), tuple(tags), file, line, " ".join(words))


def read_tagged(
    files: Sequence[str | Path], fields: Sequence[str] | None = None, dialect: Dialect = UTF8
) -> Iterator[TaggedText | BadRow | Note]:
    """One file is CoNLL-U (.conllu) or, with a suffix not named here, CoNLL columns; one or several are JSON lines
    (.jsonl, .json), Parquet or Arrow (.parquet, .arrow, .feather); two other files are parallel: the words of one
    sentence per line, and their tags.

    `fields` are word and tag: column numbers from 1, in CoNLL-U also names, in JSON keys; a single name is that of the
    tag. By default they are the first and the last column, in CoNLL-U form and upos.
    """
    if fields and len(fields) > 2:
        raise ValueError(f"fields are word and tag, not {' '.join(fields)}")
    suffixes, parts = file_suffixes(files), [Lines(file, dialect.encoding) for file in files]
    if dialect.separator and (len(suffixes) != 1 or suffixes[0] in (*OBJECT_SUFFIXES, ".conllu")):
        raise ValueError(f"{' '.join(map(str, files))}: --separator is for one file with columns, e.g. .conll")
    match suffixes:
        case [_, *_] if {*suffixes} <= {*OBJECT_SUFFIXES}:
            for part in parts:
                yield from sentences_from_objects(part, fields)
        case [".conllu"]:
            indices = conllu_columns(fields, parts[0].file)
            yield from sentences_from_columns(conllu_cells(parts[0]), parts[0].file, indices)
        case [_]:
            indices = parse_column_numbers(two_numbers(fields, parts[0].file), parts[0].file) if fields else [0, -1]
            yield from sentences_from_columns(conll_cells(parts[0], dialect.separator), parts[0].file, indices)
        case [_, _] if {*OBJECT_SUFFIXES, ".conllu", ".conll"} & {*suffixes}:
            problem = "two files are read as parallel, words and tags, but .conll, .conllu and .jsonl contain both"
            raise ValueError(f"{files[0]} {files[1]}: {problem}; join them into one file")
        case [_, _] if fields:
            raise ValueError(f"{files[0]} {files[1]}: parallel files have no fields like {' and '.join(fields)}")
        case [_, _]:
            for row in parallel_lines(*parts):
                if isinstance(row, BadRow):
                    yield row
                else:
                    yield check_sentence(split_words(row[1]), split_words(row[2]), parts[0].file, row[0])
        case _:
            raise ValueError(f"words and tags come from one file or two parallel ones, not from {len(files)}")
    for part in parts:
        yield from part.notes()


def split_words(line: str) -> list[str]:
    """Blanks and tabs separate words; a word may contain other white space."""
    return [word for word in re.split("[ \t]", line) if word]


def check_sentence(words: Sequence[str], tags: Sequence[str], file: str, line: int) -> TaggedText | BadRow:
    if len(words) != len(tags):
        return BadRow(file, line, "unequal counts", f"{len(words)} words, but {len(tags)} tags")
    if not words:
        return BadRow(file, line, "empty", "the sentence has no words")
    bads = [check_text("word", word, file, line) for word in words]
    bads += [check_label("tag", tag, file, line) for tag in tags]
    return next((bad for bad in bads if bad), None) or tagged_row(words, tags, file, line)


def two_numbers(fields: Sequence[str], file: str) -> Sequence[str]:
    if len(fields) != 2 or not all(field.isdecimal() for field in fields):
        raise ValueError(f"{file}: the columns of word and tag are two numbers, e.g. 1 4, not {' '.join(fields)}")
    return fields


def conllu_columns(fields: Sequence[str] | None, file: str) -> list[int]:
    if fields and len(fields) == 2 and all(field.isdecimal() for field in fields):
        return parse_column_numbers(fields, file)
    names = [field.lower() for field in fields or ("upos",)]
    if not {*names} <= {*CONLLU_COLUMNS}:
        raise ValueError(f"{file}: word and tag are two of {', '.join(CONLLU_COLUMNS)}, not {' '.join(fields or ())}")
    return [CONLLU_COLUMNS.index(name) for name in ["form", *names][-2:]]


ConllCells = tuple[int, list[str]] | BadRow | None  # None ends a sentence


def conll_cells(lines: Lines, separator: str | None = None) -> Iterator[ConllCells]:
    """Columns, separated by `separator`; by default by tabs, or by blanks in a line without tabs."""
    for number, line in enumerate(lines, 1):
        if isinstance(line, BadRow):
            yield line
        elif not line.strip() or line.startswith("-DOCSTART-"):
            yield None
        else:
            delimiter = separator or ("\t" if "\t" in line else None)
            yield number, line.split(delimiter) if delimiter else split_words(line)


def conllu_cells(lines: Lines) -> Iterator[ConllCells]:
    for number, line in enumerate(lines, 1):
        if isinstance(line, BadRow):
            yield line
        elif not line.strip():
            yield None
        elif not line.startswith("#"):
            cells = line.split("\t")
            if len(cells) != len(CONLLU_COLUMNS):
                detail = f"the line has {len(cells)} tab-separated columns, CoNLL-U has {len(CONLLU_COLUMNS)}"
                yield BadRow(lines.file, number, "unequal counts", detail)
            elif not NON_WORD_ID.fullmatch(cells[0]):
                yield number, cells


def sentences_from_columns(rows: Iterator[ConllCells], file: str, indices: list[int]) -> Iterator[TaggedText | BadRow]:
    """A bad line makes its whole sentence bad."""
    width, has_bad, bad = 0, False, None
    sentence: list[tuple[int, list[str]]] = []
    for row in chain(rows, [None]):
        if isinstance(row, BadRow):
            bad = bad or row
        elif row is not None:
            width = width or len(row[1])
            bad = bad or check_cells(row, width, indices, file)
            sentence.append(row)
        elif bad:
            has_bad = True
            yield bad
            bad, sentence = None, []
        elif sentence:
            words, tags = (tuple(cells[i] for _, cells in sentence) for i in indices)
            yield tagged_row(words, tags, file, sentence[0][0])
            sentence = []
    if not width and not has_bad:
        raise ValueError(f"{file}: the file contains no words")


def check_cells(row: tuple[int, list[str]], width: int, indices: list[int], file: str) -> BadRow | None:
    number, cells = row
    if len(cells) != width:
        detail = f"the line has {len(cells)} columns, the line of the first word has {width}"
        return BadRow(file, number, "unequal counts", detail)
    needed = max(1, *indices) + 1
    if width < needed:
        return BadRow(file, number, "missing column", f"the line has {width} of the {needed} columns needed")
    return check_text("word", cells[indices[0]], file, number) or check_label("tag", cells[indices[1]], file, number)


def sentences_from_objects(lines: Lines, fields: Sequence[str] | None) -> Iterator[TaggedText | BadRow]:
    def select(available: Collection[str]) -> list[str]:
        return [first_key(available, WORD_KEYS), *(fields or (first_key(available, TAG_KEYS),))][-2:]

    for item in read_objects(lines, select):
        if isinstance(item, BadRow):
            yield item
            continue
        number, row = item
        words, tags = select(row)
        values = [field_value(row, name, lines.file, number) for name in (words, tags)]
        missing = [value for value in values if isinstance(value, BadRow)]
        columns = [to_texts(value) for value in values]
        if missing:
            yield missing[0]
        elif columns[0] is None or columns[1] is None:
            name = words if columns[0] is None else tags
            yield BadRow(lines.file, number, "wrong type", f"field {name!r} is not a list of strings")
        else:
            yield check_sentence(columns[0], columns[1], lines.file, number)


def first_key(available: Collection[str], keys: tuple[str, ...]) -> str:
    return next((key for key in keys if key in available), keys[0])


def to_texts(value: object) -> list[str] | None:
    """A list of texts or whole numbers as texts; None if it is none."""
    if not isinstance(value, list) or not all(isinstance(part, str | int) for part in value):
        return None
    return [part if isinstance(part, str) else json.dumps(part) for part in value]
