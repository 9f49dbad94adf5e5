"""Parquet and Arrow files: the rows of the same data in JSON lines, for every task; defects are named."""

import json
import sys
import tracemalloc
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import ipc, parquet

from regard.data import arrow_tables
from regard.data.arrow_tables import arrow_rows
from regard.data.document_files import TextChunk, read_text_file
from regard.data.lines import BadRow, Note
from regard.data.rows import Row
from regard.data.targets import parse_label_columns, parse_value
from regard.modalities.molecule.molecules import read_molecules
from regard.modalities.text.labelled_text import read_labelled, read_regression
from regard.modalities.text.parallel_text import read_pairs
from regard.modalities.text.questions import read_questions
from regard.modalities.text.tagged_text import read_tagged
from regard.modalities.trajectory.episode_files import read_episodes

Table = list[dict[str, Any]]


def write_parquet(table: pa.Table, file: Path) -> None:
    parquet.write_table(table, file, row_group_size=3)


def write_ipc(table: pa.Table, file: Path, opener: Callable[..., Any] = ipc.new_file, **options: Any) -> None:
    with opener(file, table.schema, options=ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=3)


WRITERS = {
    "a.parquet": write_parquet,
    "a.arrow": write_ipc,
    "stream.arrow": partial(write_ipc, opener=ipc.new_stream),
    "a.feather": partial(write_ipc, compression="lz4"),
}
formats = pytest.mark.parametrize("name", WRITERS)


def write(folder: Path, name: str, rows: Table | pa.Table) -> str:
    WRITERS[name](pa.Table.from_pylist(rows) if isinstance(rows, list) else rows, folder / name)
    return str(folder / name)


def write_json(folder: Path, rows: Table) -> str:
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder / "a.jsonl")


N = range(7)
PAIRS: Table = [{"source": f"a {i}", "target": f"b {i}", "other": i} for i in N]
NESTED: Table = [{"translation": {"en": f"a {i}", "de": f"b {i}"}} for i in N]
SQUAD: Table = [
    {"question": f"which {i}?", "context": f"it is {i}", "answers": {"text": [str(i)], "answer_start": [6]}} for i in N
]
EPISODES: Table = [
    {"observations": [[0.5, i], [1.0, 2.0]], "actions": [1], "rewards": [0.5], "terminated": i % 2 == 0} for i in N
]
TAGS: Table = [{"tokens": ["a", "b"], "ner_tags": [f"T{i}", "O"]} for i in N]
CASES: dict[str, tuple[Table, Callable[[list[str]], Any]]] = {
    "pairs": (PAIRS, read_pairs),
    "pairs by name": (PAIRS, partial(read_pairs, fields=("target", "source"))),
    "nested pairs": (NESTED, partial(read_pairs, fields=("en", "de"))),
    "dotted pairs": (NESTED, partial(read_pairs, fields=("translation.de", "translation.en"))),
    "labels": ([{"text": f"a {i}", "label": f"L{i % 3}"} for i in N], read_labelled),
    "numbered labels": ([{"text": f"a {i}", "label": i % 3} for i in N], read_labelled),
    "lists of labels": (
        [{"text": f"a {i}", "labels": ["x", "y"][: i % 2 + 1]} for i in N],
        partial(read_labelled, multi_label=True),
    ),
    "text pairs": ([{"text": "a", "text2": f"b {i}", "label": "x"} for i in N], read_labelled),
    "numbers": ([{"text": f"a {i}", "value": i / 7} for i in N], read_regression),
    "null in a text": ([{"source": None if i == 4 else f"a {i}", "target": "b"} for i in N], read_pairs),
    "questions": (SQUAD, read_questions),
    "tags": (TAGS, read_tagged),
    "numbered tags": ([{"words": ["a", "b"], "tags": [i, 0]} for i in N], read_tagged),
    "episodes": (EPISODES, read_episodes),
    "SMILES": (
        [{"smiles": "C" * (i + 1), "value": float(i)} for i in N],
        partial(read_molecules, fields=None, names=("value",), parse=parse_value),
    ),
    "label columns": (
        [{"smiles": "C" * (i + 1), "a": i % 2, "b": None if i == 3 else 1} for i in N],
        partial(
            read_molecules,
            fields=("smiles", "a", "b"),
            names=("label",),
            parse=partial(parse_label_columns, names=("a", "b")),
            label_columns=True,
        ),
    ),
}


def comparable(items: Any) -> list[object]:
    """Rows and bad rows without the names of their files."""
    parts: list[object] = []
    for item in items:
        if isinstance(item, Row):
            parts.append((item.key, repr(item.target), item.line, item.group))
        elif isinstance(item, BadRow):
            parts.append((item.line, item.reason, item.detail))
    return parts


@formats
@pytest.mark.parametrize("case", CASES)
def test_every_task_reads_the_rows_of_the_same_json_lines(tmp_path: Path, name: str, case: str) -> None:
    rows, read = CASES[case]
    expected = comparable(read([write_json(tmp_path, rows)]))
    assert comparable(read([write(tmp_path, name, rows)])) == expected
    assert len(expected) == len(N)


