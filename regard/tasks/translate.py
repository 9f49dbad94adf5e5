"""Translate: a sentence in, a sentence out; or speech in, and what was said out. Trained by teacher forcing: every
target token is guessed from the source and the *true* tokens before it.

    loss = - Σ_t log P(y_t | y_<t, x)          padding does not count
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

from regard.data.batches import ByLength, Ints, Ragged, cut, real_places, to_device
from regard.data.files import Data, Files, Rows, read_sets
from regard.data.hearing import Hearing
from regard.data.lines import UTF8, Dialect
from regard.data.mels import Mels
from regard.data.pieces import TRANSLATING, Pieces, learn
from regard.data.tokens import Tokenizer
from regard.metrics import accuracy, bleu, chrf, perplexity, word_error_rate
from regard.parts.heads import Model
from regard.tasks.inputs import bundled_pairs, told, two_texts
from regard.tasks.listening import Heard, bundled_strings, fit_sounds, is_folder, spoken_rows, spoken_sets
from regard.tasks.task import Loss, learnt, samples
from regard.tasks.translating import BACK, BEAM, FORWARD, GREEDY, Translating, Translator
from regard.validate import check_fields

LONGEST = 1000  # sentences, by their letters, among which the one of most tokens is


class Pairs(NamedTuple):
    source: Tensor  # (B,S) ids or (B,frames,mels) sounds
    source_mask: Tensor  # (B,1,1,S), True = a token
    target: Tensor  # (B,T) what the decoder is given: <pad>, then the text
    wanted: Tensor  # (B,T) what it should say: the text, then </s>
    real: Tensor  # (B,T), True = counts


class Parallel(ByLength):
    def __init__(self, sources: Ragged | Heard, targets: Ragged):
        self.sources, self.targets = sources, targets
        self.lengths = np.stack((sources.lengths.reshape(-1), targets.lengths), 1)
        self.units = int(targets.lengths.sum())


@dataclass
class Translate(Translator):
    smoothing: float = 0.1  # label smoothing: this share of the wanted probability is spread over all tokens
    both_ways: bool = False  # learn the other direction too, in the same model
    tokenizer: Tokenizer = learnt()
    seen: int | None = learnt(None)  # tokens of the longest sentence it was trained on
    start: int | None = learnt(None)  # the token that every translation begins with; the padding unless given
    generation: dict[str, Any] | None = learnt(None)  # what generation_config.json asks for, if others wrote it
    sounds: Mels | None = learnt(None)
    hearing: dict[str, Any] | None = learnt(None)  # how sounds are heard in training

    def __post_init__(self) -> None:
        check_fields(
            self,
            smoothing=(0 <= self.smoothing < 1, "at least 0 and below 1"),
            seen=(self.seen is None or self.seen >= 1, "at least 1"),
            both_ways=(
                not self.both_ways or self.tokenizer.engine.token_to_id(FORWARD) is not None,
                "off: the tokenizer does not have both ways",
            ),
            sounds=(self.hearing is None or self.sounds is not None, "there (sounds.json) for a model that hears"),
            start=(self.start is None or 0 <= self.start < len(self.tokenizer), "the number of a token"),
        )
        Translating(**self.way_defaults(self.generation))  # refused here, not when it is asked

    about = "a sentence in, a sentence in another language out; or speech in, and what was said out"
    takes = "one file of pairs (.tsv, .jsonl) or two parallel ones, plain or gzip; .tsv of sounds and texts"
    ships = "the phrasebook, English and German; for models that hear, strings of spoken digits"
    asks = ("translates", "transcribes")
    default = "transformer"
    of_the_head = ("start", "generation")
    counts = "target tokens"
    shares = ("exact",)
    looks = 500
    ways = Translating
    final = BEAM

    @classmethod
    def groups(cls, ability: str) -> tuple[type, ...]:
        return (Pieces, Hearing) if ability == "transcribes" else (Pieces,)

    @classmethod
    def rows(
        cls, paths: tuple[str, ...], fields: tuple[str, ...] | None, ability: str, dialect: Dialect = UTF8, **aim: Any
    ) -> Rows:
        reads = spoken_rows if ability == "transcribes" else two_texts
        return reads(paths, fields, dialect)

    @classmethod
    def bundled(cls, ability: str, **aim: Any) -> dict[str, Rows]:
        return bundled_strings() if ability == "transcribes" else bundled_pairs()

    @classmethod
    def read(cls, files: Files, ability: str, reading: dict[str, Any], **aim: Any) -> Data:
        """Single words to be joined are divided first: what is held out holds no clip that is learnt from."""
        if ability != "transcribes" or files.valid or not is_folder(files.data):
            return super().read(files, ability, reading, **aim)
        rest = replace(files, data=())
        return read_sets(
            rest, lambda paths: spoken_rows(paths, files.fields, files.dialect), lambda: spoken_sets(files)
        )

    @classmethod
    def fit(cls, rows: Any, ability: str, reading: dict[str, Any], readers: dict[str, Any], **aim: Any) -> Translate:
        layout, pieces = TRANSLATING, Pieces(**told(Pieces, reading))
        if ability == "transcribes":
            if aim.get("both_ways"):
                raise ValueError("--both-ways is for two languages: no model here speaks")
            tokenizer = readers.get("tokenizer") or learn((row.text for row in rows), pieces, layout)
            return cls(**aim, tokenizer=tokenizer, **fit_sounds(rows, reading, readers))
        if aim.get("both_ways"):
            layout = replace(layout, first=(*layout.first, FORWARD, BACK))
        texts = (side for row in rows for side in row[:2])
        tokenizer = readers.get("tokenizer") or learn(texts, pieces, layout)
        task = cls(**aim, tokenizer=tokenizer, seen=None)
        longest = nlargest(LONGEST, rows, key=lambda row: len(row[0]))  # by letters: few are encoded twice
        task.seen = int(task.prepare(longest).lengths[:, 0].max())
        return task

    def sizes(self) -> dict[str, int]:
        return {"vocab": len(self.tokenizer), "pad": self.tokenizer.pad} | (self.ears.sizes() if self.ears else {})

    def amount(self, rows: Any) -> str:
        return f"{len(rows):,} {'pairs' if self.ears is None else 'recordings'}"

    def example(self) -> str:
        return "your text" if self.ears is None else "sound.wav"

    def rank(self, scores: dict[str, Any]) -> tuple[float, ...]:
        """BLEU decides which weights are kept; where it is 0, as for single words, chrF does, then the loss. Of speech
        it is wrong words that count."""
        if "wer" in scores:
            return -round(scores["wer"], 3), -round(scores["loss"], 4)
        both = [scores[name] + scores.get(f"{name}_back", 0.0) for name in ("bleu", "chrf")]
        return round(both[0], 2), round(both[1], 2), -round(scores["loss"], 3)

    def head(self, body: Any) -> Model:
        return Model(body, body.vocabulary())

    def prepare(self, rows: Sequence[Sequence[Any]], context: int | None = None) -> Parallel:
        """The other direction, if it is learnt, stands behind the first."""
        one, other = self.sides(rows)
        if self.ears is not None:
            heard, said = self.ears.prepare(rows, None, context or 0), Ragged(self.tokenizer.encode_targets(other))
            refuse_long(rows, said.lengths, context or len(said.ids))
            return Parallel(heard, said)
        sources, targets = self.encode(one), self.tokenizer.encode_targets(other)
        if self.both_ways:
            sources, targets = sources + self.encode(other, back=True), targets + self.tokenizer.encode(one)
        examples = Parallel(Ragged(sources), Ragged(targets))
        if context is not None:
            refuse_long(rows, examples.lengths.max(1), context)
        return examples

    def sides(self, rows: Sequence[Any]) -> tuple[list[str], list[str]]:
        """What is asked and what is wanted, as texts; of a sound, where it is from."""
        if self.sounds is not None:
            return [f"{row.file}:{row.line}" for row in rows], [row.text for row in rows]
        return [row[0] for row in rows], [row[1] for row in rows]

    def batch(self, examples: Parallel, rows: Ints, training: bool = True) -> Pairs:
        source, mask = self.given(examples.sources, rows, training)
        assert mask is not None
        wanted = examples.targets.padded(rows, self.tokenizer.pad)
        target = torch.cat((torch.full_like(wanted[:, :1], self.first), wanted[:, :-1]), 1)
        real = real_places(examples.targets.lengths[rows], wanted.size(1))
        return Pairs(source, mask, target, wanted, real)

    def loss(self, model: Model, pairs: Pairs, smoothing: float | None = None) -> Loss:
        x = model.body(pairs.source, pairs.target, pairs.source_mask)  # (B,T,D)
        smoothing = self.smoothing if smoothing is None else smoothing
        total = model.head.loss(x[pairs.real], pairs.wanted[pairs.real], smoothing)
        return Loss(total, int(pairs.real.sum()))

    @torch.inference_mode()
    def score(
        self, model: Model, pairs: Sequence[Sequence[Any]], how: Translating | None = None, budget: int = 4096
    ) -> dict[str, Any]:
        """Loss without smoothing, BLEU and chrF, and the translations themselves."""
        how = how or GREEDY
        examples = self.prepare(pairs, model.body.config.context)
        device = next(model.parameters()).device
        order = np.lexsort(examples.lengths.T)
        total = count = 0.0
        for a, b in cut(examples.lengths[order].max(1), budget):
            loss = self.loss(model, to_device(self.batch(examples, order[a:b], False), device), smoothing=0.0)
            total, count = total + loss.total.item(), count + loss.count
        one, other = self.sides(pairs)
        found = self.predict(model, one, how) if self.ears is None else self.found(model, how, 0, examples.sources)
        answers = [best[0].text for best in found]
        scores = {
            "loss": total / count,
            "perplexity": perplexity(total / count),
            "bleu": (counted := bleu(answers, other)).value,
            "chrf": chrf(answers, other).value,
            "signature": counted.signature,
            "answers": answers,
            "samples": samples(one, other, answers),
        }
        if self.ears is not None:
            scores |= {"wer": word_error_rate(other, answers), "exact": accuracy(other, answers)}
        if self.both_ways:
            turned = [best[0].text for best in self.predict(model, other, replace(how, back=True))]
            scores |= {"bleu_back": bleu(turned, one).value, "chrf_back": chrf(turned, one).value}
        return scores

    def rehearsal(self, rows: Any) -> Translating:
        """It does not know when to end, so it is given the length of the true answers."""
        said = Ragged(self.tokenizer.encode_targets(self.sides(rows)[1])) if self.ears else self.prepare(rows).targets
        length = max(1, round(said.lengths.mean()))
        return replace(GREEDY, min_new_tokens=length, max_new_tokens=length)


def refuse_long(rows: Sequence[Any], lengths: Ints, context: int) -> None:
    """Name the first row that the model cannot see at once."""
    for row, length in zip(chain(rows, rows), lengths.tolist(), strict=False):
        if length > context:
            where = f"{row.file}:{row.line}: " if hasattr(row, "line") else ""
            raise ValueError(
                f"{where}{length} tokens do not fit the model's context of {context}: leave long lines out "
                "(--longest and --skip-bad), or train with a larger --context"
            )
