"""Questions in both formats of SQuAD round-trip; a misplaced answer is reported."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.data.lines import BadRow, Note
from regard.data.lint import lint
from regard.data.rows import Row, train_valid_split
from regard.modalities.protocols import ReadOptions, Target
from regard.modalities.text import questions
from regard.modalities.text.modality import TextModality, limited_texts
from regard.modalities.text.questions import Question, question_row, read_questions

TEXT = st.text(st.characters(exclude_characters="\r\0", exclude_categories=["Cs"]), min_size=1).filter(str.strip)
SAME_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25)


@st.composite
def question_rows(draw: st.DrawFn) -> tuple[str, str, tuple[tuple[str, int], ...]]:
    question, document = draw(TEXT), draw(TEXT)
    starts = draw(st.lists(st.integers(0, len(document) - 1), unique=True, max_size=3))
    spans = [(document[start : draw(st.integers(start + 1, len(document)))], start) for start in starts]
    return question, document, tuple(span for span in spans if span[0].strip())


QUESTIONS = st.lists(question_rows(), min_size=1, max_size=4)


def write(file: Path, content: str | bytes) -> Path:
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def flat(question: str, document: str, answers: tuple[tuple[str, int], ...]) -> str:
    texts, starts = [text for text, _ in answers], [start for _, start in answers]
    return json.dumps({"question": question, "context": document, "answers": {"text": texts, "answer_start": starts}})


def nested(rows: list[tuple[str, str, tuple[tuple[str, int], ...]]]) -> str:
    def question(text: str, answers: tuple[tuple[str, int], ...]) -> dict:
        return {"question": text, "answers": [{"text": span, "answer_start": start} for span, start in answers]}

    paragraphs = [{"context": document, "qas": [question(text, answers)]} for text, document, answers in rows]
    return json.dumps({"version": "v2.0", "data": [{"title": "t", "paragraphs": paragraphs}]})


@given(rows=QUESTIONS)
@SAME_FOLDER
def test_both_formats_round_trip(tmp_path: Path, rows: list) -> None:
    lines = "\n".join(flat(*row) for row in rows)
    files = [
        write(tmp_path / "a.jsonl", lines),
        write(tmp_path / "b.json", lines),
        write(tmp_path / "c.json", nested(rows)),
        write(tmp_path / "d.json.gz", gzip.compress(nested(rows).encode())),
        write(tmp_path / "e.json", json.dumps(json.loads(nested(rows)), indent=1)),
    ]
    for file in files:
        items = [*read_questions([file])]
        assert [(*item.input, item.target) for item in items] == rows
        assert [item.line for item in items] == [*range(1, len(rows) + 1)]
        assert all(item.input.document.startswith(text, start) for item in items for text, start in item.target)


def test_fields_name_the_keys(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", '{"q": "who?", "d": "me", "a": [{"text": "me", "answer_start": 0}]}')
    (row,) = read_questions([file], ("q", "d", "a"))
    assert row[:2] == (Question("who?", "me"), (("me", 0),))


def test_repeated_answers_count_once(tmp_path: Path) -> None:
    (row,) = read_questions([write(tmp_path / "a.jsonl", flat("who?", "me me", (("me", 3), ("me", 0), ("me", 3))))])
    assert row.target == (("me", 3), ("me", 0))


def test_a_document_may_contain_crlf(tmp_path: Path) -> None:
    (row,) = read_questions([write(tmp_path / "a.jsonl", flat("who?", "a\r\nme", (("me", 3),)))])
    assert row.target == (("me", 3),)


@pytest.mark.parametrize(
    ("text", "start", "detail"),
    [
        ("tea", 4, "'tea' is not at 4, but at 3"),
        ("a", 1, "'a' is not at 1, and the document contains it 3 times"),
        ("gin", 0, "'gin' is not at 0, and the document contains it 0 times"),
        ("tea", -6, "'tea' is not at -6, but at 3"),
        ("tea", 99, "'tea' is not at 99, but at 3"),
    ],
)
def test_a_misplaced_answer_is_reported_with_its_position(tmp_path: Path, text: str, start: int, detail: str) -> None:
    (bad,) = read_questions([write(tmp_path / "a.jsonl", flat("what?", "a, tea, a", ((text, start),)))])
    assert (bad.reason, bad.detail) == ("misplaced answer", detail)


ROW = {"question": "who?", "context": "me", "answers": []}
# row, location in the message, detail in the message
BROKEN = {
    "no answers": ({"question": "who?", "context": "me"}, "a.jsonl:1", "no field 'answers'"),
    "no question": ({"context": "me", "answers": []}, "a.jsonl:1", "no field 'question'"),
    "empty question": (ROW | {"question": " "}, "a.jsonl:1", "the question is empty"),
    "empty document": (ROW | {"context": ""}, "a.jsonl:1", "the document is empty"),
    "NUL": (ROW | {"context": "\0"}, "a.jsonl:1", "the document contains NUL"),
    "a number": (ROW | {"question": 5}, "a.jsonl:1", "'question' is a int"),
    "answers are a string": (ROW | {"answers": "me"}, "a.jsonl:1", "the answers are a str"),
    "answers are strings": (ROW | {"answers": ["me"]}, "a.jsonl:1", "the answers are a list"),
    "no starts": (ROW | {"answers": {"text": ["me"]}}, "a.jsonl:1", "the lists text and answer_start"),
    "fewer starts": (ROW | {"answers": {"text": ["me"], "answer_start": []}}, "a.jsonl:1", "1 answers, but 0 starts"),
    "start is a text": (ROW | {"answers": {"text": ["me"], "answer_start": ["0"]}}, "a.jsonl:1", "an integer"),
    "start is true": (ROW | {"answers": {"text": ["me"], "answer_start": [True]}}, "a.jsonl:1", "an integer"),
    "empty answer": (ROW | {"answers": {"text": [""], "answer_start": [0]}}, "a.jsonl:1", "the answer is empty"),
    "long question": (ROW | {"question": "who " * 300}, "a.jsonl:1", "the question has 300 words"),
}


@pytest.mark.parametrize(("row", "where", "detail"), BROKEN.values(), ids=BROKEN)
def test_broken_rows_are_named(tmp_path: Path, row: dict, where: str, detail: str) -> None:
    checks = TextModality().row_checks(ReadOptions(Target.SPAN), None)
    with pytest.raises(ValueError, match="1 lines cannot be used") as error:
        lint({"train": read_questions([write(tmp_path / "a.jsonl", json.dumps(row))])}, checks=checks)
    assert where in str(error.value)
    assert detail in str(error.value)


@pytest.mark.parametrize(
    ("names", "content", "fields", "detail"),
    [
        (["a.tsv"], "a\tb", None, "from .jsonl, .json or .parquet files, not from"),
        (["a.json", "b.tsv"], "{}", None, "from .jsonl, .json or .parquet files"),
        (["a.json"], '{"data": [{"paragraphs": [{"qas": []}]}]}', None, "a.json: not in SQuAD's format"),
        (["a.json"], '{"data": 5}', None, "a.json: not in SQuAD's format"),
        (["a.json"], nested([("who?", "me", ())])[:-9], None, "not JSON"),
        (["a.json"], "", None, "a.json: the file is empty"),
        (["a.jsonl"], "{}", ("q", "d"), "not q d"),
    ],
)
def test_files_that_cannot_be_read_are_named(tmp_path, monkeypatch, names, content, fields, detail) -> None:
    monkeypatch.chdir(tmp_path)
    for name in names:
        write(Path(name), content)
    with pytest.raises(ValueError, match=detail):
        lint({"train": read_questions(names, fields)})


def test_a_gzip_bomb_is_refused_before_it_is_decompressed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "MAX_SQUAD", 3 << 20)
    with pytest.raises(ValueError, match="over 3 MB"):
        list(read_questions([write(tmp_path / "a.json", gzip.compress(b" " * (20 << 20), 1))]))


KEYS = st.sampled_from(["data", "paragraphs", "context", "qas", "question", "answers", "text", "answer_start"])
TREES = st.recursive(
    st.none() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
)


@given(content=st.binary(max_size=40) | TREES.map(lambda tree: json.dumps(tree).encode()))
@SAME_FOLDER
def test_other_content_gives_bad_rows_or_an_error_that_names_the_file(tmp_path: Path, content: bytes) -> None:
    for name in "a.json", "a.jsonl":
        try:
            items = [*read_questions([write(tmp_path / name, content)])]
        except ValueError as error:
            assert name in str(error)  # noqa: PT017
        else:
            assert {type(item) for item in items} <= {BadRow, Row, Note}


def test_keys_of_a_row() -> None:
    row = question_row("who?", "me", (("me", 0),), "f", 1)
    assert (row.input_key, row.row_key) == ("me", "who?\tme\t0 me")
    assert question_row("who?", "me", (), "f", 1).row_key == "who?\tme"
    assert limited_texts(row, Target.SPAN) == {"question": "who?"}


def test_all_questions_about_a_document_stay_in_one_split() -> None:
    rows = [question_row(f"who {i}?", f"me and {i // 4}", (), "f", i) for i in range(80)]
    train, valid = train_valid_split(rows, 0.3)
    assert len(train) + len(valid) == len(rows)
    assert not {row.input.document for row in train} & {row.input.document for row in valid}
    _, report = lint({"train": train, "valid": [question_row("why?", train[0].input.document, (), "f", 1)]})
    assert report.counts["valid"]["overlap"] == 1
