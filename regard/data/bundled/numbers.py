"""Numbers in English words with what they are worth, from -999.99 to 999.99, as many as are wanted.

    "minus two hundred and seven point five"  ->  -207.5

One number has many spellings (a hundred and one, one hundred one; three point five, three and a half; twelve, a
dozen), but a spelling has one value. `split` goes by the value: what is tested was not trained on in any spelling.
"""

import random
from hashlib import blake2b
from typing import NamedTuple

UNITS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
    *("ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
FRACTIONS = {50: ("a half", "one half"), 25: ("a quarter", "one quarter"), 75: ("three quarters",)}  # of hundredths
BELOW = (20, 100, 1000, 1000, 1000)  # small numbers have few spellings, large ones teach the most
PATIENCE = 20_000  # draws without a new spelling, after which all count as found


class Number(NamedTuple):
    text: str
    value: float


def numbers(count: int = 20_000, seed: int = 0) -> list[Number]:
    """`count` numbers, no two spelt alike, the same for the same seed."""
    rng = random.Random(seed)
    found: dict[str, Number] = {}
    idle = 0
    while len(found) < count and idle < PATIENCE:
        drawn = draw(rng)
        idle = idle + 1 if drawn.text in found else 0
        found.setdefault(drawn.text, drawn)
    if len(found) < count:
        raise ValueError(f"{count:,} different numbers were asked for, but only {len(found):,} were found")
    return list(found.values())


def split(number: Number) -> str:
    """'train', 'valid' or 'test', decided by the value alone."""
    share = int.from_bytes(blake2b(f"{number.value:.2f}".encode(), digest_size=4).digest(), "big") % 100
    return "valid" if share < 2 else "test" if share < 4 else "train"


def draw(rng: random.Random) -> Number:
    number = rng.randrange(rng.choice(BELOW))
    hundredths = rng.choice((0, 0, 0, 0, 10 * rng.randrange(10), rng.randrange(100), 25 * rng.randrange(4)))
    text = spell(number, hundredths, rng)
    value = (100 * number + hundredths) / 100
    if value == 0 or rng.random() < 0.6:
        return Number(text, value)
    sign = "minus" if text.startswith("a ") else rng.choice(("minus", "negative"))
    return Number(f"{sign} {text}", -value)


def spell(number: int, hundredths: int, rng: random.Random) -> str:
    """One of the ways to say it."""
    if hundredths in FRACTIONS and rng.random() < 0.6:
        fraction = rng.choice(FRACTIONS[hundredths])
        return f"{whole(number, rng)} and {fraction}" if number else fraction
    if hundredths == 0:
        return dozens(number, rng) if number % 12 == 0 < number <= 600 and rng.random() < 0.3 else whole(number, rng)
    start = whole(number, rng) if number else rng.choice(("", "zero", "nought"))
    zero = rng.choice(("zero", "oh"))
    digits = [UNITS[int(digit)] if digit != "0" else zero for digit in f"{hundredths:02}".rstrip("0")]
    return " ".join([start, "point", *digits]).strip()


def dozens(number: int, rng: random.Random) -> str:
    return f"{one(rng) if number == 12 else whole(number // 12, rng)} dozen"


def whole(number: int, rng: random.Random) -> str:
    hundreds, rest = divmod(number, 100)
    if not hundreds:
        return below_a_hundred(rest, rng)
    start = f"{one(rng) if hundreds == 1 else UNITS[hundreds]} hundred"
    return f"{start}{rng.choice((' and ', ' '))}{below_a_hundred(rest, rng)}" if rest else start


def below_a_hundred(number: int, rng: random.Random) -> str:
    if number < 20:
        return UNITS[number]
    tens, unit = divmod(number, 10)
    return f"{TENS[tens]}{rng.choice('- ')}{UNITS[unit]}" if unit else TENS[tens]


def one(rng: random.Random) -> str:
    return rng.choice(("a", "one"))
