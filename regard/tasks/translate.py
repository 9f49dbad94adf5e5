"""Translate: a sentence in, a sentence out. Trained by teacher forcing: every target token is guessed from the source
and the *true* tokens before it.

    loss = - Σ_t log P(y_t | y_<t, x)          padding does not count
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.choose import must
from regard.data.batches import Ints, Ragged, cut, to_device
from regard.data.sentences import split_sentences
from regard.data.tokens import Tokenizer
from regard.generate import Decoding, Hypothesis, generate
from regard.parts.cache import Cache
from regard.parts.heads import Model, Unembed
from regard.scores import bleu, chrf
from regard.tasks.passages import Answer, answer_passages
from regard.tasks.task import Loss

GREEDY, BEAM = Decoding(beam=1), Decoding()
BUDGET = 2048  # tokens of all beams of a batch


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

    def rank(self, scores: dict[str, Any]) -> tuple[float, ...]:
        """BLEU decides which weights are kept; where it is 0, as for single words, chrF does, then the loss."""
        return round(scores["bleu"], 2), round(scores["chrf"], 2), -round(scores["loss"], 3)

    def refuse_long(self, pairs: Sequence[Any], examples: Examples, context: int) -> None:
        """Name the first pair that the model cannot see at once."""
        for pair, length in zip(pairs, examples.lengths.max(1), strict=True):
            if length > context:
                where = f"{pair.file}:{pair.line}: " if hasattr(pair, "line") else ""
                raise ValueError(
                    f"{where}{length} tokens do not fit the model's context of {context}: leave long lines out "
                    "(--longest and --skip-bad), or train with a larger --context"
                )

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
        real = real_places(examples.targets.lengths[rows], wanted.size(1))
        return Pairs(source, padding_mask(examples.sources.lengths[rows], source.size(1)), target, wanted, real)

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
        self.refuse_long(pairs, examples, model.body.config.context)
        device = next(model.parameters()).device
        order = np.lexsort(examples.lengths.T)
        total = count = 0.0
        for a, b in cut(examples.lengths[order].max(1), budget):
            loss = self.loss(model, to_device(self.batch(examples, order[a:b]), device), smoothing=0.0)
            total, count = total + loss.total.item(), count + loss.count
        answers = [best[0].text for best in self.predict(model, [pair[0] for pair in pairs], how)]
        wanted = [pair[1] for pair in pairs]
        return {
            "loss": total / count,
            "perplexity": math.exp(min(total / count, 700.0)),
            "bleu": (counted := bleu(answers, wanted)).value,
            "chrf": chrf(answers, wanted).value,
            "signature": counted.signature,
            "answers": answers,
        }

    def predict(
        self, model: Model, texts: Iterable[str], how: Decoding = BEAM, window: int = 1024, first: int = 0
    ) -> Iterator[list[Answer]]:
        """The best translations of each text, in order. Holds `window` texts at a time: the input may be endless.

        Lines stay lines, and a line longer than anything seen in training is translated sentence by sentence. `first`
        is the number of the first text, from which its random numbers follow.
        """
        longest = self.seen or model.body.config.context // 2

        def sentences(line: str) -> list[str]:
            return [line] if len(self.tokenizer.encode([line])[0]) <= longest else split_sentences(line)

        source, done = iter(texts), 0
        while some := list(islice(source, window)):
            answer = partial(self._answer, model, how, first + done)
            yield from answer_passages(some, sentences, answer)
            done += len(some)

    @torch.inference_mode()
    def _answer(self, model: Model, how: Decoding, first: int, sentences: list[str]) -> list[list[Answer]]:
        """Sorted into full batches, and given back in order."""
        rows = Ragged(self.tokenizer.encode(sentences))
        context = model.body.config.context
        for sentence, length in zip(sentences, rows.lengths, strict=True):
            if length > context:
                raise ValueError(
                    f"a sentence has {length} tokens, but this model's context is {context}: split it, or train with a "
                    f'larger --context. It begins "{sentence[:60]}"'
                )
        order = np.argsort(rows.lengths, kind="stable")[::-1]
        found: list[list[Answer]] = [[] for _ in sentences]
        for a, b in cut(rows.lengths[order], max(1, BUDGET // max(how.beam, how.n_best))):
            for i, best in zip(order[a:b], self.search(model, rows, order[a:b], how, first), strict=True):
                decoded = self.tokenizer.decode([h.ids for h in best])
                found[i] = [Answer(text, h.logp, h.score) for text, h in zip(decoded, best, strict=True)]
        return found

    def search(self, model: Model, rows: Ragged, chosen: Ints, how: Decoding, first: int = 0) -> list[list[Hypothesis]]:
        """Ids out for ids in, in one batch. `first` is the place of row 0 among all inputs, for the sampling."""
        device = next(model.parameters()).device
        source = rows.padded(chosen, self.tokenizer.pad).to(device)
        mask = padding_mask(rows.lengths[chosen], source.size(1)).to(device)
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


def real_places(lengths: Ints, longest: int) -> Tensor:
    """(B,T), True where there is a token."""
    return torch.arange(longest) < torch.from_numpy(lengths)[:, None]


def padding_mask(lengths: Ints, longest: int) -> Tensor:
    """(B,1,1,S). It comes from lengths, not from ids: the decoder's first token is <pad> too."""
    return real_places(lengths, longest)[:, None, None]
