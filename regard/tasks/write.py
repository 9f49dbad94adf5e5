"""Write: a causal language model. It predicts every token from those before it, and so continues any text.

    loss = - Σ_t log P(x_t | x_<t)

Documents are packed into windows of the context's length; attention is restricted to the document of a token.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from regard.data.batches import Ints, to_device
from regard.data.documents import DocumentStream, is_json_file
from regard.data.token_corpus import TokenCorpus, TokenWindows, document_mask
from regard.data.tokenizer_train import GPT_LAYOUT
from regard.generate import GenerationOptions, Step, generate, processor_from_config
from regard.metrics import bits_per_byte, perplexity
from regard.modalities.protocols import Inputs, Preprocessor, Target
from regard.parts.cache import Cache
from regard.parts.heads import Model
from regard.tasks.inference import BUDGET, context_of
from regard.tasks.language_model import LanguageModel, LMBatch
from regard.tasks.task import Loss, Prediction, Predictions, Scores, fitted, make_scores
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


@dataclass
class Write(LanguageModel):
    add_bos_token: bool = fitted(False)  # a text begins with </s>, as every training document did
    eos_tokens: tuple[int, ...] = fitted(())  # ids that end a text, beside </s>
    generation_config: dict[str, object] | None = fitted(None)  # generation_config.json of a folder of another library

    def __post_init__(self) -> None:
        check_fields(self, eos_tokens=(all(0 <= token < 2**31 for token in self.eos_tokens), "ids of tokens"))
        WriteOptions(**self.decode_defaults(self.generation_config))  # refuses a bad config here

    description = "a text in, its continuation out"
    target = Target.NEXT
    structures = ("decoder",)
    default = "nanochat"
    head_fields = ("eos_tokens", "generation_config")
    throughput_unit = "tokens"
    decode_options = WriteOptions
    generates = True
    layout = GPT_LAYOUT

    @classmethod
    def fitted_fields(cls, rows: DocumentStream, preprocessor: Preprocessor, **options: object) -> dict[str, object]:
        tokenizer = preprocessor.tokenizer
        if tokenizer is None or tokenizer.template_ids not in ([], [tokenizer.bos_token_id]):
            raise ValueError(
                "the tokenizer of --from adds special tokens around a text, so no text can be continued: start from a "
                "model that was trained to write, or leave out --from"
            )
        unit = getattr(preprocessor, "documents", None)
        return {"add_bos_token": unit not in (None, "files") or is_json_file(rows.name)}

    def encode(self, rows: DocumentStream, context: int) -> TokenWindows:
        return super().encode(rows, context + 1)

    def collate(self, examples: TokenWindows, rows: Ints, training: bool = True) -> LMBatch:
        return self.shift(examples.take(rows))

    def shift(self, ids: Tensor) -> LMBatch:
        mask = document_mask(ids[:, :-1], self.tokenizer.bos_token_id)
        return LMBatch(Inputs(ids[:, :-1], mask), ids[:, 1:])

    def loss(self, model: Model, batch: LMBatch) -> Loss:
        x = model.body(*batch.inputs.arguments)  # (B,T,D)
        return Loss(model.head.loss(x.flatten(0, 1), batch.targets.flatten()), batch.targets.numel())

    @torch.inference_mode()
    def score(self, model: Model, rows: DocumentStream, options: WriteOptions | None = None) -> Scores:
        """Loss over the whole text in windows of the context's length, perplexity and bits per byte."""
        corpus = TokenCorpus.from_documents(rows, self.tokenizer)
        device, T = next(model.parameters()).device, model.body.config.context
        starts = np.arange(0, len(corpus.ids) - 1, T)
        full, size, total = starts[starts + T < len(corpus.ids)], max(1, BUDGET // T), 0.0
        windows = (corpus.ids[full[i : i + size, None] + np.arange(T + 1)] for i in range(0, len(full), size))
        rest = [corpus.ids[None, starts[-1] :]] if len(full) < len(starts) else []
        for ids in chain(windows, rest):
            batch = self.shift(torch.from_numpy(ids.astype(np.int64)))
            total += self.loss(model, to_device(batch, device)).total.item()
        loss = total / (len(corpus.ids) - 1)
        prompt = self.tokenizer.decode([corpus.ids[: T // 4].tolist()])[0]
        metrics = {"perplexity": perplexity(loss), "bits_per_byte": bits_per_byte(total, corpus.size)}
        sample = self.repeat_sample(model, prompt, options)
        return make_scores({"loss": loss, **metrics}, [prompt[-300:]], [""], [sample])

    def repeat_sample(self, model: Model, source: str, options: WriteOptions | None = None) -> str:
        [best] = self.predict(model, [source], options or WriteOptions(max_new_tokens=context_of(model) // 2))
        return str(best[0].extra["continuation"])

    def predict(self, model: Model, raw: Iterable[str], options: WriteOptions, first: int = 0) -> Predictions:
        for number, prompt in enumerate(raw, first):
            ids = self.prompt_ids(prompt)
            best = self.continuations(model, ids, options, number)
            texts = [self.tokenizer.decode_continuation(ids, new) for new, _ in best]
            if options.stop:
                texts = [text.split(options.stop, 1)[0] for text in texts]
            yield [
                Prediction(prompt + text, logprob, logprob, {"continuation": text})
                for text, (_, logprob) in zip(texts, best, strict=True)
            ]

    def prompt_ids(self, prompt: str) -> list[int]:
        [ids] = self.tokenizer.encode([prompt])
        begin = self.tokenizer.bos_token_id
        return [begin, *ids] if (self.add_bos_token or not prompt) and ids[:1] != [begin] else ids

    @torch.inference_mode()
    def continuations(
        self, model: Model, ids: Sequence[int], options: WriteOptions, number: int
    ) -> list[tuple[list[int], float]]:
        """New tokens and their log-probability. When the context is full, its older half is dropped."""
        device, context = next(model.parameters()).device, model.body.config.context
        max_new, end, step = options.max_new_tokens or context, self.tokenizer.eos_token_id, self.step_fn(model)
        rules = processor_from_config(self.generation_config or {})
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
            numbers, prefixes = torch.tensor([number]), [[*ids, *new][:-1]]
            [best] = generate(step, caches, start, end, limits, options, numbers, rules, prefixes)
            if options.num_return > 1:
                return [(h.ids, h.logp) for h in best]
            new, logprob = [*new, *best[0].ids], logprob + best[0].logp
            if len(best[0].ids) < limit or len(new) >= max_new:
                return [(new, logprob)]

    def step_fn(self, model: Model) -> Step:
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
