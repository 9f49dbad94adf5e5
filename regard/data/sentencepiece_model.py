"""SentencePiece files: LLaMA's tokenizer.model, and Marian's source.spm and target.spm with the ids in vocab.json.

    LLaMA     <s> ▁a b c          a BPE over the whole text; a letter it does not have is spelled in bytes
    Marian    ▁a ▁b c </s>        a unigram model for each language; both share one list of ids

LLaMA's file is turned into an engine of the `tokenizers` library, which finds the same pieces. Marian's are not: they
change letters by a table that this library reads differently, so the `sentencepiece` library itself does the cutting.

Kudo & Richardson 2018, "SentencePiece". https://arxiv.org/abs/1808.06226
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models, normalizers

NEEDED = 'Marian\'s tokenizer needs the library sentencepiece: pip install "regard[spm]"'
REMEDY = "transformers can write it as a tokenizer.json, which is read instead"
BPE = 2  # the number of this kind of model


class Sort(IntEnum):
    NORMAL, UNKNOWN, CONTROL, DEFINED, UNUSED, BYTE = range(1, 7)


class Piece(NamedTuple):
    text: str
    score: float
    sort: int


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """The numbered fields of a protobuf message: whole numbers, or bytes."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while shift < 64:
            byte, at = message[at], at + 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
        raise ValueError("a number without an end")

    while at < len(message):
        key = number()
        if key & 7 == 0:
            yield key >> 3, number()
            continue
        size = {1: 8, 5: 4}[key & 7] if key & 7 != 2 else number()
        if at + size > len(message):
            raise ValueError("it ends too early")
        yield key >> 3, message[at : at + size]
        at += size


def parse_model(data: bytes) -> tuple[list[Piece], dict[int, Any], dict[int, Any]]:
    """The pieces, how they were learnt and how texts are normalised: what is not said is left out."""
    pieces: list[Piece] = []
    learning: dict[int, Any] = {}
    normal: dict[int, Any] = {}
    for number, value in fields(data):
        if number == 1:
            said = dict(fields(value))
            [score] = struct.unpack("<f", said.get(2, bytes(4)))
            pieces.append(Piece(said[1].decode("utf-8"), score, said.get(3, Sort.NORMAL)))
        elif number == 2:
            learning = dict(fields(value))
        elif number == 3:
            normal = dict(fields(value))
    return pieces, learning, normal


def read_bpe(data: bytes) -> Engine:
    """An engine that finds the pieces SentencePiece finds: the pair that makes the piece of best score goes first."""
    try:
        pieces, learning, normal = parse_model(data)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, struct.error) as error:
        raise ValueError(f"it is no SentencePiece model ({error})") from None
    scores = {piece.text: piece.score for piece in pieces if piece.sort == Sort.NORMAL}
    joined = sorted((text for text in scores if len(text) > 1), key=lambda text: -scores[text])
    cannot = {
        "holds no pieces": not pieces,
        "is no BPE model": learning.get(3, 1) != BPE,
        "names a piece twice": len({piece.text for piece in pieces}) != len(pieces),
        "changes letters before it cuts": bool(normal.get(2)),
        "drops spaces": bool(normal.get(4, 1)),
        "puts the mark of a word behind it": bool(learning.get(24, 0)),
        "has pieces of the user's own": any(piece.sort in (Sort.DEFINED, Sort.UNUSED) for piece in pieces),
        "has pieces of letters it does not know": not set().union(*joined) <= scores.keys(),
        "has pieces of the same score": len({scores[text] for text in joined}) != len(joined),
    }
    for what, so in cannot.items():
        if so:
            raise ValueError(f"it {what}; {REMEDY}")
    pairs = [(text[:i], text[i:]) for text in joined for i in range(1, len(text))]
    engine = Engine(
        models.BPE(
            vocab={piece.text: number for number, piece in enumerate(pieces)},
            merges=[(left, right) for left, right in pairs if left in scores and right in scores],
            unk_token=next((piece.text for piece in pieces if piece.sort == Sort.UNKNOWN), None),
            fuse_unk=True,
            byte_fallback=any(piece.sort == Sort.BYTE for piece in pieces),
        )
    )
    space = normalizers.Replace(" ", "▁")
    prefix = bool(normal.get(3, 1))
    engine.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), space]) if prefix else space
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    engine.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefix else steps)
    return engine


class Found(NamedTuple):
    ids: list[int]


class Marian:
    """One language of a Marian folder, with the calls of an engine; `target` is the other one.

    A text may begin with the language to translate into, as >>fr<<, which is a token of its own.
    """

    def __init__(self, model: bytes, ids: dict[str, int], unknown: str, end: str, target: Marian | None = None):
        try:
            from sentencepiece import SentencePieceProcessor
        except ImportError:
            raise ValueError(NEEDED) from None
        try:
            self.processor = SentencePieceProcessor()
            self.processor.LoadFromSerializedProto(model)
        except (RuntimeError, TypeError) as error:
            raise ValueError(f"it is no SentencePiece model ({error})") from None
        self.ids, self.target = ids, target
        self.names = {number: name for name, number in ids.items()}
        self.unknown, self.end = ids[unknown], ids[end]
        self.special = {self.unknown, self.end}

    def get_vocab(self) -> dict[str, int]:
        return self.ids

    def get_added_tokens_decoder(self) -> dict[int, Any]:
        return {number: self.names[number] for number in self.special}

    def add_special_tokens(self, tokens: Sequence[Any]) -> None:
        self.special |= {self.ids[token.content] for token in tokens}

    def token_to_id(self, token: str) -> int | None:
        return self.ids.get(token)

    def id_to_token(self, number: int) -> str | None:
        return self.names.get(number)

    def no_truncation(self) -> None:
        """There is none."""

    def no_padding(self) -> None:
        """Nor is there any."""

    def truncated(self, text: Any, max_length: int) -> Found:
        return Found([*self.encoded(text)[:-1][: max_length - 1], self.end])

    def encode_batch_fast(self, texts: Sequence[str]) -> list[Found]:
        return [Found(self.encoded(text)) for text in texts]

    def encode_batch(self, texts: Sequence[Any], is_pretokenized: bool = False) -> list[Any]:
        raise ValueError("a Marian tokenizer does not tell where in a text its pieces stand, and this task must know")

    def encoded(self, text: str) -> list[int]:
        if not isinstance(text, str):
            raise ValueError("a Marian tokenizer reads single texts, not pairs")
        language: list[str] = []
        if text.startswith(">>") and "<<" in text:
            cut = text.index("<<") + 2
            language, text = [text[:cut]], text[cut:]
        pieces = [*language, *self.processor.encode(text, out_type=str)]
        return [*(self.ids.get(piece, self.unknown) for piece in pieces), self.end]

    def decode_batch(self, rows: Sequence[Sequence[int]], skip_special_tokens: bool = True) -> list[str]:
        return [(self.target or self).decoded([i for i in row if i not in self.special]) for row in rows]

    def decoded(self, row: Sequence[int]) -> str:
        pieces = [self.names[number] for number in row if number in self.names]
        return self.processor.decode_pieces(pieces).replace("▁", " ").strip()
