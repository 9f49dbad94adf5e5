"""Write: a causal language model. It predicts every token from those before it, and so continues any text.

    loss = - Σ_t log P(x_t | x_<t)

Documents are packed into windows of the context's length; attention is restricted to the document of a token.
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
from regard.data.documents import DocumentOptions, DocumentStream, DocumentUnit, is_json_file, read_documents
from regard.data.lines import UTF8, Dialect
from regard.data.splits import Data, DataOptions
from regard.data.token_corpus import TokenCorpus, TokenWindows, document_mask
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_train import GPT_LAYOUT, TokenizerOptions, train_tokenizer
from regard.generate import PROCESSOR_KEYS, GenerationOptions, generate, options_from_config
from regard.metrics import bits_per_byte, perplexity
from regard.parts.cache import Cache
from regard.parts.heads import Model
from regard.sampling import LogitsProcessor
from regard.tasks.inputs import describe_windows, select_options
from regard.tasks.task import Loss, Prediction, Task, fitted
from regard.validate import check_fields

TURN = "\n> "  # before a line of the player


@dataclass(frozen=True)
class WriteOptions(GenerationOptions):
    """Decode options of a text."""

    num_beams: int = 1  # beam width, only with --temperature 0; 1 = greedy
    temperature: float = 0.8  # sampling temperature; 0 = no sampling; 1 = the model's own distribution
    top_p: float = 0.95  # sample only from the smallest set of tokens with this total probability
    max_new_tokens: int | None = 200  # maximum number of new tokens
    stop: str = ""  # text before which the answer ends


class LMBatch(NamedTuple):
    ids: Tensor  # (B,T)
    targets: Tensor  # (B,T) the next token of each
    mask: Tensor | None  # (B,1,T,T), True = the same document


@dataclass
class Write(Task):
    tokenizer: Tokenizer = fitted()
    documents: DocumentUnit | None = fitted(None)  # the unit of a document in the training files
    add_bos_token: bool = fitted(False)  # a text begins with </s>, as every training document did
    eos_tokens: tuple[int, ...] = fitted(())  # ids that end a text, beside </s>
    generation_config: dict[str, Any] | None = fitted(None)  # generation_config.json of a folder of another library

    def __post_init__(self) -> None:
        check_fields(self, eos_tokens=(all(0 <= token < 2**31 for token in self.eos_tokens), "ids of tokens"))
        WriteOptions(**self.decode_defaults(self.generation_config))  # refuses a bad config here

    description = "a text in, its continuation out"
    file_formats = "text files, or .jsonl with a field of text"
    bundled_data = "stories, the transcripts of text adventures"
    requires = ("writes",)
    default = "nanochat"
    head_fields = ("eos_tokens", "generation_config")
    throughput_unit = "tokens"
    eval_limit = 100_000  # characters
    ignored_options = frozenset({"max_words"})
    decode_options = WriteOptions

    @classmethod
    def option_groups(cls, ability: str) -> tuple[type, ...]:
        return (TokenizerOptions, DocumentOptions)

    @classmethod
    def read(cls, files: DataOptions, ability: str, input_options: dict[str, Any], **_: Any) -> Data:
        return read_documents(files, input_options, bundled_stories)

    def read_test_rows(
        self,
        paths: tuple[str, ...],
        fields: tuple[str, ...] | None,
        ability: str,
        skip_bad: bool,
        dialect: Dialect = UTF8,
    ) -> Any:
        input_options = {"documents": self.documents, "cache": DocumentOptions.cache}
        files = DataOptions(data=paths, valid=paths, fields=fields, skip_bad=skip_bad, **dialect._asdict())
        return read_documents(files, input_options, dict).sets["train"]

    @classmethod
    def fit(
        cls,
        rows: DocumentStream,
        ability: str,
        input_options: dict[str, Any],
        preprocessors: dict[str, Any],
        **task_options: Any,
    ) -> Write:
        pieces = TokenizerOptions(**select_options(TokenizerOptions, input_options))
        tokenizer = preprocessors.get("tokenizer") or train_tokenizer(rows.sample(), pieces, GPT_LAYOUT)
        if tokenizer.template_ids not in ([], [tokenizer.bos_token_id]):
            raise ValueError(
                "the tokenizer of --from adds special tokens around a text, so no text can be continued: start from a "
                "model that was trained to write, or leave out --from"
            )
        unit: DocumentUnit | None = "paragraphs" if rows.name == "bundled" else input_options["documents"]
        add_bos_token = unit not in (None, "files") or is_json_file(rows.name)
        return cls(**task_options, tokenizer=tokenizer, documents=unit, add_bos_token=add_bos_token)

    @classmethod
    def decode_defaults(cls, generation_config: Mapping[str, Any] | None) -> dict[str, Any]:
        return options_from_config(generation_config or {})

    @property
    def rules(self) -> LogitsProcessor:
        return LogitsProcessor(
            **{key: value for key, value in (self.generation_config or {}).items() if key in PROCESSOR_KEYS}
        )

    def sizes(self) -> dict[str, int]:
        return {"vocab": len(self.tokenizer), "pad": self.tokenizer.pad_token_id}

    def head(self, body: Any) -> Model:
        return Model(body, body.lm_head())

    def encode(self, rows: DocumentStream, context: int) -> TokenWindows:
        return TokenWindows(TokenCorpus.from_documents(rows, self.tokenizer), context + 1)

    def describe_examples(self, rows: DocumentStream, examples: TokenWindows, numbers: Ints) -> list[dict[str, Any]]:
        return describe_windows(self.tokenizer, rows, examples, numbers)

    def collate(self, examples: TokenWindows, rows: Ints) -> LMBatch:
        return self.shift(examples.take(rows))

    def shift(self, ids: Tensor) -> LMBatch:
        return LMBatch(ids[:, :-1], ids[:, 1:], document_mask(ids[:, :-1], self.tokenizer.bos_token_id))

    def loss(self, model: Model, batch: LMBatch) -> Loss:
        x = model.body(batch.ids, mask=batch.mask)  # (B,T,D)
        return Loss(model.head.loss(x.flatten(0, 1), batch.targets.flatten()), batch.targets.numel())

    def eval_subset(self, rows: DocumentStream, count: int | None) -> DocumentStream:
        return rows.prefix(count or self.eval_limit)

    def count_examples(self, rows: DocumentStream) -> str:
        return f"{rows.characters:,} characters"

    @torch.inference_mode()
    def score(
        self, model: Model, rows: DocumentStream, options: WriteOptions | None = None, budget: int = 8192
    ) -> dict[str, Any]:
        """Loss over the whole text in windows of the context's length, perplexity and bits per byte."""
        corpus = TokenCorpus.from_documents(rows, self.tokenizer)
        device, T = next(model.parameters()).device, model.body.config.context
        starts = np.arange(0, len(corpus.ids) - 1, T)
        full = starts[starts + T < len(corpus.ids)]
        total = 0.0
        for chunk in [full[i : i + max(1, budget // T)] for i in range(0, len(full), max(1, budget // T))]:
            ids = torch.from_numpy(corpus.ids[chunk[:, None] + np.arange(T + 1)].astype(np.int64))
            total += self.loss(model, move_batch(self.shift(ids), device)).total.item()
        if len(full) < len(starts):
            ids = torch.from_numpy(corpus.ids[starts[-1] :].astype(np.int64))[None]
            total += self.loss(model, move_batch(self.shift(ids), device)).total.item()
        loss = total / (len(corpus.ids) - 1)
        prompt = self.tokenizer.decode([corpus.ids[: T // 4].tolist()])[0]
        predictions = [
            best[0].extra["continuation"]
            for best in self.predict(model, [prompt], options or WriteOptions(max_new_tokens=T // 2))
        ]
        return {
            "loss": loss,
            "perplexity": perplexity(loss),
            "bits_per_byte": bits_per_byte(total, corpus.size),
            "predictions": predictions,
            "samples": [{"source": prompt[-300:], "target": "", "prediction": predictions[0]}],
        }

    def example(self) -> str:
        return "Once upon a time"

    def rank(self, scores: dict[str, Any]) -> tuple[float, ...]:
        return (-round(scores["loss"], 4),)

    def predict(
        self, model: Model, raw: Iterable[str], options: WriteOptions, first: int = 0
    ) -> Iterator[list[Prediction]]:
        for number, prompt in enumerate(raw, first):
            [ids] = self.tokenizer.encode([prompt])
            if (self.add_bos_token or not prompt) and ids[:1] != [self.tokenizer.bos_token_id]:
                ids = [self.tokenizer.bos_token_id, *ids]
            best = self.continuations(model, ids, options, number)
            texts = [self.tokenizer.decode_continuation(ids, new) for new, _ in best]
            cut = [
                text[: text.index(options.stop)] if options.stop and options.stop in text else text for text in texts
            ]
            yield [
                Prediction(prompt + text, logprob, logprob, {"continuation": text})
                for text, (_, logprob) in zip(cut, best, strict=True)
            ]

    @torch.inference_mode()
    def continuations(
        self, model: Model, ids: Sequence[int], options: WriteOptions, number: int
    ) -> list[tuple[list[int], float]]:
        """New tokens and their log-probability. When the context is full, its older half is dropped."""
        device, context = next(model.parameters()).device, model.body.config.context
        max_new = options.max_new_tokens or context
        new: list[int] = []
        logprob = 0.0
        while True:
            visible = [*ids, *new]
            visible = visible if len(visible) < context else visible[-max(1, context // 2) :]
            limit = min(max_new - len(new), context - len(visible))
            caches = model.body.caches()
            if len(visible) > 1:
                model.body(torch.tensor([visible[:-1]], device=device), cache=caches)
            start, limits = torch.tensor([visible[-1]], device=device), torch.tensor([limit], device=device)
            args = (
                self.step_fn(model),
                caches,
                start,
                self.tokenizer.eos_token_id,
                limits,
                options,
                torch.tensor([number]),
            )
            [best] = generate(*args, self.rules, [[*ids, *new][:-1]])
            if options.num_return > 1:
                return [(h.ids, h.logp) for h in best]
            new, logprob = [*new, *best[0].ids], logprob + best[0].logp
            if len(best[0].ids) < limit or len(new) >= max_new:
                return [(new, logprob)]

    def step_fn(self, model: Model) -> Any:
        end = self.tokenizer.eos_token_id
        others = [token for token in self.eos_tokens if token != end]
        suppressed = [*self.tokenizer.suppress_tokens, *others]

        def step(ids: Tensor, caches: list[Cache]) -> Tensor:
            logits = model.next_logits(ids, caches)
            if others:  # the most probable of all end tokens stands for </s>
                logits[:, end] = logits[:, [end, *others]].amax(-1)
            for token in suppressed:
                logits[:, token] = -math.inf
            return logits

        return step

    def play(self, model: Model, story: str, command: str, options: WriteOptions, turn: int) -> str:
        """The story after a command of the player, up to the player's next turn."""
        prompt = f"{story.rstrip()}{TURN}{command}\n" if command else story
        [best] = self.predict(model, [prompt], options, turn)
        text = best[0].text
        end = text.find(TURN, len(prompt))
        return text if end < 0 else text[:end]


def move_batch(batch: LMBatch, device: torch.device) -> LMBatch:
    return LMBatch(*(None if tensor is None else tensor.to(device) for tensor in batch))  # type: ignore[arg-type]


def bundled_stories() -> dict[str, list[str]]:
    parts: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    for story in stories.stories():
        parts[stories.split(story)].append(story)
    return parts
