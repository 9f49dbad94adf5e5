"""Probes: the inputs that checks feed a model: texts, images, audio or molecules that fit its task, and random tokens.

The texts are the user's, or the first bundled ones for the task. The same seed gives the same probes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.check.probe_texts import (
    PROBE_COUNT,
    REQUESTS,
    TRAINING_ROWS,
    TextPairs,
    bundled_texts,
    first_words,
    split_pair,
)
from regard.data.batches import Ints, Ragged, padding_mask
from regard.data.bundled import paths, shapes, voices
from regard.data.logmel import normalize_clip, pad_clips
from regard.data.molecules import parse_molecule
from regard.data.token_corpus import TokenWindows
from regard.load import LoadedModel
from regard.tasks.classify import Classify
from regard.tasks.embed import Embed
from regard.tasks.translate import Translate

MAX_TOKENS = 32  # of a text
MOLECULE_POOL = 200  # from which the probes are those of one size
RANDOM_LENGTHS = (9, 5)  # of the rows of random tokens


class ModelInputs(NamedTuple):
    """One batch for a forward."""

    x: Tensor  # (B,T) ids, (B,C,H,W) images, (B,frames,mels) audio or (B,T,P) atoms
    mask: Tensor | None = None  # (B,1,1,T), True = a token
    target: Tensor | None = None  # (B,T) decoder inputs of an encoder-decoder
    pairs: Tensor | None = None  # (B,T,T) kinds of token pairs

    def select(self, rows: Any) -> ModelInputs:
        return ModelInputs(*(None if part is None else part[rows] for part in self))  # type: ignore[arg-type]


class Probes(NamedTuple):
    texts: list[str]
    requests: list[str]  # of a user; none for images and audio, which would have to be files
    ids: list[list[int]]  # rows of tokens, the random ones last
    targets: list[list[int]]  # decoder inputs of an encoder-decoder, one for each row
    regular_tokens: list[int]  # all tokens but the special ones
    pad: int
    features: ModelInputs | None  # images, molecules or audio, all of one length
    examples: Any  # of the task, with labels; None if it cannot be trained on probes
    example_rows: Ints  # the rows of `examples` to use

    def inputs(self, rows: Sequence[int], length: int | None = None, pad_ids: Tensor | None = None) -> ModelInputs:
        """Rows as one batch, cut to `length`; rows of equal length have no mask. `pad_ids` (N,) fill the padding."""
        target = self.decoder_inputs(rows, length)
        if self.targets and self.features is not None:
            return self.features.select([i % len(self.features.x) for i in rows])._replace(target=target)
        ids = [self.ids[i][:length] for i in rows]
        if len({len(row) for row in ids}) == 1:
            return ModelInputs(torch.tensor(ids), None, target)
        table = Ragged(ids)
        indices = np.arange(len(ids))
        x = table.pad(indices, self.pad)
        mask = padding_mask(table.lengths, x.size(1))
        if pad_ids is not None:
            x = x.where(mask[:, 0, 0], pad_ids[torch.arange(x.numel()) % len(pad_ids)].view_as(x))
        return ModelInputs(x, mask, target)

    def decoder_inputs(self, rows: Sequence[int], length: int | None) -> Tensor | None:
        if not self.targets:
            return None
        return Ragged([self.targets[i][:length] for i in rows]).pad(np.arange(len(rows)), self.pad)

    def batch(self, task: Any, rows: Ints) -> Any:
        options = {"training": False} if isinstance(task, Classify | Translate) else {}
        return task.collate(self.examples, rows, **options)


def build_probes(loaded: LoadedModel, lines: Sequence[str] | None = None, seed: int = 0) -> Probes:
    task: Any = loaded.task
    if getattr(task, "molecules", None) is not None:
        return molecule_probes(task, lines)
    tokenizer, is_seq2seq = loaded.tokenizer, isinstance(task, Translate)
    context = getattr(loaded.model.body.config, "context", MAX_TOKENS)
    pairs = bundled_texts(task) if lines is None else [pair for pair in map(split_pair, lines) if pair[0]][:PROBE_COUNT]
    if not pairs:
        raise ValueError("there is no text to check the model with: give a file that has some")
    scenes = shapes.shapes(PROBE_COUNT) if getattr(task, "image_processor", None) is not None else []
    features = None
    if scenes:
        pixels = torch.from_numpy(task.image_processor.prepare([scene.pixels for scene in scenes]))
        features = ModelInputs(task.image_processor.normalize(pixels))
    if isinstance(task, Embed) and features is not None:  # no pairs of images are bundled
        return Probes([], [], [], [], [], 0, features, None, np.arange(0))
    clips = (
        [clip.samples for clip in voices.voices("valid", 1)[:PROBE_COUNT]]
        if getattr(task, "feature_extractor", None)
        else []
    )
    if clips:
        features = ModelInputs(logmel_batch(task, clips))
    rows = TRAINING_ROWS[type(task)](task, pairs, clips or [scene.pixels for scene in scenes])
    examples = task.encode(rows, None if is_seq2seq else min(context, MAX_TOKENS))
    example_rows = select_rows(examples, context if is_seq2seq else None)
    if tokenizer is None:
        return Probes([], [], [], [], [], 0, features, examples, example_rows)
    generator = torch.Generator().manual_seed(seed)
    size = min(len(tokenizer), getattr(loaded.model.body.config, "vocab", len(tokenizer)))
    regular_tokens = sorted({*range(size)} - {*tokenizer.all_special_ids}) or [*range(size)]
    max_tokens = min(context, MAX_TOKENS, getattr(task, "limit", None) or MAX_TOKENS)
    ids, targets = encode_pairs(task, pairs, max_tokens)
    for length in (min(length, max_tokens) for length in RANDOM_LENGTHS):
        ids.append(random_tokens(regular_tokens, length, generator))
        targets.append([getattr(task, "first", 0), *random_tokens(regular_tokens, length - 1, generator)])
    texts = [] if clips else [text for text, _ in pairs]
    request = REQUESTS.get(type(task), lambda text, _: first_words(text))
    requests = [] if scenes or clips else [request(*pair) for pair in pairs]
    return Probes(
        texts, requests, ids, targets if is_seq2seq else [], regular_tokens, tokenizer.pad_token_id, features, examples,
        example_rows,
    )  # fmt: skip


def molecule_probes(task: Any, lines: Sequence[str] | None) -> Probes:
    """Molecules of one size, which need no padding, and of atoms in the model's vocabulary."""
    texts = [path.unmarked_smiles for path in paths.paths(MOLECULE_POOL)] if lines is None else lines
    parsed = map(parse_molecule, filter(str.strip, texts))
    supported = [row for row in parsed if not task.molecules.unknown_element(row)]
    sizes = Counter(len(row.graph.atoms) for row in supported)
    rows = [row for row in supported if len(row.graph.atoms) == max(sizes, key=sizes.__getitem__)][:PROBE_COUNT]
    if not rows:
        raise ValueError("there is no molecule of atoms that the model knows: give a file of SMILES that has some")
    labels = getattr(task, "labels", [""])
    mean, spread = getattr(task, "mean", 0.0), getattr(task, "std", 1.0)
    rows = [
        row._replace(labels=(labels[i % len(labels)],), value=mean + spread * (i % 3)) for i, row in enumerate(rows)
    ]
    examples, indices = task.encode(rows, 0), np.arange(len(rows))
    inputs = task.input.collate(examples, indices, training=False)
    features = ModelInputs(inputs.x, pairs=inputs.pairs)
    return Probes([], [row.text for row in rows], [], [], [], 0, features, examples, indices)


