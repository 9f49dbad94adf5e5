"""Texts and images as model inputs. Which of the two a task reads follows from the ability of the body."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.data import parallel_text
from regard.data.batches import BucketedExamples, Ints, Ragged, batched, padding_mask, split_by_budget, to_device
from regard.data.bundled import phrasebook
from regard.data.documents import DocumentStream
from regard.data.image_augment import ImageAugment
from regard.data.image_transform import ImageTransform
from regard.data.lines import UTF8, Dialect
from regard.data.protein_alphabet import is_protein_tokenizer, protein_tokenizer
from regard.data.splits import Rows
from regard.data.token_corpus import TokenWindows
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_train import BERT_LAYOUT, TokenizerOptions, train_tokenizer
from regard.parts.heads import check_finite


class Inputs(NamedTuple):
    """What a body reads: `body(*inputs.arguments)`."""

    x: Tensor  # (B,T) ids, (B,C,H,W) pixels, (B,frames,mels) or (B,T,P) features of atoms
    mask: Tensor | None = None  # (B,1,1,T), True = a token
    pairs: Tensor | None = None  # (B,T,T) kinds of token pairs

    @property
    def arguments(self) -> tuple[Tensor | None, ...]:
        """Without the last fields if they are None: not every body has a mask, and few have pairs."""
        used = max(i for i, value in enumerate(self) if value is not None)
        return self[: used + 1]


class TargetBatch(NamedTuple):
    inputs: Inputs
    targets: Tensor  # (B,classes), NaN where a label is unknown; or (B,) values


class TextExamples(BucketedExamples):
    """Token ids of texts, and their targets."""

    def __init__(self, rows: Ragged, targets: Any):
        self.rows, self.targets = rows, targets
        self.lengths = rows.lengths[:, None]
        self.units = len(rows)


class ImageExamples(BucketedExamples):
    """Pixels of images, and their targets. In a batch, an image counts as `tokens` tokens."""

    def __init__(self, pixels: Any, targets: Any, tokens: int = 50):
        self.rows, self.targets = pixels, targets
        self.lengths = np.full((len(pixels), 1), tokens)
        self.units = len(pixels)


@dataclass
class TextInput:
    tokenizer: Tokenizer

    def encode(self, rows: Sequence[Any], targets: Any, context: int) -> TextExamples:
        """A text longer than the context is truncated."""
        texts = [row.text if getattr(row, "pair", None) is None else (row.text, row.pair) for row in rows]
        if any(isinstance(text, tuple) for text in texts):
            self.tokenizer.validate_pairs()
        empty = [self.tokenizer.eos_token_id]  # a text without a token would have no mean
        return TextExamples(Ragged([ids or empty for ids in self.tokenizer.encode(texts, context)]), targets)

    def collate(self, examples: TextExamples, rows: Ints, training: bool) -> Inputs:
        ids = examples.rows.pad(rows, self.tokenizer.pad_token_id)
        return Inputs(ids, padding_mask(examples.rows.lengths[rows], ids.size(1)))

    def sizes(self) -> dict[str, int]:
        return text_sizes(self.tokenizer)


@dataclass
class ImageInput:
    processor: ImageTransform
    augmentation: ImageAugment

    def encode(self, rows: Sequence[Any], targets: Any, context: int) -> ImageExamples:
        return ImageExamples(self.processor.prepare([row.pixels for row in rows]), targets)

    def collate(self, examples: ImageExamples, rows: Ints, training: bool) -> Inputs:
        pixels = torch.from_numpy(examples.rows[rows])
        return Inputs(self.processor.normalize(self.augmentation.augment(pixels) if training else pixels), None)

    def sizes(self) -> dict[str, int]:
        return {"image_size": self.processor.image_size, "channels": self.processor.channels}


def text_sizes(tokenizer: Tokenizer) -> dict[str, int]:
    sep = {"sep": tokenizer.token_id(tokenizer.roles["sep_token"])} if "sep_token" in tokenizer.roles else {}
    return {"vocab": len(tokenizer), "pad": tokenizer.pad_token_id, **sep, "segment_start": tokenizer.segment_start}


def fit_tokenizer(texts: Any, input_options: dict[str, Any], preprocessors: dict[str, Any]) -> Tokenizer:
    """The tokenizer of the model that training starts from, or one trained on the texts."""
    tokenizer: Tokenizer | None = preprocessors.get("tokenizer")
    if tokenizer and is_protein_tokenizer(tokenizer):
        raise ValueError("the model of --from reads proteins, but --data are texts: choose another model")
    return tokenizer or train_tokenizer(
        texts, TokenizerOptions(**select_options(TokenizerOptions, input_options)), BERT_LAYOUT
    )


def fit_residue_tokenizer(input_options: dict[str, Any], preprocessors: dict[str, Any]) -> Tokenizer:
    """The tokenizer of the model that training starts from, or the fixed one of amino acids."""
    tokenizer: Tokenizer | None = preprocessors.get("tokenizer")
    if tokenizer and not is_protein_tokenizer(tokenizer):
        raise ValueError("the model of --from reads texts, but --data are proteins: choose a protein model")
    allowed = {"tokenizer": (None, "bpe", "characters"), "vocab_size": (None,), "lowercase": (None, False)}
    for name in allowed:
        if input_options.get(name) not in allowed[name]:
            raise ValueError(
                f"--{name.replace('_', '-')} is for texts: the tokens of a protein are its residues. Leave it out"
            )
    return tokenizer or protein_tokenizer()


def select_options(group: Any, input_options: dict[str, Any]) -> dict[str, Any]:
    """The input options that are fields of one dataclass."""
    return {name: input_options[name] for name in group.__dataclass_fields__}


def map_by_length(lengths: Ints, function: Callable[[Ints], Tensor], budget: int = 8192) -> Tensor:
    """The outputs of all rows in order, computed in batches of similar length and at most `budget` tokens."""
    order = np.argsort(lengths, kind="stable")
    outputs = torch.cat([function(order[a:b]) for a, b in split_by_budget(lengths[order], budget)])
    return outputs[torch.from_numpy(np.argsort(order, kind="stable"))]


@torch.inference_mode()
def pooled_states(
    model: Any, tokenizer: Tokenizer, pool: Callable[..., Tensor], raw: Iterable[str]
) -> Iterator[list[float]]:
    """The pooled last hidden states of each text."""
    text_input, device = TextInput(tokenizer), next(model.parameters()).device
    for chunk in batched(raw, 256):
        examples = text_input.encode([RawText(text) for text in chunk], None, model.body.config.context)

        def pooled(rows: Ints, examples: TextExamples = examples) -> Tensor:
            ids, mask, _ = to_device(text_input.collate(examples, rows, training=False), device)
            return finite_vectors(pool(model.body(ids, mask), mask))

        yield from map_by_length(examples.lengths[:, 0], pooled).tolist()


def finite_vectors(x: Tensor) -> Tensor:
    """(N,D) in fp32 on the CPU; NaN and infinities are refused."""
    check_finite(x.abs())
    return x.float().cpu()


class RawText(NamedTuple):
    text: str


def read_text_pairs(paths: tuple[str, ...], fields: tuple[str, ...] | None, dialect: Dialect = UTF8) -> Rows:
    if fields is not None and len(fields) != 2:
        raise ValueError(f"--fields must name two columns or keys, the two texts of a pair, not {len(fields)}")
    return parallel_text.read_pairs(paths, fields, dialect)


def bundled_pairs() -> dict[str, Rows]:
    """The sentences of the phrasebook and their translations."""
    parts: dict[str, list[tuple[str, str]]] = {"train": [], "valid": [], "test": []}
    for phrase in phrasebook.phrases():
        parts[phrasebook.split(phrase)].append((phrase.english, phrase.german))
    return {name: parallel_text.pairs_from_memory(pairs, "phrasebook") for name, pairs in parts.items()}


def describe_windows(
    tokenizer: Tokenizer, rows: DocumentStream, examples: TokenWindows, numbers: Ints
) -> list[dict[str, Any]]:
    """File, first token and text of windows of a corpus; tokens have no line number."""
    texts = tokenizer.decode(examples.take(numbers).tolist())
    starts = zip(numbers.tolist(), texts, strict=True)
    return [{"file": rows.name, "line": f"token {start}", "text": text} for start, text in starts]
