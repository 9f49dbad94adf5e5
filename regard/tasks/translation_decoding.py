"""Decoding of translations: beam search or sampling over batches of sentences, for texts of any length and number."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.data.audio_augment import AudioAugment
from regard.data.batches import Ints, Ragged, batched, padding_mask, split_by_budget, to_device
from regard.data.logmel import LogMel
from regard.data.sentence_split import split_sentences
from regard.data.tokenizer import Tokenizer
from regard.generate import PROCESSOR_KEYS, GenerationOptions, Hypothesis, generate, options_from_config
from regard.parts.cache import Cache
from regard.parts.heads import Model
from regard.sampling import LogitsProcessor
from regard.tasks.audio_input import AudioExamples, AudioInput, open_recordings
from regard.tasks.inputs import Inputs
from regard.tasks.passages import predict_passages
from regard.tasks.task import Prediction, Task

BUDGET = 2048  # source tokens of a batch, times its beams
FORWARD, BACK = "<forward>", "<back>"


@dataclass(frozen=True)
class TranslateOptions(GenerationOptions):
    """Decode options of a translation."""

    back: bool = False  # translate from the second language into the first; for models trained with --both-ways


GREEDY, BEAM = TranslateOptions(num_beams=1), TranslateOptions()


class Seq2SeqTask(Task):
    """Decoding of an encoder-decoder task."""

    both_ways: bool
    tokenizer: Tokenizer
    max_train_length: int | None
    decoder_start_token: int | None
    feature_extractor: LogMel | None
    audio_augment: dict[str, Any] | None
    generation_config: dict[str, Any] | None

    @classmethod
    def decode_defaults(cls, generation_config: Mapping[str, Any] | None) -> dict[str, Any]:
        """`min_length` of Hugging Face includes the start token."""
        config = generation_config or {}
        minimum = {"min_new_tokens": config["min_length"] - 1} if (config.get("min_length") or 0) > 1 else {}
        return minimum | options_from_config(config)

    @cached_property
    def audio_input(self) -> AudioInput | None:
        extractor, augment = self.feature_extractor, AudioAugment(**self.audio_augment or {})
        return None if extractor is None else AudioInput(extractor, augment)

    @property
    def start_token(self) -> int:
        return self.tokenizer.pad_token_id if self.decoder_start_token is None else self.decoder_start_token

    def encode_sources(
        self, sentences: Sequence[str], back: bool = False, max_length: int | None = None
    ) -> list[list[int]]:
        """Token ids of source sentences; with `both_ways`, the first token names the direction."""
        rows = self.tokenizer.encode(sentences, max_length)
        if self.both_ways:
            return [[self.tokenizer.token_id(BACK if back else FORWARD), *row] for row in rows]
        if back:
            raise ValueError("this model was trained in one direction: leave out --back, or train with --both-ways")
        return rows

    def encoder_inputs(self, sources: Any, rows: Ints, training: bool = False) -> Inputs:
        if self.audio_input is not None:
            return self.audio_input.collate(sources, rows, training)
        ids = sources.pad(rows, self.tokenizer.pad_token_id)
        return Inputs(ids, padding_mask(sources.lengths[rows], ids.size(1)))

    def predict(
        self, model: Model, raw: Iterable[str], options: TranslateOptions = BEAM, first: int = 0, window: int = 1024
    ) -> Iterator[list[Prediction]]:
        """The best translations of each text, in order. Reads `window` texts at a time, so the input may be endless.
        For an audio model, a text is the name of a file.

        Line breaks are preserved, and a line longer than all training sentences is translated sentence by sentence.
        `first` is the index of the first text; it determines the random streams.
        """
        if self.audio_input is not None:
            for number, names in enumerate(batched(raw, window)):
                audio = self.audio_input.encode(open_recordings(names), None, model.body.config.context)
                yield from self.decode_examples(model, options, first + number * window, audio)
            return
        max_tokens = self.max_train_length or model.body.config.context // 2

        def split(line: str) -> list[str]:
            return [line] if len(self.tokenizer.encode([line])[0]) <= max_tokens else split_sentences(line)

        for number, texts in enumerate(batched(raw, window)):
            predict = partial(self.predict_sentences, model, options, first + number * window)
            yield from predict_passages(texts, split, predict)

    @torch.inference_mode()
    def predict_sentences(
        self, model: Model, options: TranslateOptions, first: int, sentences: list[str]
    ) -> list[list[Prediction]]:
        rows = Ragged(self.encode_sources(sentences, options.back))
        context = model.body.config.context
        for sentence, length in zip(sentences, rows.lengths, strict=True):
            if length > context:
                raise ValueError(
                    f"a sentence has {length} tokens, but this model's context is {context}: split it, or train with a "
                    f'larger --context. It begins "{sentence[:60]}"'
                )
        return self.decode_examples(model, options, first, rows)

    @torch.inference_mode()
    def decode_examples(
        self, model: Model, options: TranslateOptions, first: int, rows: Ragged | AudioExamples
    ) -> list[list[Prediction]]:
        """Decodes in batches of similar length; the result is in the order of the rows."""
        if options.back and not self.both_ways:
            raise ValueError("this model was trained in one direction: leave out --back, or train with --both-ways")
        lengths = rows.lengths.reshape(-1)
        order = np.argsort(lengths, kind="stable")[::-1]
        predictions: list[list[Prediction]] = [[] for _ in lengths]
        for a, b in split_by_budget(lengths[order], max(1, BUDGET // max(options.num_beams, options.num_return))):
            for i, best in zip(order[a:b], self.search(model, rows, order[a:b], options, first), strict=True):
                decoded = self.tokenizer.decode([h.ids for h in best])
                predictions[i] = [Prediction(text, h.logp, h.score) for text, h in zip(decoded, best, strict=True)]
        return predictions

    def search(
        self, model: Model, rows: Ragged | AudioExamples, chosen: Ints, options: GenerationOptions, first: int = 0
    ) -> list[list[Hypothesis]]:
        """The hypotheses of the chosen rows, decoded in one batch. `first` is the index of row 0 among all inputs."""
        device = next(model.parameters()).device
        source, mask, _ = to_device(self.encoder_inputs(rows, chosen), device)
        lengths = rows.lengths.reshape(-1)[chosen].tolist()
        context = model.body.config.context
        config = self.generation_config or {}
        max_limit = context - 1 if options.max_new_tokens else min(context, config.get("max_length") or context) - 1
        limits = torch.tensor(
            [options.max_new_tokens or max(2 * n + 10, options.min_new_tokens) for n in lengths], device=device
        )
        start = torch.full((len(chosen),), self.start_token, device=device)

        def step(ids: Tensor, caches: list[Cache]) -> Tensor:
            logits = model.next_logits(ids, caches)
            logits[:, self.tokenizer.pad_token_id] = -math.inf
            return logits

        caches = model.body.decoder_caches(source, mask)
        numbers = torch.from_numpy(first + chosen)
        rules = LogitsProcessor(**{key: value for key, value in config.items() if key in PROCESSOR_KEYS})
        return generate(
            step, caches, start, self.tokenizer.eos_token_id, limits.clamp(max=max_limit), options, numbers, rules
        )
