"""An independent parser reads the value of every number from its words."""

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.modalities.synthetic import numbers as module
from regard.modalities.synthetic.numbers import Number, numbers, split

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


def test_the_words_have_the_value(all_numbers: list[Number]) -> None:
    assert [(number.text, read(number.text)) for number in all_numbers] == all_numbers


@given(seed=st.integers(0, 2**32))
def test_any_seed_gives_correct_values_and_short_lists_are_prefixes(seed: int) -> None:
    subset = numbers(60, seed)
    assert [(number.text, read(number.text)) for number in subset] == subset
    assert numbers(20, seed) == subset[:20]


def test_another_seed_gives_other_numbers() -> None:
    assert numbers(100, seed=1) != numbers(100, seed=2)


def test_every_word_and_every_spelling_occurs(all_numbers: list[Number]) -> None:
    words = Counter(word for number in all_numbers for word in number.text.replace("-", " ").split())
    assert set(words) == {*ONES, "hundred", "dozen", "and", "point", "minus", "negative", "half", "quarter", "quarters"}
    assert min(words.values()) > 30
    texts = {number.text for number in all_numbers}
    assert texts & {"a hundred and one", "one hundred and one"}
    assert any("-" in text for text in texts)
    assert not [text for text in texts if re.search(r"negative a |dozen |minus zero$", text)]


def test_values_cover_the_range(all_numbers: list[Number]) -> None:
    values = [number.value for number in all_numbers]
    assert -1000 < min(values) < -990
    assert 990 < max(values) < 1000
    assert 0.4 < sum(value < 0 for value in values) / len(values) < 0.5
    assert 0.3 < sum(value != int(value) for value in values) / len(values) < 0.7


def test_all_spellings_of_a_value_are_in_one_set(all_numbers: list[Number]) -> None:
    parts: dict[float, set[str]] = {}
    for number in all_numbers:
        parts.setdefault(number.value, set()).add(split(number))
    assert all(len(part) == 1 for part in parts.values())
    assert len(parts) < len(all_numbers), "nothing was spelt twice, so nothing was tested"


def test_about_2_percent_are_valid_and_2_percent_test(all_numbers: list[Number]) -> None:
    counts = Counter(split(number) for number in all_numbers)
    assert set(counts) == {"train", "valid", "test"}
    for part in ("valid", "test"):
        assert 300 < counts[part] < 500


def test_too_many_numbers_are_refused_with_both_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "draw_number", lambda rng: Number(rng.choice(("one", "uno")), 1.0))
    with pytest.raises(ValueError, match="1,000 .* only 2"):
        numbers(1000)
