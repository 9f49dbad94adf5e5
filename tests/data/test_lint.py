"""Every kind of broken file is refused with its name, line, defect and remedy."""

import gzip
from functools import partial
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from regard.data.lines import BadRow
from regard.data.lint import lint
from regard.data.rows import Labels, Row
from regard.modalities.protocols import ReadOptions, Target
from regard.modalities.text.modality import TextModality, TextOptions
from regard.modalities.text.parallel_text import TextPair, pairs_from_memory, read_pairs
from regard.options import OptionGroups

LONG = "word " * 300
GZIP = gzip.compress(b"a\tb\n" * 1000, mtime=0)
JSON = b'{"source": "a", "target": "b"}\n'
EN_DE = ("en", "de")

# files, contents, fields, location in the message, detail in the message
BROKEN = {
    "empty line": (["a.tsv"], [b"a\tb\n\nc\td\n"], None, "a.tsv:2", "the line is empty"),
    "empty last line": (["a.tsv"], [b"a\tb\n\n"], None, "a.tsv:2", "empty"),
    "empty source": (["a.tsv"], [b"a\tb\n\td\n"], None, "a.tsv:2", "the source is empty"),
    "empty target": (["a.tsv"], [b"a\tb\nc\t\n"], None, "a.tsv:2", "the target is empty"),
    "blank target": (["a.tsv"], ["a\t \u3000\xa0\n".encode()], None, "a.tsv:1", "the target is empty"),
    "empty JSON line": (["a.jsonl"], [JSON + b"\n" + JSON], None, "a.jsonl:2", "the line is empty"),
    "empty JSON source": (["a.jsonl"], [b'{"source": "", "target": "b"}'], None, "a.jsonl:1", "the source is empty"),
    "empty parallel source": (["a.en", "a.de"], [b"a\n\n", b"A\nB\n"], None, "a.en:2", "the source is empty"),
    "empty parallel target": (["a.en", "a.de"], [b"a\nb\n", b"A\n \n"], None, "a.de:2", "the target is empty"),
    "Latin-1": (["a.tsv"], ["a\tb\nMaß\td\n".encode("latin-1")], None, "a.tsv:2", "byte 0xdf at position 3"),
    "Latin-1 source": (["a.en", "a.de"], [b"a\n\xe9\n", b"A\nB\n"], None, "a.en:2", "bad UTF-8"),
    "Latin-1 target": (["a.en", "a.de"], [b"a\nb\n", b"A\n\xe9\n"], None, "a.de:2", "bad UTF-8"),
    "Latin-1 JSON": (["a.jsonl"], [JSON + b'{"source": "\xe9", "target": "b"}'], None, "a.jsonl:2", "bad UTF-8"),
    "Latin-1 header": (["a.tsv"], [b"en\td\xe9\na\tb\n"], EN_DE, "a.tsv:1", "bad UTF-8 in the header"),
    "overlong UTF-8": (["a.tsv"], [b"\xc0\xaf\tb\n"], None, "a.tsv:1", "byte 0xc0"),
    "cut UTF-8": (["a.tsv"], [b"a\t\xe2\x82"], None, "a.tsv:1", "byte 0xe2"),
    "surrogate bytes": (["a.tsv"], [b"a\t\xed\xa0\x80\n"], None, "a.tsv:1", "bad UTF-8"),
    "JSON surrogate": (["a.jsonl"], [rb'{"source": "\ud83d", "target": "b"}'], None, "a.jsonl:1", r"surrogate \ud83d"),
    "UTF-16 unmarked": (["a.tsv"], ["a\tb\n".encode("utf-16-be")], None, "a.tsv", "--encoding utf-16-be"),
    "UTF-16": (["a.tsv"], ["a\tb\n".encode("utf-16")], None, "a.tsv", "--encoding utf-16"),
    "NUL": (["a.tsv"], [b"a\tb\nc\0\td\n"], None, "a.tsv:2", "the source contains NUL"),
    "JSON NUL": (["a.jsonl"], [rb'{"source": "a", "target": "\u0000"}'], None, "a.jsonl:1", "the target contains NUL"),
    "old Mac lines": (["a.tsv"], [b"a\tb\rc\td\r"], None, "a.tsv:1", "the target contains a lone CR"),
    "one column": (["a.tsv"], [b"a\tb\nc d\n"], None, "a.tsv:2", "1 of the 2 columns"),
    "too few columns": (["a.tsv"], [b"1\ta\tb\n2\tc\n"], ("2", "3"), "a.tsv:2", "2 of the 3 columns"),
    "column 0": (["a.tsv"], [b"a\tb\n"], ("0", "1"), "a.tsv", "counted from 1"),
    "no such column": (
        ["a.tsv"],
        [b"en\tfr\na\tb\n"],
        EN_DE,
        "a.tsv:1",
        "'de'; the header names 'en', 'fr': name",
    ),
    "cut JSON": (["a.jsonl"], [JSON + b'{"source": "a", "tar\n'], None, "a.jsonl:2", "not JSON"),
    "JSON over many lines": (["a.json"], [b'{\n"source": "a"\n}\n'], None, "a.json:1", "not JSON"),
    "JSON array": (["a.json"], [b'["a", "b"]\n'], None, "a.json:1", "the line is a list"),
    "JSON number": (["a.jsonl"], [JSON + b"17\n"], None, "a.jsonl:2", "the line is a int"),
    "JSON too deep": (["a.jsonl"], [b"[" * 100_000], None, "a.jsonl:1", "not JSON"),
    "JSON number too big": (["a.jsonl"], [b'{"source": ' + b"1" * 5000 + b"}"], None, "a.jsonl:1", "not JSON"),
    "missing field": (
        ["a.jsonl"],
        [JSON + b'{"source": "a"}'],
        None,
        "a.jsonl:2",
        "the line has 'source': name the fields",
    ),
    "fields unnamed": (["a.jsonl"], [b'{"en": "a", "de": "b"}'], None, "a.jsonl:1", "the line has 'en', 'de'"),
    "missing language": (["a.jsonl"], [b'{"translation": {"en": "a"}}'], EN_DE, "a.jsonl:1", "no field 'de'"),
    "field is a number": (["a.jsonl"], [b'{"source": 5, "target": "b"}'], None, "a.jsonl:1", "'source' is a int"),
    "field is null": (["a.jsonl"], [b'{"source": "a", "target": null}'], None, "a.jsonl:1", "'target' is a NoneType"),
    "field is a list": (["a.jsonl"], [b'{"source": "a", "target": ["b"]}'], None, "a.jsonl:1", "'target' is a list"),
    "too many words": (["a.tsv"], [f"a\tb\n{LONG}\td\n".encode()], None, "a.tsv:2", "the source has 300 words"),
    "too many characters": (["a.tsv"], [f"a\t{'字' * 2501}\n".encode()], None, "a.tsv:1", "2501 characters, the"),
    "target too short": (["a.en", "a.de"], [b"a\nb\nc", b"A\nB\n"], None, "a.en:3", "a.de ends after 2"),
    "source too short": (["a.en", "a.de"], [b"a\n", b"A\nB\nC\n"], None, "a.de:2", "a.de has 3 lines, but"),
    "nothing in it": (["a.tsv"], [b""], None, "a.tsv", "the file is empty"),
    "only a BOM": (["a.tsv"], [b"\xef\xbb\xbf"], None, "a.tsv", "the file is empty"),
    "nothing packed": (["a.tsv.gz"], [gzip.compress(b"")], None, "a.tsv.gz", "the file is empty"),
    "one of two empty": (["a.en", "a.de"], [b"a\n", b""], None, "a.de", "the file is empty"),
    "header of nothing": (["a.tsv"], [b""], EN_DE, "a.tsv", "the file is empty"),
    "cut gzip": (["a.tsv.gz"], [GZIP[:-9]], None, "a.tsv.gz", "broken gzip (Compressed file ended"),
    "damaged gzip": (["a.tsv.gz"], [GZIP[:12] + b"\xff" * 9 + GZIP[21:]], None, "a.tsv.gz", "broken gzip (Error"),
    "gzip with wrong sum": (["a.tsv.gz"], [GZIP[:-8] + bytes(8)], None, "a.tsv.gz", "broken gzip"),
    "gzip, then junk": (["a.tsv.gz"], [GZIP + b"junk"], None, "a.tsv.gz", "broken gzip"),
    "unknown kind": (["a.dat"], [b"a,b\n"], None, "a.dat", "not '.dat'"),
    "csv without names": (["a.csv"], [b"a,b\n"], None, "a.csv:1", "names 'a', 'b': name the columns"),
    "a table of Excel": (["a.xlsx"], [b"a"], None, "a.xlsx", "pandas.read_excel('a.xlsx').to_json('a.jsonl'"),
    "a table named .tsv": (
        ["a.tsv"],
        [b"PAR1..."],
        None,
        "a.tsv",
        "a binary .parquet file, not text: name it a.parquet",
    ),
    "no ending": (["pairs.gz"], [GZIP], None, "pairs.gz", "give two parallel files"),
    "two tables": (["a.tsv", "b.tsv"], [b"a\tb\n", b"c\td\n"], None, "a.tsv", "join them into one file"),
    "fields in parallel files": (["a.en", "a.de"], [b"a\n", b"b\n"], EN_DE, "a.en", "no fields like en and de"),
    "three files": (["a.en", "a.de", "a.fr"], [b"a\n", b"b\n", b"c\n"], None, "", "not from 3"),
    "no file": ([], [], None, "", "not from 0"),
}


