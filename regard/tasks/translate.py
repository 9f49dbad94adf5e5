"""Translate: a sentence to a sentence, or speech to text. Trained with teacher forcing: the model predicts every target
token from the source and the *true* tokens before it.

    loss = - Σ_t log P(y_t | y_<t, x)          without padding
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import nlargest
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.data.audio_augment import AudioAugment
from regard.data.batches import BucketedExamples, Ints, Ragged, length_mask, split_by_budget, to_device
from regard.data.lines import UTF8, Dialect
from regard.data.logmel import LogMel
from regard.data.splits import Data, DataOptions, Rows, read_sets
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_train import MARIAN_LAYOUT, TokenizerOptions, train_tokenizer
from regard.metrics import accuracy, bleu, chrf, perplexity, word_error_rate
from regard.parts.heads import Model
from regard.tasks.audio_input import AudioExamples, bundled_utterances, fit_audio, is_folder, read_speech, split_speech
from regard.tasks.inputs import bundled_pairs, read_text_pairs, select_options
from regard.tasks.task import Loss, fitted, make_samples
from regard.tasks.translation_decoding import BACK, BEAM, FORWARD, GREEDY, Seq2SeqTask, TranslateOptions
from regard.validate import check_fields

LONG_SENTENCES = 1000  # the sentences with the most characters; one of them has the most tokens


class Seq2SeqBatch(NamedTuple):
    source: Tensor  # (B,S) ids or (B,frames,mels)
    source_mask: Tensor  # (B,1,1,S), True = a token
    decoder_input: Tensor  # (B,T) the start token, then the text
    targets: Tensor  # (B,T) labels: the text, then </s>
    real: Tensor  # (B,T), False = padding


class ParallelExamples(BucketedExamples):
    def __init__(self, sources: Ragged | AudioExamples, targets: Ragged):
        self.sources, self.targets = sources, targets
        self.lengths = np.stack((sources.lengths.reshape(-1), targets.lengths), 1)
        self.units = int(targets.lengths.sum())


@dataclass
class Translate(Seq2SeqTask):
    label_smoothing: float = 0.1  # target probability spread uniformly over all tokens
    both_ways: bool = False  # train both directions in one model
    tokenizer: Tokenizer = fitted()
    max_train_length: int | None = fitted(None)  # tokens of the longest training sentence
    decoder_start_token: int | None = fitted(None)  # the first decoder input; None: the padding token
    generation_config: dict[str, Any] | None = fitted(None)  # generation_config.json of a folder of another library
    feature_extractor: LogMel | None = fitted(None)
    audio_augment: dict[str, Any] | None = fitted(None)  # augmentation of recordings in training

    def __post_init__(self) -> None:
        check_fields(
            self,
            label_smoothing=(0 <= self.label_smoothing < 1, "at least 0 and below 1"),
            max_train_length=(self.max_train_length is None or self.max_train_length >= 1, "at least 1"),
            both_ways=(
                not self.both_ways or self.tokenizer.backend_tokenizer.token_to_id(FORWARD) is not None,
                "off: the tokenizer has no tokens for the two directions",
            ),
            feature_extractor=(
                self.audio_augment is None or self.feature_extractor is not None,
                "set (by logmel.json) for a model that reads audio",
            ),
            decoder_start_token=(
                self.decoder_start_token is None or 0 <= self.decoder_start_token < len(self.tokenizer),
                "the id of a token",
            ),
        )
        TranslateOptions(**self.decode_defaults(self.generation_config))  # refuses a bad config here

    description = "a sentence in, its translation out; or speech in, its transcript out"
    file_formats = "one file of pairs (.tsv, .jsonl) or two parallel ones, plain or gzip; .tsv of audio files and texts"
    bundled_data = "the phrasebook, English and German; for audio models, spoken digit strings"
    requires = ("translates", "transcribes")
    default = "transformer"
    head_fields = ("decoder_start_token", "generation_config")
    throughput_unit = "target tokens"
    percent_metrics = ("exact",)
    eval_limit = 500
    decode_options = TranslateOptions
    test_options = BEAM

    @classmethod
    def option_groups(cls, ability: str) -> tuple[type, ...]:
        return (TokenizerOptions, AudioAugment) if ability == "transcribes" else (TokenizerOptions,)

    @classmethod
    def rows(
        cls, paths: tuple[str, ...], fields: tuple[str, ...] | None, ability: str, dialect: Dialect = UTF8, **_: Any
    ) -> Rows:
        read = read_speech if ability == "transcribes" else read_text_pairs
        return read(paths, fields, dialect)

    @classmethod
    def bundled_rows(cls, ability: str, **_: Any) -> dict[str, Rows]:
        return bundled_utterances() if ability == "transcribes" else bundled_pairs()

    @classmethod
    def read(cls, files: DataOptions, ability: str, input_options: dict[str, Any], **task_options: Any) -> Data:
        """Single words are split into sets before they are concatenated, so no clip is in two sets."""
        if ability != "transcribes" or files.valid or not is_folder(files.data):
            return super().read(files, ability, input_options, **task_options)
        rest = replace(files, data=())
        return read_sets(
            rest, lambda paths: read_speech(paths, files.fields, files.dialect), lambda: split_speech(files)
        )

    @classmethod
    def fit(
        cls,
        rows: Any,
        ability: str,
        input_options: dict[str, Any],
        preprocessors: dict[str, Any],
        **task_options: Any,
    ) -> Translate:
        layout, pieces = MARIAN_LAYOUT, TokenizerOptions(**select_options(TokenizerOptions, input_options))
        if ability == "transcribes":
            if task_options.get("both_ways"):
                raise ValueError("--both-ways is for two languages, and no model generates speech: leave it out")
            tokenizer = preprocessors.get("tokenizer") or train_tokenizer((row.text for row in rows), pieces, layout)
            return cls(**task_options, tokenizer=tokenizer, **fit_audio(rows, input_options, preprocessors))
        if task_options.get("both_ways"):
            layout = replace(layout, first=(*layout.first, FORWARD, BACK))
        texts = (side for row in rows for side in row[:2])
        tokenizer = preprocessors.get("tokenizer") or train_tokenizer(texts, pieces, layout)
        task = cls(**task_options, tokenizer=tokenizer, max_train_length=None)
        candidates = nlargest(LONG_SENTENCES, rows, key=lambda row: len(row[0]))  # few sentences are encoded twice
        task.max_train_length = int(task.encode(candidates).lengths[:, 0].max())
        return task

    def sizes(self) -> dict[str, int]:
        return {
            "vocab": len(self.tokenizer),
            "pad": self.tokenizer.pad_token_id,
            **(self.audio_input.sizes() if self.audio_input else {}),
        }

    def count_examples(self, rows: Any) -> str:
        return f"{len(rows):,} {'pairs' if self.audio_input is None else 'recordings'}"

    def example(self) -> str:
        return "your text" if self.audio_input is None else "sound.wav"

    def rank(self, scores: dict[str, Any]) -> tuple[float, ...]:
        """By BLEU; where BLEU is 0, as for single words, by chrF, then by the loss. Speech: by the word error rate."""
        if "wer" in scores:
            return -round(scores["wer"], 3), -round(scores["loss"], 4)
        both = [scores[name] + scores.get(f"{name}_back", 0.0) for name in ("bleu", "chrf")]
        return round(both[0], 2), round(both[1], 2), -round(scores["loss"], 3)

    def head(self, body: Any) -> Model:
        return Model(body, body.lm_head())

    def encode(self, rows: Sequence[Sequence[Any]], context: int | None = None) -> ParallelExamples:
        """With `both_ways`, the examples of the reverse direction follow those of the forward direction."""
        sources, targets = self.sides(rows)
        if self.audio_input is not None:
            audio = self.audio_input.encode(rows, None, context or 0)
            texts = Ragged(self.tokenizer.encode_targets(targets))
            refuse_long(rows, texts.lengths, context or len(texts.ids))
            return ParallelExamples(audio, texts)
        source_ids, target_ids = self.encode_sources(sources), self.tokenizer.encode_targets(targets)
        if self.both_ways:
            source_ids = source_ids + self.encode_sources(targets, back=True)
            target_ids = target_ids + self.tokenizer.encode(sources)
        examples = ParallelExamples(Ragged(source_ids), Ragged(target_ids))
        if context is not None:
            refuse_long(rows, examples.lengths.max(1), context)
        return examples

    def sides(self, rows: Sequence[Any]) -> tuple[list[str], list[str]]:
        """Sources and targets as texts; the source of a recording is its file and line."""
        if self.feature_extractor is not None:
            return [f"{row.file}:{row.line}" for row in rows], [row.text for row in rows]
        return [row[0] for row in rows], [row[1] for row in rows]

    def collate(self, examples: ParallelExamples, rows: Ints, training: bool = True) -> Seq2SeqBatch:
        source, mask, _ = self.encoder_inputs(examples.sources, rows, training)
        assert mask is not None
        targets = examples.targets.pad(rows, self.tokenizer.pad_token_id)
        decoder_input = torch.cat((torch.full_like(targets[:, :1], self.start_token), targets[:, :-1]), 1)
        real = length_mask(examples.targets.lengths[rows], targets.size(1))
        return Seq2SeqBatch(source, mask, decoder_input, targets, real)

    def loss(self, model: Model, batch: Seq2SeqBatch, label_smoothing: float | None = None) -> Loss:
        x = model.body(batch.source, batch.decoder_input, batch.source_mask)  # (B,T,D)
        label_smoothing = self.label_smoothing if label_smoothing is None else label_smoothing
        total = model.head.loss(x[batch.real], batch.targets[batch.real], label_smoothing)
        return Loss(total, int(batch.real.sum()))

    @torch.inference_mode()
    def score(
        self, model: Model, rows: Sequence[Sequence[Any]], options: TranslateOptions | None = None, budget: int = 4096
    ) -> dict[str, Any]:
        """Loss without label smoothing, BLEU, chrF and the translations; for speech also the word error rate."""
        options = options or GREEDY
        examples = self.encode(rows, model.body.config.context)
        device = next(model.parameters()).device
        order = np.lexsort(examples.lengths.T)
        total = count = 0.0
        for a, b in split_by_budget(examples.lengths[order].max(1), budget):
            loss = self.loss(model, to_device(self.collate(examples, order[a:b], False), device), label_smoothing=0.0)
            total, count = total + loss.total.item(), count + loss.count
        sources, targets = self.sides(rows)
        translations = (
            self.predict(model, sources, options)
            if self.audio_input is None
            else self.decode_examples(model, options, 0, examples.sources)
        )
        predictions = [best[0].text for best in translations]
        scores = {
            "loss": total / count,
            "perplexity": perplexity(total / count),
            "bleu": (bleu_score := bleu(predictions, targets)).value,
            "chrf": chrf(predictions, targets).value,
            "signature": bleu_score.signature,
            "predictions": predictions,
            "samples": make_samples(sources, targets, predictions),
        }
        if self.audio_input is not None:
            scores |= {"wer": word_error_rate(targets, predictions), "exact": accuracy(targets, predictions)}
        if self.both_ways:
            reverse = [best[0].text for best in self.predict(model, targets, replace(options, back=True))]
            scores |= {"bleu_back": bleu(reverse, sources).value, "chrf_back": chrf(reverse, sources).value}
        return scores

    def timing_options(self, rows: Any) -> TranslateOptions:
        """An untrained model does not predict </s> in time, so the length is fixed to the mean of the targets."""
        targets = (
            Ragged(self.tokenizer.encode_targets(self.sides(rows)[1]))
            if self.audio_input
            else self.encode(rows).targets
        )
        length = max(1, round(targets.lengths.mean()))
        return replace(GREEDY, min_new_tokens=length, max_new_tokens=length)


def refuse_long(rows: Sequence[Any], lengths: Ints, context: int) -> None:
    """Raise an error for the first row that exceeds the context."""
    for row, length in zip(chain(rows, rows), lengths.tolist(), strict=False):
        if length > context:
            location = f"{row.file}:{row.line}: " if hasattr(row, "line") else ""
            raise ValueError(
                f"{location}{length} tokens exceed the model's context of {context}: skip long lines "
                "(--max-words and --skip-bad), or train with a larger --context"
            )
