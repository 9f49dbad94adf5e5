"""Pieces joined to words: each tells by its own mark whether it begins a word or goes on with one.

    ▁Was ser ,       ▁ is the space before a word                 Kudo & Richardson 2018, and what is learnt here
    ĠWas ser ,       Ġ is a space, and every sign is a byte       Radford et al. 2019
    Was ##ser ,      ## goes on with a word                       Devlin et al. 2019
    M K T A Y        of a protein every letter stands alone

Where spaces are marked, letters go on with letters, and punctuation stands alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal, NamedTuple

from tokenizers import decoders, pre_tokenizers

from regard.data.residues import spells

Mark = Literal["▁", "Ġ", "##", ""]
HALF = "\ufffd"  # what a part of a letter is decoded to
BYTES = decoders.ByteLevel()
TEXTS: dict[str, Callable[[Sequence[str]], str]] = {
    "▁": lambda pieces: "".join(pieces).replace("▁", " "),
    "Ġ": lambda pieces: str(BYTES.decode(list(pieces))),
    "##": lambda pieces: "".join(piece.removeprefix("##") for piece in pieces),
    "": "".join,
}


class Line(NamedTuple):
    """A text as a model has it."""

    pieces: list[str]  # as they are shown
    places: list[int]  # the number of the word that each belongs to, -1 for special tokens
    words: list[str]


def line(tokenizer: Any, ids: Sequence[int]) -> Line:
    mark, apart = mark_of(tokenizer), special_ids(tokenizer)
    pieces = tokenizer.pieces(ids)
    special = {i for i, token in enumerate(ids) if token in apart}
    places, names = [-1] * len(pieces), list[str]()
    for word, members in words(pieces, mark, special):
        if members[0] not in special:
            for i in members:
                places[i] = len(names)
            names.append(word)
    return Line([shown(piece, mark) for piece in pieces], places, names)


def words(pieces: Sequence[str], mark: Mark = "▁", special: Collection[int] = ()) -> list[tuple[str, list[int]]]:
    """Each word with the places of its pieces. What stands at a `special` place is no part of a word."""
    found: list[list[int]] = []
    for i in range(len(pieces)):
        if i and i not in special and i - 1 not in special and goes_on(pieces[i - 1], pieces[i], mark):
            found[-1].append(i)
        else:
            found.append([i])
    return [(TEXTS[mark]([pieces[i] for i in places]).strip(), places) for places in found]


def goes_on(before: str, piece: str, mark: Mark) -> bool:
    if not mark:
        return False
    if mark == "##":
        return piece.startswith("##")
    before, piece = TEXTS[mark]([before]), TEXTS[mark]([piece])
    if not piece or piece[0].isspace():
        return False
    return before.isspace() or (is_letter(before[-1:]) and is_letter(piece[0]))


def is_letter(sign: str) -> bool:
    return sign.isalnum() or sign == HALF


def shown(piece: str, mark: Mark) -> str:
    """Bytes as the letters they are, but for those that are only a part of one, or none; spaces keep their signs."""
    if mark != "Ġ":
        return piece
    text = TEXTS[mark]([piece]).replace(" ", "Ġ").replace("\n", "Ċ")
    return text if text.isprintable() and HALF not in text else piece


def mark_of(tokenizer: Any) -> Mark:
    if spells(tokenizer):
        return ""
    known = tokenizer.engine.get_vocab()
    if known.keys() >= set(pre_tokenizers.ByteLevel.alphabet()):
        return "Ġ"
    # The pieces of others are bits of any text, of which some may begin with the mark of a third.
    return "##" if count(known, "##") > count(known, "▁") else "▁"


def count(pieces: Collection[str], start: str) -> int:
    return sum(piece.startswith(start) for piece in pieces)


def special_ids(tokenizer: Any) -> set[int]:
    """Tokens that stand for no part of a text. Those for a hidden or an unknown word do."""
    stand = {tokenizer.id_of(tokenizer.roles[role]) for role in ("mask_token", "unk_token") if role in tokenizer.roles}
    added = tokenizer.engine.get_added_tokens_decoder().items()
    others = {
        tokenizer.id_of(name) for role, name in tokenizer.roles.items() if role not in ("mask_token", "unk_token")
    }
    return {number for number, token in added if getattr(token, "special", True)} - stand | others
