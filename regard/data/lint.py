"""What is wrong with the data, before hours of training are spent on it.

Bad lines stop, unless they are to be skipped: those of `Why` (empty, bad UTF-8, too few columns, ...). The rest is only
noted: BOM and CRLF are already put right, duplicates and copies may be meant. What another set asks and train asks too
makes scores lie: that is a warning, and skipping takes such rows out of train.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_args

from regard.data.lines import ENCODING_HINT, BadRow, Note, Reason, is_encoding_error
from regard.data.parallel_text import R, TextPair, normalize_text

if TYPE_CHECKING:
    from rich.table import Table

LETTERS = 10  # characters a word may have on average: a limit for languages that write without spaces
NOTED = ("BOM", "CRLF", "duplicates", "copies")
OVERLAP = "overlap"
STYLES = {"": "", "bad": "red", "noted": "", "warning": "bold yellow"}


@dataclass(frozen=True)
class LintReport:
    counts: dict[str, Counter[str]]  # of every set
    bad: list[BadRow]
    max_words: int
    multibyte: set[str] = field(default_factory=set)  # files with lines that only UTF-8 has

    def rows(self) -> list[tuple[str, str, list[int]]]:
        """What is counted, what follows from it, and how many there are in every set; of checks, those that found
        something."""
        meaning: dict[str, str] = {"lines": "", "usable": ""} | dict.fromkeys(get_args(Reason), "bad")
        meaning |= dict.fromkeys(NOTED, "noted") | {OVERLAP: "warning"}
        says = {
            "over-long": f"over-long (> {self.max_words} words or {self.max_words * LETTERS} characters)",
            OVERLAP: "overlap of train and the others",
        }
        return [
            (says.get(row, row), means, [count[row] for count in self.counts.values()])
            for row, means in meaning.items()
            if not means or any(count[row] for count in self.counts.values())
        ]

    def table(self) -> Table:
        from rich.table import Table

        table = Table("data", "")
        for name in self.counts:
            table.add_column(name, justify="right")
        for row, means, numbers in self.rows():
            table.add_row(row, means, *map(str, numbers), style=STYLES[means])
        return table

    def lines(self) -> list[str]:
        """The table as plain text."""
        rows = [("data", "", *self.counts), *((row, means, *map(str, numbers)) for row, means, numbers in self.rows())]
        wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return [
            "  ".join([row.ljust(wide[0]), means.ljust(wide[1]), *map(str.rjust, numbers, wide[2:])])
            for row, means, *numbers in rows
        ]

    def complaint(self) -> str:
        """Of every sort of bad line: how many, where the first one is, and what is wrong with it."""
        first: dict[str, BadRow] = {}
        for bad in self.bad:
            first.setdefault(bad.reason, bad)
        sorts: Counter[str] = Counter(bad.reason for bad in self.bad)
        return "; ".join(f"{sorts[why]} {why} (first {b.file}:{b.line}: {b.detail[:200]})" for why, b in first.items())


class BadRowsError(ValueError):
    """Carries the report, for those who want to see the whole table."""

    def __init__(self, report: LintReport):
        self.report = report
        foreign = sum(is_encoding_error(bad) and bad.file not in report.multibyte for bad in report.bad)
        remedies = [f"If a file is not in UTF-8, {ENCODING_HINT}"] * bool(foreign)
        remedies += ["Fix the lines or add --skip-bad to go on without them"] * (foreign < len(report.bad))
        super().__init__(f"{len(report.bad)} lines cannot be used: {report.complaint()}. {'. '.join(remedies)}")


def lint(
    sets: Mapping[str, Iterable[R | BadRow | Note]], max_words: int = 250, skip_bad: bool = False
) -> tuple[dict[str, list[R]], LintReport]:
    """The usable rows of every set, and the report.

    A set is what a reader gives, or a list of rows: `lint({"train": read(["a.en", "a.de"]), "test": phrasebook})`.
    `longest` is in words, for each of a row's `texts`.
    """
    report = LintReport({}, [], max_words)
    rows = {name: sift(name, items, report) for name, items in sets.items()}
    find_overlap(rows, report, remove=skip_bad)
    for name, left in rows.items():
        report.counts[name]["usable"] = len(left)
    if report.bad and not skip_bad:
        raise BadRowsError(report)
    for name, left in rows.items():
        count = report.counts[name]
        if not left:
            why = ", ".join(f"{count[row]} {row}" for row in (*get_args(Reason), OVERLAP) if count[row])
            raise ValueError(f"{name}: none of {count['lines']} lines can be used" + f" ({why})" * bool(why))
    return rows, report


def sift(name: str, items: Iterable[R | BadRow | Note], report: LintReport) -> list[R]:
    count: Counter[str] = Counter()
    rows: list[R] = []
    bads: list[BadRow] = []
    for item in items:
        if isinstance(item, Note):
            count[item.what] += item.times
            if item.what == "multibyte":
                report.multibyte.add(item.file)
        elif isinstance(item, BadRow):
            bads.append(item)
        elif long := [text for text in getattr(item, "texts", ()) if too_long(text, report.max_words)]:
            bads.append(over_long(item, long[0], report.max_words))
        else:
            rows.append(item)
    count.update(bad.reason for bad in bads)
    count["lines"] = len(rows) + len(bads)
    count["duplicates"] = len(rows) - len({row.row_key for row in rows})
    count["copies"] = sum(isinstance(row, TextPair) and row.source == row.target for row in rows)
    report.counts[name] = count
    report.bad.extend(bads)
    return rows


def too_long(text: str, max_words: int) -> bool:
    if len(text) < 2 * max_words:  # no room for more words: spares the counting
        return False
    return len(text) > max_words * LETTERS or len(text.split()) > max_words


def over_long(row: Any, text: str, max_words: int) -> BadRow:
    name = next((name for name, value in zip(row._fields, row, strict=True) if value is text), "text")
    detail = f"the {name} has {len(text.split())} words and {len(text)} characters"
    return BadRow(row.file, row.line, "over-long", f"{detail}, the limits are {max_words} and {max_words * LETTERS}")


def find_overlap(rows: dict[str, list[R]], report: LintReport, remove: bool) -> None:
    """Counts the rows of every other set that ask what train asks, and those of train that ask what another does."""
    asked = {name: [normalize_text(row.input_key) for row in some] for name, some in rows.items()}
    train = asked.pop("train", [])
    held = {one for others in asked.values() for one in others}
    both = held.intersection(train)
    if not both:
        return
    report.counts["train"][OVERLAP] = sum(one in both for one in train)
    for name, others in asked.items():
        report.counts[name][OVERLAP] = sum(one in both for one in others)
    if remove:
        rows["train"] = [row for row, one in zip(rows["train"], train, strict=True) if one not in both]
