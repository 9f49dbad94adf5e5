"""Columns, whatever stands between them, and files that are not in UTF-8."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path

import pytest

from regard.data.documents import from_files
from regard.data.labelled_text import LabelledText, read_labelled, read_regression
from regard.data.lines import BadRow, Dialect
from regard.data.lint import BadRowsError, lint
from regard.data.parallel_text import TextPair, read
from regard.data.questions import Question, read_questions
from regard.data.splits import DataOptions
from regard.data.tagged_text import TaggedText, read_tagged

TEXTS = ["Größe, Maß; alles", 'sie sagte "ja"', "zwei\nZeilen", "a | b", "a\tb", "schlicht"]
LABELS = ["gut", "schlecht"] * 3


def table(path: Path, separator: str, rows: list[list[str]], encoding: str = "utf-8") -> Path:
    """As other programs write it."""
    made = io.StringIO()
    csv.writer(made, delimiter=separator, lineterminator="\n").writerows(rows)
    path.write_bytes(made.getvalue().encode(encoding))
    return path


def labelled(items) -> list[tuple[str, tuple[str, ...]]]:
    return [(item.text, item.labels) for item in items if isinstance(item, LabelledText)]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("header", [["text", "label"], ["id", "label", "text"]])
def test_the_separator_of_a_csv_file_is_found(separator: str, header: list[str], tmp_path: Path) -> None:
    rows = [dict(zip(header, [str(i)] * len(header), strict=True)) for i in range(6)]
    rows = [row | {"text": text, "label": label} for row, text, label in zip(rows, TEXTS, LABELS, strict=True)]
    file = table(tmp_path / "a.csv", separator, [header, *([row[name] for name in header] for row in rows)])
    wanted = [(text, (label,)) for text, label in zip(TEXTS, LABELS, strict=True)]
    assert labelled(read_labelled([file])) == wanted
    assert labelled(read_labelled([file], ("text", "label"))) == wanted


def test_a_header_with_two_separators_is_cut_where_the_fields_are_or_the_rows_agree(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("text;label (a,b)\nx, y, z;1\nno;2\n")
    assert labelled(read_labelled([file], ("text", "label (a,b)"))) == [("x, y, z", ("1",)), ("no", ("2",))]
    assert labelled(read_labelled([file], ("1", "2"))) == [("x, y, z", ("1",)), ("no", ("2",))]


def test_a_separator_is_taken_as_it_is_typed(tmp_path: Path) -> None:
    file = table(tmp_path / "a.csv", ":", [["text", "label"], ["a, b", "x"]])
    assert labelled(read_labelled([file], dialect=DataOptions(separator=":").dialect)) == [("a, b", ("x",))]
    plain = tmp_path / "a.txt"
    plain.write_text('a, "b";x\nc;y\n')
    for typed in ";", "semicolon":
        assert labelled(read_labelled([plain], dialect=DataOptions(separator=typed).dialect)) == [
            ('a, "b"', ("x",)),
            ("c", ("y",)),
        ]
    for typed in "tab", r"\t", "\t":
        assert DataOptions(separator=typed).separator == "\t"
    for typed in "", ";;", '"', "\n":
        with pytest.raises(ValueError, match="separator"):
            DataOptions(separator=typed)


def test_a_separator_where_there_are_no_columns_is_refused(tmp_path: Path) -> None:
    how = Dialect(separator=";")
    for name in "a.jsonl", "a.en", "a.de":
        (tmp_path / name).write_text('{"source": "a", "target": "b"}\n')
    for files in ["a.jsonl"], ["a.en", "a.de"]:
        with pytest.raises(ValueError, match=r"a\.\w+.*: no columns, so no --separator"):
            list(read([tmp_path / file for file in files], dialect=how))
    (tmp_path / "a.conll").write_text("a;X\n\nb;Y\n")
    assert [row.tags for row in read_tagged([tmp_path / "a.conll"], dialect=how)] == [("X",), ("Y",)]
    with pytest.raises(ValueError, match="--separator is for one file of columns"):
        list(read_tagged([tmp_path / "a.jsonl"], dialect=how))


def test_another_separator_in_plain_columns_is_suggested(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("a;b\nc;d\n")
    with pytest.raises(BadRowsError, match=r"a\.tsv:1: the line has 1 of the 2 columns needed.*--separator"):
        lint({"train": read([tmp_path / "a.tsv"])})
    assert [pair[:2] for pair in read([tmp_path / "a.tsv"], dialect=Dialect(separator=";"))] == [("a", "b"), ("c", "d")]


def test_pairs_are_read_from_csv(tmp_path: Path) -> None:
    rows = [["de", "en"], ["Tee, bitte", "tea, please"], ["zwei\nZeilen", "two\nlines"], ["", "x"]]
    file = table(tmp_path / "a.csv", ";", rows)
    *pairs, bad = read([file], ("en", "de"))
    assert [pair[:2] for pair in pairs] == [("tea, please", "Tee, bitte"), ("two\nlines", "zwei\nZeilen")]
    assert [pair.line for pair in pairs] == [2, 3]
    assert isinstance(bad, BadRow)
    assert (bad.line, bad.detail) == (6, "the target is empty")
    assert [pair[:2] for pair in read([file], ("1", "2"))][0] == ("Tee, bitte", "tea, please")


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "gb18030"])
@pytest.mark.parametrize("packed", [False, True])
def test_every_encoding_gives_the_same_rows(encoding: str, packed: bool, tmp_path: Path) -> None:
    def write(name: str, text: str) -> Path:
        content = text.encode(encoding)
        (tmp_path / name).write_bytes(gzip.compress(content) if packed else content)
        return tmp_path / name

    how = DataOptions(encoding=encoding).dialect
    wanted = [("Größe", "Maß"), ("Tür", "Öl")]
    text = "".join(f"{a}\t{b}\r\n" for a, b in wanted)
    assert [item[:2] for item in read([write("a.tsv", text)], dialect=how) if isinstance(item, TextPair)] == wanted
    lines = [json.dumps({"text": a, "value": 3, "label": b}, ensure_ascii=False) + "\n" for a, b in wanted]
    file = write("a.jsonl", "".join(lines))
    assert labelled(read_labelled([file], dialect=how)) == [(a, (b,)) for a, b in wanted]
    assert [row.text for row in read_regression([file], dialect=how)] == ["Größe", "Tür"]
    assert [piece.text for piece in from_files([str(file)], "lines", encoding=encoding)] == ["Größe", "Tür"]
    nested = {"data": [{"paragraphs": [{"context": "Tür", "qas": [{"question": "Öl?", "answers": []}]}]}]}
    [question] = read_questions([write("a.json", json.dumps(nested, ensure_ascii=False))], dialect=how)
    assert isinstance(question, Question)
    assert question.document == "Tür"
    [tagged] = read_tagged([write("a.conll", "Tür\tX\n")], dialect=how)
    assert isinstance(tagged, TaggedText)
    assert tagged.words == ("Tür",)


def test_a_character_that_crosses_two_reads_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.data.lines.BLOCK", 3)
    (tmp_path / "a.tsv").write_bytes("a😀b\t😀\nc\td\n".encode("utf-16"))
    assert [p[:2] for p in read([tmp_path / "a.tsv"], dialect=Dialect("utf-16"))] == [("a😀b", "😀"), ("c", "d")]


def test_a_wrong_encoding_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(b"a\tb\nc\x81\td\n")
    with pytest.raises(ValueError, match=r"a\.tsv: not cp1252 at or after line 1 .*0x81.*--encoding"):
        list(read([tmp_path / "a.tsv"], dialect=Dialect("cp1252")))
    with pytest.raises(ValueError, match="no encoding named 'cp1525': did you mean cp1252"):
        DataOptions(encoding="cp1525")
    with pytest.raises(ValueError, match="no encoding named 'hex'"):
        DataOptions(encoding="hex")


def write_header(file: Path) -> Path:
    file.write_bytes("text;Größe;label\na;b;c\n".encode("cp1252"))
    return file


def test_skipping_is_advised_only_where_other_lines_are_in_utf8(tmp_path: Path) -> None:
    foreign, broken = tmp_path / "foreign.tsv", tmp_path / "broken.tsv"
    foreign.write_bytes("a\tb\nTür\tÖl\n".encode("cp1252"))
    broken.write_bytes("Tür\tÖl\n".encode() + b"cut \xc3\tb\n")
    with pytest.raises(BadRowsError, match=r"foreign.*--encoding cp1252.*--encoding utf-16") as error:
        lint({"train": read([foreign])})
    assert "--skip-bad" not in str(error.value)
    with pytest.raises(BadRowsError, match=r"broken.*--skip-bad") as error:
        lint({"train": read([broken])})
    assert "--encoding" not in str(error.value)
    with pytest.raises(ValueError, match="in the line that names the columns.*--encoding cp1252"):
        list(read_labelled([write_header(tmp_path / "a.csv")]))


NESTED = [
    {"data": {"text": "a", "label": "x", "more": [{"text": "b"}]}},
    {"data": {"text": "c", "label": "y", "more": [{"text": "d"}]}},
]


def test_dots_go_into_objects(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in NESTED))
    assert labelled(read_labelled([file], ("data.text", "data.label"))) == [("a", ("x",)), ("c", ("y",))]
    assert [pair[:2] for pair in read([file], ("data.text", "data.more.0.text"))] == [("a", "b"), ("c", "d")]
    assert [piece.text for piece in from_files([str(file)], "lines", field="data.text")] == ["a", "c"]
    [bad, _] = read_labelled([file], ("data.text", "data.lable"))
    assert bad.detail.startswith("no field 'data.lable'; field 'data' has 'text', 'label', 'more': say which")
    [bad, _] = read_labelled([file], ("data.text.x", "data.label"))
    assert bad.detail.startswith("no field 'data.text.x'; field 'data.text' has a str")


def test_a_key_with_a_dot_goes_first(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"data.text": "flat", "data": {"text": "deep"}, "label": "x"}\n')
    assert labelled(read_labelled([tmp_path / "a.jsonl"], ("data.text", "label"))) == [("flat", ("x",))]


def test_tags_and_questions_lie_deeper_too(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"s": {"words": ["a"], "tags": ["X"], "q": "a?", "c": "b a", "a": []}}\n')
    [tagged] = read_tagged([file], ("s.words", "s.tags"))
    assert (tagged.words, tagged.tags) == (("a",), ("X",))
    [question] = read_questions([file], ("s.q", "s.c", "s.a"))
    assert (question.question, question.document) == ("a?", "b a")
