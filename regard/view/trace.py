"""Trace of one forward pass over one text: input tokens, target tokens and every tensor in between.

Row t of a causal language model reads token t and has token t + 1 as its target; a masked language model has its input
as target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor

from regard.loaded_model import LoadedModel
from regard.look import Activations, look
from regard.modalities.protocols import Target
from regard.parts.attention import CrossAttention, SelfAttention
from regard.parts.attention_scores import AdditiveAttention
from regard.parts.heads import Model
from regard.parts.pooling import AttentionPool
from regard.tasks.fill import MASK
from regard.tasks.task import Task
from regard.tasks.translate import Translate
from regard.view.word_pieces import TokenizedText, tokenize_words

ATTENTION = (SelfAttention, CrossAttention, AdditiveAttention, AttentionPool)
UNKNOWN = "[?]"  # an unknown target
START = "start"  # the first input token of a decoder, whatever its name in the vocabulary
NO_ATTENTION = (
    "this model has no attention to look at. Of the pooled, convolutional and recurrent models, only those have some "
    "that translate with --attention or classify a text with --pooling attention"
)


@dataclass(frozen=True)
class Trace:
    model: Model
    task: Task
    inputs: TokenizedText  # what the stack below the head reads: of a translator the target, shifted right
    targets: TokenizedText | None  # the target of each of these positions
    source: TokenizedText | None  # of a translator
    activations: Activations
    logits: Tensor


def trace_text(loaded: LoadedModel, text: str, target: str | None = None) -> Trace:
    """Run the model on `text`. A translator also reads `target`; by default its own translation."""
    require_page(loaded)
    if loaded.task.preprocessor.has_pictures:
        raise ValueError(f"this model reads {loaded.modality.unit} and has no text to look into")
    if is_translator(loaded.task):
        return trace_translation(loaded.model, loaded.task, text, loaded(text) if target is None else target)
    if target is not None:
        raise ValueError("a target is for translators, and this model does not translate")
    return trace_single_stack(loaded.model, loaded.task, text)


def is_translator(task: Task) -> TypeGuard[Translate]:
    return "encoder-decoder" in task.structures


def require_page(loaded: LoadedModel) -> None:
    """Refuse models that no page can show, before anything runs."""
    preprocessor = loaded.task.preprocessor
    if preprocessor.tokenizer is None and not preprocessor.has_pictures:
        unit = loaded.modality.unit
        raise ValueError(f"regard look shows tokens and pictures, not {unit}: regard.look(model) records all tensors")
    if not any(isinstance(module, ATTENTION) for module in loaded.model.modules()):
        raise ValueError(NO_ATTENTION)


def trace_translation(model: Model, task: Translate, text: str, target: str) -> Trace:
    source_ids, input_ids, target_ids = translation_ids(task, text, target)
    activations, logits = run_traced(model, source_ids, input_ids)
    inputs, targets, source = (tokenize_words(task.tokenizer, ids) for ids in (input_ids, target_ids, source_ids))
    inputs = inputs._replace(tokens=[START, *inputs.tokens[1:]])
    return Trace(model, task, inputs, targets, source, activations, logits)


def translation_ids(task: Translate, text: str, target: str) -> tuple[list[int], list[int], list[int]]:
    """Token ids of the source, of the decoder's input and of the target."""
    sources = task.encode_sources([task.preprocessor.parse(text, task.target)])
    [target_ids] = task.tokenizer.encode_targets([target])
    source_ids: list[int] = task.preprocessor.collate(sources, np.array([0]), training=False).x[0].tolist()
    return source_ids, [task.start_token, *target_ids[:-1]], target_ids


def trace_single_stack(model: Model, task: Task, text: str) -> Trace:
    ids = request_ids(task, text)
    activations, logits = run_traced(model, ids, limit=getattr(task, "limit", None))
    inputs = tokenize_words(task.tokenizer, ids)
    return Trace(model, task, inputs, targets_of(task, ids, inputs), None, activations, logits)


@torch.inference_mode()
def run_traced(model: Model, *rows: Sequence[int], limit: int | None = None) -> tuple[Activations, Tensor]:
    context = min(model.body.config.context, limit or model.body.config.context)
    for ids in rows:
        if not ids:
            raise ValueError("there is nothing to look at: the text has no tokens")
        if len(ids) > context:
            raise ValueError(f"{len(ids)} tokens do not fit this model's context of {context}: shorten the text")
    device = next(model.parameters()).device
    with look(model) as activations:
        logits = model(*(torch.tensor([ids], device=device) for ids in rows))
    return activations, logits


def targets_of(task: Task, ids: Sequence[int], inputs: TokenizedText) -> TokenizedText | None:
    if task.target is Target.NEXT:
        return TokenizedText([*inputs.tokens[1:], UNKNOWN], [*inputs.word_ids[1:], -1], inputs.words)
    if task.target is Target.MASKED:
        pairs = zip(ids, inputs.tokens, strict=True)
        return inputs._replace(tokens=[t if i != task.tokenizer.mask_token_id else UNKNOWN for i, t in pairs])
    return None


def request_ids(task: Any, text: str) -> list[int]:
    """The tokens that a single stack reads of a request. Of an input with candidates after it, those of the input."""
    match task.target:
        case Target.NEXT:
            return task.prompt_ids(text)
        case Target.MASKED if MASK in text:
            return task.encode_masked(text)
        case Target.PAIR:
            row = task.prepare(task.preprocessor.parse(text.partition("\t")[0], task.target))
        case _:
            row = task.preprocessor.parse(text, task.target)
    if task.target is Target.TAGS:
        return task.tokenizer.encodings([[*row.input]], words=True)[0].ids
    [ids] = task.tokenizer.encode([task.preprocessor.texts(row)])
    return ids
