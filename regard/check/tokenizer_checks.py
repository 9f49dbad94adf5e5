"""Tokenizer checks: lossless round trip, fit to the text, agreement with the model.

tokenizer round trip   decode(encode(x)) = x, up to the declared normalization: lower case, no accents
tokenizer fit          unknown tokens / tokens, single characters / tokens, tokens / words
vocabulary size        every id < V
special tokens         the ids of config.json are those of the tokenizer
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from os.path import commonprefix

from torch import nn

from regard.check.check_result import CheckResult, Status, count_result, join_names
from regard.check.probes import Probes
from regard.data.tokenizer import Tokenizer
from regard.hub.tables.clip import CLIP_TEXT
from regard.loaded_model import LoadedModel

MAX_UNKNOWN, MAX_SINGLE = 0.01, 0.5  # shares of tokens, above which there is a note
PIECE_MARKS = ("▁", "Ġ", "##", "</w>")  # that a token starts, continues or ends a word
ROLES = ("pad", "bos", "eos", "cls", "sep", "mask", "unk")


def tokenizer_checks(loaded: LoadedModel, probes: Probes) -> list[CheckResult]:
    tokenizer = loaded.tokenizer
    if tokenizer is None:
        return []
    rows = tokenizer.encode(probes.texts)
    config = loaded.origin.config if loaded.origin else {}
    return [
        round_trip(tokenizer, probes.texts, rows),
        tokenizer_fit(tokenizer, probes.texts, rows),
        vocabulary_size(tokenizer, loaded.model),
        *special_tokens(tokenizer, config),
    ]


def round_trip(tokenizer: Tokenizer, texts: list[str], rows: list[list[int]]) -> CheckResult:
    """Texts with unknown tokens are left out: `tokenizer fit` counts those."""
    name, covered = "tokenizer round trip", [i for i, row in enumerate(rows) if unknown_id(tokenizer) not in row]
    decoded = dict(zip(covered, tokenizer.decode([rows[i] for i in covered]), strict=True))
    words = {i: [normalize_as_declared(tokenizer, text).split() for text in (texts[i], decoded[i])] for i in covered}
    altered = [i for i, (before, after) in words.items() if "".join(before) != "".join(after)]
    respaced = [i for i, (before, after) in words.items() if before != after]
    for i in (altered or respaced)[:1]:
        before, after = first_difference(texts[i], decoded[i])
        change = f"Decoding turns {before!r} into {after!r}"
    if altered:
        advice = f"{change}: repair the tokenizer's normalizer, decoder or vocabulary."
        return count_result(name, "FAILS", len(altered), f"of {len(covered)} texts lose characters", advice)
    if respaced:
        advice = f"{change}: usual for encoders, but a generative model needs its spaces."
        return count_result(name, "note", len(respaced), f"of {len(covered)} texts change their spaces", advice)
    rest = ", the rest has unknown tokens" if len(covered) < len(texts) else ""
    return CheckResult(name, "ok", f"{len(covered)} of {len(texts)} texts decode unchanged{rest}", 0, 0)


def unknown_id(tokenizer: Tokenizer) -> int:
    return tokenizer.token_id(tokenizer.roles["unk_token"]) if "unk_token" in tokenizer.roles else -1


def normalize_as_declared(tokenizer: Tokenizer, text: str) -> str:
    """A text after the lower-casing and accent stripping that the tokenizer's normalizer does."""
    normalizer = getattr(tokenizer.backend_tokenizer, "normalizer", None)
    text = unicodedata.normalize("NFKC", text)
    if normalizer is not None and "a" in normalizer.normalize_str("A"):
        text = text.lower()
    if normalizer is not None and "é" not in unicodedata.normalize("NFC", normalizer.normalize_str("é")):
        text = "".join(c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c))
    return text


def first_difference(text: str, decoded_text: str) -> tuple[str, str]:
    """The characters around it, of both."""
    at = len(commonprefix([text, decoded_text]))
    excerpt = slice(max(0, at - 5), at + 8)
    return text[excerpt], decoded_text[excerpt]


