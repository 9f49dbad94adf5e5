"""Translate: a sentence to a sentence, or speech to text. Trained with teacher forcing: the model predicts every target
token from the source and the *true* tokens before it.

    loss = - Σ_t log P(y_t | y_<t, x)          without padding

Decoding is beam search or sampling over batches of inputs, for texts of any length and number.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import nlargest
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.data.batches import BucketedExamples, Ints, Ragged, batched, length_mask, split_by_budget, to_device
from regard.data.rows import Row
from regard.data.tokenizer_train import MARIAN_LAYOUT, TokenizerLayout
from regard.generate import GenerationOptions, Hypothesis, generate, options_from_config, processor_from_config
from regard.metrics import accuracy, bleu, chrf, perplexity, word_error_rate
from regard.modalities.protocols import EncodedInputs, Inputs, Preprocessor, Target
from regard.modalities.token_preprocessor import TokenIds, TokenPreprocessor, refuse_long
from regard.parts.cache import Cache
from regard.parts.heads import Body, Model
from regard.tasks.inference import context_of
from regard.tasks.task import Loss, Prediction, Predictions, Scores, Task, fitted, make_scores
from regard.validate import check_fields

LONG_SENTENCES = 1000  # the sentences with the most characters; one of them has the most tokens
BUDGET = 4096  # tokens of a batch without gradients
DECODE_BUDGET = 2048  # source tokens of a batch, times its beams
TextRow = Row[object, str]
FORWARD, BACK = "<forward>", "<back>"
EMPTY = Prediction("")


@dataclass(frozen=True)
class TranslateOptions(GenerationOptions):
    """Decode options of a translation."""

    back: bool = False  # translate from the second language into the first; for models trained with --both-ways


GREEDY, BEAM = TranslateOptions(num_beams=1), TranslateOptions()


class Seq2SeqBatch(NamedTuple):
    inputs: Inputs  # of the encoder
    decoder_ids: Tensor  # (B,T) the start token, then the text
    targets: Tensor  # (B,T) labels: the text, then </s>
    real: Tensor  # (B,T), False = padding


class ParallelExamples(BucketedExamples):
    def __init__(self, sources: EncodedInputs, targets: Ragged):
        self.sources, self.targets = sources, targets
        self.lengths = np.stack((sources.lengths[:, 0], targets.lengths), 1)
        self.units = int(targets.lengths.sum())


@dataclass
class Translate(Task):
    both_ways: bool = False  # train both directions in one model
    label_smoothing: float = 0.1  # target probability spread uniformly over all tokens
    max_train_length: int | None = fitted(None)  # tokens of the longest training sentence
    decoder_start_token: int | None = fitted(None)  # the first decoder input; None: the padding token
    generation_config: dict[str, Any] | None = fitted(None)  # generation_config.json of a folder of another library

    def __post_init__(self) -> None:
        start, vocabulary = self.decoder_start_token, self.tokenizer.backend_tokenizer
        has_directions = vocabulary.token_to_id(FORWARD) is not None
        check_fields(
            self,
            label_smoothing=(0 <= self.label_smoothing < 1, "at least 0 and below 1"),
            max_train_length=(self.max_train_length is None or self.max_train_length >= 1, "at least 1"),
            both_ways=(not self.both_ways or has_directions, "off: the tokenizer has no tokens for the two directions"),
            decoder_start_token=(start is None or 0 <= start < len(self.tokenizer), "the id of a token"),
        )
        TranslateOptions(**self.decode_defaults(self.generation_config))  # refuses a bad config here

    description = "an input in, its translation or transcript out"
    target = Target.TEXT
    structures = ("encoder-decoder",)
    default = "transformer"
    head_fields = ("decoder_start_token", "generation_config")
    throughput_unit = "target tokens"
    percent_metrics = ("exact",)
    eval_limit = 500
    decode_options = TranslateOptions
    test_options = BEAM
    generates = True

    @classmethod
    def token_layout(cls, **options: object) -> TokenizerLayout:
        """A translator of two directions has a token for each."""
        directions = (FORWARD, BACK) if options.get("both_ways") else ()
        return replace(MARIAN_LAYOUT, first=(*MARIAN_LAYOUT.first, *directions))

    @classmethod
    def fit(
        cls, rows: Sequence[TextRow], preprocessor: Preprocessor, output: Preprocessor | None, **options: object
    ) -> Translate:
        if options.get("both_ways") and output is not None:
            raise ValueError("--both-ways is for two languages, and this model generates text only: leave it out")
        task = super().fit(rows, preprocessor, output, **options)
        if isinstance(preprocessor, TokenPreprocessor):
            candidates = nlargest(LONG_SENTENCES, rows, key=lambda row: len(row.key))  # few sentences are encoded twice
            task.max_train_length = int(task.encode(candidates).lengths[:, 0].max())
        return task

    def head(self, body: Body) -> Model:
        return Model(body, body.lm_head())

    def encode(self, rows: Sequence[TextRow], context: int = 0) -> ParallelExamples:
        """With `both_ways`, the examples of the reverse direction follow those of the forward direction. A context of 0
        is no limit."""
        sources = self.encode_sources(rows, context)
        target_ids = self.tokenizer.encode_targets([row.target for row in rows])
        if self.both_ways:
            reverse = [row._replace(input=(row.target,), target=row.key, key=row.target) for row in rows]
            back, rows = self.encode_sources(reverse, context, back=True), [*rows, *reverse]
            both = [x.ids for x in (sources, back) if isinstance(x, TokenIds)]
            sources = TokenIds([ids[i].tolist() for ids in both for i in range(len(ids))])
            target_ids += self.tokenizer.encode([row.target for row in reverse])
        targets = Ragged(target_ids)
        if context:
            refuse_long(rows, targets.lengths, context)
        return ParallelExamples(sources, targets)

    def collate(self, examples: ParallelExamples, rows: Ints, training: bool = True) -> Seq2SeqBatch:
        inputs = self.preprocessor.collate(examples.sources, rows, training)
        targets = examples.targets.pad(rows, self.tokenizer.pad_token_id)
        decoder_ids = torch.cat((torch.full_like(targets[:, :1], self.start_token), targets[:, :-1]), 1)
        real = length_mask(examples.targets.lengths[rows], targets.size(1))
        return Seq2SeqBatch(inputs, decoder_ids, targets, real)

    def outputs(self, model: Model, batch: Seq2SeqBatch) -> Tensor:
        return model(batch.inputs.x, batch.decoder_ids, batch.inputs.mask)  # (B,T,V)

    def loss(self, model: Model, batch: Seq2SeqBatch, label_smoothing: float | None = None) -> Loss:
        x = model.body(batch.inputs.x, batch.decoder_ids, batch.inputs.mask)  # (B,T,D)
        label_smoothing = self.label_smoothing if label_smoothing is None else label_smoothing
        total = model.head.loss(x[batch.real], batch.targets[batch.real], label_smoothing)
        return Loss(total, int(batch.real.sum()))

    @torch.inference_mode()
    def score(self, model: Model, rows: Sequence[TextRow], options: TranslateOptions | None = None) -> Scores:
        """Loss without label smoothing, BLEU, chrF and the translations; of transcripts also the word error rate."""
        options = options or GREEDY
        examples = self.encode(rows, context_of(model))
        device = next(model.parameters()).device
        order = np.lexsort(examples.lengths.T)
        total = count = 0.0
        for a, b in split_by_budget(examples.lengths[order].max(1), BUDGET):
            loss = self.loss(model, to_device(self.collate(examples, order[a:b], False), device), label_smoothing=0.0)
            total, count = total + loss.total.item(), count + loss.count
        targets = [row.target for row in rows]
        requests = [request for row in rows if (request := self.preprocessor.as_request(row)) is not None]
        translations = (
            self.predict(model, requests, options)
            if len(requests) == len(rows)
            else self.decode_examples(model, options, 0, examples.sources)
        )
        predictions = [best[0].text for best in translations]
        scores: dict[str, float | str] = {
            "loss": total / count,
            "perplexity": perplexity(total / count),
            "bleu": (bleu_score := bleu(predictions, targets)).value,
            "chrf": chrf(predictions, targets).value,
            "signature": bleu_score.signature,
        }
        if self.output is not None:
            scores |= {"wer": word_error_rate(targets, predictions), "exact": accuracy(targets, predictions)}
        if self.both_ways:
            reverse = [best[0].text for best in self.predict(model, targets, replace(options, back=True))]
            scores |= {"bleu_back": bleu(reverse, requests).value, "chrf_back": chrf(reverse, requests).value}
        return make_scores(scores, map(self.preprocessor.show, rows), targets, predictions)

    def repeat_sample(self, model: Model, source: str) -> str | None:
        if self.output is not None:  # the source is a file
            return None
        [best] = self.predict(model, [source], GREEDY)
        return best[0].text

    def rank(self, scores: Mapping[str, float]) -> tuple[float, ...]:
        """By BLEU; where BLEU is 0, as for single words, by chrF, then by the loss. Transcripts: by word error rate."""
        if "wer" in scores:
            return -round(scores["wer"], 3), -round(scores["loss"], 4)
        both = [scores[name] + scores.get(f"{name}_back", 0.0) for name in ("bleu", "chrf")]
        return round(both[0], 2), round(both[1], 2), -round(scores["loss"], 3)

    def timing_options(self, rows: Sequence[TextRow]) -> TranslateOptions:
        """An untrained model does not predict </s> in time, so the length is fixed to the mean of the targets."""
        lengths = [len(ids) for ids in self.tokenizer.encode_targets([row.target for row in rows])]
        length = max(1, round(float(np.mean(lengths))))
        return replace(GREEDY, min_new_tokens=length, max_new_tokens=length)

    @classmethod
    def decode_defaults(cls, generation_config: Mapping[str, Any] | None) -> dict[str, Any]:
        """`min_length` of Hugging Face includes the start token."""
        config = generation_config or {}
        minimum = {"min_new_tokens": config["min_length"] - 1} if (config.get("min_length") or 0) > 1 else {}
        return minimum | options_from_config(config)

    @property
    def start_token(self) -> int:
        return self.tokenizer.pad_token_id if self.decoder_start_token is None else self.decoder_start_token

    def encode_sources(
        self, rows: Sequence[Row[object, object]], context: int = 0, back: bool = False
    ) -> EncodedInputs:
        """With `both_ways`, the first token names the direction. A context of 0 is no limit."""
        if not self.both_ways:
            if back:
                raise ValueError("this model was trained in one direction: leave out --back, or train with --both-ways")
            return self.preprocessor.encode(rows, context, whole=True)
        direction = self.tokenizer.token_id(BACK if back else FORWARD)
        inputs = TokenIds([[direction, *ids] for ids in self.tokenizer.encode([row.key for row in rows])])
        if context:
            refuse_long(rows, inputs.ids.lengths, context)
        return inputs

    def predict(
        self, model: Model, raw: Iterable[str], options: TranslateOptions = BEAM, first: int = 0, window: int = 1024
    ) -> Predictions:
        """The best translations of each request, in order. Reads `window` requests at a time, so they may be endless.

        Line breaks are preserved, and a line longer than all training sentences is translated sentence by sentence.
        `first` is the index of the first request; it determines the random streams.
        """
        max_tokens = self.max_train_length or context_of(model) // 2
        for number, requests in enumerate(batched(raw, window)):
            layouts = [self.preprocessor.passages(request, max_tokens) for request in requests]
            parts = [part for layout in layouts for part, _ in layout if part is not None]
            rows = [self.preprocessor.parse(part, self.target) for part in parts]
            sources = self.encode_sources(rows, context_of(model), options.back)
            predictions = iter(self.decode_examples(model, options, first + number * window, sources))
            for layout in layouts:
                yield join_predictions([([] if part is None else next(predictions), space) for part, space in layout])

    @torch.inference_mode()
    def decode_examples(
        self, model: Model, options: TranslateOptions, first: int, sources: EncodedInputs
    ) -> list[list[Prediction]]:
        """Decodes in batches of similar length; the result is in the order of the rows."""
        lengths = sources.lengths[:, 0]
        order = np.argsort(lengths, kind="stable")[::-1]
        predictions: list[list[Prediction]] = [[] for _ in lengths]
        width = max(options.num_beams, options.num_return)
        for a, b in split_by_budget(lengths[order], max(1, DECODE_BUDGET // width)):
            for i, best in zip(order[a:b], self.search(model, sources, order[a:b], options, first), strict=True):
                decoded = self.tokenizer.decode([h.ids for h in best])
                predictions[i] = [Prediction(text, h.logp, h.score) for text, h in zip(decoded, best, strict=True)]
        return predictions

    def search(
        self, model: Model, sources: EncodedInputs, chosen: Ints, options: GenerationOptions, first: int = 0
    ) -> list[list[Hypothesis]]:
        """The hypotheses of the chosen rows, decoded in one batch. `first` is the index of row 0 among all inputs."""
        device = next(model.parameters()).device
        inputs = to_device(self.preprocessor.collate(sources, chosen, training=False), device)
        context, config, minimum = context_of(model), self.generation_config or {}, options.min_new_tokens
        max_limit = context - 1 if options.max_new_tokens else min(context, config.get("max_length") or context) - 1
        counts = [options.max_new_tokens or max(2 * n + 10, minimum) for n in sources.lengths[chosen, 0].tolist()]
        limits = torch.tensor(counts, device=device).clamp(max=max_limit)
        start = torch.full((len(chosen),), self.start_token, device=device)

        def step(ids: Tensor, caches: list[Cache]) -> Tensor:
            logits = model.next_logits(ids, caches)
            logits[:, self.tokenizer.pad_token_id] = -math.inf
            return logits

        caches = model.body.decoder_caches(inputs.x, inputs.mask)
        numbers = torch.from_numpy(first + chosen)
        end, rules = self.tokenizer.eos_token_id, processor_from_config(config)
        return generate(step, caches, start, end, limits, options, numbers, rules)


def join_predictions(parts: list[tuple[list[Prediction], str]]) -> list[Prediction]:
    """Prediction i of a request joins prediction i of each part, with the space after it."""
    count = max((len(predictions) for predictions, _ in parts), default=0)
    joined = [EMPTY] * max(1, count)
    for predictions, space in parts:
        for i, prefix in enumerate(joined):
            new = predictions[min(i, len(predictions) - 1)] if predictions else EMPTY
            text = prefix.text + new.text + space
            joined[i] = Prediction(text, prefix.logprob + new.logprob, prefix.score + new.score)
    return joined
