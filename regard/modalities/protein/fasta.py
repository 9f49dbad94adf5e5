"""Reads FASTA files, plain or gzip: proteins under their names, and a second file with a label for each residue.

    >1es5-A any words                     >1es5-A
    VTKPTIAAVGGYAM                        ---CCEEEEEECCC

The name stands between > and the first blank; the rest of the line is a comment. A sequence may span several lines. In
the second file each letter is the label of the residue at that position, and - means that it is unknown. The order of
the names may differ. Each name gives exactly one `LabelledProtein` or one `BadRow`.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from regard.data.fields import file_suffixes
from regard.data.lines import UTF8, BadRow, Dialect, Lines, Note
from regard.data.rows import Row
from regard.modalities.protein.protein_alphabet import AMINO_ACIDS, find_invalid_residue

FASTA_SUFFIXES = (".fasta", ".fa", ".faa")
UNLABELLED = "-"  # in a file of labels


class FastaRecord(NamedTuple):
    name: str
    letters: str
    file: str
    line: int  # of its name


LabelledProtein = Row[str, tuple[str, ...]]  # the residues, one letter each; a label for each, "" if unknown


def labelled_protein(residues: str, labels: Sequence[str], file: str, line: int) -> LabelledProtein:
    return Row(residues, tuple("" if label == UNLABELLED else label for label in labels), file, line, residues)


def is_fasta(name: str | Path) -> bool:
    return str(name).lower().removesuffix(".gz").endswith(FASTA_SUFFIXES)


def read_labelled_proteins(
    files: Sequence[str | Path], fields: Sequence[str] | None = None, dialect: Dialect = UTF8
) -> Iterator[LabelledProtein | BadRow | Note]:
    """Proteins from the first file, their labels from the second."""
    kinds = file_suffixes(files, dialect)
    if any(kind not in FASTA_SUFFIXES for kind in kinds):
        wrong = next(file for file, kind in zip(files, kinds, strict=True) if kind not in FASTA_SUFFIXES)
        names = ", ".join(FASTA_SUFFIXES)
        raise ValueError(f"{wrong}: proteins and labels are FASTA files, named {names} (or with .gz)")
    if len(files) != 2:
        names = " ".join(map(str, files))
        problem = "proteins come in one FASTA file and their labels, under the same names, in another"
        raise ValueError(f"{names}: {problem}, not in {len(files)}")
    if fields:
        raise ValueError(f"{files[0]} {files[1]}: FASTA files have no fields like {' and '.join(fields)}")
    proteins, labels = (Lines(file, dialect.encoding) for file in files)
    labels_by_name: dict[str, FastaRecord] = {}
    bad_names: set[str] = set()  # names for which a `BadRow` was yielded
    for record in read_fasta_records(labels, False, bad_names):
        if isinstance(record, FastaRecord):
            labels_by_name[record.name] = record
        else:
            yield record
    for record in read_fasta_records(proteins, True, bad_names):
        if isinstance(record, BadRow):
            yield record
        elif record.name in labels_by_name or record.name not in bad_names:
            yield attach_labels(record, labels_by_name.pop(record.name, None), labels.file)
    for record in labels_by_name.values():
        if record.name not in bad_names:
            detail = f"{record.name!r} has no protein in {proteins.file}"
            yield BadRow(record.file, record.line, "missing field", detail)
    yield from proteins.notes()
    yield from labels.notes()


def attach_labels(protein: FastaRecord, labels: FastaRecord | None, file: str) -> LabelledProtein | BadRow:
    if labels is None:
        return BadRow(protein.file, protein.line, "missing field", f"{protein.name!r} has no labels in {file}")
    if len(labels.letters) != len(protein.letters):
        detail = f"{protein.name!r} has {len(labels.letters)} labels, but {len(protein.letters)} residues"
        return BadRow(labels.file, labels.line, "unequal counts", f"{detail} in {protein.file}:{protein.line}")
    return labelled_protein(protein.letters, labels.letters, protein.file, protein.line)


def read_sequences(lines: Lines) -> Iterator[str | BadRow]:
    """Proteins without labels."""
    for record in read_fasta_records(lines):
        yield record if isinstance(record, BadRow) else record.letters


def read_fasta_records(
    lines: Lines, is_protein: bool = True, bad_names: set[str] | None = None
) -> Iterator[FastaRecord | BadRow]:
    """All records of a file. A record with a bad line becomes one `BadRow`, and its name is added to `bad_names`."""
    first_lines: dict[str, int] = {}  # the line of each name
    name, letters, line, bad, is_empty = "", "", 0, None, True
    for number, text in enumerate(chain(lines, [">"]), 1):  # the additional name ends the last record
        if isinstance(text, BadRow):
            bad = bad or text
        elif not text.startswith(">"):
            part = text.rstrip().upper() if is_protein else text.rstrip()
            bad = bad or check_letters(part, letters if line else None, is_protein, lines.file, number)
            letters += part
        else:
            if line or bad:
                is_empty = False
                letters = letters.removesuffix("*") if is_protein else letters
                item = bad or check_name(FastaRecord(name, letters, lines.file, line), first_lines)
                if bad_names is not None and isinstance(item, BadRow):
                    bad_names.add(name)
                yield item
            name, letters, line, bad = " ".join(text[1:].split()[:1]), "", number, None
    if is_empty:
        raise ValueError(f"{lines.file}: the file has no FASTA record")


def check_letters(part: str, before: str | None, is_protein: bool, file: str, line: int) -> BadRow | None:
    """The error in a line of letters; `before` are the letters above it under the same name."""
    if part and before is None:
        return BadRow(file, line, "no name", f"a line with > and a name must stand above {part[:20]!r}")
    early_stop = "*" if part and (before or "").endswith("*") else None
    if is_protein and (letter := find_invalid_residue(part.removesuffix("*")) or early_stop):
        return BadRow(file, line, "not an amino acid", f"{letter!r}: the letters are {AMINO_ACIDS}, and X if unknown")
    invalid = next((label for label in part if label.isspace() or not label.isprintable()), None)
    return BadRow(file, line, "control character", f"{invalid!r} is no label") if invalid else None


def check_name(record: FastaRecord, first_lines: dict[str, int]) -> FastaRecord | BadRow:
    """The record, or the error in its name or length."""
    name, letters, file, line = record
    if not name:
        return BadRow(file, line, "no name", "there is no name after >")
    if name in first_lines:
        return BadRow(file, line, "name twice", f"{name!r} is also the name in line {first_lines[name]}")
    first_lines[name] = line
    if not letters:
        return BadRow(file, line, "empty", f"there are no letters under {name!r}")
    return record