@formats
def test_documents_are_rows(tmp_path: Path, name: str) -> None:
    rows: Table = [{"id": i, "data": {"text": f"line {i}\nand more"}} for i in N]
    file = write(tmp_path, name, rows)
    for unit in ("files", "lines", "paragraphs"):
        chunks = [*read_text_file(file, unit, field="data.text")]
        assert chunks == [TextChunk(row["data"]["text"], True) for row in rows]


def test_several_files_are_read_as_one(tmp_path: Path) -> None:
    files = []
    for number in range(3):
        (tmp_path / str(number)).mkdir()
        files.append(write(tmp_path / str(number), "a.parquet", PAIRS[number:]))
    assert len([*read_pairs(files)]) == 7 + 6 + 5
    assert len([*read_pairs([*files, write_json(tmp_path, PAIRS)])]) == 7 + 6 + 5 + 7
    with pytest.raises(ValueError, match="join them into one file"):
        [*read_pairs([files[0], write_tsv(tmp_path)])]


def write_tsv(folder: Path) -> str:
    (folder / "a.tsv").write_text("a\tb\n")
    return str(folder / "a.tsv")


@formats
def test_encoded_and_typed_columns_become_plain_values(tmp_path: Path, name: str) -> None:
    table = pa.table(
        {
            "words": pa.array(["a", "b", "a"]).dictionary_encode(),
            "large": pa.array(["x", None, "z"], pa.large_string()),
            "money": pa.array([Decimal("1.25"), None, Decimal("2.00")]),
            "half": pa.array([0.5, 1.5, -2.0], pa.float32()),
            "tiny": pa.array([1, 2, 3], pa.uint8()),
            "list": pa.array([[1, 2], [], None], pa.list_(pa.int16(), -1)),
        }
    )
    rows = [row for _, row in arrow_rows(write(tmp_path, name, table), list)]
    assert [row["words"] for row in rows] == ["a", "b", "a"]
    assert [row["large"] for row in rows] == ["x", None, "z"]
    assert [row["money"] for row in rows] == [1.25, None, 2.0]
    assert [row["half"] for row in rows] == [0.5, 1.5, -2.0]
    assert [row["tiny"] for row in rows] == [1, 2, 3]
    assert [row["list"] for row in rows] == [[1, 2], [], None]


@formats
def test_numbered_classes_of_datasets_have_their_names(tmp_path: Path, name: str) -> None:
    names = {"names": ["bad", "good"], "_type": "ClassLabel"}
    features = {"label": names, "tags": {"feature": names, "_type": "Sequence"}, "text": {"_type": "Value"}}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    rows: Table = [{"text": f"a {i}", "label": i % 3 - 1, "tags": [0, 1]} for i in N]
    table = pa.Table.from_pylist(rows)
    values = [row for _, row in arrow_rows(write(tmp_path, name, table.replace_schema_metadata(metadata)), list)]
    assert [row["label"] for row in values] == [(None, "bad", "good")[i % 3] for i in N]
    assert {tuple(row["tags"]) for row in values} == {("bad", "good")}  # type: ignore[arg-type]
    for damaged in ("{", "[]", '{"info": {"features": {"label": 3}}}'):
        table = table.replace_schema_metadata({"huggingface": damaged})
        assert [row["label"] for _, row in arrow_rows(write(tmp_path, name, table), list)] == [i % 3 - 1 for i in N]


BROKEN = {
    "misspelt": (("sorce", "target"), "no column is named 'sorce' (did you mean 'source'?); the file has 'source', 't"),
    "inner name": (("en", "target"), "no column is named 'en' (did you mean 'data.en'?)"),
    "inner misspelt": (("data.em", "target"), "no column is named 'data.em' (did you mean 'data.en'?)"),
    "field of a text": (("source.x", "target"), "no column is named 'source.x'"),
    "number": (("1", "2"), "no column is named '1'; the file has 'source', 'target', 'data', 'data.en', 'list'"),
    "number of a list": (("list.x", "target"), "no column is named 'list.x'"),
}


@formats
@pytest.mark.parametrize("case", BROKEN)
def test_a_wrong_name_is_an_error_with_the_nearest_names(tmp_path: Path, name: str, case: str) -> None:
    fields, message = BROKEN[case]
    file = write(tmp_path, name, [{"source": "a", "target": "b", "data": {"en": "c"}, "list": ["d"]}])
    with pytest.raises(ValueError, match=r"with --fields") as error:
        [*read_pairs([file], fields)]
    assert str(error.value).startswith(f"{file}: {message}")
    assert [row.target for row in read_pairs([file], ("data.en", "list.0")) if isinstance(row, Row)] == ["d"]


