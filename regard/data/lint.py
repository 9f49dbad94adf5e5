"""What is wrong with the data, before hours of training are spent on it.

Bad lines stop, unless they are to be skipped: those of `Why` (empty, bad UTF-8, too few columns, ...). The rest is only
noted: BOM and CRLF are already put right, duplicates and copies may be meant. A source sentence of another set that is
also in train makes scores lie: that is a warning, and skipping takes such pairs out of train.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, get_args

from regard.data.lines import Bad, Note, Why
from regard.data.text import Pair, fold

if TYPE_CHECKING:
    from rich.table import Table

LETTERS = 10  # characters a word may have on average: a limit for languages that write without spaces
NOTED = ("BOM", "CRLF", "duplicates", "copies")
OVERLAP = "overlap"
STYLES = {"": "", "bad": "red", "noted": "", "warning": "bold yellow"}


@dataclass(frozen=True)
class Report:
    counts: dict[str, Counter[str]]  # of every set
    bad: list[Bad]
    longest: int

    def rows(self) -> list[tuple[str, str, list[int]]]:
        """What is counted, what follows from it, and how many there are in every set."""
        meaning: dict[str, str] = {"lines": "", "usable": ""} | dict.fromkeys(get_args(Why), "bad")
        meaning |= dict.fromkeys(NOTED, "noted") | {OVERLAP: "warning"}
        says = {
            "over-long": f"over-long (> {self.longest} words or {self.longest * LETTERS} characters)",
            OVERLAP: "overlap of train and the others",
        }
        return [
            (says.get(row, row), means, [count[row] for count in self.counts.values()])
            for row, means in meaning.items()
        ]

    def table(self) -> Table:
        from rich.table import Table

        table = Table("data", "")
        for name in self.counts:
            table.add_column(name, justify="right")
        for row, means, numbers in self.rows():
            table.add_row(row, means, *map(str, numbers), style=STYLES[means] if any(numbers) else "dim")
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
        first: dict[str, Bad] = {}
        for bad in self.bad:
            first.setdefault(bad.why, bad)
        sorts: Counter[str] = Counter(bad.why for bad in self.bad)
        return "; ".join(f"{sorts[why]} {why} (first {b.file}:{b.line}: {b.detail})" for why, b in first.items())


class BadLines(ValueError):
    """Carries the report, for those who want to see the whole table."""

    def __init__(self, report: Report):
        self.report = report
        super().__init__(
            f"{len(report.bad)} lines cannot be used: {report.complaint()}. "
            "Fix the lines or add --skip-bad to go on without them"
        )


def lint(
    sets: Mapping[str, Iterable[Pair | Bad | Note]], longest: int = 250, skip_bad: bool = False
) -> tuple[dict[str, list[Pair]], Report]:
    """The usable pairs of every set, and the report.

    A set is what `read(files)` or `from_memory(pairs)` gives, or a list of pairs:
    `lint({"train": read(["a.en", "a.de"]), "test": phrasebook})`. `longest` is in words, for source and target each.
    """
    report = Report({}, [], longest)
    pairs = {name: sift(name, items, report) for name, items in sets.items()}
    find_overlap(pairs, report, remove=skip_bad)
    for name, left in pairs.items():
        report.counts[name]["usable"] = len(left)
    if report.bad and not skip_bad:
        raise BadLines(report)
    for name, left in pairs.items():
        count = report.counts[name]
        if not left:
            why = ", ".join(f"{count[row]} {row}" for row in (*get_args(Why), OVERLAP) if count[row])
            raise ValueError(f"{name}: none of {count['lines']} lines can be used" + f" ({why})" * bool(why))
    return pairs, report


def sift(name: str, items: Iterable[Pair | Bad | Note], report: Report) -> list[Pair]:
    count: Counter[str] = Counter()
    pairs: list[Pair] = []
    bads: list[Bad] = []
    for item in items:
        if isinstance(item, Note):
            count[item.what] += item.times
        elif isinstance(item, Bad):
            bads.append(item)
        elif too_long(item.source, report.longest) or too_long(item.target, report.longest):
            bads.append(over_long(item, report.longest))
        else:
            pairs.append(item)
    count.update(bad.why for bad in bads)
    count["lines"] = len(pairs) + len(bads)
    count["duplicates"] = len(pairs) - len({pair[:2] for pair in pairs})
    count["copies"] = sum(pair.source == pair.target for pair in pairs)
    report.counts[name] = count
    report.bad.extend(bads)
    return pairs


def too_long(text: str, longest: int) -> bool:
    if len(text) < 2 * longest:  # no room for more words: spares the counting
        return False
    return len(text) > longest * LETTERS or len(text.split()) > longest


def over_long(pair: Pair, longest: int) -> Bad:
    side, text = ("source", pair.source) if too_long(pair.source, longest) else ("target", pair.target)
    detail = f"the {side} has {len(text.split())} words and {len(text)} characters"
    return Bad(pair.file, pair.line, "over-long", f"{detail}, the limits are {longest} and {longest * LETTERS}")


def find_overlap(pairs: dict[str, list[Pair]], report: Report, remove: bool) -> None:
    """Counts the pairs of every other set whose source is in train, and those of train whose source is in another."""
    others = {name: [fold(pair.source) for pair in those] for name, those in pairs.items() if name != "train"}
    held = {source for sources in others.values() for source in sources}
    if not held or "train" not in pairs:
        return
    leaked = [fold(pair.source) in held for pair in pairs["train"]]
    both = {fold(pair.source) for pair in compress(pairs["train"], leaked)}
    report.counts["train"][OVERLAP] = sum(leaked)
    for name, sources in others.items():
        report.counts[name][OVERLAP] = sum(source in both for source in sources)
    if remove:
        pairs["train"] = [pair for pair, leak in zip(pairs["train"], leaked, strict=True) if not leak]
