"""Translate: a sentence to a sentence, or speech to text. Trained with teacher forcing: the model predicts every target
token from the source and the *true* tokens before it.

    loss = - Σ_t log P(y_t | y_<t, x)          without padding

Decoding is beam search or sampling over batches of inputs, for texts of any length and number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import nlargest
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.data.batches import BucketedExamples, Ints, Ragged, length_mask, split_by_budget, to_device
from regard.data.rows import Row
from regard.data.tokenizer_train import MARIAN_LAYOUT, TokenizerLayout
from regard.decode_request import DecodeRequest, Hypothesis
from regard.generate import hypotheses_of, merge_options
from regard.generation_config import GenerationOptions, options_from_config, processor_from_config
from regard.metrics import accuracy, bleu, chrf, perplexity, word_error_rate
from regard.modalities.protocols import EncodedInputs, Inputs, Preprocessor, Target
from regard.modalities.token_preprocessor import TokenIds, TokenPreprocessor, refuse_long
from regard.parts.cache import Cache
from regard.parts.heads import Body, Model
from regard.tasks.decoding import Decoding, GeneratingTask, SourceRow, collate_sources, join_predictions, source_batches
from regard.tasks.inference import context_of
from regard.tasks.shared_batches import map_batches, map_items
from regard.tasks.task import Loss, Prediction, Scores, fitted, make_scores
from regard.validate import check_fields

LONG_SENTENCES = 1000  # the sentences with the most characters; one of them has the most tokens
BUDGET = 4096  # tokens of a batch without gradients
DECODE_BUDGET = 2048  # source tokens of a batch, times its beams
TextRow = Row[object, str]
FORWARD, BACK = "<forward>", "<back>"


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
class Translate(GeneratingTask):
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
    splits_long_inputs = True
    window = 1024

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
        examples, device = self.encode(rows, context_of(model)), next(model.parameters()).device
        order = np.lexsort(examples.lengths.T)

        def loss_of(bounds: tuple[int, int]) -> Loss:
            batch = self.collate(examples, order[slice(*bounds)], False)
            return self.loss(model, to_device(batch, device), label_smoothing=0.0)

        losses = [*map_batches(loss_of, split_by_budget(examples.lengths[order].max(1), BUDGET))]
        loss = sum(part.total.item() for part in losses) / sum(part.count for part in losses)
        targets = [row.target for row in rows]
        requests = [request for row in rows if (request := self.preprocessor.as_request(row)) is not None]
        if len(requests) == len(rows):
            translations = map_items(lambda part, first: self.predict(model, part, options, first), requests)
        else:
            translations = self.translate_sources(model, examples.sources, options)
        predictions = [best[0].text for best in translations]
        bleu_score, chrf_score = bleu(predictions, targets), chrf(predictions, targets)
        scores: dict[str, float | str] = {"loss": loss, "perplexity": perplexity(loss)}
        scores |= {"bleu": bleu_score.value, "chrf": chrf_score.value, "signature": bleu_score.signature}
        if self.output is not None:
            scores |= {"wer": word_error_rate(targets, predictions), "exact": accuracy(targets, predictions)}
        if self.both_ways:
            back = replace(options, back=True)
            backward = map_items(lambda part, first: self.predict(model, part, back, first), targets)
            reverse = [best[0].text for best in backward]
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

    def decodings(self, raw: Sequence[str], options: TranslateOptions, context: int, first: int = 0) -> list[Decoding]:
        """Line breaks stay, and a line longer than all training sentences is translated sentence by sentence."""
        max_tokens = self.max_train_length or context // 2
        layouts = [self.preprocessor.passages(request, max_tokens) for request in raw]
        parts = [part for layout in layouts for part, _ in layout if part is not None]
        rows = [self.preprocessor.parse(part, self.target) for part in parts]
        sources = self.encode_sources(rows, context, options.back)
        requests = iter(self.requests(sources, np.arange(len(rows)), options, context, first))
        return [
            self.translation(layout, [next(requests) for part, _ in layout if part is not None]) for layout in layouts
        ]

    def translation(self, layout: list[tuple[str | None, str]], requests: list[DecodeRequest]) -> Decoding:
        """The passages of one input, one request for each that has something to translate."""
        space, remaining = "", iter(requests)
        for part, after in layout:
            if part is not None:
                next(remaining).before, space = space, ""
            space += after
        results = iter((yield requests)) if requests else iter(())
        return join_predictions([([] if part is None else self.predictions(next(results)), s) for part, s in layout])

    def predictions(self, hypotheses: list[Hypothesis]) -> list[Prediction]:
        texts = self.tokenizer.decode([h.ids for h in hypotheses])
        pairs = zip(texts, hypotheses, strict=True)
        return [Prediction(text, h.logp, h.score, {}, h.finish_reason, len(h.ids)) for text, h in pairs]

    def requests(
        self, sources: EncodedInputs, chosen: Ints, options: GenerationOptions, context: int, first: int = 0
    ) -> list[DecodeRequest]:
        """One for each of the chosen rows. `first` is the index of row 0 among all inputs."""
        config, minimum = self.generation_config or {}, options.min_new_tokens
        max_limit = context - 1 if options.max_new_tokens else min(context, config.get("max_length") or context) - 1
        rules = merge_options(processor_from_config(config), options, self.end)
        requests = []
        for row in chosen.tolist():
            limit = options.max_new_tokens or max(2 * int(sources.lengths[row, 0]) + 10, minimum)
            limit, source = min(limit, max_limit), SourceRow(sources, row)
            request = DecodeRequest([self.start_token], limit, options, first + row, rules, source=source)
            request.text = self.decode_text
            requests.append(request)
        return requests

    def search(
        self, model: Model, sources: EncodedInputs, chosen: Ints, options: GenerationOptions, first: int = 0
    ) -> list[list[Hypothesis]]:
        """The hypotheses of the chosen rows, decoded in one batch."""
        requests = self.requests(sources, chosen, options, context_of(model), first)
        results = hypotheses_of(self.decode(model, requests))
        return [results[request] for request in requests]

    def translate_sources(
        self, model: Model, sources: EncodedInputs, options: GenerationOptions
    ) -> list[list[Prediction]]:
        """The translations of inputs that are files, in order."""
        requests = self.requests(sources, np.arange(sources.units), options, context_of(model))
        return self.run(model, [self.translation([("", "")], [request]) for request in requests])

    def batches(self, requests: Sequence[DecodeRequest]) -> list[list[DecodeRequest]]:
        return source_batches(requests, DECODE_BUDGET)

    def prefill(self, model: Model, requests: Sequence[DecodeRequest]) -> list[Cache]:
        inputs = to_device(collate_sources(self.preprocessor, requests), next(model.parameters()).device)
        return [*model.body.decoder_caches(inputs.x, inputs.mask)]

    def decode_text(self, tokens: list[int]) -> str:
        return self.tokenizer.decode([tokens])[0]

    def constrain(self, logits: Tensor) -> None:
        logits[:, self.tokenizer.pad_token_id] = -math.inf
