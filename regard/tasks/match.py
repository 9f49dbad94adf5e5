"""Match: which text belongs to an input (CLIP, Radford et al. 2021). Inputs and texts of a pair have similar vectors.

    loss = - ½ Σ_i (log softmax_j(s[i, :])[i] + log softmax_j(s[:, i])[i]),   s[i, j] = score(input i, text j)

The other pairs of a batch are the negatives. A text that is known to belong to the input too, or an input to the text,
is left out of the softmax.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from regard.data.batches import BucketedExamples, Ints, batched
from regard.data.rows import Row
from regard.metrics import recall_at
from regard.modalities.protocols import EncodedInputs, Inputs, Preprocessor, Target, request_row
from regard.parts.heads import Body, Model, check_finite
from regard.tasks.contrastive import contrastive_loss, encode_unique, false_negatives, mean_loss, retrieval_ranks
from regard.tasks.inference import CHUNK, context_of, map_inputs, top_scores
from regard.tasks.task import DecodeOptions, Loss, Prediction, Predictions, Scores, Task, fitted, make_scores
from regard.validate import check_fields

PairRow = Row[object, str]


@dataclass(frozen=True)
class MatchOptions(DecodeOptions):
    """Decode options of zero-shot classification."""

    prompt: str = "{}"  # text around each label, which replaces {}: "a photo of a {}"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, prompt=("{}" in self.prompt, "a text with {} in it, where the label goes"))


class MatchBatch(NamedTuple):
    inputs: Inputs
    texts: Inputs
    false_negatives: Tensor  # (B,B), True = input and text of two pairs that are a pair elsewhere


class MatchExamples(BucketedExamples):
    """Each input and each text once, and the pairs by index. All pairs count as equally long, so that a batch holds
    texts of all lengths."""

    def __init__(self, inputs: EncodedInputs, texts: EncodedInputs, pairs: Ints):
        self.inputs, self.texts = inputs, texts
        self.pairs = pairs  # (2,N), indices of input and text
        self.units = pairs.shape[1]
        self.lengths = np.full((self.units, 1), max(inputs.lengths.max(), texts.lengths.max()))


@dataclass
class Match(Task):
    output: Preprocessor = fitted()

    description = "an input and candidate texts in, the text that fits best out"
    target = Target.TEXT
    structures = ("two-tower",)
    default = "clip"
    throughput_unit = "pairs"
    contrastive = True
    percent_metrics = ("recall_at_1",)
    ranked_by = ("recall_at_1",)
    eval_limit = 1000
    decode_options = MatchOptions

    @classmethod
    def fitted_fields(cls, rows: Sequence[PairRow], preprocessor: Preprocessor, **options: object) -> dict[str, object]:
        if len({row.target for row in rows}) < 2:
            raise ValueError(f"every input has the text {rows[0].target!r}: at least two texts are needed")
        return {}

    def head(self, body: Body) -> Model:
        """The towers contain their projections."""
        return Model(body, nn.Identity())

    def encode(self, rows: Sequence[PairRow], context: int) -> MatchExamples:
        """A text longer than the context is truncated."""
        inputs, left = encode_unique(self.preprocessor, rows, context)
        texts, right = encode_unique(self.output, [request_row((row.target,), row.target) for row in rows], context)
        return MatchExamples(inputs, texts, np.stack([left, right]))

    def collate(self, examples: MatchExamples, rows: Ints, training: bool = True) -> MatchBatch:
        left, right = examples.pairs[:, rows]
        inputs = self.preprocessor.collate(examples.inputs, left, training)
        texts = self.output.collate(examples.texts, right, training)
        return MatchBatch(inputs, texts, false_negatives(examples.pairs, rows))

    def outputs(self, model: Model, batch: MatchBatch) -> Tensor:
        towers = zip(self.towers(model), (batch.inputs, batch.texts), strict=True)
        return torch.cat([tower(*inputs.arguments) for tower, inputs in towers], -1)  # (B,2E)

    def towers(self, model: Model) -> tuple[nn.Module, nn.Module]:
        """The tower of inputs, and that of texts."""
        return getattr(model.body, self.preprocessor.modality), getattr(model.body, self.output.modality)

    def loss(self, model: Model, batch: MatchBatch) -> Loss:
        scores = model(batch.inputs.x, *batch.texts.arguments)
        return Loss(contrastive_loss(scores, batch.false_negatives), len(scores))

    def vectors(self, model: Model, preprocessor: Preprocessor, inputs: EncodedInputs) -> Tensor:
        """(N,E), normalised, of inputs of the preprocessor's modality."""
        tower = getattr(model.body, preprocessor.modality)
        return map_inputs(model, preprocessor, inputs, lambda batch: tower(*batch.arguments))

    def embed(self, model: Model, raw: Iterable[str]) -> Iterator[list[float]]:
        """The vector in the joint space: of an input if the request is one, as the name of a file, else of a text."""
        for line in raw:
            try:
                vectors = self.embed_inputs(model, [self.preprocessor.parse(line, self.target)])
            except ValueError:
                if os.path.isfile(line):  # a broken one
                    raise
                vectors = self.embed_texts(model, [line])
            yield vectors[0].tolist()

    def embed_texts(self, model: Model, texts: Sequence[str]) -> Tensor:
        inputs = self.output.encode([request_row((text,), text) for text in texts], context_of(model))
        return self.vectors(model, self.output, inputs)

    def embed_inputs(self, model: Model, rows: Sequence[Row[object, object]]) -> Tensor:
        return self.vectors(model, self.preprocessor, self.preprocessor.encode(rows, context_of(model)))

    def search(
        self, model: Model, rows: Sequence[PairRow], query: str | Row[object, object]
    ) -> list[tuple[PairRow, float]]:
        """All rows with their cosine similarities, best first: a text retrieves inputs, an input texts."""
        if isinstance(query, str):
            cosines = self.embed_inputs(model, rows) @ self.embed_texts(model, [query])[0]
        else:
            cosines = self.embed_texts(model, [row.target for row in rows]) @ self.embed_inputs(model, [query])[0]
        return [(rows[i], cosines[i].item()) for i in cosines.argsort(descending=True, stable=True).tolist()]

    @torch.inference_mode()
    def score(self, model: Model, rows: Sequence[PairRow], options: MatchOptions | None = None) -> Scores:
        """Retrieval of a text of each input among all texts, and of an input of each text among all inputs."""
        examples = self.encode(rows, context_of(model))
        inputs = self.vectors(model, self.preprocessor, examples.inputs)
        texts = self.vectors(model, self.output, examples.texts)
        device, (left, right) = next(model.parameters()).device, examples.pairs

        def scores(chunk: slice) -> Tensor:
            return model.body.scores(inputs[left[chunk]].to(device), texts[right[chunk]].to(device)).cpu()

        cosines = inputs @ texts.T  # (inputs, texts)
        relevant = torch.zeros_like(cosines, dtype=torch.bool)
        relevant[left, right] = True
        numbers = {"loss": mean_loss(examples.pairs, scores)}
        for name, ranks in (
            (self.output.modality, retrieval_ranks(cosines, relevant)),
            (self.preprocessor.modality, retrieval_ranks(cosines.T, relevant.T)),
        ):
            numbers |= {f"{name}_recall_at_{k}": recall_at(ranks, k) for k in (1, 5, 10)}
        first = [value for name, value in numbers.items() if name.endswith("recall_at_1")]
        captions = {index: row.target for index, row in zip(right.tolist(), rows, strict=True)}
        predictions = [captions[index] for index in cosines.argmax(1)[left].tolist()]
        metrics, sources = {"recall_at_1": sum(first) / 2, **numbers}, map(self.preprocessor.show, rows)
        return make_scores(metrics, sources, [row.target for row in rows], predictions)

    @torch.inference_mode()
    def predict(self, model: Model, raw: Iterable[str], options: MatchOptions, first: int = 0) -> Predictions:
        """A request is an input and candidate labels, separated by tabs; zero-shot classification."""
        device = next(model.parameters()).device
        for chunk in batched(raw, CHUNK):
            queries = [line.split("\t") for line in chunk]
            for number, (text, (_, *labels)) in enumerate(zip(chunk, queries, strict=True), first + 1):
                if not labels or not all(label.strip() for label in labels):
                    example = f"{self.preprocessor.example} and labels, separated by tabs"
                    raise ValueError(f"input:{number}: give {example}, not {text[:60]!r}")
            first += len(chunk)
            texts = list(dict.fromkeys(label for _, *labels in queries for label in labels))
            index = {label: i for i, label in enumerate(texts)}
            prompts = self.embed_texts(model, [options.prompt.replace("{}", label) for label in texts])
            inputs = self.embed_inputs(model, [self.preprocessor.parse(query, self.target) for query, *_ in queries])
            scores = check_finite(model.body.scores(inputs.to(device), prompts.to(device)).cpu())  # (lines, labels)
            for row, (_, *labels) in zip(scores, queries, strict=True):
                names = list(dict.fromkeys(labels))
                best = top_scores(row[[index[name] for name in names]].log_softmax(-1), options.num_return)
                yield [Prediction(names[i], logprob, math.exp(logprob)) for logprob, i in best]

    def request(self, text: str, target: str | None = None) -> str:
        return f"{text}\ta cat\ta dog"
