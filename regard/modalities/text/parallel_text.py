"""Pairs of texts that belong together, such as a sentence and its translation, from the files of `read_records`."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from regard.data.lines import UTF8, BadRow, Dialect, Note
from regard.data.records import Record, RecordFormat, read_records
from regard.data.rows import Row
from regard.data.text_checks import check_text

Texts = tuple[str, ...]  # one text, or two that are read together
TextPair = Row[Texts, str]
NAMES = (("source",), ("target",))
FORM = RecordFormat("sources and targets", NAMES, width=2, text_answer=True, nested="translation")


def read_pairs(
    files: Sequence[str | Path], fields: Sequence[str] | None = None, dialect: Dialect = UTF8
) -> Iterator[TextPair | BadRow | Note]:
    """`fields` name source and target, by default "source" and "target", or the first two columns of a .tsv. Language
    codes also match {"translation": {"en": ..., "de": ...}}."""
    if fields is not None and len(fields) != 2:
        raise ValueError(f"--fields must name two columns or keys, the two texts of a pair, not {len(fields)}")
    return read_records(files, fields, FORM, dialect, check_pair)


def pairs_from_memory(pairs: Iterable[tuple[str, str]], name: str = "pairs") -> Iterator[TextPair | BadRow]:
    """Check pairs as those of a file; `name` takes the place of the file name."""
    return (check_pair(Record([source], target, name, line, name)) for line, (source, target) in enumerate(pairs, 1))


def check_pair(record: Record) -> TextPair | BadRow:
    source, target = record.inputs[0], str(record.answer)
    bad = check_text("source", source, record.file, record.line)
    bad = bad or check_text("target", target, record.answer_file, record.line)
    return bad or Row((source,), target, record.file, record.line, source)
