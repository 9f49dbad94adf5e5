"""Columns with any separator, and files in other encodings."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path

import pytest

from regard.data.lines import BadRow, Dialect
from regard.data.lint import BadRowsError, lint
from regard.data.rows import Row
from regard.data.splits import DataOptions
from regard.modalities.protocols import ReadOptions, Target
from regard.modalities.text.labelled_text import read_labelled, read_regression
from regard.modalities.text.modality import open_texts
from regard.modalities.text.parallel_text import read_pairs
from regard.modalities.text.questions import read_questions
from regard.modalities.text.tagged_text import read_tagged

TEXTS = ["Größe, Maß; alles", 'sie sagte "ja"', "zwei\nZeilen", "a | b", "a\tb", "schlicht"]
LABELS = ["gut", "schlecht"] * 3


def table(path: Path, separator: str, rows: list[list[str]], encoding: str = "utf-8") -> Path:
    """A CSV file as other programs write it."""
    buffer = io.StringIO()
    csv.writer(buffer, delimiter=separator, lineterminator="\n").writerows(rows)
    path.write_bytes(buffer.getvalue().encode(encoding))
    return path


def labelled(items) -> list[tuple[str, tuple[str, ...]]]:
    return [(item.input[0], item.target.names) for item in items if isinstance(item, Row)]


def pairs(items) -> list[tuple[str, str]]:
    return [(*item.input, item.target) for item in items if isinstance(item, Row)]


def documents(file: Path, fields: tuple[str, ...] | None = None, encoding: str = "utf-8") -> list[str]:
    """One document a line."""
    how = ReadOptions(Target.NEXT, fields, Dialect(encoding))
    return [chunk.text for chunk in open_texts([str(file)], "lines", how, skip_bad=False)]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("header", [["text", "label"], ["id", "label", "text"]])
def test_the_separator_of_a_csv_file_is_sniffed(separator: str, header: list[str], tmp_path: Path) -> None:
    rows = [dict(zip(header, [str(i)] * len(header), strict=True)) for i in range(6)]
    rows = [row | {"text": text, "label": label} for row, text, label in zip(rows, TEXTS, LABELS, strict=True)]
    file = table(tmp_path / "a.csv", separator, [header, *([row[name] for name in header] for row in rows)])
    expected = [(text, (label,)) for text, label in zip(TEXTS, LABELS, strict=True)]
    assert labelled(read_labelled([file])) == expected
    assert labelled(read_labelled([file], ("text", "label"))) == expected


def test_fields_and_equal_row_lengths_decide_between_two_separators(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("text;label (a,b)\nx, y, z;1\nno;2\n")
    assert labelled(read_labelled([file], ("text", "label (a,b)"))) == [("x, y, z", ("1",)), ("no", ("2",))]
    assert labelled(read_labelled([file], ("1", "2"))) == [("x, y, z", ("1",)), ("no", ("2",))]


def test_the_separator_option_is_applied(tmp_path: Path) -> None:
    file = table(tmp_path / "a.csv", ":", [["text", "label"], ["a, b", "x"]])
    assert labelled(read_labelled([file], dialect=DataOptions(separator=":").dialect)) == [("a, b", ("x",))]
    plain = tmp_path / "a.txt"
    plain.write_text('a, "b";x\nc;y\n')
    for value in ";", "semicolon":
        assert labelled(read_labelled([plain], dialect=DataOptions(separator=value).dialect)) == [
            ('a, "b"', ("x",)),
            ("c", ("y",)),
        ]
    for value in "tab", r"\t", "\t":
        assert DataOptions(separator=value).separator == "\t"
    for value in "", ";;", '"', "\n":
        with pytest.raises(ValueError, match="separator"):
            DataOptions(separator=value)


def test_a_separator_is_refused_for_files_without_columns(tmp_path: Path) -> None:
    dialect = Dialect(separator=";")
    for name in "a.jsonl", "a.en", "a.de":
        (tmp_path / name).write_text('{"source": "a", "target": "b"}\n')
    for files in ["a.jsonl"], ["a.en", "a.de"]:
        with pytest.raises(ValueError, match=r"a\.\w+.*: --separator is for one file with columns"):
            list(read_pairs([tmp_path / file for file in files], dialect=dialect))
    (tmp_path / "a.conll").write_text("a;X\n\nb;Y\n")
    assert [row.target for row in read_tagged([tmp_path / "a.conll"], dialect=dialect)] == [("X",), ("Y",)]
    with pytest.raises(ValueError, match="--separator is for one file with columns"):
        list(read_tagged([tmp_path / "a.jsonl"], dialect=dialect))


def test_another_separator_in_plain_columns_is_suggested(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("a;b\nc;d\n")
    with pytest.raises(BadRowsError, match=r"a\.tsv:1: the line has 1 of the 2 columns needed.*--separator"):
        lint({"train": read_pairs([tmp_path / "a.tsv"])})
    assert pairs(read_pairs([tmp_path / "a.tsv"], dialect=Dialect(separator=";"))) == [
        ("a", "b"),
        ("c", "d"),
    ]


def test_pairs_are_read_from_csv(tmp_path: Path) -> None:
    rows = [["de", "en"], ["Tee, bitte", "tea, please"], ["zwei\nZeilen", "two\nlines"], ["", "x"]]
    file = table(tmp_path / "a.csv", ";", rows)
    *items, bad = read_pairs([file], ("en", "de"))
    assert pairs(items) == [("tea, please", "Tee, bitte"), ("two\nlines", "zwei\nZeilen")]
    assert [pair.line for pair in items] == [2, 3]
    assert isinstance(bad, BadRow)
    assert (bad.line, bad.detail) == (6, "the target is empty")
    assert pairs(read_pairs([file], ("1", "2")))[0] == ("Tee, bitte", "tea, please")


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "gb18030"])
@pytest.mark.parametrize("compressed", [False, True])
def test_every_encoding_gives_the_same_rows(encoding: str, compressed: bool, tmp_path: Path) -> None:
    def write(name: str, text: str) -> Path:
        content = text.encode(encoding)
        (tmp_path / name).write_bytes(gzip.compress(content) if compressed else content)
        return tmp_path / name

    dialect = DataOptions(encoding=encoding).dialect
    expected = [("Größe", "Maß"), ("Tür", "Öl")]
    text = "".join(f"{a}\t{b}\r\n" for a, b in expected)
    assert pairs(read_pairs([write("a.tsv", text)], dialect=dialect)) == expected
    lines = [json.dumps({"text": a, "value": 3, "label": b}, ensure_ascii=False) + "\n" for a, b in expected]
    file = write("a.jsonl", "".join(lines))
    assert labelled(read_labelled([file], dialect=dialect)) == [(a, (b,)) for a, b in expected]
    assert [row.input for row in read_regression([file], dialect=dialect)] == [("Größe",), ("Tür",)]
    assert documents(file, encoding=encoding) == ["Größe", "Tür"]
    nested = {"data": [{"paragraphs": [{"context": "Tür", "qas": [{"question": "Öl?", "answers": []}]}]}]}
    [question] = read_questions([write("a.json", json.dumps(nested, ensure_ascii=False))], dialect=dialect)
    assert isinstance(question, Row)
    assert question.input.document == "Tür"
    [tagged] = read_tagged([write("a.conll", "Tür\tX\n")], dialect=dialect)
    assert isinstance(tagged, Row)
    assert tagged.input == ("Tür",)


def test_a_character_may_span_two_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.data.lines.READ_SIZE", 3)
    (tmp_path / "a.tsv").write_bytes("a😀b\t😀\nc\td\n".encode("utf-16"))
    assert pairs(read_pairs([tmp_path / "a.tsv"], dialect=Dialect("utf-16"))) == [("a😀b", "😀"), ("c", "d")]


def test_a_wrong_encoding_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(b"a\tb\nc\x81\td\n")
    with pytest.raises(ValueError, match=r"a\.tsv: not cp1252 at or after line 1 .*0x81.*--encoding"):
        list(read_pairs([tmp_path / "a.tsv"], dialect=Dialect("cp1252")))
    with pytest.raises(ValueError, match="unknown encoding 'cp1525': did you mean cp1252"):
        DataOptions(encoding="cp1525")
    with pytest.raises(ValueError, match="unknown encoding 'hex'"):
        DataOptions(encoding="hex")


def write_header(file: Path) -> Path:
    file.write_bytes("text;Größe;label\na;b;c\n".encode("cp1252"))
    return file


def test_skip_bad_is_advised_only_if_other_lines_are_utf8(tmp_path: Path) -> None:
    cp1252_file, damaged = tmp_path / "cp1252.tsv", tmp_path / "damaged.tsv"
    cp1252_file.write_bytes("a\tb\nTür\tÖl\n".encode("cp1252"))
    damaged.write_bytes("Tür\tÖl\n".encode() + b"cut \xc3\tb\n")
    with pytest.raises(BadRowsError, match=r"cp1252.*--encoding cp1252.*--encoding utf-16") as error:
        lint({"train": read_pairs([cp1252_file])})
    assert "--skip-bad" not in str(error.value)
    with pytest.raises(BadRowsError, match=r"damaged.*--skip-bad") as error:
        lint({"train": read_pairs([damaged])})
    assert "--encoding" not in str(error.value)
    with pytest.raises(ValueError, match="in the header: .*--encoding cp1252"):
        list(read_labelled([write_header(tmp_path / "a.csv")]))


NESTED = [
    {"data": {"text": "a", "label": "x", "more": [{"text": "b"}]}},
    {"data": {"text": "c", "label": "y", "more": [{"text": "d"}]}},
]


def test_dotted_fields_descend_into_objects(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in NESTED))
    assert labelled(read_labelled([file], ("data.text", "data.label"))) == [("a", ("x",)), ("c", ("y",))]
    assert pairs(read_pairs([file], ("data.text", "data.more.0.text"))) == [("a", "b"), ("c", "d")]
    assert documents(file, ("data.text",)) == ["a", "c"]
    [bad, _] = read_labelled([file], ("data.text", "data.lable"))
    assert bad.detail.startswith("no field 'data.lable'; field 'data' has 'text', 'label', 'more': name the fields")
    [bad, _] = read_labelled([file], ("data.text.x", "data.label"))
    assert bad.detail.startswith("no field 'data.text.x'; field 'data.text' has a str")


def test_a_key_that_contains_a_dot_takes_precedence(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"data.text": "flat", "data": {"text": "deep"}, "label": "x"}\n')
    assert labelled(read_labelled([tmp_path / "a.jsonl"], ("data.text", "label"))) == [("flat", ("x",))]


def test_dotted_fields_of_tags_and_questions(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"s": {"words": ["a"], "tags": ["X"], "q": "a?", "c": "b a", "a": []}}\n')
    [tagged] = read_tagged([file], ("s.words", "s.tags"))
    assert (tagged.input, tagged.target) == (("a",), ("X",))
    [question] = read_questions([file], ("s.q", "s.c", "s.a"))
    assert question.input == ("a?", "b a")
