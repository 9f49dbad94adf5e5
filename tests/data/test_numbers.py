"""A number's words are read back by a table of this file's own, and come to its value."""

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.bundled import numbers as module
from regard.data.bundled.numbers import Number, numbers, split

ONES = {
    "zero": 0, "nought": 0, "oh": 0, "a": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7,
    "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14, "fifteen": 15,
    "sixteen": 16, "seventeen": 17, "eighteen": 18, "nineteen": 19, "twenty": 20, "thirty": 30, "forty": 40,
    "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90,
}  # fmt: skip
PARTS = {"a half": 0.5, "one half": 0.5, "a quarter": 0.25, "one quarter": 0.25, "three quarters": 0.75}


def read(text: str) -> float:
    """What the words are worth, word by word."""
    words = text.replace("-", " ")
    sign = -1 if words.split()[0] in ("minus", "negative") else 1
    words = re.sub("^(minus|negative) ", "", words)
    for part, worth in PARTS.items():
        if words == part or words.endswith(" and " + part):
            return sign * (plain(words.removesuffix(part).removesuffix(" and ")) + worth)
    before, _, after = words.partition("point")
    digits = "".join(str(ONES[word]) for word in after.split())
    return sign * float(f"{plain(before)}.{digits or 0}")


def plain(words: str) -> int:
    total = 0
    for word in words.split():
        if word in ("hundred", "dozen"):
            total *= {"hundred": 100, "dozen": 12}[word]
        elif word != "and":
            total += ONES[word]
    return total


@pytest.fixture(scope="module")
def all_numbers() -> list[Number]:
    return numbers()


def test_20_000_spellings_are_all_different(all_numbers: list[Number]) -> None:
    assert len({number.text for number in all_numbers}) == len(all_numbers) == 20_000


def test_the_words_come_to_the_value(all_numbers: list[Number]) -> None:
    assert [(number.text, read(number.text)) for number in all_numbers] == all_numbers


@given(seed=st.integers(0, 2**32))
def test_so_they_do_for_any_seed_and_a_short_list_begins_a_long_one(seed: int) -> None:
    subset = numbers(60, seed)
    assert [(number.text, read(number.text)) for number in subset] == subset
    assert numbers(20, seed) == subset[:20]


def test_another_seed_gives_other_numbers() -> None:
    assert numbers(100, seed=1) != numbers(100, seed=2)


def test_every_word_is_heard_often_and_every_spelling(all_numbers: list[Number]) -> None:
    words = Counter(word for number in all_numbers for word in number.text.replace("-", " ").split())
    assert set(words) == {*ONES, "hundred", "dozen", "and", "point", "minus", "negative", "half", "quarter", "quarters"}
    assert min(words.values()) > 30
    texts = {number.text for number in all_numbers}
    assert texts & {"a hundred and one", "one hundred and one"}
    assert any("-" in text for text in texts)
    assert not [text for text in texts if re.search(r"negative a |dozen |minus zero$", text)]


def test_values_fill_the_range_on_both_sides(all_numbers: list[Number]) -> None:
    values = [number.value for number in all_numbers]
    assert -1000 < min(values) < -990
    assert 990 < max(values) < 1000
    assert 0.4 < sum(value < 0 for value in values) / len(values) < 0.5
    assert 0.3 < sum(value != int(value) for value in values) / len(values) < 0.7


def test_a_value_is_in_one_part_however_it_is_spelt(all_numbers: list[Number]) -> None:
    parts: dict[float, set[str]] = {}
    for number in all_numbers:
        parts.setdefault(number.value, set()).add(split(number))
    assert all(len(part) == 1 for part in parts.values())
    assert len(parts) < len(all_numbers), "nothing was spelt twice, so nothing was tested"


def test_about_two_in_a_hundred_are_valid_and_as_many_test(all_numbers: list[Number]) -> None:
    counts = Counter(split(number) for number in all_numbers)
    assert set(counts) == {"train", "valid", "test"}
    for part in ("valid", "test"):
        assert 300 < counts[part] < 500


def test_more_numbers_than_there_are_is_refused_with_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "draw_number", lambda rng: Number(rng.choice(("one", "uno")), 1.0))
    with pytest.raises(ValueError, match="1,000 .* only 2"):
        numbers(1000)