def make_pairs(*pairs: tuple[str, str]) -> list[TextPair]:
    return [item for item in pairs_from_memory(pairs) if isinstance(item, Row)]


def limit(max_words: int = 250) -> list:
    """The checks of `lint` for pairs of texts."""
    return [partial(TextModality().check, how=ReadOptions(Target.TEXT, groups=OptionGroups(TextOptions(max_words))))]


@pytest.mark.parametrize(("files", "contents", "fields", "where", "detail"), BROKEN.values(), ids=BROKEN)
def test_broken_files_are_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: list[str],
    contents: list[bytes],
    fields: tuple[str, str] | None,
    where: str,
    detail: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for file, content in zip(files, contents, strict=True):
        Path(file).write_bytes(content)
    with pytest.raises(ValueError, match=".") as error:
        lint({"train": read_pairs(files, fields)}, checks=limit())
    message = str(error.value)
    assert where in message
    assert detail in message
    assert "\n" not in message
    undecodable = "bad UTF-8" in message and "surrogate \\u" not in message  # --encoding is the remedy
    assert ("--skip-bad" in message) == (message[0].isdigit() and not undecodable)  # whole files cannot be skipped
    assert ("--encoding" in message) == (undecodable or "UTF-16" in message)
    assert "rename it" not in message or "'.dat'" in message or "''" in message


