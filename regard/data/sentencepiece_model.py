"""SentencePiece models: LLaMA's tokenizer.model, and Marian's source.spm and target.spm with the ids in vocab.json.

    LLaMA     <s> ▁a b c          BPE over the whole text; unknown characters are encoded as bytes
    Marian    ▁a ▁b c </s>        one unigram model per language; both share the ids of vocab.json

LLaMA's model becomes a tokenizer of the `tokenizers` library, which finds the same pieces. Marian's models do not: that
library reads their normalisation table differently, so the `sentencepiece` library itself encodes.

Kudo & Richardson 2018, "SentencePiece". https://arxiv.org/abs/1808.06226
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, NoReturn

from tokenizers import AddedToken, decoders, models, normalizers
from tokenizers import Tokenizer as Backend

INSTALL_HINT = 'Marian\'s tokenizer needs the library sentencepiece: pip install "regard[spm]"'
REMEDY = "convert it to a tokenizer.json with transformers"
BPE_MODEL_TYPE = 2  # TrainerSpec.ModelType


class PieceType(IntEnum):
    NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


class SentencePiece(NamedTuple):
    text: str
    score: float
    type: int


def parse_message(message: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a protobuf message by number: integers, or bytes."""
    position = 0

    def varint() -> int:
        nonlocal position
        value = shift = 0
        while shift < 64:
            byte, position = message[position], position + 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
        raise ValueError("a varint without an end")

    while position < len(message):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        size = {1: 8, 5: 4}[key & 7] if key & 7 != 2 else varint()
        if position + size > len(message):
            raise ValueError("the message is truncated")
        yield key >> 3, message[position : position + size]
        position += size


def parse_model(data: bytes) -> tuple[list[SentencePiece], dict[int, object], dict[int, object]]:
    """The pieces, and the fields of TrainerSpec and NormalizerSpec by number; fields at their default are absent."""
    pieces: list[SentencePiece] = []
    specs: dict[int, dict[int, object]] = {2: {}, 3: {}}
    for number, value in parse_message(data):
        if number == 1:
            piece = dict(parse_message(value))
            [score] = struct.unpack("<f", piece.get(2, bytes(4)))
            pieces.append(SentencePiece(piece[1].decode("utf-8"), score, piece.get(3, PieceType.NORMAL)))
        elif number in specs:
            specs[number] = dict(parse_message(value))
    return pieces, specs[2], specs[3]


def bpe_from_sentencepiece(data: bytes) -> Backend:
    """A BPE tokenizer with the merges of SentencePiece: the pair whose piece has the best score is merged first."""
    try:
        pieces, trainer, normalizer = parse_model(data)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, struct.error) as error:
        raise ValueError(f"not a SentencePiece model ({error})") from None
    scores = {piece.text: piece.score for piece in pieces if piece.type == PieceType.NORMAL}
    merged = sorted((text for text in scores if len(text) > 1), key=lambda text: -scores[text])
    unsupported = {
        "has no pieces": not pieces,
        "is not a BPE model": trainer.get(3, 1) != BPE_MODEL_TYPE,
        "contains a piece twice": len({piece.text for piece in pieces}) != len(pieces),
        "normalises characters by a table": bool(normalizer.get(2)),
        "removes extra spaces": bool(normalizer.get(4, 1)),
        "marks the end of a word instead of its start": bool(trainer.get(24, 0)),
        "has user-defined pieces": any(piece.type in (PieceType.USER_DEFINED, PieceType.UNUSED) for piece in pieces),
        "has pieces with characters that are not pieces": not set().union(*merged) <= scores.keys(),
        "has pieces with equal scores": len({scores[text] for text in merged}) != len(merged),
    }
    for defect, present in unsupported.items():
        if present:
            raise ValueError(f"the model {defect}; {REMEDY}")
    pairs = [(text[:i], text[i:]) for text in merged for i in range(1, len(text))]
    backend = Backend(
        models.BPE(
            vocab={piece.text: number for number, piece in enumerate(pieces)},
            merges=[(left, right) for left, right in pairs if left in scores and right in scores],
            unk_token=next((piece.text for piece in pieces if piece.type == PieceType.UNKNOWN), None),
            fuse_unk=True,
            byte_fallback=any(piece.type == PieceType.BYTE for piece in pieces),
        )
    )
    space = normalizers.Replace(" ", "▁")
    add_prefix = bool(normalizer.get(3, 1))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), space]) if add_prefix else space
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if add_prefix else steps)
    return backend


class MarianEncoding(NamedTuple):
    ids: list[int]


class MarianTokenizer:
    """One language of a Marian folder, with the interface of `tokenizers.Tokenizer`; `target` is the other language.

    A text may begin with the target language, e.g. >>fr<<, which is one token.
    """

    def __init__(
        self, model: bytes, ids: dict[str, int], unknown: str, end: str, target: MarianTokenizer | None = None
    ):
        try:
            from sentencepiece import SentencePieceProcessor
        except ImportError:
            raise ValueError(INSTALL_HINT) from None
        try:
            self.processor = SentencePieceProcessor()
            self.processor.LoadFromSerializedProto(model)
        except (RuntimeError, TypeError) as error:
            raise ValueError(f"not a SentencePiece model ({error})") from None
        self.ids, self.target = ids, target
        self.id_to_piece = {number: name for name, number in ids.items()}
        self.unk_id, self.eos_id = ids[unknown], ids[end]
        self.special_ids = {self.unk_id, self.eos_id}

    def get_vocab(self) -> dict[str, int]:
        return self.ids

    def get_added_tokens_decoder(self) -> dict[int, str]:
        return {number: self.id_to_piece[number] for number in self.special_ids}

    def add_special_tokens(self, tokens: Sequence[AddedToken]) -> None:
        self.special_ids |= {self.ids[token.content] for token in tokens}

    def token_to_id(self, token: str) -> int | None:
        return self.ids.get(token)

    def id_to_token(self, number: int) -> str | None:
        return self.id_to_piece.get(number)

    def no_truncation(self) -> None:
        """No effect: it never truncates."""

    def no_padding(self) -> None:
        """No effect: it never pads."""

    def encode_truncated(self, text: object, max_length: int) -> MarianEncoding:
        return MarianEncoding([*self.encode_text(text)[:-1][: max_length - 1], self.eos_id])

    def encode_batch_fast(self, texts: Sequence[str]) -> list[MarianEncoding]:
        return [MarianEncoding(self.encode_text(text)) for text in texts]

    def encode_batch(self, texts: Sequence[object], is_pretokenized: bool = False) -> NoReturn:
        raise ValueError("a Marian tokenizer has no token offsets, which this task needs")

    def encode_text(self, text: object) -> list[int]:
        if not isinstance(text, str):
            raise ValueError("a Marian tokenizer encodes single texts, not pairs")
        language: list[str] = []
        if text.startswith(">>") and "<<" in text:
            end = text.index("<<") + 2
            language, text = [text[:end]], text[end:]
        pieces = [*language, *self.processor.encode(text, out_type=str)]
        return [*(self.ids.get(piece, self.unk_id) for piece in pieces), self.eos_id]

    def decode_batch(self, rows: Sequence[Sequence[int]], skip_special_tokens: bool = True) -> list[str]:
        return [(self.target or self).decode_row([i for i in row if i not in self.special_ids]) for row in rows]

    def decode_row(self, row: Sequence[int]) -> str:
        pieces = [self.id_to_piece[number] for number in row if number in self.id_to_piece]
        return self.processor.decode_pieces(pieces).replace("▁", " ").strip()
