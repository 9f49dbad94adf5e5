"""Files become linted sets, with a validation share and a fingerprint."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.lines import BadRow
from regard.data.lint import BadRowsError
from regard.data.rows import Labels, Row
from regard.data.splits import Data, DataOptions, fingerprint, read_sets
from regard.modalities.protocols import ReadOptions, Target
from regard.modalities.text.labelled_text import read_labelled
from regard.modalities.text.modality import TextModality, TextOptions
from regard.options import OptionGroups

ROWS = {"train": [(f"text {i}", "ab"[i % 2]) for i in range(50)], "valid": [("one", "a")], "test": [("two", "b")]}


def write_sets(folder: Path, sets: dict[str, list[tuple[str, str]]] = ROWS) -> dict[str, tuple[str, ...]]:
    folder.mkdir(exist_ok=True)
    for name, rows in sets.items():
        (folder / f"{name}.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in rows), encoding="utf-8")
    return {"data" if name == "train" else name: (str(folder / f"{name}.tsv"),) for name in sets}


def no_synthetic() -> dict[str, Any]:
    raise AssertionError("files were given")


def read(**options: Any) -> Data:
    return read_sets(DataOptions(**options), read_labelled, no_synthetic)


def texts(data: Data) -> dict[str, list[str]]:
    return {name: [row.input[0] for row in rows] for name, rows in data.sets.items()}


def test_every_named_set_is_read_and_reported(tmp_path: Path) -> None:
    data = read(**write_sets(tmp_path))
    assert texts(data) == {name: [text for text, _ in rows] for name, rows in ROWS.items()}
    assert data.report
    assert [data.report.counts[name]["usable"] for name in ROWS] == [50, 1, 1]


@pytest.mark.parametrize("share", [0.02, 0.2, 0.5])
def test_valid_share_is_held_out_without_valid_files(tmp_path: Path, share: float) -> None:
    data = read(data=write_sets(tmp_path)["data"], valid_share=share)
    assert {*data.sets} == {"train", "valid"}
    assert sorted(text for values in texts(data).values() for text in values) == sorted(t for t, _ in ROWS["train"])
    assert 1 <= len(data.sets["valid"]) <= 2 * share * 50 + 1
    reversed_order = read(data=write_sets(tmp_path, {"train": ROWS["train"][::-1]})["data"], valid_share=share)
    assert {*texts(reversed_order)["valid"]} == {*texts(data)["valid"]}, "in any order"


def labelled(text: str, file: str, line: int) -> Row[tuple[str], Labels]:
    return Row((text,), Labels(("a",)), file, line, text)


def test_synthetic_rows_are_the_default_and_files_replace_their_sets(tmp_path: Path) -> None:
    def synthetic() -> dict[str, list[Row[tuple[str], Labels]]]:
        return {name: [labelled(name, "synthetic", 1)] for name in ("train", "valid", "test")}

    assert texts(read_sets(DataOptions(), read_labelled, synthetic)) == {n: [n] for n in ("train", "valid", "test")}
    own = read_sets(DataOptions(valid=write_sets(tmp_path)["valid"]), read_labelled, synthetic)
    assert texts(own) == {"train": ["train"], "valid": ["one"], "test": ["test"]}


def test_bad_lines_stop_without_skip_bad(tmp_path: Path) -> None:
    files = write_sets(tmp_path)
    with open(files["data"][0], "a", encoding="utf-8") as stream:
        stream.write("no label\n\tno text\n")
    with pytest.raises(BadRowsError, match=r"2 lines cannot be used: .*train\.tsv:51.*train\.tsv:52.*--skip-bad"):
        read(**files)
    data = read(**files, skip_bad=True)
    assert len(data.sets["train"]) == 50
    assert data.report
    assert [bad.line for bad in data.report.bad] == [51, 52]


def test_a_text_that_is_too_long_is_a_bad_line(tmp_path: Path) -> None:
    files = write_sets(tmp_path, {"train": [("so many words " * 9, "a"), *ROWS["train"]], "valid": ROWS["valid"]})

    def read_limited(max_words: int) -> Data:
        how = ReadOptions(Target.LABELS, groups=OptionGroups(TextOptions(max_words)))
        return TextModality().read_sets(DataOptions(**files), how)

    with pytest.raises(BadRowsError, match="27 words"):
        read_limited(20)
    assert len(read_limited(27).sets["train"]) == 51


def test_overlap_is_counted_and_removed_with_skip_bad(tmp_path: Path) -> None:
    files = write_sets(tmp_path, ROWS | {"train": [*ROWS["train"], ("ONE  ", "b"), ("two", "a")]})
    data = read(**files)
    assert data.report
    assert [data.report.counts[name]["overlap"] for name in ROWS] == [2, 1, 1]
    assert len(data.sets["train"]) == 52
    skipped = read(**files, skip_bad=True)
    assert texts(skipped) == {name: [text for text, _ in rows] for name, rows in ROWS.items()}


def test_the_fingerprint_depends_on_train_and_valid_only(tmp_path: Path) -> None:
    first = read(**write_sets(tmp_path)).fingerprint
    assert first == read(**write_sets(tmp_path / "elsewhere")).fingerprint
    assert first == read(**write_sets(tmp_path / "other", ROWS | {"test": [("three", "a")]})).fingerprint
    for changed in (
        ROWS | {"train": ROWS["train"][:-1]},
        ROWS | {"train": [("text 0", "b"), *ROWS["train"][1:]]},
        ROWS | {"train": ROWS["train"][::-1]},
        ROWS | {"valid": [("one", "b")]},
    ):
        assert first != read(**write_sets(tmp_path / "other", changed)).fingerprint


@given(left=st.lists(st.text("ab", max_size=3), max_size=5), right=st.lists(st.text("ab", max_size=3), max_size=5))
@settings(max_examples=200)
def test_different_rows_have_different_fingerprints(left: list[str], right: list[str]) -> None:
    assert (fingerprint(left) == fingerprint(iter(right))) is (left == right)


def test_rows_may_be_an_iterator() -> None:
    def lazy(_: tuple[str, ...]) -> Iterator[Row[tuple[str], Labels] | BadRow]:
        yield from (labelled(f"text {i}", "lazy", i + 1) for i in range(9))

    assert len(read_sets(DataOptions(data=("x",), valid=("y",)), lazy, no_synthetic).sets["train"]) == 9


@pytest.mark.parametrize(
    ("group", "options", "message"),
    [
        (DataOptions, {"valid_share": 0.0}, "valid-share must be above 0 and below 1, not 0.0"),
        (DataOptions, {"valid_share": 1.0}, "valid-share must be above 0 and below 1, not 1.0"),
        (TextOptions, {"max_words": 0}, "max-words must be at least 1, not 0"),
    ],
)
def test_invalid_options_are_refused_by_name(group: type, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        group(**options)


def test_an_empty_set_is_refused_by_name(tmp_path: Path) -> None:
    files = write_sets(tmp_path, ROWS | {"valid": [("", "")]})
    with pytest.raises(ValueError, match="valid: none of 1 lines can be used"):
        read(**files, skip_bad=True)


@pytest.mark.parametrize(("examples", "held_out"), [(5, 1), (600, 120), (3000, 300), (15_000, 300), (100_000, 2000)])
def test_the_default_valid_share_has_enough_examples(examples, held_out):
    """2 % of 600 are 12, too few to compare checkpoints."""
    assert round(DataOptions().valid_share_for(examples) * examples) == held_out
    assert DataOptions(valid_share=0.1).valid_share_for(examples) == 0.1
