"""Embed: one vector for an input; inputs that belong together have a high cosine similarity.

    v = pool(x) / |pool(x)|,   s[i, j] = v_i · u_j / τ
    loss = - ½ Σ_i (log softmax_j(s[i, :])[i] + log softmax_j(s[:, i])[i])

The other pairs of the batch are the negatives (Reimers & Gurevych 2019, Henderson et al. 2017).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from tokenizers.normalizers import Lowercase
from torch import Tensor

from regard.data.batches import BucketedExamples, Ints, batched
from regard.data.rows import R, Row
from regard.metrics import recall_at
from regard.modalities.protocols import EncodedInputs, Inputs, Target
from regard.parts.heads import Body, EmbeddingHead, Model, ProjectionHead
from regard.parts.pooling import POOLINGS
from regard.tasks.contrastive import contrastive_loss, encode_unique, false_negatives, mean_loss, retrieval_ranks
from regard.tasks.inference import CHUNK, context_of, top_scores
from regard.tasks.pooled_task import PooledTask
from regard.tasks.sentence_transformers_config import SentenceConfig, write_modules
from regard.tasks.task import DecodeOptions, Loss, Prediction, Predictions, Scores, fitted, make_scores
from regard.validate import MAX_FLOAT, check_fields

LOWERCASE = Lowercase()  # that of sentence-transformers


class PairBatch(NamedTuple):
    inputs: Inputs  # (2B,...), the first inputs and then the second
    false_negatives: Tensor  # (B,B), True = inputs of two pairs that are a pair elsewhere


class PairExamples(BucketedExamples):
    """Each input once, and the pairs by index."""

    def __init__(self, inputs: EncodedInputs, pairs: Ints):
        self.inputs = inputs
        self.pairs = pairs  # (2,N), indices of inputs
        self.units = pairs.shape[1]
        self.lengths = np.stack([inputs.lengths[side, 0] for side in pairs], 1)


@dataclass
class Embed(PooledTask):
    pooling: Literal["mean", "first", "last"] = "mean"  # pooling of the token vectors
    temperature: float = 0.05  # τ, the divisor of the cosine similarities before the softmax
    unit: bool = fitted(True)  # vectors are normalised to length 1
    projection: int | None = fitted(None)  # output width of a projection after pooling, as in a tower of CLIP
    limit: int | None = fitted(None)  # maximum number of tokens of an input, if below the context
    do_lower_case: bool = fitted(False)  # lowercase a text before tokenisation
    library: dict[str, object] | None = fitted(None)  # config_sentence_transformers.json of the source folder

    description = "an input in, a vector out; similar inputs have similar vectors"
    target = Target.PAIR
    head_fields = ("pooling", "unit", "projection", "limit", "do_lower_case", "library")
    throughput_unit = "pairs"
    contrastive = True
    ranked_by = ("recall_at_1",)
    eval_limit = 1000

    def __post_init__(self) -> None:
        check_fields(
            self,
            temperature=(0 < self.temperature < MAX_FLOAT, f"above 0, and below {MAX_FLOAT:g}"),
            projection=(self.projection is None or self.projection >= 1, "at least 1"),
            limit=(self.limit is None or self.limit >= 1, "at least 1"),
        )

    def head(self, body: Body) -> Model:
        dim = body.config.dim
        pooling = POOLINGS[self.pooling](dim)
        if self.projection is not None:
            return Model(body, ProjectionHead(pooling, dim, self.projection, self.unit))
        return Model(body, EmbeddingHead(pooling, self.unit))

    def prepare(self, row: R) -> R:
        if not self.do_lower_case or not isinstance(row.input, tuple):
            return row
        return row._replace(input=tuple(map(LOWERCASE.normalize_str, row.input)))

    def max_tokens(self, context: int) -> int:
        return min(context, self.limit or context)

    def encode(self, rows: Sequence[Row[object, str]], context: int) -> PairExamples:
        others = [row._replace(input=(row.target,), key=row.target) for row in rows]
        both = [*map(self.prepare, (*rows, *others))]
        inputs, indices = encode_unique(self.preprocessor, both, self.max_tokens(context))
        return PairExamples(inputs, indices.reshape(2, -1))

    def collate(self, examples: PairExamples, rows: Ints, training: bool = True) -> PairBatch:
        pairs = examples.pairs[:, rows]
        inputs = self.preprocessor.collate(examples.inputs, pairs.ravel(), training)
        return PairBatch(inputs, false_negatives(examples.pairs, rows))

    def similarity(self, left: Tensor, right: Tensor) -> Tensor:
        left, right = (torch.nn.functional.normalize(side, dim=-1) for side in (left, right))
        return left @ right.T / self.temperature

    def loss(self, model: Model, batch: PairBatch) -> Loss:
        left, right = self.outputs(model, batch).chunk(2)  # (B,D) each
        return Loss(contrastive_loss(self.similarity(left, right), batch.false_negatives), len(left))

    def embed_requests(self, model: Model, raw: Sequence[str]) -> Tensor:
        rows = [self.prepare(self.preprocessor.parse(text, self.target)) for text in raw]
        return self.run(model, self.preprocessor.encode(rows, self.max_tokens(context_of(model))))

    def embed(self, model: Model, raw: Iterable[str]) -> Iterator[list[float]]:
        for chunk in batched(raw, CHUNK):
            yield from self.embed_requests(model, chunk).tolist()

    def score(self, model: Model, rows: Sequence[Row[object, str]], options: DecodeOptions | None = None) -> Scores:
        """Retrieval of each input's partner among all inputs of the other side, both directions averaged."""
        examples = self.encode(rows, context_of(model))
        vectors = self.run(model, examples.inputs)
        left, right = (vectors[side] for side in examples.pairs)
        similarity = self.similarity(left, right)
        relevant = false_negatives(examples.pairs) | torch.eye(len(rows), dtype=torch.bool)
        ranks = retrieval_ranks(similarity, relevant), retrieval_ranks(similarity.T, relevant.T)
        scores = {"loss": mean_loss(examples.pairs, lambda chunk: self.similarity(left[chunk], right[chunk]))}
        scores |= {f"recall_at_{k}": (recall_at(ranks[0], k) + recall_at(ranks[1], k)) / 2 for k in (1, 5, 10)}
        predictions = [rows[i].target for i in similarity.argmax(1).tolist()]
        return make_scores(scores, map(self.preprocessor.show, rows), [row.target for row in rows], predictions)

    def predict(self, model: Model, raw: Iterable[str], options: DecodeOptions, first: int = 0) -> Predictions:
        """The vector of an input; with candidates after it, separated by tabs, the candidates by cosine similarity."""
        for line in raw:
            query, *candidates = line.split("\t")
            vectors = self.embed_requests(model, [query, *candidates])
            if not candidates:
                yield [Prediction(json.dumps(vectors[0].tolist()))]
                continue
            cosines = self.similarity(vectors[:1], vectors[1:])[0] * self.temperature
            best = top_scores(cosines, options.num_return)
            yield [Prediction(candidates[i], 0.0, cosine, {"cosine": cosine}) for cosine, i in best]

    def request(self, text: str, target: str | None = None) -> str:
        return f"{text}\t{target or 'a candidate'}\tanother"

    def write_extras(self, folder: Path) -> None:
        """The configuration of sentence-transformers, which reads token models and no projection of CLIP."""
        if self.preprocessor.tokenizer is not None and self.projection is None:
            write_modules(folder, SentenceConfig(self.pooling, self.unit, self.limit, self.do_lower_case, self.library))
