"""Trace of one forward pass over one text: input tokens, target tokens and every tensor in between.

Row t of a causal language model reads token t and has token t + 1 as its target; a masked language model has its input
as target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.load import LoadedModel
from regard.look import Activations, look
from regard.parts.attention import CrossAttention, SelfAttention
from regard.parts.attention_scores import AdditiveAttention
from regard.parts.heads import Model
from regard.parts.pooling import AttentionPool
from regard.parts.stems import AudioStem
from regard.tasks.answer import QuestionAnswering, parse_question
from regard.tasks.classify import Classify
from regard.tasks.embed import Embed
from regard.tasks.fill import MASK, Fill
from regard.tasks.regress import Regress
from regard.tasks.tag import Tag
from regard.tasks.translate import Translate
from regard.tasks.write import Write
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
    task: Any
    inputs: TokenizedText  # what the stack below the head reads: of a translator the target, shifted right
    targets: TokenizedText | None  # the target of each of these positions
    source: TokenizedText | None  # of a translator
    activations: Activations
    logits: Tensor


def trace_text(loaded: LoadedModel, text: str, target: str | None = None) -> Trace:
    """Run the model on `text`. A translator also reads `target`; by default its own translation."""
    require_attention(loaded)
    if reads_images(loaded):
        raise ValueError("this model reads images and has no text to look into")
    if getattr(loaded.task, "molecules", None) is not None:
        raise ValueError("this model reads molecules and has no text to look into")
    if isinstance(loaded.task, Translate):
        return trace_translation(loaded, text, loaded(text) if target is None else target)
    if target is not None:
        raise ValueError("a target is for translators, and this model does not translate")
    return trace_single_stack(loaded, text)


def reads_images(loaded: LoadedModel) -> bool:
    return getattr(loaded.task, "image_processor", None) is not None


def require_attention(loaded: LoadedModel) -> None:
    """Refuse models that no page can show, before anything runs."""
    if any(isinstance(module, AudioStem) for module in loaded.model.modules()):
        raise ValueError("this model reads audio, which has no page yet: regard.look(model) records its tensors")
    if not any(isinstance(module, ATTENTION) for module in loaded.model.modules()):
        raise ValueError(NO_ATTENTION)
    if loaded.tokenizer is None and not reads_images(loaded):
        raise ValueError("regard look shows models of text and of images, and this one reads neither")


def trace_translation(loaded: LoadedModel, text: str, target: str) -> Trace:
    task: Any = loaded.task
    [source_ids], [target_ids] = task.encode_sources([text]), task.tokenizer.encode_targets([target])
    input_ids = [task.start_token, *target_ids[:-1]]
    activations, logits = run_traced(loaded.model, source_ids, input_ids)
    inputs, targets, source = (tokenize_words(task.tokenizer, ids) for ids in (input_ids, target_ids, source_ids))
    inputs = inputs._replace(tokens=[START, *inputs.tokens[1:]])
    return Trace(loaded.model, task, inputs, targets, source, activations, logits)


def trace_single_stack(loaded: LoadedModel, text: str) -> Trace:
    task: Any = loaded.task
    ids = ENCODERS[type(task)](task, text)
    activations, logits = run_traced(loaded.model, ids, limit=getattr(task, "limit", None))
    inputs = tokenize_words(task.tokenizer, ids)
    return Trace(loaded.model, task, inputs, targets_of(task, ids, inputs), None, activations, logits)


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


def targets_of(task: Any, ids: Sequence[int], inputs: TokenizedText) -> TokenizedText | None:
    if isinstance(task, Write):
        return TokenizedText([*inputs.tokens[1:], UNKNOWN], [*inputs.word_ids[1:], -1], inputs.words)
    if isinstance(task, Fill):
        known = [
            token if i != task.tokenizer.mask_token_id else UNKNOWN for i, token in zip(ids, inputs.tokens, strict=True)
        ]
        return inputs._replace(tokens=known)
    return None


def encode_prompt(task: Write, text: str) -> list[int]:
    [ids] = task.tokenizer.encode([text])
    begin = task.tokenizer.bos_token_id
    return [begin, *ids] if (task.add_bos_token or not text) and ids[:1] != [begin] else ids


def encode_masked(task: Fill, text: str) -> list[int]:
    return task.encode_masked(text) if MASK in text else task.tokenizer.encode([text])[0]


def encode_text_or_pair(task: Any, text: str) -> list[int]:
    first, _, second = text.partition("\t")
    [ids] = task.tokenizer.encode([(first, second)] if second else [first])
    return ids


def encode_first_field(task: Embed, text: str) -> list[int]:
    return task.text_tokenizer.encode([text.partition("\t")[0]])[0]


def encode_words(task: Tag, text: str) -> list[int]:
    return task.tokenizer.encodings([[*task.parse_words(text).words]], words=True)[0].ids


def encode_question(task: QuestionAnswering, text: str) -> list[int]:
    row = parse_question(text, 1)
    return task.tokenizer.encode([(row.question, row.document)])[0]


# How each task encodes a text.
ENCODERS: dict[type, Callable[[Any, str], list[int]]] = {
    Write: encode_prompt,
    Fill: encode_masked,
    Classify: encode_text_or_pair,
    Regress: encode_text_or_pair,
    Tag: encode_words,
    QuestionAnswering: encode_question,
    Embed: encode_first_field,
}
