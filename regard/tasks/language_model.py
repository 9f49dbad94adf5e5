"""What language models share: windows of a token corpus as examples, and batches that know the bounds of documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from regard.data.batches import Ints
from regard.data.documents import DocumentStream, documents_from_memory
from regard.data.rows import Row
from regard.data.token_corpus import TokenCorpus, TokenWindows
from regard.modalities.token_preprocessor import TokenPreprocessor
from regard.parts.document_mask import Mask
from regard.parts.heads import Body, Model
from regard.tasks.task import Task, fitted


class PackedRows(NamedTuple):
    """Documents side by side in rows of one length: `body(*rows.arguments)`."""

    x: Tensor  # (B,T) ids
    mask: Mask | None = None  # which tokens share a document; None if every row has one document

    @property
    def arguments(self) -> tuple[Tensor] | tuple[Tensor, Mask]:
        return (self.x,) if self.mask is None else (self.x, self.mask)


class LMBatch(NamedTuple):
    inputs: PackedRows
    targets: Tensor  # (B,T) the next token of each; or (N,) the true tokens of the masked positions
    positions: Tensor | None = None  # (B,T), True = masked


@dataclass
class LanguageModel(Task):
    preprocessor: TokenPreprocessor = fitted()

    eval_limit = 100_000  # characters

    def head(self, body: Body) -> Model:
        return Model(body, body.lm_head())

    def encode(self, rows: DocumentStream, context: int) -> TokenWindows:
        return TokenWindows(TokenCorpus.from_documents(rows, self.tokenizer), context)

    def describe_examples(self, rows: DocumentStream, examples: TokenWindows, numbers: Ints) -> list[dict[str, object]]:
        """File, first token and text of windows; tokens have no line number."""
        texts = self.tokenizer.decode(examples.take(numbers).tolist())
        starts = zip(numbers.tolist(), texts, strict=True)
        return [{"file": rows.name, "line": f"token {start}", "text": text} for start, text in starts]

    def probe_rows(self, rows: Sequence[Row[object, object]]) -> DocumentStream:
        return documents_from_memory([*map(self.preprocessor.show, rows)], "sample")
