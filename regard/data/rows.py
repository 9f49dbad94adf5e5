"""Rows: what a reader makes of files. A row is one input and its target, with the file and line it comes from."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Generic, NamedTuple, TypeVar

X_co = TypeVar("X_co", covariant=True)
Y_co = TypeVar("Y_co", covariant=True)
R = TypeVar("R", bound="Row[object, object]")


class Labels(NamedTuple):
    """The classes of an input."""

    names: tuple[str, ...]  # that apply
    unknown: tuple[str, ...] = ()  # for which the data has no value


class Question(NamedTuple):
    question: str
    document: str


class Row(NamedTuple, Generic[X_co, Y_co]):
    input: X_co  # as its modality reads it: texts, pixels, samples, a graph ...
    target: Y_co  # Labels, a number, tags, a text; None if the input is its own target
    file: str  # as the user named it; empty for a request
    line: int  # counted from 1
    key: str  # the input as a string; equal inputs have equal keys
    group: str | None = None  # rows of one group stay in the same split; default: the key

    @property
    def input_key(self) -> str:
        return self.key if self.group is None else self.group

    @property
    def row_key(self) -> str:
        """Input and target as a string; equal rows are duplicates."""
        target = target_key(self.target)
        return f"{self.key}\t{target}" if target else self.key

    @property
    def location(self) -> str:
        """File and line, as they begin an error message; empty for a request."""
        return f"{self.file}:{self.line}: " if self.file else ""


Answers = tuple[tuple[str, int], ...]  # texts, and their starts in the document; empty: the document has no answer
QuestionRow = Row[Question, Answers]


def target_key(target: object) -> str | None:
    match target:
        case None | str():
            return target
        case Labels(names, unknown):
            return "\t".join((*names, "?", *unknown) if unknown else names)
        case float() | int():
            return repr(target)
        case tuple() if all(isinstance(tag, str) for tag in target):
            return " ".join(tag or "-" for tag in target)
        case tuple():  # answers: a text and its start
            return "\t".join(f"{start} {text}" for text, start in target)
    raise TypeError(f"a target cannot be a {type(target).__name__}")


def normalize_text(sentence: str) -> str:
    """Case-folded, with single spaces: spellings that differ only in case and white space become equal."""
    return " ".join(sentence.casefold().split())


def train_valid_split(rows: Sequence[R], share: float, salt: str = "") -> tuple[list[R], list[R]]:
    """The rows to train on, and about `share` of them to validate on. No `input_key` is on both sides.

    The hash of a row's input decides its side, so a row stays on its side when other rows are added, removed or
    reordered.
    """
    if not 0 < share < 1:
        raise ValueError(f"the share to validate on must lie between 0 and 1, not {share}")
    hashes = [hash_input(row.input_key, salt) for row in rows]
    if len({*hashes}) < 2:
        raise ValueError(f"cannot hold out {share} of {len(rows)} examples with {len({*hashes})} different inputs")
    limit = min(max(int(share * 2**64), min(hashes) + 1), max(hashes))  # neither side is empty
    train = [row for row, value in zip(rows, hashes, strict=True) if value >= limit]
    valid = [row for row, value in zip(rows, hashes, strict=True) if value < limit]
    return train, valid


def hash_input(text: str, salt: str) -> int:
    return int.from_bytes(blake2b(f"{salt}\0{normalize_text(text)}".encode(), digest_size=8).digest())
