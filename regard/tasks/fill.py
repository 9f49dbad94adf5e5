"""Fill: a masked language model (BERT, Devlin et al. 2019). It predicts masked tokens from those on both sides.

    loss = - Σ_masked log P(x_t | the other tokens)

15 % of the tokens are targets: 80 % of these become [MASK], 10 % a random token, 10 % stay.
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
from regard.data.documents import DocumentOptions, DocumentStream, DocumentUnit, read_documents
from regard.data.fasta import is_fasta
from regard.data.lines import UTF8, Dialect
from regard.data.protein_alphabet import EXAMPLE, is_protein_tokenizer, parse_protein
from regard.data.splits import Data, DataOptions
from regard.data.token_corpus import TokenCorpus, TokenWindows, document_mask
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_train import TokenizerOptions
from regard.metrics import perplexity
from regard.parts.heads import Model, check_finite
from regard.parts.pooling import MeanPool
from regard.tasks.inputs import describe_windows, fit_residue_tokenizer, fit_tokenizer, pooled_states, text_sizes
from regard.tasks.task import DecodeOptions, Loss, Prediction, Task, fitted
from regard.validate import check_fields

MASK = "[MASK]"
PLACEHOLDER = "\ue000"  # stands for [MASK] while a text is tokenised; a private-use character


@dataclass(frozen=True)
class FillOptions(DecodeOptions):
    """Decode options of masked tokens."""

    num_return: int = 5  # completions per text, best first


class MaskedBatch(NamedTuple):
    ids: Tensor  # (B,T)
    targets: Tensor  # (N,) the true tokens of the masked positions
    positions: Tensor  # (B,T), True = masked
    mask: Tensor | None  # (B,1,T,T), True = the same document


@dataclass
class Fill(Task):
    mask_prob: float = 0.15  # probability that a token is masked and predicted
    whole_words: bool = False  # mask all tokens of a word or none
    tokenizer: Tokenizer = fitted()
    documents: DocumentUnit = fitted("lines")  # the unit of a document in the training files

    def __post_init__(self) -> None:
        check_fields(self, mask_prob=(0 < self.mask_prob < 1, "above 0 and below 1"))

    description = "a text or a protein with [MASK] in it in, the masked words or residues out"
    file_formats = "text files, one document a line, .jsonl with a field of text, or .fasta"
    bundled_data = "the English sentences of the phrasebook; for protein models, synthetic proteins"
    requires = ("fills", "spells")
    default = "modernbert"
    throughput_unit = "masked tokens"
    eval_limit = 100_000  # characters
    ignored_options = frozenset({"max_words"})
    decode_options = FillOptions

    @classmethod
    def option_groups(cls, ability: str) -> tuple[type, ...]:
        return (DocumentOptions,) if ability == "spells" else (TokenizerOptions, DocumentOptions)

    @classmethod
    def read(cls, files: DataOptions, ability: str, input_options: dict[str, Any], **_: Any) -> Data:
        paths, unit = (*files.data, *files.valid, *files.test), input_options["documents"]
        proteins = ability == "spells" or any(map(is_fasta, paths))
        check_formats(paths, proteins)
        if proteins and unit not in (None, "lines"):
            raise ValueError(f"--documents {unit} is for texts: every protein is a document. Leave it out")
        bundled = bundled_proteins if ability == "spells" else bundled_sentences
        return read_documents(files, input_options | {"documents": unit or "lines"}, bundled)

    def read_test_rows(
        self,
        paths: tuple[str, ...],
        fields: tuple[str, ...] | None,
        ability: str,
        skip_bad: bool,
        dialect: Dialect = UTF8,
    ) -> Any:
        check_formats(paths, self.reads_proteins)
        files = DataOptions(data=paths, valid=paths, fields=fields, skip_bad=skip_bad, **dialect._asdict())
        return read_documents(files, {"documents": self.documents, "cache": DocumentOptions.cache}, dict).sets["train"]

    @classmethod
    def fit(
        cls,
        rows: DocumentStream,
        ability: str,
        input_options: dict[str, Any],
        preprocessors: dict[str, Any],
        **task_options: Any,
    ) -> Fill:
        unit: DocumentUnit = input_options["documents"] or "lines"
        args, proteins = (input_options, preprocessors), ability == "spells" or is_fasta(rows.name)
        tokenizer = fit_residue_tokenizer(*args) if proteins else fit_tokenizer(rows.sample(), *args)
        tokenizer.token_id(tokenizer.roles.get("mask_token", MASK))  # refuses a tokenizer without [MASK] here
        return cls(**task_options, tokenizer=tokenizer, documents=unit)

    @cached_property
    def reads_proteins(self) -> bool:
        return is_protein_tokenizer(self.tokenizer)

    def sizes(self) -> dict[str, int]:
        return text_sizes(self.tokenizer)

    def head(self, body: Any) -> Model:
        return Model(body, body.lm_head())

    def encode(self, rows: DocumentStream, context: int) -> TokenWindows:
        windows = TokenWindows(TokenCorpus.from_documents(rows, self.tokenizer), context)
        windows.units = int(windows.units * self.mask_prob)
        return windows

    def describe_examples(self, rows: DocumentStream, examples: TokenWindows, numbers: Ints) -> list[dict[str, Any]]:
        return describe_windows(self.tokenizer, rows, examples, numbers)

    def collate(self, examples: TokenWindows, rows: Ints, generator: torch.Generator | None = None) -> MaskedBatch:
        return self.mask_tokens(examples.take(rows), generator)

    def mask_tokens(self, ids: Tensor, generator: torch.Generator | None = None) -> MaskedBatch:
        positions = self.choose_positions(ids, generator)
        draw = torch.rand(ids.shape, generator=generator)
        masked = ids.where(~positions | (draw >= 0.8), self.tokenizer.mask_token_id)
        random = torch.randint(len(self.tokenizer), ids.shape, generator=generator)
        masked = masked.where(~positions | (draw < 0.8) | (draw >= 0.9), random)
        return MaskedBatch(masked, ids[positions], positions, document_mask(ids, self.tokenizer.bos_token_id))

    def choose_positions(self, ids: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """(B,T), True = a target: never a special token, and at least one in all."""
        regular = ~torch.isin(ids, torch.tensor(self.tokenizer.all_special_ids))
        if not self.whole_words:
            draw = torch.rand(ids.shape, generator=generator)
        else:
            word = self.word_starts[ids].cumsum(1)  # (B,T) index of the word
            draw = torch.rand(ids.size(0), ids.size(1) + 1, generator=generator).gather(1, word)
        positions = (draw < self.mask_prob) & regular
        if not positions.any():
            positions = regular & (draw == draw.where(regular, 2.0).min())
        return positions

    @cached_property
    def word_starts(self) -> Tensor:
        """(V,), True for tokens that begin a word."""
        if self.reads_proteins:
            return torch.ones(len(self.tokenizer), dtype=torch.bool)
        pieces = self.tokenizer.convert_ids_to_tokens(range(len(self.tokenizer)))
        if any(piece.startswith("##") for piece in pieces):  # WordPiece marks continuations instead
            return torch.tensor([not piece.startswith("##") for piece in pieces])
        return torch.tensor([piece[:1] == "Ġ" or not piece[:1].isalnum() for piece in pieces])

    @cached_property
    def has_space_marker(self) -> bool:
        """Whether ▁ begins every word, as in the tokenizers that are trained here."""
        [ids] = self.tokenizer.encode(["a"])
        return any(piece.startswith("▁") for piece in self.tokenizer.convert_ids_to_tokens(ids))

    def loss(self, model: Model, batch: MaskedBatch) -> Loss:
        x = model.body(batch.ids, mask=batch.mask)[batch.positions]  # (N,D)
        return Loss(model.head.loss(x, batch.targets), max(1, len(batch.targets)))

    def eval_subset(self, rows: DocumentStream, count: int | None) -> DocumentStream:
        return rows.prefix(count or self.eval_limit)

    def count_examples(self, rows: DocumentStream) -> str:
        return f"{rows.characters:,} characters"

    @torch.inference_mode()
    def score(
        self, model: Model, rows: DocumentStream, options: FillOptions | None = None, budget: int = 8192
    ) -> dict[str, Any]:
        """Every evaluation masks the same tokens."""
        windows = self.encode(rows, model.body.config.context)
        device, T = next(model.parameters()).device, windows.length
        starts = np.arange(0, len(windows.ids) - T + 1, T)
        total, correct, count = 0.0, 0, 0
        generator = torch.Generator().manual_seed(0)  # independent of other threads
        for i in range(0, len(starts), max(1, budget // T)):
            batch = self.collate(windows, starts[i : i + max(1, budget // T)], generator)
            mask = None if batch.mask is None else batch.mask.to(device)
            x = model.body(batch.ids.to(device), mask=mask)[batch.positions.to(device)]
            targets = batch.targets.to(device)
            total += model.head.loss(x, targets).item()
            correct += int((model.head(x).argmax(-1) == targets).sum())
            count += len(targets)
        [text] = self.tokenizer.decode([windows.ids[: T // 2].tolist()])
        words, separator = ([*text], "") if self.reads_proteins else (text.split(), " ")
        text = separator.join([*words[:3], MASK, *words[4:12]])
        completions = self.predict(model, [text], FillOptions())
        predictions = [", ".join(completion.extra["fillers"][0] for completion in best) for best in completions]
        return {
            "loss": total / count,
            "perplexity": perplexity(total / count),
            "accuracy": 100 * correct / count,
            "predictions": predictions,
            "samples": [{"source": text, "target": "", "prediction": predictions[0]}],
        }

    def example(self) -> str:
        return f"{EXAMPLE[:6]}{MASK}{EXAMPLE[7:]}" if self.reads_proteins else "The [MASK] is here."

    def rank(self, scores: dict[str, Any]) -> tuple[float, ...]:
        return (-round(scores["loss"], 4),)

    @torch.inference_mode()
    def predict(
        self, model: Model, raw: Iterable[str], options: FillOptions, first: int = 0
    ) -> Iterator[list[Prediction]]:
        """The most probable tokens of every [MASK], each predicted independently."""
        device, context = next(model.parameters()).device, model.body.config.context
        special, vocab = torch.tensor(self.tokenizer.all_special_ids), len(self.tokenizer)
        own = self.tokenizer.roles.get("mask_token", MASK)
        for text in (line.replace(own, MASK) for line in raw):
            ids = self.encode_masked(text)
            if len(ids) > context:
                raise ValueError(
                    f'{len(ids)} tokens exceed the context of {context}: shorten the text. It begins "{text[:60]}"'
                )
            positions = [i for i, token in enumerate(ids) if token == self.tokenizer.mask_token_id]
            x = model.body(torch.tensor([ids], device=device))[0, positions]
            logprobs = check_finite(model.head(x).float().cpu()).log_softmax(-1)
            logprobs[:, special] = -torch.inf  # after the softmax, so that the others keep their probability
            best = logprobs[:, :vocab].topk(min(options.num_return, vocab - len({*special.tolist()})))
            yield [
                self.complete(text, best.indices[:, rank], best.values[:, rank]) for rank in range(best.values.size(1))
            ]

    def embed(self, model: Model, raw: Iterable[str]) -> Iterator[list[float]]:
        """The mean of the last hidden states."""
        yield from pooled_states(
            model, self.tokenizer, MeanPool(), map(parse_protein, raw) if self.reads_proteins else raw
        )

    def complete(self, text: str, ids: Tensor, logprobs: Tensor) -> Prediction:
        fillers = [filler.strip() for filler in self.tokenizer.decode([[i] for i in ids.tolist()])]
        for filler in fillers:
            text = text.replace(MASK, filler, 1)
        return Prediction(text, logprobs.sum().item(), logprobs.sum().exp().item(), {"fillers": fillers})

    def encode_masked(self, text: str) -> list[int]:
        """The token ids of a text in which [MASK] stands for a word."""
        if MASK not in text:
            raise ValueError(f'the text has no {MASK}, which marks the word to fill in: "{text[:60]}"')
        if self.reads_proteins:
            text = MASK.join(map(parse_protein, text.split(MASK)))
        if not self.has_space_marker:
            return self.tokenizer.encode_with_mask(text.replace(MASK, self.tokenizer.roles["mask_token"]))
        text = text.replace(PLACEHOLDER, " ").replace(MASK, PLACEHOLDER)
        [encoding] = self.tokenizer.encodings([text])
        ids: list[int] = []
        for token, (a, b), piece in zip(encoding.ids, encoding.offsets, encoding.tokens, strict=True):
            if PLACEHOLDER not in text[a:b]:
                ids.append(token)
                continue
            if ids and self.tokenizer.convert_ids_to_tokens(ids[-1:]) == ["▁"]:
                ids.pop()
            if piece != "▁":
                ids += [self.tokenizer.mask_token_id] * text[a:b].count(PLACEHOLDER)
        return ids


def check_formats(paths: tuple[str, ...], proteins: bool) -> None:
    for path in paths:
        if is_fasta(path) != proteins:
            expected = "proteins, in FASTA files (.fasta, .fa, .faa), not texts" if proteins else "texts, not proteins"
            raise ValueError(f"{path}: this model reads {expected}")


def bundled_sentences() -> dict[str, list[str]]:
    parts: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    for phrase in phrasebook.phrases():
        parts[phrasebook.split(phrase)].append(phrase.english)
    return parts


def bundled_proteins() -> dict[str, list[str]]:
    parts: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    for chain in chains.chains():
        parts[chains.split(chain)].append(chain.residues)
    return parts
