"""FASTA: chains of letters under their names, plain or gzip; and two such files with the same names, chains and labels.

    >1es5-A any words                     >1es5-A
    VTKPTIAAVGGYAM                        ---CCEEEEEECCC

A name is what stands between > and the first blank; what follows it is a remark. A chain may go over several lines. In
the second file each letter is the label of the residue at its place, and - says that nobody knows it. The order of the
names need not be the same. Every name gives exactly one `Chain` or one `Bad`.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from regard.data.lines import UTF8, Bad, Dialect, Lines, Note
from regard.data.protein_alphabet import USUAL, strange
from regard.data.text import kinds_of

ENDINGS = (".fasta", ".fa", ".faa")
UNLABELLED = "-"  # in a file of labels


class Record(NamedTuple):
    name: str
    letters: str
    file: str
    line: int  # of its name


class LabelledProtein(NamedTuple):
    words: str  # its residues, a letter each
    tags: tuple[str, ...]  # a label for each; "" where nobody knows
    name: str
    file: str
    line: int

    @property
    def asked(self) -> str:
        return self.words

    @property
    def said(self) -> str:
        return f"{self.words}\t{''.join(tag or UNLABELLED for tag in self.tags)}"


def is_fasta(name: str | Path) -> bool:
    return str(name).lower().removesuffix(".gz").endswith(ENDINGS)


def read_labelled_proteins(
    files: Sequence[str | Path], fields: Sequence[str] | None = None, dialect: Dialect = UTF8
) -> Iterator[LabelledProtein | Bad | Note]:
    """Chains and their labels, from two files."""
    kinds = kinds_of(files, dialect)
    if any(kind not in ENDINGS for kind in kinds):
        named = next(file for file, kind in zip(files, kinds, strict=True) if kind not in ENDINGS)
        raise ValueError(f"{named}: chains and their labels are FASTA files, named {', '.join(ENDINGS)} (or with .gz)")
    if len(files) != 2:
        raise ValueError(
            f"{' '.join(map(str, files))}: chains come in one FASTA file and their labels, under the same names, "
            f"in another, not in {len(files)}"
        )
    if fields:
        raise ValueError(f"{files[0]} {files[1]}: FASTA files have no fields like {' and '.join(fields)}")
    chains, labels = (Lines(file, dialect.encoding) for file in files)
    told: dict[str, Record] = {}
    broken: set[str] = set()  # names that are told to be bad
    for record in records(labels, False, broken):
        if isinstance(record, Record):
            told[record.name] = record
        else:
            yield record
    for record in records(chains, True, broken):
        if isinstance(record, Bad):
            yield record
        elif record.name in told or record.name not in broken:
            yield labelled(record, told.pop(record.name, None), labels.file)
    for left in told.values():
        if left.name not in broken:
            yield Bad(left.file, left.line, "missing field", f"the labels {left.name!r} have no chain in {chains.file}")
    yield from chains.notes()
    yield from labels.notes()


def labelled(one: Record, labels: Record | None, file: str) -> LabelledProtein | Bad:
    if labels is None:
        return Bad(one.file, one.line, "missing field", f"the chain {one.name!r} has no labels in {file}")
    if len(labels.letters) != len(one.letters):
        detail = f"the chain {one.name!r} has {len(labels.letters)} labels, but {len(one.letters)} residues"
        return Bad(labels.file, labels.line, "unequal counts", f"{detail} in {one.file}:{one.line}")
    tags = tuple("" if label == UNLABELLED else label for label in labels.letters)
    return LabelledProtein(one.letters, tags, one.name, one.file, one.line)


def read_sequences(lines: Lines) -> Iterator[str | Bad]:
    """Chains without labels."""
    for record in records(lines):
        yield record if isinstance(record, Bad) else record.letters


def records(lines: Lines, residues: bool = True, broken: set[str] | None = None) -> Iterator[Record | Bad]:
    """A name that has a bad line is bad as a whole, and goes into `broken`."""
    begun: dict[str, int] = {}  # the line of each name
    name, letters, line, bad, some = "", "", 0, None, False
    for number, text in enumerate(chain(lines, [">"]), 1):  # one more name ends the last
        if isinstance(text, Bad):
            bad = bad or text
        elif not text.startswith(">"):
            part = text.rstrip().upper() if residues else text.rstrip()
            bad = bad or misfit(part, letters if line else None, residues, lines.file, number)
            letters += part
        else:
            if line or bad:
                some = True
                kept = letters.removesuffix("*") if residues else letters
                found = bad or whole(Record(name, kept, lines.file, line), begun)
                if broken is not None and isinstance(found, Bad):
                    broken.add(name)
                yield found
            name, letters, line, bad = " ".join(text[1:].split()[:1]), "", number, None
    if not some:
        raise ValueError(f"{lines.file}: there are no chains in it")


def misfit(part: str, before: str | None, residues: bool, file: str, line: int) -> Bad | None:
    """What is wrong with a line of letters; `before` are those above it, under the same name."""
    if part and before is None:
        return Bad(file, line, "no name", f"a line with > and a name must stand above {part[:20]!r}")
    terminated = "*" if part and (before or "").endswith("*") else None
    if residues and (letter := strange(part.removesuffix("*")) or terminated):
        return Bad(file, line, "not an amino acid", f"{letter!r} is none: they are {USUAL}, and X for an unknown one")
    odd = next((label for label in part if label.isspace() or not label.isprintable()), None)
    return Bad(file, line, "control character", f"{odd!r} is no label") if odd else None


def whole(record: Record, begun: dict[str, int]) -> Record | Bad:
    """What is wrong with a name."""
    name, letters, file, line = record
    if not name:
        return Bad(file, line, "no name", "there is no name after >")
    if name in begun:
        return Bad(file, line, "name twice", f"{name!r} stands in line {begun[name]} too")
    begun[name] = line
    if not letters:
        return Bad(file, line, "empty", f"there are no letters under {name!r}")
    return record
