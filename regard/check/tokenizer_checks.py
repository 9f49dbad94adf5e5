"""The tokenizer: whether a text comes back as it was, how well its pieces fit, and whether model and tokenizer agree.

round trip   decode(encode(x)) = x, up to what the tokenizer says it does: small letters, no accents
fit          unknown tokens / tokens, single letters / tokens, tokens / words
ids          every id < V, and special tokens where config.json says they are
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from torch import nn

from regard.check.check_result import Verdict, named
from regard.check.probes import Sample
from regard.data.tokens import Tokenizer
from regard.load import Loaded

UNKNOWN, LETTERS = 0.01, 0.5  # shares of tokens that are worth a word
MARKS = ("▁", "Ġ", "##", "</w>")  # that a piece begins a word, goes on with one, or ends it
ROLES = ("pad", "bos", "eos", "cls", "sep", "mask", "unk")


def tokenizer(loaded: Loaded, sample: Sample) -> list[Verdict]:
    if not sample.texts:
        return []
    kept = loaded.tokenizer
    rows = kept.encode(sample.texts)
    said = loaded.origin.config if loaded.origin else {}
    return [
        round_trip(kept, sample.texts, rows),
        fit(kept, sample.texts, rows),
        ids(kept, loaded.model),
        *special_tokens(kept, said),
    ]


def round_trip(kept: Tokenizer, texts: list[str], rows: list[list[int]]) -> Verdict:
    """Texts with an unknown token cannot come back, and count as unknown instead."""
    known = [i for i, row in enumerate(rows) if unknown_of(kept) not in row]
    back = dict(zip(known, kept.decode([rows[i] for i in known]), strict=True))
    lost = [i for i, text in back.items() if letters(kept, text) != letters(kept, texts[i])]
    if lost:
        was, now = first_difference(texts[lost[0]], back[lost[0]])
        advice = f"It loses letters ({was!r} comes back as {now!r}): its normaliser, its decoder or its list is broken."
        return Verdict(
            "round trip", "FAILS", f"{len(lost)} of {len(known)} texts come back changed", len(lost), 0, advice
        )
    spaced = [i for i, text in back.items() if spaces(kept, text) != spaces(kept, texts[i])]
    if spaced:
        was, now = first_difference(texts[spaced[0]], back[spaced[0]])
        advice = f"Spaces come back otherwise ({was!r} as {now!r}), as for many readers; a writer should keep them."
        return Verdict("round trip", "note", f"{len(spaced)} of {len(known)} texts", len(spaced), 0, advice)
    says = f"{len(known)} of {len(texts)} texts come back as they were, the rest has unknown tokens"
    return Verdict("round trip", "ok", says.partition(",")[0] if len(known) == len(texts) else says, 0, 0)


def unknown_of(kept: Tokenizer) -> int:
    return kept.id_of(kept.roles["unk_token"]) if "unk_token" in kept.roles else -1


def declared(kept: Tokenizer, text: str) -> str:
    """A text after what the tokenizer says it does to all."""
    normal = getattr(kept.engine, "normalizer", None)
    text = unicodedata.normalize("NFKC", text)
    if normal is not None and "a" in normal.normalize_str("A"):
        text = text.lower()
    if normal is not None and "é" not in unicodedata.normalize("NFC", normal.normalize_str("é")):
        text = "".join(c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c))
    return text


def letters(kept: Tokenizer, text: str) -> str:
    return "".join(declared(kept, text).split())


def spaces(kept: Tokenizer, text: str) -> str:
    return " ".join(declared(kept, text).split())


def first_difference(one: str, other: str) -> tuple[str, str]:
    at = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    part = slice(max(0, at - 5), at + 8)
    return one[part], other[part]


def fit(kept: Tokenizer, texts: list[str], rows: list[list[int]]) -> Verdict:
    around = len(kept.around)
    count = max(1, sum(map(len, rows)) - around * len(rows))
    unknown = sum(row.count(unknown_of(kept)) for row in rows) / count
    inside = [i for row in rows for i in row if i not in kept.special]
    single = sum(map(is_letter, kept.pieces(inside))) / max(1, len(inside))
    per_word = count / max(1, sum(len(text.split()) for text in texts))
    says = f"{unknown:.1%} unknown, {single:.0%} letters or bytes, {per_word:.1f} tokens a word"
    if unknown > UNKNOWN:
        advice = (
            "Part of this text is nothing to the model: examine it with texts like those it was trained on (--text)."
        )
        return Verdict("fit", "note", says, unknown, UNKNOWN, advice)
    by_letters = sum(map(is_letter, kept.engine.get_vocab())) > LETTERS * len(kept)
    if single > LETTERS and not by_letters:
        advice = "The text falls into letters: the pieces were learnt from another language, or from too little text."
        return Verdict("fit", "note", says, single, LETTERS, advice)
    return Verdict("fit", "ok", says, unknown, UNKNOWN)


def is_letter(piece: str) -> bool:
    """Or a byte, which is spelled as one letter or as <0x41>."""
    for mark in MARKS:
        piece = piece.removeprefix(mark).removesuffix(mark)
    return len(piece) <= 1 or re.fullmatch(r"<0x[0-9A-Fa-f]{2}>", piece) is not None


def ids(kept: Tokenizer, model: nn.Module) -> Verdict:
    """Every table of tokens must have a row for each."""
    tables = [
        part.weight for name, part in model.named_modules() if name.endswith("tokens") and hasattr(part, "weight")
    ]
    room = min(len(table) for table in tables)
    says = f"{len(kept)} ids, vectors for {room}"
    if len(kept) <= room:
        return Verdict("ids", "ok", says, len(kept), room)
    advice = "Some tokens have no vector: tokenizer and model do not belong together."
    return Verdict("ids", "FAILS", says, len(kept), room, advice)


def special_tokens(kept: Tokenizer, said: dict[str, Any]) -> list[Verdict]:
    has = {role: kept.id_of(kept.roles[f"{role}_token"]) for role in ROLES if f"{role}_token" in kept.roles}
    told = {role: said.get(f"{role}_token_id") for role in has}
    wrong = [role for role, number in has.items() if told[role] is not None and number not in listed(told[role])]
    if not wrong:
        agreed = sum(number is not None for number in told.values())
        return [Verdict("special tokens", "ok", f"config.json and tokenizer agree on {agreed}", 0, 0)]
    role = wrong[0]
    says = f"{named([f'{role}_token_id' for role in wrong])} differ"
    advice = f"{role} is {told[role]} in config.json and {has[role]} in the tokenizer: correct the one that is wrong."
    return [Verdict("special tokens", "note" if wrong == ["pad"] else "FAILS", says, len(wrong), 0, advice)]


def listed(number: Any) -> list[Any]:
    return number if isinstance(number, list) else [number]