def logmel_batch(task: Any, clips: Sequence[Any]) -> Tensor:
    """(B,frames,mels), all cut to the shortest clip."""
    spectrograms = [normalize_clip(task.feature_extractor.frames(clip)) for clip in clips]
    tokens = max(1, min(map(len, spectrograms)) // task.feature_extractor.stride)
    length = tokens * task.feature_extractor.stride
    return torch.from_numpy(pad_clips([frames[:length] for frames in spectrograms], length))


def encode_pairs(task: Any, pairs: TextPairs, max_tokens: int) -> tuple[list[list[int]], list[list[int]]]:
    """Source ids and decoder inputs, cut to `max_tokens`."""
    tokenizer = task.tokenizer
    texts, target_texts = [text for text, _ in pairs], [target or text for text, target in pairs]
    if isinstance(task, Translate):
        sources = task.encode_sources(texts, max_length=max_tokens)
        targets = tokenizer.encode_targets(target_texts, max_tokens)
        targets = [[task.start_token, *row[:-1]] for row in targets]
    else:
        sources, targets = tokenizer.encode(texts, max_tokens), [[0]] * len(texts)
    full = [(s[:max_tokens], t[:max_tokens]) for s, t in zip(sources, targets, strict=True) if s and t]
    return [source for source, _ in full], [target for _, target in full]


def random_tokens(regular_tokens: list[int], count: int, generator: torch.Generator) -> list[int]:
    return [regular_tokens[i] for i in torch.randint(len(regular_tokens), (count,), generator=generator).tolist()]


def select_rows(examples: Any, context: int | None) -> Ints:
    """Rows that fit the context, if `prepare` did not cut them. For a corpus, the starts of windows."""
    if isinstance(examples, TokenWindows):
        return np.arange(0, len(examples.ids) - examples.length + 1, examples.length)[:PROBE_COUNT]
    fitting: Ints = np.arange(len(examples.lengths))
    if context is not None:
        fitting = np.flatnonzero(examples.lengths.max(1) <= context)
    if not len(fitting):
        raise ValueError(f"no text fits this model's context of {context} tokens: give shorter ones")
    return fitting[:PROBE_COUNT]
