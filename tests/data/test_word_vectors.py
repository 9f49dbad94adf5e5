"""Word vectors round-trip through a file, and a vector of the wrong length is named."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.data.word_vectors import read_word_vectors

WORD = st.text(st.characters(exclude_characters=" \n\r\ufeff", exclude_categories=["Cs"]), min_size=1)
SAME_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)


def write(file: Path, content: str | bytes) -> Path:
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("header", [True, False])
@given(
    words=st.lists(WORD, min_size=1, max_size=6, unique=True),
    dim=st.integers(2, 5),
    end=st.sampled_from(["", " "]),
    seed=st.integers(0, 99),
)
@SAME_FOLDER
def test_the_vectors_of_the_words_are_read_exactly(tmp_path: Path, pack, header, words, dim, end, seed) -> None:
    vectors = np.random.default_rng(seed).normal(size=(len(words), dim)).astype(np.float32)
    lines = [" ".join([word, *map(repr, row.tolist())]) + end for word, row in zip(words, vectors, strict=True)]
    lines = [f"{len(words)} {dim}", *lines] if header else lines
    file = write(tmp_path / "a.vec", pack("\n".join(lines).encode()))
    loaded = read_word_vectors(file, {*words[::2], "not in the file"})
    assert [*loaded] == words[::2]
    for word, row in loaded.items():
        assert row.dtype == np.float32
        np.testing.assert_array_equal(row, vectors[words.index(word)])


def test_a_word_may_have_blanks_and_the_first_of_two_vectors_counts(tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", "a 1 2\n. . . 3 4\nto me@here.com 5 6\na 7 8\n 9 10\n")
    vectors = read_word_vectors(file, {"a", ". . .", "to me@here.com", "."})
    assert {word: row.tolist() for word, row in vectors.items()} == {
        "a": [1, 2],
        ". . .": [3, 4],
        "to me@here.com": [5, 6],
    }


def test_a_word_that_is_not_utf8_is_skipped(tmp_path: Path) -> None:
    assert [*read_word_vectors(write(tmp_path / "a.txt", b"a 1 2\n\xff 3 4\nb 5 6\n"), {"a", "b"})] == ["a", "b"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("2 3\na 1 2 3\nb 1 2\n", r"a\.vec:3: expected a word and 3 numbers, but there are 2"),
        ("2 3\na 1 2 3\nb 1 2 3 4.5\n", r"a\.vec:3: expected a word and 3 numbers, but there are 4"),
        ("a 1 2 3\nb 1 2 3 -4e-05\n", r"a\.vec:2: expected a word and 3 numbers, but there are 4"),
        ("a 1 2 3\nb\n", r"a\.vec:2: expected a word and 3 numbers, but there are 0"),
        ("a\nb\n", r"a\.vec:1: expected a word and its numbers, but there are 0"),
        ("a 1 2\nb 1 x\n", r"a\.vec:2: could not convert string to float: .*x"),
        ("a 1 2\nb 1 nan\n", r"a\.vec:2: the vector contains a number that is not finite"),
        ("a 1 2\nb 1 1e99\n", r"a\.vec:2: the vector contains a number that is not finite"),
        ("", r"a\.vec: the file is empty"),
    ],
)
def test_defects_are_named_with_their_line(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_word_vectors(write(tmp_path / "a.vec", content), {"a", "b"})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"gone\.vec: no such file"):
        read_word_vectors(tmp_path / "gone.vec", {"a"})
