"""Lint: check the data before training, and count the defects of every set.

Bad rows (the reasons of `BadRow`: empty, bad UTF-8, missing column, ...) stop the run unless skip_bad drops them. Notes
are only counted: BOM and CRLF are repaired, duplicates and copies may be intended. Overlap, an input of train that is
also in another set, inflates the scores: it is a warning, and skip_bad removes such rows from train.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, get_args

from regard.data.lines import ENCODING_HINT, BadRow, Note, Reason, is_encoding_error
from regard.data.rows import R, Row, normalize_text

if TYPE_CHECKING:
    from rich.table import Table

NOTES = ("BOM", "CRLF", "duplicates", "copies")
OVERLAP = "overlap"
STYLES = {"": "", "bad": "red", "noted": "", "warning": "bold yellow"}


@dataclass(frozen=True)
class LintReport:
    counts: dict[str, Counter[str]]  # by set
    bad: list[BadRow]
    multibyte: set[str] = field(default_factory=set)  # files that have lines of valid multi-byte UTF-8

    def rows(self) -> list[tuple[str, str, list[int]]]:
        """Name, severity ("", bad, noted or warning) and counts by set; defects that no set has are left out."""
        severities: dict[str, str] = {"lines": "", "usable": ""} | dict.fromkeys(get_args(Reason), "bad")
        severities |= dict.fromkeys(NOTES, "noted") | {OVERLAP: "warning"}
        titles = {OVERLAP: "overlap of train and the others"}
        return [
            (titles.get(row, row), severity, [count[row] for count in self.counts.values()])
            for row, severity in severities.items()
            if not severity or any(count[row] for count in self.counts.values())
        ]

    def table(self) -> Table:
        from rich.table import Table

        table = Table("data", "")
        for name in self.counts:
            table.add_column(name, justify="right")
        for row, severity, numbers in self.rows():
            table.add_row(row, severity, *map(str, numbers), style=STYLES[severity])
        return table

    def lines(self) -> list[str]:
        """The table as plain text."""
        rows = [("data", "", *self.counts), *((name, kind, *map(str, counts)) for name, kind, counts in self.rows())]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return [
            "  ".join([name.ljust(widths[0]), kind.ljust(widths[1]), *map(str.rjust, counts, widths[2:])])
            for name, kind, *counts in rows
        ]

    def summary(self) -> str:
        """For every reason: the number of bad rows, and place and detail of the first."""
        first: dict[str, BadRow] = {}
        for bad in self.bad:
            first.setdefault(bad.reason, bad)
        counts: Counter[str] = Counter(bad.reason for bad in self.bad)
        parts = (f"{counts[name]} {name} (first {b.file}:{b.line}: {b.detail[:200]})" for name, b in first.items())
        return "; ".join(parts)


class BadRowsError(ValueError):
    """Carries the report, so that the command line can print the table."""

    def __init__(self, report: LintReport):
        self.report = report
        undecodable = sum(is_encoding_error(bad) and bad.file not in report.multibyte for bad in report.bad)
        remedies = [f"If a file is not in UTF-8, {ENCODING_HINT}"] * bool(undecodable)
        remedies += ["Fix the lines, or drop them with --skip-bad"] * (undecodable < len(report.bad))
        super().__init__(f"{len(report.bad)} lines cannot be used: {report.summary()}. {'. '.join(remedies)}")


RowCheck = Callable[[Row[object, object]], BadRow | None]


def lint(
    sets: Mapping[str, Iterable[R | BadRow | Note]], skip_bad: bool = False, checks: Iterable[RowCheck] = ()
) -> tuple[dict[str, list[R]], LintReport]:
    """The usable rows of every set, and the report.

    A set is the output of a reader, or a list of rows: `lint({"train": read_pairs(["a.en", "a.de"]), "test": rows})`.
    A row for which one of `checks` returns a `BadRow` is bad.
    """
    report = LintReport({}, [])
    rows = {name: lint_set(name, items, report, [*checks]) for name, items in sets.items()}
    find_overlap(rows, report, remove=skip_bad)
    for name, usable in rows.items():
        report.counts[name]["usable"] = len(usable)
    if report.bad and not skip_bad:
        raise BadRowsError(report)
    for name, usable in rows.items():
        count = report.counts[name]
        if not usable:
            reasons = ", ".join(f"{count[row]} {row}" for row in (*get_args(Reason), OVERLAP) if count[row])
            raise ValueError(f"{name}: none of {count['lines']} lines can be used" + f" ({reasons})" * bool(reasons))
    return rows, report


def lint_set(name: str, items: Iterable[R | BadRow | Note], report: LintReport, checks: Iterable[RowCheck]) -> list[R]:
    count: Counter[str] = Counter()
    rows: list[R] = []
    bads: list[BadRow] = []
    for item in items:
        if isinstance(item, Note):
            count[item.kind] += item.times
            if item.kind == "multibyte":
                report.multibyte.add(item.file)
        elif isinstance(item, BadRow):
            bads.append(item)
        elif bad := next((bad for check in checks if (bad := check(item))), None):
            bads.append(bad)
        else:
            rows.append(item)
    count.update(bad.reason for bad in bads)
    count["lines"] = len(rows) + len(bads)
    count["duplicates"] = len(rows) - len({row.row_key for row in rows})
    count["copies"] = sum(row.key == row.target for row in rows)
    report.counts[name] = count
    report.bad.extend(bads)
    return rows


def find_overlap(rows: dict[str, list[R]], report: LintReport, remove: bool) -> None:
    """Count the rows of train whose input is in another set, and the rows of other sets whose input is in train."""
    keys = {name: [normalize_text(row.input_key) for row in items] for name, items in rows.items()}
    train = keys.pop("train", [])
    overlap = {key for items in keys.values() for key in items}.intersection(train)
    if not overlap:
        return
    report.counts["train"][OVERLAP] = sum(key in overlap for key in train)
    for name, items in keys.items():
        report.counts[name][OVERLAP] = sum(key in overlap for key in items)
    if remove:
        rows["train"] = [row for row, key in zip(rows["train"], train, strict=True) if key not in overlap]
