"""Translating: the best sentences to what was read or heard. Texts may be longer than a sentence, and more than memory
holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.data.batches import Ints, Ragged, cut, handfuls, padding_mask, to_device
from regard.data.hearing import Hearing
from regard.data.mels import Mels
from regard.data.sentences import split_sentences
from regard.data.tokens import Tokenizer
from regard.generate import PROCESSOR_KEYS, GenerationOptions, Hypothesis, generate, options_from_config
from regard.parts.cache import Cache
from regard.parts.heads import Model
from regard.sampling import LogitsProcessor
from regard.tasks.inputs import Given
from regard.tasks.listening import Heard, SoundInput, open_spoken
from regard.tasks.passages import answer_passages
from regard.tasks.task import Answer, Task

BUDGET = 2048  # tokens of all beams of a batch
FORWARD, BACK = "<forward>", "<back>"


@dataclass(frozen=True)
class Translating(GenerationOptions):
    """How a translation is found."""

    back: bool = False  # from the second language into the first; for models trained with --both-ways


GREEDY, BEAM = Translating(num_beams=1), Translating()


class Translator(Task):
    """A task that answers in sentences, by what it has learnt."""

    both_ways: bool
    tokenizer: Tokenizer
    seen: int | None
    start: int | None
    sounds: Mels | None
    hearing: dict[str, Any] | None
    generation: dict[str, Any] | None

    @classmethod
    def way_defaults(cls, generation: Mapping[str, Any] | None) -> dict[str, Any]:
        """The start counts in min_length."""
        told = generation or {}
        least = {"min_new_tokens": told["min_length"] - 1} if (told.get("min_length") or 0) > 1 else {}
        return least | options_from_config(told)

    @cached_property
    def ears(self) -> SoundInput | None:
        return SoundInput(self.sounds, Hearing(**self.hearing or {})) if self.sounds is not None else None

    @property
    def first(self) -> int:
        return self.tokenizer.pad if self.start is None else self.start

    def encode(self, sentences: Sequence[str], back: bool = False, max_length: int | None = None) -> list[list[int]]:
        """Source sentences; where there are two directions, the first token says which is meant."""
        rows = self.tokenizer.encode(sentences, max_length)
        if self.both_ways:
            return [[self.tokenizer.id_of(BACK if back else FORWARD), *row] for row in rows]
        if back:
            raise ValueError("this model knows one direction only: train one with --both-ways")
        return rows

    def given(self, sources: Any, rows: Ints, training: bool = False) -> Given:
        """What the encoder reads of these rows, or hears of them."""
        if self.ears is not None:
            return self.ears.given(sources, rows, training)
        ids = sources.padded(rows, self.tokenizer.pad)
        return Given(ids, padding_mask(sources.lengths[rows], ids.size(1)))

    def predict(
        self, model: Model, raw: Iterable[str], how: Translating = BEAM, first: int = 0, window: int = 1024
    ) -> Iterator[list[Answer]]:
        """The best translations of each text, in order. Holds `window` texts at a time: the input may be endless. For a
        model that hears, a text is the name of a file.

        Lines stay lines, and a line longer than anything seen in training is translated sentence by sentence. `first`
        is the number of the first text, from which its random numbers follow.
        """
        if self.ears is not None:
            for number, some in enumerate(handfuls(raw, window)):
                heard = self.ears.prepare(open_spoken(some), None, model.body.config.context)
                yield from self.found(model, how, first + number * window, heard)
            return
        longest = self.seen or model.body.config.context // 2

        def sentences(line: str) -> list[str]:
            return [line] if len(self.tokenizer.encode([line])[0]) <= longest else split_sentences(line)

        for number, some in enumerate(handfuls(raw, window)):
            answer = partial(self._answer, model, how, first + number * window)
            yield from answer_passages(some, sentences, answer)

    @torch.inference_mode()
    def _answer(self, model: Model, how: Translating, first: int, sentences: list[str]) -> list[list[Answer]]:
        rows = Ragged(self.encode(sentences, how.back))
        context = model.body.config.context
        for sentence, length in zip(sentences, rows.lengths, strict=True):
            if length > context:
                raise ValueError(
                    f"a sentence has {length} tokens, but this model's context is {context}: split it, or train with a "
                    f'larger --context. It begins "{sentence[:60]}"'
                )
        return self.found(model, how, first, rows)

    @torch.inference_mode()
    def found(self, model: Model, how: Translating, first: int, rows: Ragged | Heard) -> list[list[Answer]]:
        """Sorted into full batches, and given back in order."""
        if how.back and not self.both_ways:
            raise ValueError("this model knows one direction only: train one with --both-ways")
        lengths = rows.lengths.reshape(-1)
        order = np.argsort(lengths, kind="stable")[::-1]
        found: list[list[Answer]] = [[] for _ in lengths]
        for a, b in cut(lengths[order], max(1, BUDGET // max(how.num_beams, how.num_return))):
            for i, best in zip(order[a:b], self.search(model, rows, order[a:b], how, first), strict=True):
                decoded = self.tokenizer.decode([h.ids for h in best])
                found[i] = [Answer(text, h.logp, h.score) for text, h in zip(decoded, best, strict=True)]
        return found

    def search(
        self, model: Model, rows: Ragged | Heard, chosen: Ints, how: GenerationOptions, first: int = 0
    ) -> list[list[Hypothesis]]:
        """Ids out for ids in, in one batch. `first` is the place of row 0 among all inputs, for the sampling."""
        device = next(model.parameters()).device
        source, mask = to_device(self.given(rows, chosen), device)
        lengths = rows.lengths.reshape(-1)[chosen].tolist()
        context = model.body.config.context
        told = self.generation or {}
        most = context - 1 if how.max_new_tokens else min(context, told.get("max_length") or context) - 1
        limits = torch.tensor(
            [how.max_new_tokens or max(2 * n + 10, how.min_new_tokens) for n in lengths], device=device
        )
        start = torch.full((len(chosen),), self.first, device=device)

        def step(ids: Tensor, caches: list[Cache]) -> Tensor:
            logits = model.next(ids, caches)
            logits[:, self.tokenizer.pad] = -math.inf
            return logits

        caches = model.body.read(source, mask)
        numbers = torch.from_numpy(first + chosen)
        rules = LogitsProcessor(**{key: value for key, value in told.items() if key in PROCESSOR_KEYS})
        return generate(step, caches, start, self.tokenizer.end, limits.clamp(max=most), how, numbers, rules)
