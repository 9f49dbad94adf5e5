"""One run of a model on one text: the tokens it was given, what each place should say, and every tensor on the way.

Row t of a writer is *given* token t and *should say* token t + 1; a reader that fills in should say what it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.load import Loaded
from regard.look import Activations, look
from regard.parts.attention import CrossAttention, SelfAttention
from regard.parts.heads import Model
from regard.parts.pooling import AttentionPool
from regard.parts.scoring import AdditiveAttention
from regard.parts.stems import SoundStem
from regard.tasks.answer import Answering, asked
from regard.tasks.classify import Classify
from regard.tasks.embed import Embed
from regard.tasks.fill import MASK, Fill
from regard.tasks.regress import Regress
from regard.tasks.tag import Tag
from regard.tasks.translate import Translate
from regard.tasks.write import Write
from regard.view.word_pieces import Line, line

ATTENTION = (SelfAttention, CrossAttention, AdditiveAttention, AttentionPool)
UNKNOWN = "[?]"  # what nobody has told
START = "start"  # what a decoder is given first, whatever token stands for it
BLIND = (
    "this model has no attention to look at. Of pooled, convolution and recurrent ones, only those have some that "
    "translate with --attention or classify a text with --pooling attention"
)


@dataclass(frozen=True)
class Inside:
    model: Model
    task: Any
    given: Line  # what the stack that answers was given: the target of a translator, from its start on
    wanted: Line | None  # what each of these places should say
    source: Line | None  # of a translator
    seen: Activations
    logits: Tensor  # what the head made of it


def run(loaded: Loaded, text: str, target: str | None = None) -> Inside:
    """A translator reads `text` and is given `target`: what it says itself unless that is told."""
    refuse_blind(loaded)
    if sees(loaded):
        raise ValueError("this model sees pictures, and has no text to look into")
    if getattr(loaded.task, "molecules", None) is not None:
        raise ValueError("this model reads molecules, and has no text to look into")
    if isinstance(loaded.task, Translate):
        return translated(loaded, text, loaded(text) if target is None else target)
    if target is not None:
        raise ValueError("a target is what a translator should say, and this model does not translate")
    return read(loaded, text)


def sees(loaded: Loaded) -> bool:
    """Pictures, not text alone."""
    return getattr(loaded.task, "pictures", None) is not None


def refuse_blind(loaded: Loaded) -> None:
    """Before anything is run."""
    if any(isinstance(module, SoundStem) for module in loaded.model.modules()):
        raise ValueError("this model hears sounds, which have no page yet: regard.look(model) shows its tensors")
    if not any(isinstance(module, ATTENTION) for module in loaded.model.modules()):
        raise ValueError(BLIND)
    if loaded.tokenizer is None and not sees(loaded):
        raise ValueError("regard look shows models of texts and of pictures, and this one reads neither")


def translated(loaded: Loaded, text: str, target: str) -> Inside:
    task: Any = loaded.task
    [source], [wanted] = task.encode([text]), task.tokenizer.encode_targets([target])
    given = [task.first, *wanted[:-1]]
    seen, logits = seen_in(loaded.model, source, given)
    begun, right, heard = (line(task.tokenizer, ids) for ids in (given, wanted, source))
    begun = begun._replace(pieces=[START, *begun.pieces[1:]])
    return Inside(loaded.model, task, begun, right, heard, seen, logits)


def read(loaded: Loaded, text: str) -> Inside:
    task: Any = loaded.task
    ids = TOKENS[type(task)](task, text)
    seen, logits = seen_in(loaded.model, ids, most=getattr(task, "limit", None))
    given = line(task.tokenizer, ids)
    return Inside(loaded.model, task, given, wanted_of(task, ids, given), None, seen, logits)


@torch.inference_mode()
def seen_in(model: Model, *rows: Sequence[int], most: int | None = None) -> tuple[Activations, Tensor]:
    """All that one text makes the model do."""
    context = min(model.body.config.context, most or model.body.config.context)
    for ids in rows:
        if not ids:
            raise ValueError("there is nothing to look at: the text has no tokens")
        if len(ids) > context:
            raise ValueError(f"{len(ids)} tokens do not fit this model's context of {context}: shorten the text")
    device = next(model.parameters()).device
    with look(model) as seen:
        logits = model(*(torch.tensor([ids], device=device) for ids in rows))
    return seen, logits


def wanted_of(task: Any, ids: Sequence[int], given: Line) -> Line | None:
    if isinstance(task, Write):
        return Line([*given.pieces[1:], UNKNOWN], [*given.places[1:], -1], given.words)
    if isinstance(task, Fill):
        known = [piece if i != task.tokenizer.mask else UNKNOWN for i, piece in zip(ids, given.pieces, strict=True)]
        return given._replace(pieces=known)
    return None


def beginning(task: Write, text: str) -> list[int]:
    [ids] = task.tokenizer.encode([text])
    begin = task.tokenizer.begin
    return [begin, *ids] if (task.opens or not text) and ids[:1] != [begin] else ids


def with_masks(task: Fill, text: str) -> list[int]:
    return task.with_masks(text) if MASK in text else task.tokenizer.encode([text])[0]


def one_or_two(task: Any, text: str) -> list[int]:
    first, _, second = text.partition("\t")
    [ids] = task.tokenizer.encode([(first, second)] if second else [first])
    return ids


def first_of_all(task: Embed, text: str) -> list[int]:
    return task.reader.encode([text.partition("\t")[0]])[0]


def word_by_word(task: Tag, text: str) -> list[int]:
    return task.tokenizer.encodings([[*task.words(text).words]], words=True)[0].ids


def with_question(task: Answering, text: str) -> list[int]:
    row = asked(text, 1)
    return task.tokenizer.encode([(row.question, row.document)])[0]


# A text as each task gives it to its model.
TOKENS: dict[type, Callable[[Any, str], list[int]]] = {
    Write: beginning,
    Fill: with_masks,
    Classify: one_or_two,
    Regress: one_or_two,
    Tag: word_by_word,
    Answering: with_question,
    Embed: first_of_all,
}
