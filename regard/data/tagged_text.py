"""Words with a tag each, from files: CoNLL columns, CoNLL-U, JSON lines or two parallel files; plain or gzip.

Every sentence gives exactly one `Tagged` or one `BadRow`; its line is the first line of the sentence.
"""

import json
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from regard.data.lines import UTF8, BadRow, Dialect, Lines, Note
from regard.data.parallel_text import file_suffixes, json_objects, parallel, value_at
from regard.data.tables import numbered
from regard.data.text_checks import check_text, misnamed

CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
PART = re.compile(r"\d+[-.]\d+")  # the id of a fused token (3-4) or of an empty node (8.1): no word of the sentence
WORDS = ("words", "tokens")  # what JSON may call them
TAGS = ("tags", "labels", "ner_tags", "pos_tags", "upos")


class TaggedText(NamedTuple):
    words: tuple[str, ...]
    tags: tuple[str, ...]
    file: str
    line: int

    @property
    def input_key(self) -> str:
        return " ".join(self.words)

    @property
    def row_key(self) -> str:
        return f"{self.input_key}\t{' '.join(self.tags)}"

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.input_key,)


def read_tagged(
    files: Sequence[str | Path], fields: Sequence[str] | None = None, dialect: Dialect = UTF8
) -> Iterator[TaggedText | BadRow | Note]:
    """One file is CoNLL-U (.conllu), JSON lines (.jsonl, .json) or, under any other name, CoNLL columns; two are
    parallel: the words of a sentence a line, and their tags.

    `fields` are word and tag: column numbers from 1, in CoNLL-U also names, keys in JSON; a single name is the tag's.
    Unless given they are the first and the last column, in CoNLL-U form and upos.
    """
    if fields and len(fields) > 2:
        raise ValueError(f"fields are those of word and tag, not {' '.join(fields)}")
    kinds, parts = file_suffixes(files), [Lines(file, dialect.encoding) for file in files]
    if dialect.separator and (len(kinds) != 1 or kinds[0] in (".jsonl", ".json", ".conllu")):
        raise ValueError(f"{' '.join(map(str, files))}: --separator is for one file of columns, as .conll is")
    match kinds:
        case [".jsonl" | ".json"]:
            yield from from_objects(parts[0], fields)
        case [".conllu"]:
            yield from from_columns(conllu_cells(parts[0]), parts[0].file, conllu_columns(fields, parts[0].file))
        case [_]:
            chosen = numbered(two_numbers(fields, parts[0].file), parts[0].file) if fields else [0, -1]
            yield from from_columns(conll_cells(parts[0], dialect.separator), parts[0].file, chosen)
        case [_, _] if {".jsonl", ".json", ".conllu", ".conll"} & {*kinds}:
            raise ValueError(
                f"{files[0]} {files[1]}: two files are read as parallel, words and tags, "
                "but .conll, .conllu and .jsonl hold both; join them into one file"
            )
        case [_, _] if fields:
            raise ValueError(f"{files[0]} {files[1]}: parallel files have no fields like {' and '.join(fields)}")
        case [_, _]:
            for row in parallel(*parts):
                yield row if isinstance(row, BadRow) else tagged(split(row[1]), split(row[2]), parts[0].file, row[0])
        case _:
            raise ValueError(f"words and tags come from one file or two parallel ones, not from {len(files)}")
    for part in parts:
        yield from part.notes()


def split(line: str) -> list[str]:
    """Only blanks and tabs stand between words: other white space may stand in them."""
    return [word for word in re.split("[ \t]", line) if word]


def tagged(words: Sequence[str], tags: Sequence[str], file: str, line: int) -> TaggedText | BadRow:
    if len(words) != len(tags):
        return BadRow(file, line, "unequal counts", f"{len(words)} words, but {len(tags)} tags")
    if not words:
        return BadRow(file, line, "empty", "there are no words")
    bads = (
        *(check_text("word", word, file, line) for word in words),
        *(misnamed("tag", tag, file, line) for tag in tags),
    )
    return next((bad for bad in bads if bad), None) or TaggedText(tuple(words), tuple(tags), file, line)


