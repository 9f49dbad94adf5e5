"""Fill: a masked language model (BERT, Devlin et al. 2019). It predicts masked tokens from those on both sides.

    loss = - Σ_masked log P(x_t | the other tokens)

15 % of the tokens are targets: 80 % of these become [MASK], 10 % a random token, 10 % stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from regard.data.batches import Ints, to_device
from regard.data.documents import DocumentStream
from regard.data.token_corpus import TokenWindows, document_mask
from regard.metrics import perplexity
from regard.modalities.protocols import Inputs, Preprocessor, Target
from regard.parts.heads import Model, check_finite
from regard.parts.pooling import MeanPool
from regard.tasks.inference import BUDGET, map_requests
from regard.tasks.language_model import LanguageModel, LMBatch, PackedRows
from regard.tasks.task import DecodeOptions, Loss, Prediction, Predictions, Scores, make_scores
from regard.validate import check_fields

MASK = "[MASK]"
PLACEHOLDER = "\ue000"  # stands for [MASK] while a text is tokenised; a private-use character


@dataclass(frozen=True)
class FillOptions(DecodeOptions):
    """Decode options of masked tokens."""

    num_return: int = 5  # completions per text, best first


@dataclass
class Fill(LanguageModel):
    mask_prob: float = 0.15  # probability that a token is masked and predicted
    whole_words: bool = False  # mask all tokens of a word or none

    def __post_init__(self) -> None:
        check_fields(self, mask_prob=(0 < self.mask_prob < 1, "above 0 and below 1"))

    description = "a sequence with [MASK] in it in, the masked elements out"
    target = Target.MASKED
    structures = ("encoder",)
    default = "modernbert"
    throughput_unit = "masked tokens"
    decode_options = FillOptions

    @classmethod
    def fitted_fields(cls, rows: DocumentStream, preprocessor: Preprocessor, **options: object) -> dict[str, object]:
        tokenizer = preprocessor.tokenizer
        assert tokenizer is not None
        tokenizer.token_id(tokenizer.roles.get("mask_token", MASK))  # refuses a tokenizer without [MASK]
        return {}

    def encode(self, rows: DocumentStream, context: int) -> TokenWindows:
        windows = super().encode(rows, context)
        windows.units = int(windows.units * self.mask_prob)
        return windows

    def collate(
        self, examples: TokenWindows, rows: Ints, training: bool = True, generator: torch.Generator | None = None
    ) -> LMBatch:
        ids = examples.take(rows)
        positions = self.choose_positions(ids, generator)
        draw = torch.rand(ids.shape, generator=generator)
        masked = ids.where(~positions | (draw >= 0.8), self.tokenizer.mask_token_id)
        random = torch.randint(len(self.tokenizer), ids.shape, generator=generator)
        masked = masked.where(~positions | (draw < 0.8) | (draw >= 0.9), random)
        return LMBatch(PackedRows(masked, document_mask(ids, self.tokenizer.bos_token_id)), ids[positions], positions)

    def split(self, batch: LMBatch, examples: TokenWindows, rows: Ints) -> list[LMBatch]:
        """Another draw would mask other tokens. Rows without a masked token are left out."""
        assert batch.positions is not None
        targets = batch.targets.split(batch.positions.sum(1).tolist())
        x, mask = batch.inputs
        single_rows = [slice(i, i + 1) for i in range(len(x)) if len(targets[i])]
        return [
            LMBatch(PackedRows(x[row], None if mask is None else mask[row]), targets[row.start], batch.positions[row])
            for row in single_rows
        ]

    def choose_positions(self, ids: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """(B,T), True = a target: never a special token, and at least one in all."""
        regular = ~torch.isin(ids, torch.tensor(self.tokenizer.all_special_ids))
        if not self.whole_words:
            draw = torch.rand(ids.shape, generator=generator)
        else:
            word = self.preprocessor.word_starts[ids].cumsum(1)  # (B,T) index of the word
            draw = torch.rand(ids.size(0), ids.size(1) + 1, generator=generator).gather(1, word)
        positions = (draw < self.mask_prob) & regular
        if not positions.any():
            positions = regular & (draw == draw.where(regular, 2.0).min())
        return positions

    @cached_property
    def has_space_marker(self) -> bool:
        """Whether ▁ begins every word, as in the tokenizers that are trained here."""
        [ids] = self.tokenizer.encode(["a"])
        return any(piece.startswith("▁") for piece in self.tokenizer.convert_ids_to_tokens(ids))

    def loss(self, model: Model, batch: LMBatch) -> Loss:
        x = model.body(*batch.inputs.arguments)[batch.positions]  # (N,D)
        return Loss(model.head.loss(x, batch.targets), max(1, len(batch.targets)))

    @torch.inference_mode()
    def score(self, model: Model, rows: DocumentStream, options: FillOptions | None = None) -> Scores:
        """Every evaluation masks the same tokens."""
        windows = self.encode(rows, model.body.config.context)
        device, T = next(model.parameters()).device, windows.length
        starts = windows.sequential()
        total, correct, count, size = 0.0, 0, 0, max(1, BUDGET // T)
        generator = torch.Generator().manual_seed(0)  # independent of other threads
        for numbers in (starts[i : i + size] for i in range(0, len(starts), size)):
            batch: LMBatch = to_device(self.collate(windows, numbers, False, generator), device)
            x = model.body(*batch.inputs.arguments)[batch.positions]
            total += model.head.loss(x, batch.targets).item()
            correct += int((model.head(x).argmax(-1) == batch.targets).sum())
            count += len(batch.targets)
        text = self.mask_fourth(self.tokenizer.decode([windows.corpus[: T // 2].tolist()])[0])
        metrics = {"perplexity": perplexity(total / count), "accuracy": 100 * correct / count}
        return make_scores({"loss": total / count, **metrics}, [text], [""], [self.repeat_sample(model, text)])

    def repeat_sample(self, model: Model, source: str) -> str:
        [best] = self.predict(model, [source], FillOptions())
        return ", ".join(completion.extra["fillers"][0] for completion in best)

    def mask_fourth(self, text: str) -> str:
        """The first words of a text, or letters of a chain, the fourth of them masked."""
        separator = self.preprocessor.separator
        words = text.split() if separator else [*text]
        return separator.join([*words[:3], MASK, *words[4:12]])

    def request(self, text: str, target: str | None = None) -> str:
        return self.mask_fourth(text)

    @torch.inference_mode()
    def predict(self, model: Model, raw: Iterable[str], options: FillOptions, first: int = 0) -> Predictions:
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
            yield [self.complete(text, ids, p) for ids, p in zip(best.indices.T, best.values.T, strict=True)]

    def embed(self, model: Model, raw: Iterable[str]) -> Iterator[list[float]]:
        """The mean of the last hidden states."""
        pool = MeanPool()

        def mean(inputs: Inputs) -> Tensor:
            return pool(model.body(*inputs.arguments), inputs.mask)

        return (vector.tolist() for vector in map_requests(model, self.preprocessor, self.target, mean, raw))

    def complete(self, text: str, ids: Tensor, logprobs: Tensor) -> Prediction:
        fillers = [filler.strip() for filler in self.tokenizer.decode([[i] for i in ids.tolist()])]
        for filler in fillers:
            text = text.replace(MASK, filler, 1)
        return Prediction(text, logprobs.sum().item(), logprobs.sum().exp().item(), {"fillers": fillers})

    def encode_masked(self, text: str) -> list[int]:
        """The token ids of a text in which [MASK] stands for a word."""
        if MASK not in text:
            raise ValueError(f'the text has no {MASK}, which marks the word to fill in: "{text[:60]}"')
        text = MASK.join(map(self.preprocessor.normalize, text.split(MASK)))
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