def tokenizer_fit(tokenizer: Tokenizer, texts: list[str], rows: list[list[int]]) -> CheckResult:
    count = max(1, sum(map(len, rows)) - len(tokenizer.template_ids) * len(rows))
    unknown_share = sum(row.count(unknown_id(tokenizer)) for row in rows) / count
    regular_ids = [i for row in rows for i in row if i not in tokenizer.all_special_ids]
    single_share = sum(map(is_single, tokenizer.convert_ids_to_tokens(regular_ids))) / max(1, len(regular_ids))
    tokens_per_word = count / max(1, sum(len(text.split()) for text in texts))
    shares = f"{unknown_share:.1%} unknown, {single_share:.0%} characters or bytes"
    message = f"{shares}, {tokens_per_word:.1f} tokens a word"
    if unknown_share > MAX_UNKNOWN:
        advice = "The model cannot represent part of this text: check it with texts of the training domain (--text)."
        return CheckResult("tokenizer fit", "note", message, unknown_share, MAX_UNKNOWN, advice)
    is_character_level = sum(map(is_single, tokenizer.backend_tokenizer.get_vocab())) > MAX_SINGLE * len(tokenizer)
    if single_share > MAX_SINGLE and not is_character_level:
        advice = "Most tokens are single characters: train the tokenizer on this language, or on more text."
        return CheckResult("tokenizer fit", "note", message, single_share, MAX_SINGLE, advice)
    return CheckResult("tokenizer fit", "ok", message, unknown_share, MAX_UNKNOWN)


def is_single(piece: str) -> bool:
    """Whether a token is one character, or one byte, spelled as a character or as <0x41>."""
    for mark in PIECE_MARKS:
        piece = piece.removeprefix(mark).removesuffix(mark)
    return len(piece) <= 1 or re.fullmatch(r"<0x[0-9A-Fa-f]{2}>", piece) is not None


def vocabulary_size(tokenizer: Tokenizer, model: nn.Module) -> CheckResult:
    """Every token embedding has a row for every id."""
    tables = [part for name, part in model.named_modules() if name.endswith("tokens") and hasattr(part, "weight")]
    embeddings = min(len(table.weight) for table in tables)
    message = f"The tokenizer has {len(tokenizer)} ids, the model {embeddings} embeddings"
    if len(tokenizer) <= embeddings:
        return CheckResult("vocabulary size", "ok", message, len(tokenizer), embeddings)
    advice = "Some tokens have no embedding: use the tokenizer that this model was trained with."
    return CheckResult("vocabulary size", "FAILS", message, len(tokenizer), embeddings, advice)


def special_tokens(tokenizer: Tokenizer, config: Mapping[str, object]) -> list[CheckResult]:
    own = {role: tokenizer.roles[f"{role}_token"] for role in ROLES if f"{role}_token" in tokenizer.roles}
    vocab = size if isinstance(size := config.get("vocab_size"), int) else math.inf
    is_tower = config.get("model_type") == CLIP_TEXT.family  # its config has ids that it does not use: see `loading`
    in_config = {role: config.get(f"{role}_token_id") for role in own}
    for role in ("bos", "eos"):  # an id beyond the vocabulary names no token: see generation settings
        if is_tower or all(isinstance(i, int) and i >= vocab for i in as_list(in_config.get(role))):
            in_config[role] = None
    ids = {role: (tokenizer.token_id(token), in_config[role]) for role, token in own.items()}
    if not (mismatched := [role for role, (a, b) in ids.items() if b is not None and a not in as_list(b)]):
        count = sum(number is not None for _, number in ids.values())
        return [CheckResult("special tokens", "ok", f"config.json and tokenizer agree on {count}", 0, 0)]
    name, (in_tokenizer, config_id) = mismatched[0], ids[mismatched[0]]
    message = f"config.json and tokenizer differ in {join_names([f'{role}_token_id' for role in mismatched])}"
    advice = f"{name} is {config_id} in config.json and {in_tokenizer} in the tokenizer: correct the wrong one."
    status: Status = "note" if mismatched == ["pad"] else "FAILS"
    return [CheckResult("special tokens", status, message, len(mismatched), 0, advice)]


def as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]