@formats
def test_a_wrong_type_names_file_row_and_column(tmp_path: Path, name: str) -> None:
    file = write(tmp_path, name, [{"source": 5, "target": "b"}])
    assert [*read_pairs([file])] == [BadRow(file, 1, "wrong type", "field 'source' is a int, not a string")]
    file = write(tmp_path, name, [{"text": "a", "value": "x"}])
    assert [item.detail for item in read_regression([file]) if isinstance(item, BadRow)] == [
        "'x' is not a finite number"
    ]
    with pytest.raises(ValueError, match=rf"{name}:1: wrong type, field 'text' is a int"):
        [*read_text_file(write(tmp_path, name, [{"text": 7}]))]


@formats
def test_a_file_without_rows_or_with_equal_names_is_refused(tmp_path: Path, name: str) -> None:
    table = pa.table({"source": pa.array([], pa.string()), "target": pa.array([], pa.string())})
    with pytest.raises(ValueError, match=f"{name}: the file has no rows"):
        [*read_pairs([write(tmp_path, name, table)])]
    table = pa.Table.from_arrays([pa.array(["a"])] * 3, ["source", "source", "target"])
    with pytest.raises(ValueError, match=f"{name}: 2 columns are named 'source'; rename all but one"):
        [*read_pairs([write(tmp_path, name, table)])]


@formats
@pytest.mark.parametrize("damage", ["empty", "cut", "text", "zeros"])
def test_a_broken_file_is_named(tmp_path: Path, name: str, damage: str) -> None:
    file = write(tmp_path, name, [{"source": f"a {i}" * 50, "target": "b"} for i in range(50)])
    content = Path(file).read_bytes()
    damages = {"empty": b"", "cut": content[: len(content) // 2], "text": b"source\ttarget\n" * 9, "zeros": bytes(999)}
    Path(file).write_bytes(damages[damage])
    with pytest.raises(ValueError, match=r"(broken .*; copy or download it again|no rows)") as error:
        [*read_pairs([file])]
    assert str(error.value).startswith(file)
    assert "\n" not in str(error.value)


@given(place=st.floats(0, 1), value=st.integers(0, 255), name=st.sampled_from([*WRITERS]))
@settings(max_examples=60, deadline=None)
def test_a_changed_byte_is_an_error_or_read(
    tmp_path_factory: pytest.TempPathFactory, place: float, value: int, name: str
) -> None:
    """No damage raises anything but one line that names the file."""
    file = Path(write(tmp_path_factory.getbasetemp(), name, PAIRS))
    content = bytearray(file.read_bytes())
    content[int(place * (len(content) - 1))] = value
    file.write_bytes(content)
    message = f"{file}: "
    try:
        assert all(item.file == str(file) for item in read_pairs([file]) if not isinstance(item, Note))
    except ValueError as error:
        message = str(error)
    assert message.startswith(f"{file}: ")
    assert "\n" not in message


def test_a_missing_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path, "a.parquet", PAIRS)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r"a\.parquet: Parquet and Arrow files need pyarrow: pip install 'regard\["):
        [*read_pairs([file])]


def test_packed_parquet_and_parquet_named_as_text_are_refused(tmp_path: Path) -> None:
    file = Path(write(tmp_path, "a.parquet", PAIRS))
    with pytest.raises(ValueError, match=r"a\.parquet\.gz: .* unpack it"):
        [*read_pairs([file.rename(tmp_path / "a.parquet.gz")])]
    with pytest.raises(ValueError, match=r"a\.tsv: a binary \.parquet file, not text: name it .*a\.parquet"):
        [*read_pairs([(tmp_path / "a.parquet.gz").rename(tmp_path / "a.tsv")])]


@formats
def test_a_file_is_read_in_batches(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One row group of 64 MB of text: neither Arrow nor Python holds more than a part of it, and other columns not."""
    if name == "a.parquet":
        monkeypatch.setattr(arrow_tables, "BATCH_BYTES", 1 << 20)
        rows = [{"text": f"{i:08} " * 500, "other": f"{i:08} " * 500} for i in range(8000)]
        parquet.write_table(pa.Table.from_pylist(rows), tmp_path / name, row_group_size=8000, compression="none")
    else:
        with (ipc.new_stream if name == "stream.arrow" else ipc.new_file)(
            tmp_path / name, pa.schema({"text": pa.string(), "other": pa.string()})
        ) as writer:
            for i in range(0, 8000, 100):
                text = pa.array([f"{j:08} " * 500 for j in range(i, i + 100)])
                writer.write_batch(pa.record_batch([text, text], ["text", "other"]))
        rows = []
    del rows
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    arrow, numbers = 0, list[int]()
    for number, row in arrow_rows(str(tmp_path / name), lambda columns: ["text"]):
        numbers.append(number)
        assert row.keys() == {"text"}
        arrow = max(arrow, pa.total_allocated_bytes() - before)
    python = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert numbers == [*range(1, 8001)]
    assert arrow < 12 << 20
    assert python < 4 << 20