def two_numbers(fields: Sequence[str], file: str) -> Sequence[str]:
    if len(fields) != 2 or not all(field.isdecimal() for field in fields):
        raise ValueError(f"{file}: the columns of word and tag are two numbers, e.g. 1 4, not {' '.join(fields)}")
    return fields


def conllu_columns(fields: Sequence[str] | None, file: str) -> list[int]:
    if fields and len(fields) == 2 and all(field.isdecimal() for field in fields):
        return numbered(fields, file)
    names = [field.lower() for field in fields or ("upos",)]
    if not {*names} <= {*CONLLU}:
        raise ValueError(f"{file}: word and tag are two of {', '.join(CONLLU)}, not {' '.join(fields or ())}")
    return [CONLLU.index(name) for name in ["form", *names][-2:]]


Cells = tuple[int, list[str]] | BadRow | None  # None ends a sentence


def conll_cells(lines: Lines, separator: str | None = None) -> Iterator[Cells]:
    """Columns between tabs or, in a line without, between blanks; unless a separator is given."""
    for number, line in enumerate(lines, 1):
        if isinstance(line, BadRow):
            yield line
        elif not line.strip() or line.startswith("-DOCSTART-"):
            yield None
        else:
            between = separator or ("\t" if "\t" in line else None)
            yield number, line.split(between) if between else split(line)


def conllu_cells(lines: Lines) -> Iterator[Cells]:
    for number, line in enumerate(lines, 1):
        if isinstance(line, BadRow):
            yield line
        elif not line.strip():
            yield None
        elif not line.startswith("#"):
            cells = line.split("\t")
            if len(cells) != len(CONLLU):
                detail = f"the line has {len(cells)} columns between tabs, CoNLL-U has {len(CONLLU)}"
                yield BadRow(lines.file, number, "unequal counts", detail)
            elif not PART.fullmatch(cells[0]):
                yield number, cells


def from_columns(rows: Iterator[Cells], file: str, chosen: list[int]) -> Iterator[TaggedText | BadRow]:
    """A sentence with a bad line is bad as a whole."""
    wide, some, bad = 0, False, None
    found: list[tuple[int, list[str]]] = []
    for row in chain(rows, [None]):
        if isinstance(row, BadRow):
            bad = bad or row
        elif row is not None:
            wide = wide or len(row[1])
            bad = bad or misfit(row, wide, chosen, file)
            found.append(row)
        elif bad:
            some = True
            yield bad
            bad, found = None, []
        elif found:
            words, tags = (tuple(cells[column] for _, cells in found) for column in chosen)
            yield TaggedText(words, tags, file, found[0][0])
            found = []
    if not wide and not some:
        raise ValueError(f"{file}: there are no words in it")


def misfit(row: tuple[int, list[str]], wide: int, chosen: list[int], file: str) -> BadRow | None:
    number, cells = row
    if len(cells) != wide:
        detail = f"the line has {len(cells)} columns, that of the first word has {wide}"
        return BadRow(file, number, "unequal counts", detail)
    needed = max(1, *chosen) + 1
    if wide < needed:
        return BadRow(file, number, "missing column", f"the line has {wide} of the {needed} columns needed")
    return check_text("word", cells[chosen[0]], file, number) or misnamed("tag", cells[chosen[1]], file, number)


def from_objects(lines: Lines, fields: Sequence[str] | None) -> Iterator[TaggedText | BadRow]:
    for item in json_objects(lines):
        if isinstance(item, BadRow):
            yield item
            continue
        number, row = item
        words, tags = [usual(row, WORDS), *(fields or (usual(row, TAGS),))][-2:]
        values = [value_at(row, name, lines.file, number) for name in (words, tags)]
        missing = [value for value in values if isinstance(value, BadRow)]
        unfit = [name for name, value in zip((words, tags), values, strict=True) if not is_list(value)]
        if missing:
            yield missing[0]
        elif unfit:
            yield BadRow(lines.file, number, "wrong type", f"field {unfit[0]!r} is no list of strings")
        else:
            said = [[as_text(part) for part in value] for value in values]
            yield tagged(said[0], said[1], lines.file, number)


def usual(names: Collection[str], known: tuple[str, ...]) -> str:
    return next((name for name in known if name in names), known[0])


def is_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(part, str | int) for part in value)


def as_text(part: str | int) -> str:
    return part if isinstance(part, str) else json.dumps(part)
