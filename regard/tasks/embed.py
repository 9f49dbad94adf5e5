"""Embed: one vector for a text; texts that belong together have a high cosine similarity.

    v = pool(x) / |pool(x)|,   s[i, j] = v_i · u_j / τ
    loss = - ½ Σ_i (log softmax_j(s[i, :])[i] + log softmax_j(s[:, i])[i])

The other pairs of the batch are the negatives (Reimers & Gurevych 2019, Henderson et al. 2017).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from tokenizers.normalizers import Lowercase
from torch import Tensor

from regard.data.batches import BucketedExamples, Ints, Ragged, batched, to_device
from regard.data.image_augment import ImageAugment
from regard.data.image_files import open_image
from regard.data.image_transform import ImageTransform
from regard.data.lines import UTF8, Dialect
from regard.data.splits import Rows
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_train import TokenizerOptions
from regard.metrics import recall_at
from regard.parts.heads import EmbeddingHead, Model, ProjectionHead
from regard.parts.pooling import POOLINGS
from regard.tasks.contrastive import contrastive_loss, deduplicate, false_negatives, retrieval_ranks
from regard.tasks.inputs import (
    ImageInput,
    TextExamples,
    TextInput,
    bundled_pairs,
    finite_vectors,
    fit_tokenizer,
    map_by_length,
    read_text_pairs,
)
from regard.tasks.sentence_transformers_config import SentenceConfig, write_modules
from regard.tasks.task import DecodeOptions, Loss, Prediction, Task, fitted, make_samples
from regard.validate import MAX_FLOAT, check_fields

LOWERCASE = Lowercase()  # that of sentence-transformers
EVAL_BATCH = 50  # pairs over which the loss of an evaluation is computed


class PairBatch(NamedTuple):
    ids: Tensor  # (2B,T), the first texts and then the second
    mask: Tensor  # (2B,1,1,T), True = a token
    false_negatives: Tensor  # (B,B), True = texts of two pairs that are a pair elsewhere


class PairExamples(BucketedExamples):
    """Each text once, and the pairs by index."""

    def __init__(self, texts: Ragged, pairs: Ints):
        self.texts = TextExamples(texts, None)
        self.pairs = pairs  # (2,N), indices of texts
        self.units = pairs.shape[1]
        self.lengths = np.stack([texts.lengths[side] for side in pairs], 1)


@dataclass
class Embed(Task):
    pooling: Literal["mean", "first", "last"] = "mean"  # pooling of the token vectors
    temperature: float = 0.05  # τ, the divisor of the cosine similarities before the softmax
    unit: bool = fitted(True)  # vectors are normalised to length 1
    projection: int | None = fitted(None)  # output width of a projection after pooling, as in a tower of CLIP
    limit: int | None = fitted(None)  # maximum number of tokens of a text, if below the context
    do_lower_case: bool = fitted(False)  # lowercase a text before tokenisation
    library: dict[str, Any] | None = fitted(None)  # config_sentence_transformers.json of the source folder
    tokenizer: Tokenizer | None = fitted(None)
    image_processor: ImageTransform | None = fitted(None)  # of an image model from a folder of another library

    description = "a text in, a vector out; similar texts have similar vectors"
    file_formats = "one file of pairs (.tsv, .jsonl) or two parallel ones, plain or gzip"
    bundled_data = "the phrasebook: a sentence and its translation"
    requires = ("reads", "gathers")
    default = "modernbert"
    head_fields = ("pooling", "unit", "projection", "limit", "do_lower_case", "library")
    throughput_unit = "pairs"
    eval_limit = 1000

    def __post_init__(self) -> None:
        check_fields(
            self,
            temperature=(0 < self.temperature < MAX_FLOAT, f"above 0, and below {MAX_FLOAT:g}"),
            projection=(self.projection is None or self.projection >= 1, "at least 1"),
            limit=(self.limit is None or self.limit >= 1, "at least 1"),
        )
        if self.image_processor is not None:
            setattr(self, "requires", ("sees",))  # noqa: B010  image models can be loaded, not trained

    @property
    def text_tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise ValueError("this model embeds images, not texts: give it names of image files")
        return self.tokenizer

    @classmethod
    def option_groups(cls, ability: str) -> tuple[type, ...]:
        return (TokenizerOptions,)

    @classmethod
    def rows(
        cls, paths: tuple[str, ...], fields: tuple[str, ...] | None, ability: str, dialect: Dialect = UTF8, **_: Any
    ) -> Rows:
        return read_text_pairs(paths, fields, dialect)

    @classmethod
    def bundled_rows(cls, ability: str, **_: Any) -> dict[str, Rows]:
        return bundled_pairs()

    @classmethod
    def fit(
        cls,
        rows: Any,
        ability: str,
        input_options: dict[str, Any],
        preprocessors: dict[str, Any],
        **task_options: Any,
    ) -> Embed:
        return cls(
            **task_options,
            tokenizer=fit_tokenizer((side for row in rows for side in row[:2]), input_options, preprocessors),
        )

    @property
    def input(self) -> TextInput:
        return TextInput(self.text_tokenizer)

    def sizes(self) -> dict[str, int]:
        return (
            self.input.sizes()
            if self.image_processor is None
            else ImageInput(self.image_processor, ImageAugment()).sizes()
        )

    def count_examples(self, rows: Any) -> str:
        return f"{len(rows):,} pairs"

    def head(self, body: Any) -> Model:
        dim = body.config.dim
        pooling = POOLINGS[self.pooling](dim)
        if self.projection is not None:
            return Model(body, ProjectionHead(pooling, dim, self.projection, self.unit))
        return Model(body, EmbeddingHead(pooling, self.unit))

    def tokenize(self, texts: Sequence[str], context: int) -> list[list[int]]:
        max_length = min(context, self.limit or context)
        texts = [LOWERCASE.normalize_str(text) for text in texts] if self.do_lower_case else texts
        return [ids or [self.text_tokenizer.eos_token_id] for ids in self.text_tokenizer.encode(texts, max_length)]

    def encode(self, rows: Sequence[Any], context: int) -> PairExamples:
        sides = [side for column in (0, 1) for side in self.tokenize([row[column] for row in rows], context)]
        texts, indices = deduplicate(sides, tuple)
        return PairExamples(Ragged(texts), indices.reshape(2, -1))

    def collate(self, examples: PairExamples, rows: Ints) -> PairBatch:
        pairs = examples.pairs[:, rows]
        ids, mask, _ = self.input.collate(examples.texts, pairs.ravel(), training=True)
        assert mask is not None
        return PairBatch(ids, mask, false_negatives(examples.pairs, rows))

    def similarity(self, left: Tensor, right: Tensor) -> Tensor:
        left, right = (torch.nn.functional.normalize(side, dim=-1) for side in (left, right))
        return left @ right.T / self.temperature

    def loss(self, model: Model, batch: PairBatch) -> Loss:
        left, right = model.head(model.body(batch.ids, batch.mask), batch.mask).chunk(2)  # (B,D) each
        return Loss(contrastive_loss(self.similarity(left, right), batch.false_negatives), len(left))

    @torch.inference_mode()
    def embed_examples(self, model: Model, texts: TextExamples) -> Tensor:
        device = next(model.parameters()).device

        def embed_batch(rows: Ints) -> Tensor:
            ids, mask, _ = to_device(self.input.collate(texts, rows, training=False), device)
            return finite_vectors(model.head(model.body(ids, mask), mask))

        return map_by_length(texts.lengths[:, 0], embed_batch)  # (N,D)

    @torch.inference_mode()
    def embed_images(self, model: Model, processor: ImageTransform, files: Sequence[str]) -> Tensor:
        pixels = torch.from_numpy(processor.prepare([open_image(file) for file in files]))
        return model.head(model.body(processor.normalize(pixels).to(next(model.parameters()).device))).float().cpu()

    def embed_texts(self, model: Model, texts: Sequence[str]) -> Tensor:
        """For an image model, the texts are names of files."""
        if self.image_processor is not None:
            return self.embed_images(model, self.image_processor, texts)
        return self.embed_examples(model, TextExamples(Ragged(self.tokenize(texts, model.body.config.context)), None))

    def embed(self, model: Model, raw: Iterable[str]) -> Iterator[list[float]]:
        for chunk in batched(raw, 256):
            yield from self.embed_texts(model, chunk).tolist()

    def score(self, model: Model, rows: Sequence[Any], options: DecodeOptions | None = None) -> dict[str, Any]:
        """Retrieval of each text's partner among all texts of the other side, both directions averaged."""
        examples = self.encode(rows, model.body.config.context)
        vectors = self.embed_examples(model, examples.texts)
        left, right = (vectors[side] for side in examples.pairs)
        total = 0.0
        for chunk in (slice(i, i + EVAL_BATCH) for i in range(0, len(rows), EVAL_BATCH)):
            ignore = false_negatives(examples.pairs, chunk)
            total += contrastive_loss(self.similarity(left[chunk], right[chunk]), ignore).item()
        similarity = self.similarity(left, right)
        relevant = false_negatives(examples.pairs) | torch.eye(len(rows), dtype=torch.bool)
        ranks = retrieval_ranks(similarity, relevant), retrieval_ranks(similarity.T, relevant.T)
        scores = {"loss": total / len(rows)}
        scores |= {f"recall_at_{k}": (recall_at(ranks[0], k) + recall_at(ranks[1], k)) / 2 for k in (1, 5, 10)}
        predictions = [rows[i][1] for i in similarity.argmax(1).tolist()]
        samples = make_samples([row[0] for row in rows], [row[1] for row in rows], predictions)
        return {**scores, "predictions": predictions, "samples": samples}

    def rank(self, scores: dict[str, Any]) -> tuple[float, ...]:
        return round(scores["recall_at_1"], 3), -round(scores["loss"], 4)

    def example(self) -> str:
        return "a text\ta candidate\tanother" if self.image_processor is None else "picture.png\tanother.png"

    def predict(
        self, model: Model, raw: Iterable[str], options: DecodeOptions, first: int = 0
    ) -> Iterator[list[Prediction]]:
        """The vector of a text; with candidates after it, separated by tabs, the candidates by cosine similarity."""
        for line in raw:
            query, *candidates = line.split("\t")
            vectors = self.embed_texts(model, [query, *candidates])
            if not candidates:
                yield [Prediction(json.dumps(vectors[0].tolist()))]
                continue
            cosines = self.similarity(vectors[:1], vectors[1:])[0] * self.temperature
            best = cosines.topk(min(options.num_return, len(candidates)))
            pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
            yield [Prediction(candidates[i], 0.0, cosine, {"cosine": cosine}) for cosine, i in pairs]

    def write_extras(self, folder: Path) -> None:
        """The configuration of sentence-transformers, which reads no images and no projection of CLIP."""
        if self.image_processor is None and self.projection is None:
            write_modules(folder, SentenceConfig(self.pooling, self.unit, self.limit, self.do_lower_case, self.library))
