"""Generates numbers in English words with their values, from -999.99 to 999.99.

    "minus two hundred and seven point five"  ->  -207.5

A value has many spellings (a hundred and one, one hundred one; three point five, three and a half; twelve, a dozen),
but a spelling has one value. `split` depends on the value only: no spelling of a test value occurs in the training set.
"""

import random
from typing import NamedTuple

from regard.modalities.synthetic.distinct import draw_distinct, split_by_hash

UNITS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
    *("ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
FRACTIONS = {50: ("a half", "one half"), 25: ("a quarter", "one quarter"), 75: ("three quarters",)}  # by hundredths
RANGES = (20, 100, 1000, 1000, 1000)  # upper limits of integers, drawn uniformly; small numbers have few spellings


class Number(NamedTuple):
    text: str
    value: float


def numbers(count: int = 20_000, seed: int = 0) -> list[Number]:
    """`count` numbers with distinct spellings; the same seed gives the same numbers."""
    return draw_distinct(draw_number, lambda number: number.text, count, seed, "numbers")


def split(number: Number) -> str:
    """'train', 'valid' or 'test', by a hash of the value."""
    return split_by_hash(f"{number.value:.2f}", 2)


def draw_number(rng: random.Random) -> Number:
    number = rng.randrange(rng.choice(RANGES))
    hundredths = rng.choice((0, 0, 0, 0, 10 * rng.randrange(10), rng.randrange(100), 25 * rng.randrange(4)))
    text = spell(number, hundredths, rng)
    value = (100 * number + hundredths) / 100
    if value == 0 or rng.random() < 0.6:
        return Number(text, value)
    sign = "minus" if text.startswith("a ") else rng.choice(("minus", "negative"))
    return Number(f"{sign} {text}", -value)


def spell(number: int, hundredths: int, rng: random.Random) -> str:
    """A random spelling."""
    if hundredths in FRACTIONS and rng.random() < 0.6:
        fraction = rng.choice(FRACTIONS[hundredths])
        return f"{spell_integer(number, rng)} and {fraction}" if number else fraction
    if hundredths == 0:
        if number % 12 == 0 < number <= 600 and rng.random() < 0.3:
            return f"{draw_one(rng) if number == 12 else spell_integer(number // 12, rng)} dozen"
        return spell_integer(number, rng)
    integer = spell_integer(number, rng) if number else rng.choice(("", "zero", "nought"))
    zero = rng.choice(("zero", "oh"))
    digits = [UNITS[int(digit)] if digit != "0" else zero for digit in f"{hundredths:02}".rstrip("0")]
    return " ".join([integer, "point", *digits]).strip()


def spell_integer(number: int, rng: random.Random) -> str:
    hundreds, remainder = divmod(number, 100)
    if not hundreds:
        return spell_below_100(remainder, rng)
    text = f"{draw_one(rng) if hundreds == 1 else UNITS[hundreds]} hundred"
    return f"{text}{rng.choice((' and ', ' '))}{spell_below_100(remainder, rng)}" if remainder else text


def spell_below_100(number: int, rng: random.Random) -> str:
    if number < 20:
        return UNITS[number]
    tens, unit = divmod(number, 10)
    return f"{TENS[tens]}{rng.choice('- ')}{UNITS[unit]}" if unit else TENS[tens]


def draw_one(rng: random.Random) -> str:
    return rng.choice(("a", "one"))
