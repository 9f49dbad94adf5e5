"""Fill: which word was hidden? A masked language model guesses some tokens from all others, on both sides.

    loss = - Σ_hidden log P(x_t | the rest)

Of 15 % of the tokens, 80 % are hidden by [MASK], 10 % become another token and 10 % stay (Devlin et al. 2019).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.data.batches import Ints
from regard.data.bundled import chains, phrasebook
from regard.data.corpus import Corpus, Windows, documents
from regard.data.documents import By, Documents, Texts, read_texts
from regard.data.fasta import holds_fasta
from regard.data.files import Data, Files
from regard.data.lines import UTF8, Dialect
from regard.data.pieces import Pieces
from regard.data.residues import EXAMPLE, residues, spells
from regard.data.tokens import Tokenizer
from regard.metrics import perplexity
from regard.parts.heads import Model, must_be_finite
from regard.parts.pooling import Mean
from regard.tasks.inputs import fit_letters, fit_tokenizer, text_sizes, vectors, windows_told
from regard.tasks.task import Answer, Choices, Loss, Task, learnt
from regard.validate import check_fields

MASK = "[MASK]"
HIDDEN = "\ue000"  # stands for it while a text is cut; a letter of nobody's


@dataclass(frozen=True)
class Fillers(Choices):
    """How many fillers are wanted."""

    num_return: int = 5  # fillers returned for each text, best first


class Hidden(NamedTuple):
    ids: Tensor  # (B,T)
    wanted: Tensor  # (N,) what was hidden
    places: Tensor  # (B,T), True = hidden
    mask: Tensor | None  # (B,1,T,T), True = the same document


@dataclass
class Fill(Task):
    share: float = 0.15  # of the tokens that are to be guessed
    whole_words: bool = False  # hide all pieces of a word or none
    tokenizer: Tokenizer = learnt()
    documents: By = learnt("lines")  # what one is in a file, as it was in training

    def __post_init__(self) -> None:
        check_fields(self, share=(0 < self.share < 1, "above 0 and below 1"))

    about = "a text or a protein with [MASK] in it in, the hidden words or residues out"
    takes = "text files, one document a line, .jsonl with a field of text, or .fasta"
    ships = "the English sentences of the phrasebook; for models that spell, chains"
    asks = ("fills", "spells")
    default = "modernbert"
    counts = "hidden tokens"
    looks = 100_000  # characters
    unused = frozenset({"longest"})
    ways = Fillers

    @classmethod
    def groups(cls, ability: str) -> tuple[type, ...]:
        return (Documents,) if ability == "spells" else (Pieces, Documents)

    @classmethod
    def read(cls, files: Files, ability: str, reading: dict[str, Any], **aim: Any) -> Data:
        paths, by = (*files.data, *files.valid, *files.test), reading["documents"]
        proteins = ability == "spells" or any(map(holds_fasta, paths))
        must_hold(paths, proteins)
        if proteins and by not in (None, "lines"):
            raise ValueError(f"--documents {by} is for texts: of proteins every chain is one. Leave it out")
        bundled = bundled_chains if ability == "spells" else bundled_phrases
        return read_texts(files, reading | {"documents": by or "lines"}, bundled)

    def read_one(
        self,
        paths: tuple[str, ...],
        fields: tuple[str, ...] | None,
        ability: str,
        skip_bad: bool,
        dialect: Dialect = UTF8,
    ) -> Any:
        must_hold(paths, self.spelled)
        files = Files(data=paths, valid=paths, fields=fields, skip_bad=skip_bad, **dialect._asdict())
        return read_texts(files, {"documents": self.documents, "cache": Documents.cache}, dict).sets["train"]

    @classmethod
    def fit(cls, rows: Texts, ability: str, reading: dict[str, Any], readers: dict[str, Any], **aim: Any) -> Fill:
        apart: By = reading["documents"] or "lines"
        letters = ability == "spells" or holds_fasta(rows.name)
        tokenizer = fit_letters(reading, readers) if letters else fit_tokenizer(rows.sample(), reading, readers)
        tokenizer.id_of(tokenizer.roles.get("mask_token", MASK))  # refused here, not in the first step
        return cls(**aim, tokenizer=tokenizer, documents=apart)

    @cached_property
    def spelled(self) -> bool:
        """Whether it is asked about proteins."""
        return spells(self.tokenizer)

    def sizes(self) -> dict[str, int]:
        return text_sizes(self.tokenizer)

    def head(self, body: Any) -> Model:
        return Model(body, body.vocabulary())

    def prepare(self, rows: Texts, context: int) -> Windows:
        windows = Windows(Corpus.of(rows, self.tokenizer), context)
        windows.units = int(windows.units * self.share)
        return windows

    def told(self, rows: Texts, examples: Windows, numbers: Ints) -> list[dict[str, Any]]:
        return windows_told(self.tokenizer, rows, examples, numbers)

    def batch(self, examples: Windows, rows: Ints, draw: torch.Generator | None = None) -> Hidden:
        return self.hidden(examples.take(rows), draw)

    def hidden(self, ids: Tensor, draw: torch.Generator | None = None) -> Hidden:
        places = self.chosen(ids, draw)
        luck = torch.rand(ids.shape, generator=draw)
        given = ids.where(~places | (luck >= 0.8), self.tokenizer.mask)
        other = torch.randint(len(self.tokenizer), ids.shape, generator=draw)
        given = given.where(~places | (luck < 0.8) | (luck >= 0.9), other)
        return Hidden(given, ids[places], places, documents(ids, self.tokenizer.begin))

    def chosen(self, ids: Tensor, draw: torch.Generator | None = None) -> Tensor:
        """(B,T), True = to be guessed. Never a special token; at least one in all."""
        common = ~torch.isin(ids, torch.tensor(self.tokenizer.special))
        if not self.whole_words:
            luck = torch.rand(ids.shape, generator=draw)
        else:
            word = self.opens[ids].cumsum(1)  # (B,T) number of the word
            luck = torch.rand(ids.size(0), ids.size(1) + 1, generator=draw).gather(1, word)
        places = (luck < self.share) & common
        if not places.any():
            places = common & (luck == luck.where(common, 2.0).min())
        return places

    @cached_property
    def opens(self) -> Tensor:
        """(V,), True for pieces that begin a word."""
        if self.spelled:
            return torch.ones(len(self.tokenizer), dtype=torch.bool)
        pieces = self.tokenizer.pieces(range(len(self.tokenizer)))
        if any(piece.startswith("##") for piece in pieces):  # BERT's own mark what goes on, not what begins
            return torch.tensor([not piece.startswith("##") for piece in pieces])
        return torch.tensor([piece[:1] == "Ġ" or not piece[:1].isalnum() for piece in pieces])

    @cached_property
    def marks_words(self) -> bool:
        """Whether ▁ is put before every word, as by the tokenizers that are learnt here."""
        [ids] = self.tokenizer.encode(["a"])
        return any(piece.startswith("▁") for piece in self.tokenizer.pieces(ids))

    def loss(self, model: Model, batch: Hidden) -> Loss:
        x = model.body(batch.ids, mask=batch.mask)[batch.places]  # (N,D)
        return Loss(model.head.loss(x, batch.wanted), max(1, len(batch.wanted)))

    def some(self, rows: Texts, count: int | None) -> Texts:
        return rows.beginning(count or self.looks)

    def amount(self, rows: Texts) -> str:
        return f"{rows.characters:,} characters"

    @torch.inference_mode()
    def score(self, model: Model, rows: Texts, how: Fillers | None = None, budget: int = 8192) -> dict[str, Any]:
        """The same tokens are hidden every time."""
        windows = self.prepare(rows, model.body.config.context)
        device, T = next(model.parameters()).device, windows.length
        starts = np.arange(0, len(windows.ids) - T + 1, T)
        total, right, count = 0.0, 0, 0
        draw = torch.Generator().manual_seed(0)  # its own, so that no other thread draws from it
        for i in range(0, len(starts), max(1, budget // T)):
            batch = self.batch(windows, starts[i : i + max(1, budget // T)], draw)
            mask = None if batch.mask is None else batch.mask.to(device)
            x = model.body(batch.ids.to(device), mask=mask)[batch.places.to(device)]
            wanted = batch.wanted.to(device)
            total += model.head.loss(x, wanted).item()
            right += int((model.head(x).argmax(-1) == wanted).sum())
            count += len(wanted)
        [text] = self.tokenizer.decode([windows.ids[: T // 2].tolist()])
        words, between = ([*text], "") if self.spelled else (text.split(), " ")
        text = between.join([*words[:3], MASK, *words[4:12]])
        answers = [
            ", ".join(answer.more["fillers"][0] for answer in best) for best in self.predict(model, [text], Fillers())
        ]
        return {
            "loss": total / count,
            "perplexity": perplexity(total / count),
            "accuracy": 100 * right / count,
            "answers": answers,
            "samples": [{"source": text, "wanted": "", "answer": answers[0]}],
        }

    def example(self) -> str:
        return f"{EXAMPLE[:6]}{MASK}{EXAMPLE[7:]}" if self.spelled else "The [MASK] is here."

    def rank(self, scores: dict[str, Any]) -> tuple[float, ...]:
        return (-round(scores["loss"], 4),)

    @torch.inference_mode()
    def predict(self, model: Model, raw: Iterable[str], how: Fillers, first: int = 0) -> Iterator[list[Answer]]:
        """The best fillers of every [MASK], each guessed by itself."""
        device, context = next(model.parameters()).device, model.body.config.context
        special = torch.tensor(self.tokenizer.special)
        own = self.tokenizer.roles.get("mask_token", MASK)
        for text in (line.replace(own, MASK) for line in raw):
            ids = self.with_masks(text)
            if len(ids) > context:
                raise ValueError(
                    f'{len(ids)} tokens do not fit the context of {context}. The text begins "{text[:60]}"'
                )
            places = [i for i, token in enumerate(ids) if token == self.tokenizer.mask]
            x = model.body(torch.tensor([ids], device=device))[0, places]
            logps = must_be_finite(model.head(x).float().cpu()).log_softmax(-1)
            logps[:, special] = -torch.inf  # no filler, but probable or not as the model has it
            best = logps[:, : len(self.tokenizer)].topk(
                min(how.num_return, len(self.tokenizer) - len({*special.tolist()}))
            )
            yield [
                self.answer(text, best.indices[:, rank], best.values[:, rank]) for rank in range(best.values.size(1))
            ]

    def embed(self, model: Model, raw: Iterable[str]) -> Iterator[list[float]]:
        """The mean over all tokens."""
        yield from vectors(model, self.tokenizer, Mean(), map(residues, raw) if self.spelled else raw)

    def answer(self, text: str, ids: Tensor, logps: Tensor) -> Answer:
        fillers = [filler.strip() for filler in self.tokenizer.decode([[i] for i in ids.tolist()])]
        whole = text
        for filler in fillers:
            whole = whole.replace(MASK, filler, 1)
        return Answer(whole, logps.sum().item(), logps.sum().exp().item(), {"fillers": fillers})

    def with_masks(self, text: str) -> list[int]:
        """The ids of a text, in which [MASK] stands for a word."""
        if MASK not in text:
            raise ValueError(f'put {MASK} where a word is to be filled in, not: "{text[:60]}"')
        if self.spelled:
            text = MASK.join(map(residues, text.split(MASK)))
        if not self.marks_words:
            return self.tokenizer.encode_marked(text.replace(MASK, self.tokenizer.roles["mask_token"]))
        text = text.replace(HIDDEN, " ").replace(MASK, HIDDEN)
        [encoding] = self.tokenizer.encodings([text])
        ids: list[int] = []
        for token, (a, b), piece in zip(encoding.ids, encoding.offsets, encoding.tokens, strict=True):
            if HIDDEN not in text[a:b]:
                ids.append(token)
                continue
            if ids and self.tokenizer.pieces(ids[-1:]) == ["▁"]:
                ids.pop()
            if piece != "▁":
                ids += [self.tokenizer.mask] * text[a:b].count(HIDDEN)
        return ids


def must_hold(paths: tuple[str, ...], proteins: bool) -> None:
    for path in paths:
        if holds_fasta(path) != proteins:
            wanted = "proteins, in FASTA files (.fasta, .fa, .faa), not texts" if proteins else "texts, not proteins"
            raise ValueError(f"{path}: this model reads {wanted}")


def bundled_phrases() -> dict[str, list[str]]:
    parts: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    for phrase in phrasebook.phrases():
        parts[phrasebook.split(phrase)].append(phrase.english)
    return parts


def bundled_chains() -> dict[str, list[str]]:
    parts: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    for chain in chains.chains():
        parts[chains.split(chain)].append(chain.residues)
    return parts
