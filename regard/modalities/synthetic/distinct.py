"""What the generators share: distinct draws, and the split into sets."""

import random
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")
MAX_REPEATS = 20_000  # consecutive draws without a new key, after which a generator gives up


def draw_distinct(
    draw: Callable[[random.Random], T], key: Callable[[T], str], count: int, seed: int, unit: str
) -> list[T]:
    """`count` draws with distinct keys; the same seed gives the same ones."""
    rng, distinct, repeats = random.Random(seed), dict[str, T](), 0
    while len(distinct) < count and repeats < MAX_REPEATS:
        item = draw(rng)
        repeats = repeats + 1 if key(item) in distinct else 0
        distinct.setdefault(key(item), item)
    if len(distinct) < count:
        raise ValueError(f"{count:,} different {unit} were requested, but only {len(distinct):,} exist")
    return list(distinct.values())


def split_items(items: Iterable[T], split: Callable[[T], str], make_row: Callable[[T, int], U]) -> dict[str, list[U]]:
    """The rows of synthetic items, which are numbered from 1, by the set to which each belongs."""
    sets: dict[str, list[U]] = {"train": [], "valid": [], "test": []}
    for number, item in enumerate(items, 1):
        sets[split(item)].append(make_row(item, number))
    return sets


def split_by_hash(text: str, percent: int) -> str:
    """'train', 'valid' or 'test'; of all texts, `percent` are in valid and as many in test."""
    share = int.from_bytes(blake2b(text.encode(), digest_size=4).digest(), "big") % 100
    return "valid" if share < percent else "test" if share < 2 * percent else "train"
