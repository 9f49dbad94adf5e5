"""What a model is asked while it is examined: texts, pictures, sounds or molecules that fit its task, and tokens drawn
at random.

The texts are yours, or the first of those that ship for the task. The same seed gives the same sample.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.check.probe_texts import ASKED, LEARNT, MANY, Halves, bundled, halves, short
from regard.data.batches import Ints, Ragged, padding_mask
from regard.data.bundled import paths, shapes, voices
from regard.data.corpus import Windows
from regard.data.mels import normal, side_by_side
from regard.data.molecules import asked_for
from regard.load import Loaded
from regard.tasks.classify import Classify
from regard.tasks.translate import Translate

LONGEST = 32  # tokens of a text
MOLECULES = 200  # from which those of one size are taken
RANDOM = (9, 5)  # tokens of the rows that are drawn at random


class Given(NamedTuple):
    """What a model is given at once."""

    x: Tensor  # (B,T) ids, (B,C,H,W) pictures or (B,frames,mels) sounds
    mask: Tensor | None = None  # (B,1,1,T), True = a token
    target: Tensor | None = None  # (B,T) of a translator


class Sample(NamedTuple):
    texts: list[str]
    raw: list[str]  # as a user asks; of pictures and sounds nothing, for they would have to be files
    ids: list[list[int]]  # rows of tokens, those drawn at random last
    targets: list[list[int]]  # of a translator: what its decoder is given with each row
    plain: list[int]  # all tokens that are none of the special ones
    pad: int
    pixels: Tensor | None  # (B,C,H,W), molecules (B,T,P+T), or sounds (B,frames,mels), all of one length
    examples: Any  # as the task learns from them
    chosen: Ints  # the rows of these that are looked at

    def given(self, rows: Sequence[int], length: int | None = None, beside: Tensor | None = None) -> Given:
        """Rows side by side, or one without a mask; all as long as `length` if that is given. `beside` (N,) are tokens
        that stand in the padding."""
        target = self.decoded(rows, length)
        if self.targets and self.pixels is not None:
            return Given(self.pixels[[i % len(self.pixels) for i in rows]], None, target)
        ids = [self.ids[i][:length] for i in rows]
        if len({len(row) for row in ids}) == 1:
            return Given(torch.tensor(ids), None, target)
        table = Ragged(ids)
        every = np.arange(len(ids))
        x = table.padded(every, self.pad)
        mask = padding_mask(table.lengths, x.size(1))
        if beside is not None:
            x = x.where(mask[:, 0, 0], beside[torch.arange(x.numel()) % len(beside)].view_as(x))
        return Given(x, mask, target)

    def decoded(self, rows: Sequence[int], length: int | None) -> Tensor | None:
        if not self.targets:
            return None
        return Ragged([self.targets[i][:length] for i in rows]).padded(np.arange(len(rows)), self.pad)

    def batch(self, task: Any, rows: Ints) -> Any:
        more = {"training": False} if isinstance(task, Classify | Translate) else {}
        return task.batch(self.examples, rows, **more)


def draw(loaded: Loaded, lines: Sequence[str] | None = None, seed: int = 0) -> Sample:
    task: Any = loaded.task
    if getattr(task, "molecules", None) is not None:
        return molecules(task, lines)
    tokenizer, translates = loaded.tokenizer, isinstance(task, Translate)
    context = getattr(loaded.model.body.config, "context", LONGEST)
    pairs = bundled(task) if lines is None else [pair for pair in map(halves, lines) if pair[0]][:MANY]
    if not pairs:
        raise ValueError("there is no text to examine the model with: give a file that has some")
    scenes = shapes.shapes(MANY) if getattr(task, "pictures", None) is not None else []
    pixels = None
    if scenes:
        pixels = task.pictures.normal(torch.from_numpy(task.pictures.prepare([scene.pixels for scene in scenes])))
    clips = [clip.samples for clip in voices.voices("valid", 1)[:MANY]] if getattr(task, "sounds", None) else []
    if clips:
        pixels = heard(task, clips)
    rows = LEARNT[type(task)](task, pairs, clips or [scene.pixels for scene in scenes])
    examples = task.prepare(rows, None if translates else min(context, LONGEST))
    chosen = chosen_of(examples, context if translates else None)
    if tokenizer is None:
        return Sample([], [], [], [], [], 0, pixels, examples, chosen)
    luck = torch.Generator().manual_seed(seed)
    size = min(len(tokenizer), getattr(loaded.model.body.config, "vocab", len(tokenizer)))
    plain = sorted({*range(size)} - {*tokenizer.special}) or [*range(size)]
    longest = min(context, LONGEST, getattr(task, "limit", None) or LONGEST)
    ids, targets = tokens(task, pairs, longest)
    for count in RANDOM:
        ids.append(some_of(plain, min(count, longest), luck))
        targets.append([getattr(task, "first", 0), *some_of(plain, min(count, longest) - 1, luck)])
    texts = [] if clips else [text for text, _ in pairs]
    asked = [] if scenes or clips else [ASKED.get(type(task), lambda one, other: short(one))(*pair) for pair in pairs]
    return Sample(texts, asked, ids, targets if translates else [], plain, tokenizer.pad, pixels, examples, chosen)


def molecules(task: Any, lines: Sequence[str] | None) -> Sample:
    """Of one size, so that they can stand side by side without padding, and of atoms that the model knows."""
    texts = [path.bare for path in paths.paths(MOLECULES)] if lines is None else lines
    some = map(asked_for, filter(str.strip, texts))
    known = [row for row in some if not task.molecules.unknown(row)]
    sizes = Counter(len(row.graph.atoms) for row in known)
    rows = [row for row in known if len(row.graph.atoms) == max(sizes, key=sizes.__getitem__)][:MANY]
    if not rows:
        raise ValueError("there is no molecule of atoms that the model knows: give a file of SMILES that has some")
    labels = getattr(task, "labels", [""])
    mean, spread = getattr(task, "mean", 0.0), getattr(task, "spread", 1.0)
    rows = [
        row._replace(labels=(labels[i % len(labels)],), value=mean + spread * (i % 3)) for i, row in enumerate(rows)
    ]
    examples, every = task.prepare(rows, 0), np.arange(len(rows))
    given = task.input.given(examples, every, training=False)
    return Sample([], [row.text for row in rows], [], [], [], 0, given.x, examples, every)


def heard(task: Any, clips: Sequence[Any]) -> Tensor:
    """Frames of all of them, as many as the shortest has."""
    frames = [normal(task.sounds.frames(clip)) for clip in clips]
    tokens = max(1, min(map(len, frames)) // task.sounds.stride)
    length = tokens * task.sounds.stride
    return torch.from_numpy(side_by_side([one[:length] for one in frames], length))


def tokens(task: Any, pairs: Halves, longest: int) -> tuple[list[list[int]], list[list[int]]]:
    """What is read, and for a translator what is to be said; cut to a length that is soon computed."""
    tokenizer = task.tokenizer
    texts, others = [text for text, _ in pairs], [other or text for text, other in pairs]
    if isinstance(task, Translate):
        sources, targets = task.encode(texts, max_length=longest), tokenizer.encode_targets(others, longest)
        targets = [[task.first, *row[:-1]] for row in targets]
    else:
        sources, targets = tokenizer.encode(texts, longest), [[0]] * len(texts)
    full = [(one[:longest], other[:longest]) for one, other in zip(sources, targets, strict=True) if one and other]
    return [one for one, _ in full], [other for _, other in full]


def some_of(plain: list[int], count: int, luck: torch.Generator) -> list[int]:
    return [plain[i] for i in torch.randint(len(plain), (count,), generator=luck).tolist()]


def chosen_of(examples: Any, context: int | None) -> Ints:
    """Rows that fit the model, if they were not cut. Of a corpus they are the places where windows begin."""
    if isinstance(examples, Windows):
        return np.arange(0, len(examples.ids) - examples.length + 1, examples.length)[:MANY]
    fits: Ints = np.arange(len(examples.lengths))
    if context is not None:
        fits = np.flatnonzero(examples.lengths.max(1) <= context)
    if not len(fits):
        raise ValueError(f"no text of the sample fits this model's context of {context}: give shorter ones")
    return fits[:MANY]
