"""Inputs of token ids, padded; what text, proteins and other sequences of symbols share."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from regard.data.batches import Ints, Ragged, padding_mask
from regard.data.document_files import DocumentUnit
from regard.data.documents import DocumentOptions
from regard.data.rows import Row
from regard.data.tokenizer import Tokenizer
from regard.modalities.protocols import EncodedInputs, Inputs, Preprocessor
from regard.options import OptionGroups
from regard.validate import InputTooLong

WORDS = re.compile(r"\w+(?:['’]\w+)?|[^\w\s]")


class TokenIds(EncodedInputs):
    """The token ids of texts."""

    def __init__(self, rows: Sequence[Sequence[int]] | Sequence[npt.NDArray[np.int32]]):
        self.ids = Ragged(rows)
        super().__init__(self.ids.lengths)

    def keys(self) -> Sequence[Hashable]:
        return [tuple(self.ids[i].tolist()) for i in range(len(self.ids))]

    def join(self, rows: Sequence[tuple[TokenIds, int]]) -> TokenIds:
        return TokenIds([inputs.ids[row] for inputs, row in rows])


@dataclass
class TokenPreprocessor(Preprocessor):
    """Inputs of token ids. A subclass says how a request becomes tokens."""

    tokenizer: Tokenizer
    documents: DocumentUnit | None = None  # the unit of a document in the training files
    separator: ClassVar[str] = " "  # between two words

    def encode(self, rows: Sequence[Row[Any, object]], context: int, whole: bool = False) -> TokenIds:
        texts = [*map(self.texts, rows)]
        if any(isinstance(text, tuple) for text in texts):
            self.tokenizer.validate_pairs()
        empty = [self.tokenizer.eos_token_id]  # a text without a token would have no mean
        inputs = TokenIds([ids or empty for ids in self.tokenizer.encode(texts, None if whole else context)])
        if whole and context:
            refuse_long(rows, inputs.ids.lengths, context)
        return inputs

    def collate(self, inputs: TokenIds, rows: Ints, training: bool) -> Inputs:
        ids = inputs.ids.pad(rows, self.tokenizer.pad_token_id)
        return Inputs(ids, padding_mask(inputs.ids.lengths[rows], ids.size(1)))

    def sizes(self) -> dict[str, int]:
        tokenizer = self.tokenizer
        sep = {"sep": tokenizer.token_id(tokenizer.roles["sep_token"])} if "sep_token" in tokenizer.roles else {}
        return {"vocab": len(tokenizer), "pad": tokenizer.pad_token_id, **sep, "segment_start": tokenizer.segment_start}

    def options(self) -> OptionGroups:
        return OptionGroups(DocumentOptions(documents=self.documents))

    def texts(self, row: Row[Any, object]) -> str | tuple[str, str]:
        """One text, or two that are read together."""
        return row.input if len(row.input) == 2 else row.input[0]

    def words(self, text: str) -> Sequence[str]:
        """The elements of a text that are tagged."""
        return WORDS.findall(text)

    def normalize(self, text: str) -> str:
        """A text as the tokenizer reads it."""
        return text

    @cached_property
    def word_starts(self) -> Tensor:
        """(V,), True for tokens that begin a word."""
        pieces = self.tokenizer.convert_ids_to_tokens(range(len(self.tokenizer)))
        if any(piece.startswith("##") for piece in pieces):  # WordPiece marks continuations instead
            return torch.tensor([not piece.startswith("##") for piece in pieces])
        return torch.tensor([piece[:1] == "Ġ" or not piece[:1].isalnum() for piece in pieces])

    def as_request(self, row: Row[object, object]) -> str | None:
        return row.key

    def save(self, folder: Path) -> dict[str, object]:
        self.tokenizer.save(folder)
        return {"documents": self.documents} if self.documents else {}


def refuse_long(rows: Sequence[Row[Any, object]], lengths: Ints, context: int) -> None:
    """Raise an error for the first row that exceeds the context."""
    for row, length in zip(rows, lengths.tolist(), strict=True):
        if length > context:
            remedy = "skip long lines (--max-words and --skip-bad), or train with a larger --context"
            remedy = remedy if row.file else f'shorten it, or train with a larger --context. It begins "{row.key[:60]}"'
            message = f"{row.location}{length} tokens exceed the model's context of {context}: {remedy}"
            raise InputTooLong(length, context, message)
