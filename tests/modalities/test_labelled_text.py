"""Texts with labels or numbers round-trip through every format, and every broken line is named."""

import csv
import gzip
import io
import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.data.lines import BadRow, Note
from regard.data.lint import lint
from regard.data.rows import Labels, Row, train_valid_split
from regard.modalities.protocols import ReadOptions, Target
from regard.modalities.text.labelled_text import read_labelled, read_regression
from regard.modalities.text.modality import TextModality, limited_texts

SHARED = Path("/work/shared/data")
needs_shared = pytest.mark.skipif(not SHARED.exists(), reason=f"the shared data sets are not in {SHARED}")
LETTER = st.characters(exclude_characters="\t\n\r\0", exclude_categories=["Cs"])
TEXT = st.text(LETTER, min_size=1).filter(str.strip)
LABEL = TEXT.map(str.strip)
LABELS = st.lists(
    st.text(LETTER, min_size=1).map(str.strip).filter(lambda s: s and not {*s} & {*",|"}), unique=True, max_size=4
)
PACKS = pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
SAME_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=15)
Pack = Callable[[bytes], bytes]


def write(file: Path, content: str | bytes) -> Path:
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def as_csv(header: list[str], rows: list[list[str]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([header, *rows])
    return out.getvalue()


def plain(items: list) -> list[tuple]:
    """Text, second text or None, and the labels or the number."""
    rows = [item for item in items if not isinstance(item, Note)]
    return [((*row.input, None)[0], (*row.input, None)[1], plain_target(row.target)) for row in rows]


def plain_target(target: Labels | float) -> tuple[str, ...] | float:
    return target.names if isinstance(target, Labels) else target


def text_row(texts: tuple[str, ...], target: Labels | float, file: str, line: int) -> Row:
    return Row(texts, target, file, line, "\t".join(texts))


def starts_with_bom(text: str) -> bool:
    return text.startswith("\ufeff")  # at the start of a file it is a BOM


@PACKS
@given(rows=st.lists(st.tuples(TEXT, TEXT, LABEL), min_size=1, max_size=6))
@SAME_FOLDER
def test_every_format_round_trips(tmp_path: Path, pack: Pack, rows: list[tuple[str, str, str]]) -> None:
    if starts_with_bom(rows[0][0]) or starts_with_bom(rows[0][2]):
        return
    single_file, pair_file = [tmp_path / f"a{n}" for n in (1, 2)]
    write(single_file.with_suffix(".tsv"), pack("".join(f"{text}\t{label}\n" for text, _, label in rows).encode()))
    write(pair_file.with_suffix(".tsv"), pack("".join(f"{a}\t{b}\t{label}\n" for a, b, label in rows).encode()))
    write(single_file.with_suffix(".csv"), pack(as_csv(["label", "text"], [[r[2], r[0]] for r in rows]).encode()))
    write(
        pair_file.with_suffix(".csv"),
        pack(as_csv(["text2", "x", "text", "label"], [[r[1], "", r[0], r[2]] for r in rows]).encode()),
    )
    write(
        single_file.with_suffix(".jsonl"),
        pack("\n".join(json.dumps({"text": r[0], "label": r[2]}) for r in rows).encode()),
    )
    lines = [json.dumps({"text": r[0], "pair": r[1], "labels": [r[2]]}) for r in rows]
    write(pair_file.with_suffix(".jsonl"), pack("\n".join(lines).encode()))
    write(single_file.with_suffix(".in"), pack("".join(f"{text}\n" for text, _, _ in rows).encode()))
    write(single_file.with_suffix(".label"), pack("".join(f"{label}\n" for _, _, label in rows).encode()))
    single, paired = [(text, None, (label,)) for text, _, label in rows], [(a, b, (label,)) for a, b, label in rows]
    for kind in ".tsv", ".csv", ".jsonl":
        assert plain(list(read_labelled([single_file.with_suffix(kind)]))) == single
        assert plain(list(read_labelled([pair_file.with_suffix(kind)]))) == paired
    assert plain(list(read_labelled([single_file.with_suffix(".in"), single_file.with_suffix(".label")]))) == single


@given(
    rows=st.lists(st.tuples(TEXT, LABELS), min_size=1, max_size=6), separator=st.sampled_from([",", "|", ", ", " | "])
)
@SAME_FOLDER
def test_any_number_of_labels_round_trips(tmp_path: Path, rows: list[tuple[str, list[str]]], separator: str) -> None:
    if starts_with_bom(rows[0][0]):
        return
    expected = [(text, None, tuple(labels)) for text, labels in rows]
    table = write(tmp_path / "a.tsv", "".join(f"{text}\t{separator.join(labels)}\n" for text, labels in rows))
    objects = [json.dumps({"text": text, "labels": labels}) for text, labels in rows]
    assert plain(list(read_labelled([table], multi_label=True))) == expected
    assert plain(list(read_labelled([write(tmp_path / "a.jsonl", "\n".join(objects))], multi_label=True))) == expected


def test_repeated_labels_count_once_and_lists_are_not_split(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", '{"text": "a", "labels": ["x", "x ", "y, z"]}\n')
    assert plain(list(read_labelled([file], multi_label=True))) == [("a", None, ("x", "y, z"))]


def test_json_numbers_may_be_labels(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", '{"text": "a", "label": 0}\n{"text": "b", "label": true}\n')
    assert plain(list(read_labelled([file]))) == [("a", None, ("0",)), ("b", None, ("true",))]


@pytest.mark.parametrize(
    ("name", "content", "fields"),
    [
        ("a.tsv", "1\tgood\tThe film\n", ("3", "2")),
        ("a.tsv", "id\tmood\treview\n1\tgood\tThe film\n", ("review", "mood")),
        ("a.csv", "id,mood,review\n1,good,The film\n", ("review", "mood")),
        ("a.csv", "id,mood,review\n1,good,The film\n", ("3", "2")),
        ("a.jsonl", '{"review": "The film", "mood": "good"}', ("review", "mood")),
    ],
)
def test_fields_select_columns_and_keys(tmp_path: Path, name: str, content: str, fields: tuple[str, str]) -> None:
    assert plain(list(read_labelled([write(tmp_path / name, content)], fields))) == [("The film", None, ("good",))]


def test_three_fields_are_a_pair(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv", "gold\tone\ttwo\nyes\tA\tB\n")
    assert plain(list(read_labelled([file], ("two", "one", "gold")))) == [("B", "A", ("yes",))]


def test_a_tsv_has_a_header_only_if_fields_are_names(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv", "text\tlabel\na\tx\n")
    assert plain(list(read_labelled([file]))) == [("text", None, ("label",)), ("a", None, ("x",))]


def test_a_quoted_field_may_span_lines_and_rows_keep_their_first_line(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", 'text,label\r\n"one,\r\ntwo ""three""",x\r\nfour,y\r\n')
    assert list(read_labelled([file])) == [
        text_row(('one,\ntwo "three"',), Labels(("x",)), str(file), 2),
        text_row(("four",), Labels(("y",)), str(file), 4),
        Note(str(file), "CRLF", 4),
    ]


def test_a_bad_line_affects_only_its_row(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", b'text,label\na,x\n\xff,y\n"b\n\xff\nc",z\nd,w\n')
    items = list(read_labelled([file]))
    assert [item.line for item in items] == [2, 3, 5, 7]
    assert [type(item) for item in items] == [Row, BadRow, BadRow, Row]


JSON = '{"text": "a", "label": "x"}\n'
# files, contents, fields, location in the message, detail in the message
BROKEN = {
    "empty line": (["a.tsv"], ["a\tx\n\nb\ty\n"], None, "a.tsv:2", "the line is empty"),
    "empty text": (["a.tsv"], ["a\tx\n \ty\n"], None, "a.tsv:2", "the text is empty"),
    "empty second text": (["a.tsv"], ["a\tb\tx\na\t\ty\n"], None, "a.tsv:2", "the text is empty"),
    "empty label": (["a.tsv"], ["a\tx\nb\t \n"], None, "a.tsv:2", "the label is empty"),
    "empty parallel label": (["a.in", "a.label"], ["a\nb\n", "x\n\n"], None, "a.label:2", "the label is empty"),
    "no label": (["a.tsv"], ["a\tx\nb\n"], None, "a.tsv:2", "1 of the 2 columns"),
    "a tab too many": (["a.tsv"], ["a\tx\nb\tc\ty\n"], None, "a.tsv:2", "the line has 3 columns, the first has 2"),
    "a tab too few": (["a.tsv"], ["a\tb\tx\nc\ty\n"], None, "a.tsv:2", "2 of the 3 columns"),
    "four columns": (
        ["a.tsv"],
        ["\na\tb\tc\td\n"],
        None,
        "a.tsv:2",
        "('a', 'b', 'c', 'd'): name those",
    ),
    "one field": (["a.tsv"], ["a\tx\n"], ("1",), "fields are text and label", "not 1"),
    "four fields": (["a.tsv"], ["a\tx\n"], ("1", "2", "3", "4"), "fields", "not 1 2 3 4"),
    "unnamed column": (
        ["a.tsv"],
        ["a\tb\nc\td\n"],
        ("a", "c"),
        "a.tsv:1",
        "header names 'a', 'b': name the columns",
    ),
    "csv without names": (["a.csv"], ["a,x\nb,y\n"], None, "a.csv:1", "no column is named 'text'"),
    "csv mistyped": (["a.csv"], ["Text,label\na,x\n"], ("text", "label"), "a.csv:1", "did you mean 'Text'?"),
    "csv of other names": (["a.csv"], ["my text;b\na;x\n"], None, "a.csv:1", "e.g. --fields 'my text' b"),
    "csv column 9": (["a.csv"], ["text,label\na,x\n"], ("1", "9"), "a.csv:1", "no column 9: the header names 2"),
    "csv empty line": (["a.csv"], ["text,label\n\na,x\n"], None, "a.csv:2", "the line is empty"),
    "csv too short": (["a.csv"], ["text,label\na\n"], None, "a.csv:2", "the row has 1 columns"),
    "csv too long": (["a.csv"], ["text,label\na,b,x\n"], None, "a.csv:2", "the row has 3 columns"),
    "csv open quote": (["a.csv"], ['text,label\n"a,x\nb,y\n'], None, "a.csv:2", "a quote opened here is not closed"),
    "csv letter after quote": (["a.csv"], ['text,label\n"a"b,x\n'], None, "a.csv:2", "not CSV"),
    "csv of old Macs": (["a.csv"], ["text,label\ra,x\r"], None, "a.csv:1", "not CSV in the header"),
    "csv of nothing": (["a.csv"], [""], None, "a.csv", "the file is empty"),
    "csv header only": (["a.csv"], ["text,label\n"], None, "train", "none of 0 lines"),
    "Latin-1": (["a.tsv"], ["a\tx\né\ty\n".encode("latin-1")], None, "a.tsv:2", "bad UTF-8"),
    "NUL": (["a.tsv"], ["a\tx\n\0\ty\n"], None, "a.tsv:2", "the text contains NUL"),
    "missing key": (["a.jsonl"], [JSON + '{"text": "b"}'], None, "a.jsonl:2", "'label'; the line has 'text': name"),
    "missing text": (["a.jsonl"], [JSON + '{"label": "b"}'], None, "a.jsonl:2", "no field 'text'"),
    "text is a list": (["a.jsonl"], ['{"text": [], "label": "b"}'], None, "a.jsonl:1", "'text' is a list"),
    "label is null": (["a.jsonl"], ['{"text": "a", "label": null}'], None, "a.jsonl:1", "the label is a NoneType"),
    "two labels": (["a.jsonl"], ['{"text": "a", "label": ["b", "c"]}'], None, "a.jsonl:1", "2 labels, but"),
    "no labels": (["a.jsonl"], ['{"text": "a", "labels": []}'], None, "a.jsonl:1", "0 labels, but"),
    "surrogate": (["a.jsonl"], [r'{"text": "a", "label": "\ud800"}'], None, "a.jsonl:1", "surrogate"),
    "cut JSON": (["a.jsonl"], [JSON + '{"text'], None, "a.jsonl:2", "not JSON"),
    "fewer labels": (["a.in", "a.label"], ["a\nb\n", "x\n"], None, "a.in:2", "a.label ends after 1"),
    "two tables": (["a.csv", "b.csv"], ["text,label\n", "text,label\n"], None, "a.csv", "join them"),
    "fields in parallel": (["a.in", "a.label"], ["a\n", "x\n"], ("a", "b"), "a.in", "no fields like a and b"),
    "unknown kind": (["a.xlsx"], ["a"], None, "a.xlsx", "convert it to JSON lines"),
    "three files": (["a.in", "b.in", "c.in"], ["a", "b", "c"], None, "", "not from 3"),
    "cut gzip": (["a.tsv.gz"], [gzip.compress(b"a\tx\n" * 99)[:-9]], None, "a.tsv.gz", "broken gzip"),
}


@pytest.mark.parametrize(("files", "contents", "fields", "where", "detail"), BROKEN.values(), ids=BROKEN)
def test_broken_files_are_named(tmp_path, monkeypatch, files, contents, fields, where, detail) -> None:
    monkeypatch.chdir(tmp_path)
    for file, content in zip(files, contents, strict=True):
        write(Path(file), content)
    with pytest.raises(ValueError, match=".") as error:
        lint({"train": read_labelled(files, fields)})
    message = str(error.value)
    assert where in message
    assert detail in message
    assert "\n" not in message


@given(content=st.lists(st.binary(max_size=9) | st.sampled_from([b"a,b", b'"', b"\n", b",", b"\xe2"])).map(b"".join))
@SAME_FOLDER
def test_any_bytes_give_rows_bad_rows_or_an_error_that_names_the_file(tmp_path: Path, content: bytes) -> None:
    for name, first in ("a.csv", b"text,label\n"), ("a.tsv", b"a\tb\n"), ("a.jsonl", JSON.encode()):
        try:
            items = [*read_labelled([write(tmp_path / name, first + content + b"\n.")])]
        except ValueError as error:
            assert name in str(error)  # noqa: PT017
            continue
        lines = [item.line for item in items if not isinstance(item, Note)]
        assert lines == sorted({*lines})
        assert max(lines) <= content.count(b"\n") + 3


NUMBER = st.floats(allow_nan=False, allow_infinity=False)


@given(rows=st.lists(st.tuples(TEXT, NUMBER), min_size=1, max_size=6))
@SAME_FOLDER
def test_numbers_round_trip_exactly(tmp_path: Path, rows: list[tuple[str, float]]) -> None:
    if starts_with_bom(rows[0][0]):
        return
    expected = [(text, None, value) for text, value in rows]
    table = write(tmp_path / "a.tsv", "".join(f"{text}\t{value!r}\n" for text, value in rows))
    objects = [json.dumps({"text": text, "value": value}) for text, value in rows]
    assert plain(list(read_regression([table]))) == expected
    assert plain(list(read_regression([write(tmp_path / "a.jsonl", "\n".join(objects))]))) == expected


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e999", "3,5", "1_0", "x", "0x1", "1 2", "--1"])
def test_values_that_are_not_finite_are_reported(tmp_path: Path, value: str) -> None:
    (bad,) = read_regression([write(tmp_path / "a.tsv", f"a\t{value}\n")])
    assert (bad.reason, bad.line) == ("not a number", 1)
    assert value in bad.detail


@pytest.mark.parametrize(
    ("value", "reason"),
    [("NaN", "not a number"), ("Infinity", "not a number"), ("true", "wrong type"), ("null", "wrong type"),
     ("[1]", "wrong type"), ('""', "empty"), ("1" + "0" * 400, "not a number"), ('"x"', "not a number")],
)  # fmt: skip
def test_json_values_that_are_not_finite_are_reported(tmp_path: Path, value: str, reason: str) -> None:
    (bad,) = read_regression([write(tmp_path / "a.jsonl", f'{{"text": "a", "value": {value}}}\n')])
    assert bad.reason == reason


def test_keys_of_a_row() -> None:
    single, pair = text_row(("a",), Labels(("x", "y")), "f", 1), text_row(("a", "b"), Labels(()), "f", 2)
    assert (single.input_key, single.row_key, texts(single)) == ("a", "a\tx\ty", ["a"])
    assert (pair.input_key, pair.row_key, texts(pair)) == ("a\tb", "a\tb", ["a", "b"])
    assert text_row(("a", "b"), 0.5, "f", 1).row_key == "a\tb\t0.5"


def texts(row: Row) -> list[str]:
    return [*limited_texts(row, Target.LABELS).values()]


def test_labelled_rows_are_linted_and_split_by_text(tmp_path: Path) -> None:
    lines = [f"text {i % 40}\t{i % 3}\n" for i in range(120)] + ["same\tsame\n"] * 2 + ["long " * 300 + "\tx\n"]
    train = read_labelled([write(tmp_path / "a.tsv", "".join(lines))])
    checks = TextModality().row_checks(ReadOptions(Target.LABELS), None)
    sets = {"train": train, "test": [text_row(("TEXT  7",), Labels(("1",)), "t", 1)]}
    rows, report = lint(sets, skip_bad=True, checks=checks)
    assert report.counts["train"]["overlap"] == 3
    assert report.counts["train"]["duplicates"] == 1
    assert report.counts["train"]["copies"] == 0
    assert [bad.detail[:22] for bad in report.bad] == ["the text has 300 words"]
    train_rows, valid_rows = train_valid_split(rows["train"], 0.3)
    assert not {row.input for row in train_rows} & {row.input for row in valid_rows}


@needs_shared
def test_counts_of_snips_and_esol() -> None:
    for name, count in ("train", 13_084), ("valid", 700), ("test", 700):
        rows = [*read_labelled([SHARED / f"snips/{name}.seq.in", SHARED / f"snips/{name}.label"])]
        assert len(rows) == count
        assert len({row.target for row in rows}) == 7
    esol = [*read_regression([SHARED / "molecules/esol.csv"], ("smiles", "measured log solubility in mols per litre"))]
    assert len(esol) == 1128
    assert math.isclose(min(row.target for row in esol), -11.6)
