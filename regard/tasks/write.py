"""Write: what comes next? A language model guesses every token from those before it, and so can go on with any text.

    loss = - Σ_t log P(x_t | x_<t)

Documents stand one after the other in windows of the context's length, and no token sees another document than its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.data.batches import Ints
from regard.data.bundled import stories
from regard.data.corpus import Corpus, Windows, documents
from regard.data.documents import By, Documents, Texts, holds_json, read_texts
from regard.data.files import Data, Files
from regard.data.lines import UTF8, Dialect
from regard.data.pieces import WRITING, Pieces, learn
from regard.data.tokens import Tokenizer
from regard.generate import PROCESSOR_KEYS, GenerationOptions, generate, options_from_config
from regard.metrics import bits_per_byte, perplexity
from regard.parts.cache import Cache
from regard.parts.heads import Model
from regard.sampling import LogitsProcessor
from regard.tasks.inputs import windows_told
from regard.tasks.task import Answer, Loss, Task, learnt
from regard.validate import check_fields

TURN = "\n> "  # where the player speaks


@dataclass(frozen=True)
class Writing(GenerationOptions):
    """How a text goes on."""

    num_beams: int = 1  # beginnings kept side by side, only with --temperature 0, where 1 is greedy; else it samples
    temperature: float = 0.8  # 0: the most probable text; 1: the model's own distribution
    top_p: float = 0.95  # sample only from the most probable tokens that together have this probability
    max_new_tokens: int | None = 200  # most tokens to add
    stop: str = ""  # end before this text


class Given(NamedTuple):
    ids: Tensor  # (B,T)
    wanted: Tensor  # (B,T) the token after each
    mask: Tensor | None  # (B,1,T,T), True = the same document


@dataclass
class Write(Task):
    tokenizer: Tokenizer = learnt()
    documents: By | None = learnt(None)  # what one is in a file, as it was in training
    opens: bool = learnt(False)  # a text begins with </s>, as every document did in training
    ends: tuple[int, ...] = learnt(())  # tokens that end a text, beside </s>
    generation: dict[str, Any] | None = learnt(None)  # what generation_config.json asks for, if others wrote it

    def __post_init__(self) -> None:
        check_fields(self, ends=(all(0 <= number < 2**31 for number in self.ends), "numbers of tokens"))
        Writing(**self.way_defaults(self.generation))  # refused here, not when it is asked

    about = "a text in, how it goes on out"
    takes = "text files, or .jsonl with a field of text"
    ships = "stories, the transcripts of text adventures"
    asks = ("writes",)
    default = "nano"
    of_the_head = ("ends", "generation")
    counts = "tokens"
    looks = 100_000  # characters
    unused = frozenset({"longest"})
    ways = Writing

    @classmethod
    def groups(cls, ability: str) -> tuple[type, ...]:
        return (Pieces, Documents)

    @classmethod
    def read(cls, files: Files, ability: str, reading: dict[str, Any], **aim: Any) -> Data:
        return read_texts(files, reading, bundled_stories)

    def read_one(
        self,
        paths: tuple[str, ...],
        fields: tuple[str, ...] | None,
        ability: str,
        skip_bad: bool,
        dialect: Dialect = UTF8,
    ) -> Any:
        reading = {"documents": self.documents, "cache": Documents.cache}
        files = Files(data=paths, valid=paths, fields=fields, skip_bad=skip_bad, **dialect._asdict())
        return read_texts(files, reading, dict).sets["train"]

    @classmethod
    def fit(cls, rows: Texts, ability: str, reading: dict[str, Any], readers: dict[str, Any], **aim: Any) -> Write:
        pieces = Pieces(**{name: reading[name] for name in Pieces.__dataclass_fields__})
        tokenizer = readers.get("tokenizer") or learn(rows.sample(), pieces, WRITING)
        if tokenizer.around not in ([], [tokenizer.begin]):
            raise ValueError(
                "the tokenizer of that model puts marks around every text, so nothing can go on: start from a model "
                "that was trained to write, or leave out --from"
            )
        apart: By | None = "paragraphs" if rows.name == "bundled" else reading["documents"]
        opens = apart not in (None, "files") or holds_json(rows.name)
        return cls(**aim, tokenizer=tokenizer, documents=apart, opens=opens)

    @classmethod
    def way_defaults(cls, generation: Mapping[str, Any] | None) -> dict[str, Any]:
        return options_from_config(generation or {})

    @property
    def rules(self) -> LogitsProcessor:
        return LogitsProcessor(
            **{key: value for key, value in (self.generation or {}).items() if key in PROCESSOR_KEYS}
        )

    def sizes(self) -> dict[str, int]:
        return {"vocab": len(self.tokenizer), "pad": self.tokenizer.pad}

    def head(self, body: Any) -> Model:
        return Model(body, body.vocabulary())

    def prepare(self, rows: Texts, context: int) -> Windows:
        return Windows(Corpus.of(rows, self.tokenizer), context + 1)

    def told(self, rows: Texts, examples: Windows, numbers: Ints) -> list[dict[str, Any]]:
        return windows_told(self.tokenizer, rows, examples, numbers)

    def batch(self, examples: Windows, rows: Ints) -> Given:
        return self.given(examples.take(rows))

    def given(self, ids: Tensor) -> Given:
        return Given(ids[:, :-1], ids[:, 1:], documents(ids[:, :-1], self.tokenizer.begin))

    def loss(self, model: Model, batch: Given) -> Loss:
        x = model.body(batch.ids, mask=batch.mask)  # (B,T,D)
        return Loss(model.head.loss(x.flatten(0, 1), batch.wanted.flatten()), batch.wanted.numel())

    def some(self, rows: Texts, count: int | None) -> Texts:
        return rows.beginning(count or self.looks)

    def amount(self, rows: Texts) -> str:
        return f"{rows.characters:,} characters"

    @torch.inference_mode()
    def score(self, model: Model, rows: Texts, how: Writing | None = None, budget: int = 8192) -> dict[str, Any]:
        """Loss over the whole text, cut into windows of the context's length."""
        corpus = Corpus.of(rows, self.tokenizer)
        device, T = next(model.parameters()).device, model.body.config.context
        starts = np.arange(0, len(corpus.ids) - 1, T)
        whole = starts[starts + T < len(corpus.ids)]
        total = 0.0
        for some in [whole[i : i + max(1, budget // T)] for i in range(0, len(whole), max(1, budget // T))]:
            ids = torch.from_numpy(corpus.ids[some[:, None] + np.arange(T + 1)].astype(np.int64))
            total += self.loss(model, to(self.given(ids), device)).total.item()
        if len(whole) < len(starts):
            ids = torch.from_numpy(corpus.ids[starts[-1] :].astype(np.int64))[None]
            total += self.loss(model, to(self.given(ids), device)).total.item()
        loss = total / (len(corpus.ids) - 1)
        prompt = self.tokenizer.decode([corpus.ids[: T // 4].tolist()])[0]
        answers = [
            best[0].more["added"] for best in self.predict(model, [prompt], how or Writing(max_new_tokens=T // 2))
        ]
        return {
            "loss": loss,
            "perplexity": perplexity(loss),
            "bits_per_byte": bits_per_byte(total, corpus.size),
            "answers": answers,
            "samples": [{"source": prompt[-300:], "wanted": "", "answer": answers[0]}],
        }

    def example(self) -> str:
        return "Once upon a time"

    def rank(self, scores: dict[str, Any]) -> tuple[float, ...]:
        return (-round(scores["loss"], 4),)

    def predict(self, model: Model, raw: Iterable[str], how: Writing, first: int = 0) -> Iterator[list[Answer]]:
        for number, prompt in enumerate(raw, first):
            [ids] = self.tokenizer.encode([prompt])
            if (self.opens or not prompt) and ids[:1] != [self.tokenizer.begin]:
                ids = [self.tokenizer.begin, *ids]
            found = self.continued(model, ids, how, number)
            texts = [self.tokenizer.more(ids, added) for added, _ in found]
            cut = [text[: text.index(how.stop)] if how.stop and how.stop in text else text for text in texts]
            yield [
                Answer(prompt + text, logp, logp, {"added": text}) for text, (_, logp) in zip(cut, found, strict=True)
            ]

    @torch.inference_mode()
    def continued(self, model: Model, ids: Sequence[int], how: Writing, number: int) -> list[tuple[list[int], float]]:
        """Tokens to add and their log-probability. When the context is full, its older half is forgotten."""
        device, context = next(model.parameters()).device, model.body.config.context
        wanted = how.max_new_tokens or context
        added: list[int] = []
        logp = 0.0
        while True:
            seen = [*ids, *added]
            seen = seen if len(seen) < context else seen[-max(1, context // 2) :]
            limit = min(wanted - len(added), context - len(seen))
            caches = model.body.caches()
            if len(seen) > 1:
                model.body(torch.tensor([seen[:-1]], device=device), cache=caches)
            start, limits = torch.tensor([seen[-1]], device=device), torch.tensor([limit], device=device)
            asked = (self.step(model), caches, start, self.tokenizer.end, limits, how, torch.tensor([number]))
            [best] = generate(*asked, self.rules, [[*ids, *added][:-1]])
            if how.num_return > 1:
                return [(h.ids, h.logp) for h in best]
            added, logp = [*added, *best[0].ids], logp + best[0].logp
            if len(best[0].ids) < limit or len(added) >= wanted:
                return [(added, logp)]

    def step(self, model: Model) -> Any:
        end = self.tokenizer.end
        others = [i for i in self.ends if i != end]
        never = [*self.tokenizer.never, *others]

        def step(ids: Tensor, caches: list[Cache]) -> Tensor:
            logits = model.next(ids, caches)
            if others:  # whichever ends it is the end
                logits[:, end] = logits[:, [end, *others]].amax(-1)
            for one in never:
                logits[:, one] = -math.inf
            return logits

        return step

    def play(self, model: Model, story: str, said: str, how: Writing, turn: int) -> str:
        """The next part of an interactive story: the player speaks, the model answers until it is the player's turn."""
        asked = f"{story.rstrip()}{TURN}{said}\n" if said else story
        [best] = self.predict(model, [asked], how, turn)
        text = best[0].text
        end = text.find(TURN, len(asked))
        return text if end < 0 else text[:end]


def to(batch: Given, device: torch.device) -> Given:
    return Given(*(None if tensor is None else tensor.to(device) for tensor in batch))  # type: ignore[arg-type]


def bundled_stories() -> dict[str, list[str]]:
    parts: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    for story in stories.stories():
        parts[stories.split(story)].append(story)
    return parts
