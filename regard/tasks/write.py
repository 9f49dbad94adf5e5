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
import numpy.typing as npt
import torch
from torch import Tensor

from regard.data.batches import Ints, to_device
from regard.data.document_files import has_objects
from regard.data.documents import DocumentStream
from regard.data.token_corpus import TokenCorpus, TokenWindows, document_mask
from regard.data.tokenizer_train import GPT_LAYOUT
from regard.decode_request import DecodeRequest
from regard.generate import merge_options
from regard.generation_config import GenerationOptions, processor_from_config
from regard.metrics import bits_per_byte, perplexity
from regard.modalities.protocols import Preprocessor, Target
from regard.parts.cache import Cache
from regard.parts.heads import Model
from regard.tasks.decoding import Decoding, EncodedPrompt, GeneratingTask
from regard.tasks.inference import BUDGET, context_of
from regard.tasks.language_model import LanguageModel, LMBatch, PackedRows
from regard.tasks.shared_batches import map_batches
from regard.tasks.task import Loss, Prediction, Scores, fitted, make_scores
from regard.validate import check_fields

TURN = "\n> "  # before a line of the player


@dataclass(frozen=True)
class WriteOptions(GenerationOptions):
    """Decode options of a text."""

    num_beams: int = 1  # beam width, only with --temperature 0; 1 = greedy
    temperature: float = 0.8  # sampling temperature; 0 = no sampling; 1 = the model's own distribution
    top_p: float = 0.95  # sample only from the smallest set of tokens with this total probability
    max_new_tokens: int | None = 200  # maximum number of new tokens
    stop: tuple[str, ...] = ()  # texts before which the answer ends

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, stop=(all(self.stop), "texts that are not empty"))