@pytest.mark.parametrize(("name", "detail"), [("gone.tsv", "no such file"), (".", "this is a folder")])
def test_missing_files_and_folders_are_named(tmp_path: Path, name: str, detail: str) -> None:
    with pytest.raises(ValueError, match=detail):
        lint({"train": read_pairs([tmp_path / name])})


def test_the_message_counts_every_reason_and_names_its_first_line(tmp_path: Path) -> None:
    file = tmp_path / "a.tsv"
    file.write_bytes(b"a\tb\n\tc\n\xff\td\n\n\te\n")
    with pytest.raises(ValueError, match="4 lines cannot be used") as error:
        lint({"train": read_pairs([file])})
    assert str(error.value) == (
        f"4 lines cannot be used: 3 empty (first {file}:2: the source is empty); "
        f"1 bad UTF-8 (first {file}:3: byte 0xff at position 1). If a file is not in UTF-8, name its encoding with "
        "--encoding, e.g. --encoding cp1252 (Windows, Western Europe) or --encoding utf-16. "
        "Fix the lines, or drop them with --skip-bad"
    )


def test_skip_bad_drops_and_counts_bad_lines(tmp_path: Path) -> None:
    file = tmp_path / "a.tsv"
    file.write_bytes(f"\ufeffa\tb\r\n\tc\na\tb\nsame\tsame\n{LONG}\tx\n".encode() + b"\xff\td\n")
    pairs, report = lint({"train": read_pairs([file])}, skip_bad=True, checks=limit())
    assert [pair.line for pair in pairs["train"]] == [1, 3, 4]
    assert {row: count for row, count in report.counts["train"].items() if count} == {
        "lines": 6, "usable": 3, "empty": 1, "over-long": 1, "bad UTF-8": 1,
        "BOM": 1, "CRLF": 1, "duplicates": 1, "copies": 1,
    }  # fmt: skip
    assert [(bad.line, bad.reason) for bad in report.bad] == [(2, "empty"), (5, "over-long"), (6, "bad UTF-8")]


def test_skip_bad_drops_lines_without_a_counterpart(tmp_path: Path) -> None:
    (tmp_path / "a.en").write_text("a\nb\nc\nd\n")
    (tmp_path / "a.de").write_text("A\nB\n")
    pairs, report = lint({"train": read_pairs([tmp_path / "a.en", tmp_path / "a.de"])}, skip_bad=True)
    assert len(pairs["train"]) == 2
    assert report.counts["train"]["unequal counts"] == 2


