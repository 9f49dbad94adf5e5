"""Generates numbers in English words with their values, from -999.99 to 999.99.

    "minus two hundred and seven point five"  ->  -207.5

A value has many spellings (a hundred and one, one hundred one; three point five, three and a half; twelve, a dozen),
but a spelling has one value. `split` depends on the value only: no spelling of a test value occurs in the training set.
"""

import random
from hashlib import blake2b
from typing import NamedTuple

UNITS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
    *("ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
FRACTIONS = {50: ("a half", "one half"), 25: ("a quarter", "one quarter"), 75: ("three quarters",)}  # by hundredths
RANGES = (20, 100, 1000, 1000, 1000)  # upper limits of integers, drawn uniformly; small numbers have few spellings
MAX_REPEATS = 20_000  # consecutive draws without a new spelling, after which the generator gives up


class Number(NamedTuple):
    text: str
    value: float


def numbers(count: int = 20_000, seed: int = 0) -> list[Number]:
    """`count` numbers with distinct spellings; the same seed gives the same numbers."""
    rng = random.Random(seed)
    distinct: dict[str, Number] = {}
    repeats = 0
    while len(distinct) < count and repeats < MAX_REPEATS:
        drawn = draw_number(rng)
        repeats = repeats + 1 if drawn.text in distinct else 0
        distinct.setdefault(drawn.text, drawn)
    if len(distinct) < count:
        raise ValueError(f"{count:,} different numbers were requested, but only {len(distinct):,} exist")
    return list(distinct.values())


def split(number: Number) -> str:
    """'train', 'valid' or 'test', by a hash of the value."""
    share = int.from_bytes(blake2b(f"{number.value:.2f}".encode(), digest_size=4).digest(), "big") % 100
    return "valid" if share < 2 else "test" if share < 4 else "train"


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
        in_dozens = number % 12 == 0 < number <= 600 and rng.random() < 0.3
        return spell_dozens(number, rng) if in_dozens else spell_integer(number, rng)
    integer = spell_integer(number, rng) if number else rng.choice(("", "zero", "nought"))
    zero = rng.choice(("zero", "oh"))
    digits = [UNITS[int(digit)] if digit != "0" else zero for digit in f"{hundredths:02}".rstrip("0")]
    return " ".join([integer, "point", *digits]).strip()


def spell_dozens(number: int, rng: random.Random) -> str:
    return f"{draw_one(rng) if number == 12 else spell_integer(number // 12, rng)} dozen"


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
