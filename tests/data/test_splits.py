"""Files become checked sets of rows: those that were named, or a share held out, with a mark of what they say."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.labelled_text import LabelledText, read_labelled
from regard.data.lines import BadRow
from regard.data.lint import BadRowsError
from regard.data.splits import Data, DataOptions, fingerprint, read_sets

ROWS = {"train": [(f"text {i}", "ab"[i % 2]) for i in range(50)], "valid": [("one", "a")], "test": [("two", "b")]}


def written(folder: Path, sets: dict[str, list[tuple[str, str]]] = ROWS) -> dict[str, tuple[str, ...]]:
    folder.mkdir(exist_ok=True)
    for name, rows in sets.items():
        (folder / f"{name}.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in rows), encoding="utf-8")
    return {"data" if name == "train" else name: (str(folder / f"{name}.tsv"),) for name in sets}


def nothing() -> dict[str, Any]:
    raise AssertionError("there were files")


def read(**how: Any) -> Data:
    return read_sets(DataOptions(**how), read_labelled, nothing)


def texts(data: Data) -> dict[str, list[str]]:
    return {name: [row.text for row in rows] for name, rows in data.sets.items()}


def test_every_set_that_was_named_is_read_and_reported(tmp_path: Path) -> None:
    data = read(**written(tmp_path))
    assert texts(data) == {name: [text for text, _ in rows] for name, rows in ROWS.items()}
    assert data.report
    assert [data.report.counts[name]["usable"] for name in ROWS] == [50, 1, 1]


@pytest.mark.parametrize("share", [0.02, 0.2, 0.5])
def test_a_share_is_held_out_where_no_file_is_named(tmp_path: Path, share: float) -> None:
    data = read(data=written(tmp_path)["data"], valid_share=share)
    assert {*data.sets} == {"train", "valid"}
    assert sorted(text for some in texts(data).values() for text in some) == sorted(t for t, _ in ROWS["train"])
    assert 1 <= len(data.sets["valid"]) <= 2 * share * 50 + 1
    again = read(data=written(tmp_path, {"train": ROWS["train"][::-1]})["data"], valid_share=share)
    assert {*texts(again)["valid"]} == {*texts(data)["valid"]}, "in whatever order they come"


def test_without_files_the_bundled_rows_are_taken_and_files_replace_their_sets(tmp_path: Path) -> None:
    def bundled() -> dict[str, list[LabelledText]]:
        return {name: [LabelledText(name, None, ("a",), "bundled", 1)] for name in ("train", "valid", "test")}

    assert texts(read_sets(DataOptions(), read_labelled, bundled)) == {n: [n] for n in ("train", "valid", "test")}
    own = read_sets(DataOptions(valid=written(tmp_path)["valid"]), read_labelled, bundled)
    assert texts(own) == {"train": ["train"], "valid": ["one"], "test": ["test"]}


def test_bad_lines_stop_unless_they_may_be_skipped(tmp_path: Path) -> None:
    files = written(tmp_path)
    with open(files["data"][0], "a", encoding="utf-8") as stream:
        stream.write("no label\n\tno text\n")
    with pytest.raises(BadRowsError, match=r"2 lines cannot be used: .*train\.tsv:51.*train\.tsv:52.*--skip-bad"):
        read(**files)
    data = read(**files, skip_bad=True)
    assert len(data.sets["train"]) == 50
    assert data.report
    assert [bad.line for bad in data.report.bad] == [51, 52]


def test_a_text_that_is_too_long_is_a_bad_line(tmp_path: Path) -> None:
    files = written(tmp_path, {"train": [("so many words " * 9, "a"), *ROWS["train"]], "valid": ROWS["valid"]})
    with pytest.raises(BadRowsError, match="27 words"):
        read(**files, longest=20)
    assert len(read(**files, longest=27).sets["train"]) == 51


def test_what_is_asked_in_training_and_elsewhere_is_told_and_skipping_takes_it_out(tmp_path: Path) -> None:
    files = written(tmp_path, ROWS | {"train": [*ROWS["train"], ("ONE  ", "b"), ("two", "a")]})
    data = read(**files)
    assert data.report
    assert [data.report.counts[name]["overlap"] for name in ROWS] == [2, 1, 1]
    assert len(data.sets["train"]) == 52
    skipped = read(**files, skip_bad=True)
    assert texts(skipped) == {name: [text for text, _ in rows] for name, rows in ROWS.items()}


def test_the_fingerprint_is_that_of_what_is_learnt_from_wherever_it_lies(tmp_path: Path) -> None:
    first = read(**written(tmp_path)).fingerprint
    assert first == read(**written(tmp_path / "elsewhere")).fingerprint
    assert first == read(**written(tmp_path / "other", ROWS | {"test": [("three", "a")]})).fingerprint
    for other in (
        ROWS | {"train": ROWS["train"][:-1]},
        ROWS | {"train": [("text 0", "b"), *ROWS["train"][1:]]},
        ROWS | {"train": ROWS["train"][::-1]},
        ROWS | {"valid": [("one", "b")]},
    ):
        assert first != read(**written(tmp_path / "other", other)).fingerprint


@given(one=st.lists(st.text("ab", max_size=3), max_size=5), other=st.lists(st.text("ab", max_size=3), max_size=5))
@settings(max_examples=200)
def test_other_rows_have_another_fingerprint(one: list[str], other: list[str]) -> None:
    assert (fingerprint(one) == fingerprint(iter(other))) is (one == other)


def test_rows_may_come_one_by_one() -> None:
    def lazy(_: tuple[str, ...]) -> Iterator[LabelledText | BadRow]:
        yield from (LabelledText(f"text {i}", None, ("a",), "lazy", i + 1) for i in range(9))

    assert len(read_sets(DataOptions(data=("x",), valid=("y",)), lazy, nothing).sets["train"]) == 9


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"held_out": 0.0}, "held-out must be above 0 and below 1, not 0.0"),
        ({"held_out": 1.0}, "held-out must be above 0 and below 1, not 1.0"),
        ({"longest": 0}, "longest must be at least 1, not 0"),
    ],
)
def test_numbers_that_make_no_sense_are_refused_by_name(how: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        DataOptions(**how)


def test_an_empty_set_is_refused_by_name(tmp_path: Path) -> None:
    files = written(tmp_path, ROWS | {"valid": [("", "")]})
    with pytest.raises(ValueError, match="valid: none of 1 lines can be used"):
        read(**files, skip_bad=True)


@pytest.mark.parametrize(("examples", "held"), [(5, 1), (600, 120), (3000, 300), (15_000, 300), (100_000, 2000)])
def test_enough_is_held_out_to_choose_by(examples, held):
    """2 % of 600 recordings are 12, and by 12 nobody can tell which weights are better."""
    assert round(DataOptions().share(examples) * examples) == held
    assert DataOptions(valid_share=0.1).share(examples) == 0.1