def test_notes_do_not_stop() -> None:
    pairs, report = lint({"train": make_pairs(("a", "b"), ("a", "b"), ("a", "a"))})
    assert len(pairs["train"]) == 3
    assert report.bad == []


@pytest.mark.parametrize("skip_bad", [False, True])
def test_overlap_is_counted_and_removed_from_train_with_skip_bad(skip_bad: bool) -> None:
    sets = {
        "train": make_pairs(("One", "eins"), ("Two", "zwei"), ("two ", "Zwo"), ("Three", "drei")),
        "valid": make_pairs(("four", "vier")),
        "test": make_pairs((" TWO", "zwei"), ("five", "fünf")),
    }
    pairs, report = lint(sets, skip_bad=skip_bad)
    assert [report.counts[name]["overlap"] for name in sets] == [2, 0, 1]
    assert [pair.line for pair in pairs["train"]] == ([1, 4] if skip_bad else [1, 2, 3, 4])
    assert [pair.input for pair in pairs["test"]] == [(" TWO",), ("five",)]
    assert report.counts["train"]["usable"] == len(pairs["train"])


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ([("", "a"), ("b", "")], r"train: none of 2 lines can be used \(2 empty\)"),
        ([("a", "b")], r"train: none of 1 lines can be used \(1 overlap\)"),
        ([], "train: none of 0 lines can be used$"),
    ],
)
def test_a_set_without_usable_lines_is_an_error(train: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lint({"train": pairs_from_memory(train), "test": make_pairs(("a", "b"))}, skip_bad=True)


@pytest.mark.parametrize(("words", "fits"), [(3, True), (4, False)])
def test_max_words_is_inclusive(words: int, fits: bool) -> None:
    _, report = lint({"train": pairs_from_memory([("w " * words, "b"), ("c", "d")])}, skip_bad=True, checks=limit(3))
    assert report.counts["train"]["over-long"] == (not fits)


def test_the_report_prints_as_a_table_and_as_plain_lines() -> None:
    long = ("w " * 41, "x")
    sets = {"train": pairs_from_memory([("a", "b"), ("c", "c"), long]), "test": make_pairs(("A", "b"), ("d", "e"))}
    _, report = lint(sets, skip_bad=True, checks=limit(40))
    console = Console(width=100, record=True, file=StringIO())
    console.print(report.table())
    for text in console.export_text(), "\n".join(report.lines()):
        rows = {line.strip("│ ").replace("│", "  ").split("  ")[0].strip(): line for line in text.splitlines()}
        assert rows["lines"].replace("│", "").split() == ["lines", "3", "2"]
        assert rows["copies"].replace("│", "").split() == ["copies", "noted", "1", "0"]
        assert rows["overlap of train and the others"].replace("│", "").split()[-3:] == ["warning", "1", "1"]
        assert rows["over-long"].replace("│", "").split() == ["over-long", "bad", "1", "0"]
        checks = {"over-long", "copies", "overlap of train and the others"}
        assert {name for name in rows if name and name[0].isalpha()} - {"data"} == {"lines", "usable", *checks}
    assert len({len(line) for line in report.lines()}) == 1
    assert "the limits are 40 and 400" in report.summary()


def wave_row(wave: bytes, label: str, file: str, line: int) -> Row[bytes, Labels]:
    """A row without texts."""
    return Row(wave, Labels((label,)), file, line, wave.hex())


def test_any_row_with_keys_can_be_linted() -> None:
    sets = {
        "train": [
            wave_row(b"moo" * 999, "cow", "a", 1),
            wave_row(b"oink", "pig", "a", 2),
            wave_row(b"oink", "pig", "a", 3),
        ],
        "test": [wave_row(b"oink", "cow", "b", 1)],
    }
    rows, report = lint(sets, skip_bad=True, checks=limit(1))
    assert [row.target.names for row in rows["train"]] == [("cow",)]
    assert {row: count for row, count in report.counts["train"].items() if count} == {
        "lines": 3, "usable": 1, "duplicates": 1, "overlap": 2,
    }  # fmt: skip


@pytest.mark.parametrize("reason", ["not CSV", "not a number", "not an image", "misplaced answer"])
def test_rare_reasons_are_reported_only_where_they_occur(reason: str) -> None:
    _, report = lint({"train": make_pairs(("a", "b"))})
    assert reason not in "\n".join(report.lines())
    _, report = lint({"train": [*make_pairs(("a", "b")), BadRow("a.csv", 2, reason, "...")]}, skip_bad=True)
    assert [numbers for row, _, numbers in report.rows() if row == reason] == [[1]]
