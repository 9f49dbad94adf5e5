"""Translate: a sentence in, a sentence out. Trained by teacher forcing: every target token is guessed from the source
and the *true* tokens before it.

    loss = - Σ_t log P(y_t | y_<t, x)          padding does not count
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from regard.choose import must
from regard.data.batches import Ints, Ragged, cut
from regard.data.sentences import split_sentences
from regard.data.tokens import Tokenizer
from regard.generate import Decoding, Hypothesis, generate
from regard.parts.cache import Cache
from regard.parts.heads import Model, Unembed
from regard.scores import bleu, chrf
from regard.tasks.passages import Answer, answer_passages
from regard.tasks.task import Loss

GREEDY, BEAM = Decoding(beam=1), Decoding()


class Pairs(NamedTuple):
    source: Tensor  # (B,S)
    source_mask: Tensor  # (B,1,1,S), True = a token
    target: Tensor  # (B,T) what the decoder is given: <pad>, then the text
    wanted: Tensor  # (B,T) what it should say: the text, then </s>
    real: Tensor  # (B,T), True = counts


class Examples(NamedTuple):
    sources: Ragged
    targets: Ragged

    @property
    def lengths(self) -> Ints:
        return np.stack((self.sources.lengths, self.targets.lengths), 1)


@dataclass
class Translate:
    smoothing: float = 0.1  # label smoothing: this share of the wanted probability is spread over all tokens
    seen: int | None = None  # tokens of the longest sentence it was trained on
    tokenizer: Tokenizer = field(kw_only=True)

    def __post_init__(self) -> None:
        must(self, smoothing=(0 <= self.smoothing < 1, "at least 0 and below 1"))

    needs = "an encoder and a decoder"
    counts = "target tokens"
    best = "bleu"  # the score that decides which weights are kept

    def head(self, body: Any) -> Model:
        return Model(body, Unembed(body.tokens))

    def prepare(self, pairs: Sequence[Sequence[Any]]) -> Examples:
        return Examples(
            Ragged(self.tokenizer.encode([pair[0] for pair in pairs])),
            Ragged(self.tokenizer.encode([pair[1] for pair in pairs])),
        )

    def batch(self, examples: Examples, rows: Ints) -> Pairs:
        pad = self.tokenizer.pad
        source = examples.sources.padded(rows, pad)
        wanted = examples.targets.padded(rows, pad)
        target = torch.cat((torch.full_like(wanted[:, :1], pad), wanted[:, :-1]), 1)
        real = within(examples.targets.lengths[rows], wanted.size(1))
        return Pairs(source, seen(examples.sources.lengths[rows], source.size(1)), target, wanted, real)

    def loss(self, model: Model, pairs: Pairs, smoothing: float | None = None) -> Loss:
        x = model.body(pairs.source, pairs.target, pairs.source_mask)  # (B,T,D)
        smoothing = self.smoothing if smoothing is None else smoothing
        total = model.head.loss(x[pairs.real], pairs.wanted[pairs.real], smoothing)
        return Loss(total, int(pairs.real.sum()))

    @torch.inference_mode()
    def score(
        self, model: Model, pairs: Sequence[Sequence[Any]], how: Decoding = GREEDY, budget: int = 4096
    ) -> dict[str, Any]:
        """Loss without smoothing, BLEU and chrF, and the translations themselves."""
        examples = self.prepare(pairs)
        order = np.lexsort(examples.lengths.T)
        total = count = 0.0
        for a, b in cut(examples.lengths[order].max(1), budget):
            loss = self.loss(model, to_device(self.batch(examples, order[a:b]), model), smoothing=0.0)
            total, count = total + loss.total.item(), count + loss.count
        answers = [best[0].text for best in self.predict(model, [pair[0] for pair in pairs], how)]
        wanted = [pair[1] for pair in pairs]
        return {
            "loss": total / count,
            "perplexity": math.exp(min(total / count, 700.0)),
            "bleu": bleu(answers, wanted).value,
            "chrf": chrf(answers, wanted).value,
            "answers": answers,
        }

    def predict(
        self, model: Model, texts: Iterable[str], how: Decoding = BEAM, window: int = 1024, budget: int = 2048
    ) -> Iterator[list[Answer]]:
        """The best translations of each text, in order. Holds `window` sentences at a time: the input may be endless.

        Lines stay lines, and a line longer than anything seen in training is translated sentence by sentence.
        """

        def answer(sentences: Iterable[str]) -> Iterator[list[Answer]]:
            source, first = iter(sentences), 0
            while some := list(islice(source, window)):
                yield from self._window(model, some, how, first, budget)
                first += len(some)

        longest = self.seen or model.body.config.context // 2
        return answer_passages(texts, lambda line: self.cut(line, longest), answer)

    def cut(self, line: str, longest: int) -> list[str]:
        return [line] if len(self.tokenizer.encode([line])[0]) <= longest else split_sentences(line)

    @torch.inference_mode()
    def _window(self, model: Model, texts: list[str], how: Decoding, first: int, budget: int) -> list[list[Answer]]:
        rows = Ragged(self.tokenizer.encode(texts))
        context = model.body.config.context
        if len(rows) and rows.lengths.max() > context:
            worst = int(rows.lengths.argmax())
            raise ValueError(
                f"sentence {first + worst + 1} has {rows.lengths[worst]} tokens, but this model's context is "
                f"{context}: split it, or train with a larger --context"
            )
        order = np.argsort(rows.lengths, kind="stable")[::-1]
        found: list[list[Answer]] = [[] for _ in texts]
        for a, b in cut(rows.lengths[order], max(1, budget // max(how.beam, how.n_best))):
            for i, best in zip(order[a:b], self.search(model, rows, order[a:b], how, first), strict=True):
                decoded = self.tokenizer.decode([h.ids for h in best])
                found[i] = [Answer(text, h.logp, h.score) for text, h in zip(decoded, best, strict=True)]
        return found

    def search(self, model: Model, rows: Ragged, chosen: Ints, how: Decoding, first: int = 0) -> list[list[Hypothesis]]:
        """Ids out for ids in, in one batch. `first` is the place of row 0 among all inputs, for the sampling."""
        device = next(model.parameters()).device
        source = rows.padded(chosen, self.tokenizer.pad).to(device)
        mask = seen(rows.lengths[chosen], source.size(1)).to(device)
        context = model.body.config.context
        limits = torch.tensor(
            [how.longest or max(2 * n + 10, how.shortest) for n in rows.lengths[chosen].tolist()], device=device
        )
        start = torch.full((len(chosen),), self.tokenizer.pad, device=device)

        def step(ids: Tensor, caches: list[Cache]) -> Tensor:
            logits = model.head(model.body.decode(ids, cache=caches)[:, -1])
            logits[:, self.tokenizer.pad] = -math.inf
            return logits

        caches = model.body.read(source, mask)
        numbers = torch.from_numpy(first + chosen)
        return generate(step, caches, start, self.tokenizer.end, limits.clamp(max=context - 1), how, numbers)


def within(lengths: Ints, longest: int) -> Tensor:
    """(B,T), True where there is a token."""
    return torch.arange(longest) < torch.from_numpy(lengths)[:, None]


def seen(lengths: Ints, longest: int) -> Tensor:
    """A padding mask, (B,1,1,S). It comes from lengths, not from ids: the decoder's first token is <pad> too."""
    return within(lengths, longest)[:, None, None]


def to_device(batch: Pairs, model: nn.Module) -> Pairs:
    device = next(model.parameters()).device
    return batch if device.type == "cpu" else Pairs(*(t.to(device, non_blocking=True) for t in batch))