@dataclass
class Write(LanguageModel, GeneratingTask):
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
    layout = GPT_LAYOUT
    window = 1  # prompts have different lengths

    @classmethod
    def fitted_fields(cls, rows: DocumentStream, preprocessor: Preprocessor, **options: object) -> dict[str, object]:
        tokenizer = preprocessor.tokenizer
        if tokenizer is None or tokenizer.template_ids not in ([], [tokenizer.bos_token_id]):
            raise ValueError(
                "the tokenizer of --from adds special tokens around a text, so no text can be continued: start from a "
                "model that was trained to write, or leave out --from"
            )
        unit = getattr(preprocessor, "documents", None)
        return {"add_bos_token": unit not in (None, "files") or has_objects(rows.name)}

    def encode(self, rows: DocumentStream, context: int) -> TokenWindows:
        return super().encode(rows, context + 1)

    def collate(self, examples: TokenWindows, rows: Ints, training: bool = True) -> LMBatch:
        return self.shift(examples.take(rows))

    def shift(self, ids: Tensor) -> LMBatch:
        mask = document_mask(ids[:, :-1], self.tokenizer.bos_token_id)
        return LMBatch(PackedRows(ids[:, :-1], mask), ids[:, 1:])

    def loss(self, model: Model, batch: LMBatch) -> Loss:
        x = model.body(*batch.inputs.arguments)  # (B,T,D)
        return Loss(model.head.loss(x.flatten(0, 1), batch.targets.flatten()), batch.targets.numel())

    @torch.inference_mode()
    def score(self, model: Model, rows: DocumentStream, options: WriteOptions | None = None) -> Scores:
        """Loss over the whole text in windows of the context's length, perplexity and bits per byte."""
        corpus = TokenCorpus.from_documents(rows, self.tokenizer)
        device, T = next(model.parameters()).device, model.body.config.context
        starts = np.arange(0, len(corpus) - 1, T)
        full, size, total = starts[starts + T < len(corpus)], max(1, BUDGET // T), 0.0
        windows = (corpus.take(full[i : i + size], T + 1) for i in range(0, len(full), size))
        rest = [corpus[starts[-1] :][None]] if len(full) < len(starts) else []

        def loss_of(ids: npt.NDArray[np.integer]) -> float:
            batch = self.shift(torch.from_numpy(ids.astype(np.int64)))
            return self.loss(model, to_device(batch, device)).total.item()

        for batch_total in map_batches(loss_of, chain(windows, rest)):
            total += batch_total
        loss = total / (len(corpus) - 1)
        prompt = self.tokenizer.decode([corpus[: T // 4].tolist()])[0]
        metrics = {"perplexity": perplexity(loss), "bits_per_byte": bits_per_byte(total, corpus.size)}
        sample = self.repeat_sample(model, prompt, options)
        return make_scores({"loss": loss, **metrics}, [prompt[-300:]], [""], [sample])

    def repeat_sample(self, model: Model, source: str, options: WriteOptions | None = None) -> str:
        [best] = self.predict(model, [source], options or WriteOptions(max_new_tokens=context_of(model) // 2))
        return str(best[0].extra["continuation"])

    def prompt_ids(self, prompt: str) -> list[int]:
        if isinstance(prompt, EncodedPrompt):
            return prompt.ids
        [ids] = self.tokenizer.encode([prompt])
        begin = self.tokenizer.bos_token_id
        return [begin, *ids] if (self.add_bos_token or not prompt) and ids[:1] != [begin] else ids

    def decodings(self, raw: Sequence[str], options: WriteOptions, context: int, first: int = 0) -> list[Decoding]:
        return [self.continuation(prompt, options, context, number) for number, prompt in enumerate(raw, first)]

    def continuation(self, prompt: str, options: WriteOptions, context: int, number: int) -> Decoding:
        """When the context is full, its older half is dropped."""
        ids, max_new = self.prompt_ids(prompt), options.max_new_tokens or context
        rules = merge_options(processor_from_config(self.generation_config or {}), options, self.end)
        new: list[int] = []
        logprob = 0.0

        def all_text(tokens: list[int]) -> str:
            return self.tokenizer.decode_continuation(ids, [*new, *tokens])

        def is_complete(tokens: list[int]) -> bool:
            return any(stop in all_text(tokens) for stop in options.stop)

        while True:
            everything = [*ids, *new]
            visible = everything if len(everything) < context else everything[-max(1, context // 2) :]
            limit = min(max_new - len(new), context - len(visible))
            history = everything[: len(everything) - len(visible)]
            stops = is_complete if options.stop else None
            [best] = yield [DecodeRequest(visible, limit, options, number, rules, history, None, stops, all_text)]
            if options.num_return > 1:
                return [self.prediction(prompt, ids, h.ids, h.logp, h.finish_reason, options) for h in best]
            new, logprob = [*new, *best[0].ids], logprob + best[0].logp
            if best[0].finish_reason == "stop" or len(new) >= max_new or is_complete([]):
                return [self.prediction(prompt, ids, new, logprob, best[0].finish_reason, options)]

    def prediction(
        self, prompt: str, ids: list[int], new: list[int], logprob: float, reason: str, options: WriteOptions
    ) -> Prediction:
        whole = self.tokenizer.decode_continuation(ids, new)
        text = cut_at_stop(whole, options.stop)
        reason = reason if text == whole else "stop"  # beams go on after a stop text
        return Prediction(prompt + text, logprob, logprob, {"continuation": text}, reason, len(new))

    def answer(self, prediction: Prediction) -> str:
        return str(prediction.extra["continuation"])

    def echo(self, raw: str) -> str:
        return raw

    def batches(self, requests: Sequence[DecodeRequest]) -> list[list[DecodeRequest]]:
        """Prompts of the same length, and one kind of search."""
        groups: dict[tuple[int, int, bool], list[DecodeRequest]] = {}
        for request in requests:
            key = (len(request.prompt), request.rows, request.options.temperature > 0)
            groups.setdefault(key, []).append(request)
        return [*groups.values()]

    def prefill(self, model: Model, requests: Sequence[DecodeRequest]) -> list[Cache]:
        caches: list[Cache] = model.body.caches()
        prompts = torch.tensor([request.prompt for request in requests], device=next(model.parameters()).device)
        if prompts.size(1) > 1:
            model.body(prompts[:, :-1], cache=caches)
        return caches

    def constrain(self, logits: Tensor) -> None:
        others = [token for token in self.eos_tokens if token != self.end]
        if others:  # the most probable of all end tokens stands for </s>
            logits[:, self.end] = logits[:, [self.end, *others]].amax(-1)
        for token in (*self.tokenizer.suppress_tokens, *others):
            logits[:, token] = -math.inf

    def play(self, model: Model, story: str, command: str, options: WriteOptions, turn: int) -> str:
        """The story after a command of the player, up to the player's next turn."""
        prompt = f"{story.rstrip()}{TURN}{command}\n" if command else story
        [best] = self.predict(model, [prompt], options, turn)
        text = best[0].text
        end = text.find(TURN, len(prompt))
        return text if end < 0 else text[:end]


def cut_at_stop(text: str, stops: Iterable[str]) -> str:
    """The text before the first stop text in it."""
    return text[: min((text.index(stop) for stop in stops if stop in text), default=len(text))]
