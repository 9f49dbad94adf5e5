"""Classify: which of some labels does a text, a pair of texts, a picture, a sound or a molecule have? One, or many.

one      loss = - Σ log softmax(logits)[label]
many     loss = - Σ log σ(±logits), + for labels it has, - for those it has not; a gap, which nobody knows, adds nothing
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.batches import Ints, handfuls, to_device
from regard.data.bundled import phrasebook, shapes
from regard.data.files import Rows
from regard.data.hearing import Hearing
from regard.data.images import Picture, open_picture, read_pictures
from regard.data.labelled import Labelled, read_labelled
from regard.data.lines import UTF8, Dialect
from regard.data.mels import Mels
from regard.data.molecules import Molecules, asked_for, read_molecules
from regard.data.pictures import Pictures
from regard.data.pieces import Pieces
from regard.data.recordings import open_sound
from regard.data.sounds import Sound, read_sounds
from regard.data.tokens import Tokenizer
from regard.data.views import Views
from regard.metrics import accuracy, macro_f1, mean_roc_auc, micro_f1
from regard.parts.heads import Classifier, Model, must_be_finite, thought_of
from regard.parts.pooling import POOLINGS
from regard.tasks.bonds import Bonded, MayBond, MoleculeInput, bundled_paths
from regard.tasks.inputs import (
    Drawn,
    Given,
    ImageInput,
    TextInput,
    Written,
    finite_vectors,
    fit_tokenizer,
    in_order,
    told,
)
from regard.tasks.listening import Heard, SoundInput, bundled_clips, fit_sounds
from regard.tasks.task import Answer, Choices, Loss, learnt, samples
from regard.validate import check_fields


class Labels(NamedTuple):
    x: Tensor  # (B,T) ids, (B,C,H,W) pictures, (B,frames,mels) sounds or (B,T,P+T) atoms
    mask: Tensor | None  # (B,1,1,T)
    wanted: Tensor  # (B,classes), 1 where it has the label, NaN where nobody knows


@dataclass
class Classify(MayBond):
    pooling: Literal["mean", "sum", "first", "last", "attention", "pooler"] = "mean"  # how one vector is made of all
    many: bool = False  # any number of labels, not exactly one
    smoothing: float = 0.0  # this share of the wanted probability is spread over all labels
    labels: list[str] = learnt()
    tokenizer: Tokenizer | None = learnt(None)
    pictures: Pictures | None = learnt(None)
    molecules: Molecules | None = learnt(None)
    views: dict[str, Any] | None = learnt(None)  # how pictures are looked at in training
    sounds: Mels | None = learnt(None)
    hearing: dict[str, Any] | None = learnt(None)  # how sounds are heard in training

    def __post_init__(self) -> None:
        check_fields(
            self,
            smoothing=(0 <= self.smoothing < 1, "at least 0 and below 1"),
            labels=(len(self.labels) > 0, "one label or more"),
        )

    about = "a text, two texts, a picture, a sound or a molecule in, a label out"
    takes = ".tsv, .csv or .jsonl of texts or SMILES and labels; folders of pictures or sounds, idx files or .npz"
    ships = (
        "kinds of sentences; for models that see, shapes; that hear, spoken digits; of molecules, paths between atoms"
    )
    asks = ("reads", "gathers", "sees", "hears", "bonds")
    default = "modernbert"
    of_the_head = ("labels", "many", "pooling")
    counts = "examples"
    shares = ("accuracy",)

    @classmethod
    def groups(cls, ability: str) -> tuple[type, ...]:
        return {"sees": (Views,), "hears": (Hearing,), "bonds": ()}.get(ability, (Pieces,))

    @classmethod
    def leaves_out(cls, ability: str) -> frozenset[str]:
        return frozenset({"longest"}) if ability in ("hears", "bonds") else cls.unused

    @classmethod
    def rows(
        cls, paths: tuple[str, ...], fields: tuple[str, ...] | None, ability: str, dialect: Dialect = UTF8, **aim: Any
    ) -> Rows:
        match ability:
            case "sees":
                return read_pictures(paths)
            case "hears":
                return read_sounds(paths, fields)
            case "bonds":
                return read_molecules(paths, fields, "label", aim["many"], dialect)
        return read_labelled(paths, fields, aim["many"], dialect)

    @classmethod
    def bundled(cls, ability: str, **aim: Any) -> dict[str, Rows]:
        """The kinds of sentences in the phrasebook; the main shape of a scene; the digit that is said; how far apart
        two atoms are."""
        if ability == "hears":
            return dict(bundled_clips())
        parts: dict[str, list[Any]] = {"train": [], "valid": [], "test": []}
        if ability == "bonds":
            return bundled_paths()
        if ability == "sees":
            for line, scene in enumerate(shapes.shapes(), 1):
                parts[shapes.split(scene)].append(Picture(scene.pixels, (scene.label,), "shapes", line))
        else:
            for line, phrase in enumerate(phrasebook.phrases(), 1):
                row = Labelled(phrase.english, None, (phrase.kind,), "phrasebook", line)
                parts[phrasebook.split(phrase)].append(row)
        return dict(parts)

    @classmethod
    def fit(cls, rows: Any, ability: str, reading: dict[str, Any], readers: dict[str, Any], **aim: Any) -> Classify:
        labels = sorted({label for row in rows for label in (*row.labels, *getattr(row, "gaps", ()))})
        if empty := [label for label in labels if all(label in getattr(row, "gaps", ()) for row in rows)]:
            raise ValueError(f"{rows[0].file}: there is nothing to learn of the label {empty[0]!r}: it has only gaps")
        if len(labels) < 2 and not aim["many"]:
            raise ValueError(f"there is nothing to tell apart: every example has the label {labels[0]!r}")
        if ability == "sees":
            pictures = readers.get("pictures") or Pictures.fit(rows, reading["side"])
            return cls(**aim, labels=labels, pictures=pictures, views=told(Views, reading))
        if ability == "hears":
            return cls(**aim, labels=labels, **fit_sounds(rows, reading, readers))
        if ability == "bonds":
            return cls(**aim, labels=labels, molecules=readers.get("molecules") or Molecules.fit(rows))
        tokenizer = fit_tokenizer((text for row in rows for text in row.texts), reading, readers)
        return cls(**aim, labels=labels, tokenizer=tokenizer)

    @cached_property
    def input(self) -> TextInput | ImageInput | SoundInput | MoleculeInput:
        if self.molecules is not None:
            return MoleculeInput(self.molecules)
        if self.pictures is not None:
            return ImageInput(self.pictures, Views(**self.views or {}))
        if self.sounds is not None:
            return SoundInput(self.sounds, Hearing(**self.hearing or {}))
        assert self.tokenizer is not None
        return TextInput(self.tokenizer)

    def sizes(self) -> dict[str, int]:
        return self.input.sizes()

    def head(self, body: Any) -> Model:
        c, pooling = body.config, POOLINGS[self.pooling](body.config.dim)
        return Model(body, Classifier(c.dim, len(self.labels), pooling, c.dropout, thought_of(body)))

    def prepare(self, rows: Sequence[Any], context: int) -> Written | Drawn | Heard | Bonded:
        wanted = np.zeros((len(rows), len(self.labels)), np.float32)
        place = {label: i for i, label in enumerate(self.labels)}
        for i, row in enumerate(rows):
            for label in row.labels:
                if label not in place:
                    raise ValueError(
                        f"{row.file}:{row.line}: the label {label!r} is not among those of the training data"
                    )
                wanted[i, place[label]] = 1.0
            for gap in place.keys() & {*getattr(row, "gaps", ())}:
                wanted[i, place[gap]] = math.nan
        return self.input.prepare(rows, wanted, context)

    def batch(self, examples: Any, rows: Ints, training: bool = True) -> Labels:
        return Labels(*self.input.given(examples, rows, training), torch.from_numpy(examples.wanted[rows]))

    def logits(self, model: Model, given: Given | Labels) -> Tensor:
        if given.mask is None:
            return model.head(model.body(given.x))
        return model.head(model.body(given.x, given.mask), given.mask)  # (B,classes)

    def loss(self, model: Model, batch: Labels) -> Loss:
        return Loss(self.cost(self.logits(model, batch), batch.wanted, self.smoothing), len(batch.x))

    def cost(self, logits: Tensor, wanted: Tensor, smoothing: float) -> Tensor:
        if self.many:
            even, known = wanted * (1 - smoothing) + smoothing / 2, ~wanted.isnan()
            return F.binary_cross_entropy_with_logits(logits[known], even[known], reduction="sum")
        return F.cross_entropy(logits, wanted.argmax(-1), reduction="sum", label_smoothing=smoothing)

    @torch.inference_mode()
    def score(self, model: Model, rows: Sequence[Any], how: Choices | None = None) -> dict[str, Any]:
        examples = self.prepare(rows, getattr(model.body.config, "context", 0))
        logits = self.all_logits(model, examples)
        loss = self.cost(logits, torch.from_numpy(examples.wanted), 0.0).item() / len(rows)
        gaps = [getattr(row, "gaps", ()) for row in rows]
        said = [tuple(n for n in self.names(one) if n not in gap) for one, gap in zip(logits, gaps, strict=True)]
        wanted = [tuple(row.labels) for row in rows]
        answers = [", ".join(labels) for labels in said]
        truth = [", ".join(sorted(labels)) for labels in wanted]
        told = [i for i, known in enumerate(~np.isnan(examples.wanted)) if known.any()]
        if not told:
            raise ValueError(f"{rows[0].file}: there is nothing to score: no label of any row is known")
        scores = {"loss": loss, "accuracy": accuracy([truth[i] for i in told], [answers[i] for i in told])}
        scores["f1"] = micro_f1(wanted, said) if self.many else macro_f1(truth, answers)
        if self.many and (area := mean_roc_auc(examples.wanted, logits.numpy())) is not None:
            scores["roc_auc"] = area
        asked = [getattr(row, "text", f"{row.file}:{row.line}") for row in rows]
        return {**scores, "answers": answers, "samples": samples(asked, truth, answers)}

    def all_logits(self, model: Model, examples: Any) -> Tensor:
        device = next(model.parameters()).device

        def answer(rows: Ints) -> Tensor:
            logits = self.logits(model, to_device(self.batch(examples, rows, training=False), device))
            return must_be_finite(logits.float().cpu())

        return in_order(examples.lengths[:, 0], answer)

    def names(self, logits: Tensor) -> tuple[str, ...]:
        chosen = (logits > 0).nonzero()[:, 0] if self.many else logits.argmax(-1, keepdim=True)
        return tuple(self.labels[i] for i in chosen.tolist())

    def example(self) -> str:
        kinds = {"picture.png": self.pictures, "sound.wav": self.sounds, "CCO": self.molecules}
        return next((example for example, reader in kinds.items() if reader is not None), "your text")

    def rank(self, scores: dict[str, Any]) -> tuple[float, ...]:
        """Few molecules have a label, so that most are said to have none: what counts is who is likelier to have it."""
        main = "f1" if self.many else "accuracy"
        main = "roc_auc" if self.molecules and "roc_auc" in scores else main
        return round(scores[main], 3), -round(scores["loss"], 4)

    @torch.inference_mode()
    def predict(self, model: Model, raw: Iterable[str], how: Choices, first: int = 0) -> Iterator[list[Answer]]:
        """Texts, two texts with a tab between them, names of files of pictures or sounds, or SMILES."""
        for some in handfuls(raw, 256):
            for logits in self.all_logits(model, self.unlabelled(some, model)):
                probs = logits.sigmoid() if self.many else logits.softmax(-1)
                best = probs.topk(min(how.num_return, len(self.labels)))
                pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
                answers = [Answer(self.labels[i], float(np.log(max(p, 1e-38))), p) for p, i in pairs]
                if self.many and how.num_return == 1:
                    answers = [Answer(", ".join(self.names(logits)), answers[0].logp, answers[0].score)]
                yield answers

    @torch.inference_mode()
    def embed(self, model: Model, raw: Iterable[str]) -> Iterator[list[float]]:
        """What the head sees: all vectors of the body, pooled."""
        device = next(model.parameters()).device
        for some in handfuls(raw, 256):
            examples = self.unlabelled(some, model)

            def pooled(rows: Ints, examples: Any = examples) -> Tensor:
                given = to_device(self.batch(examples, rows, training=False), device)
                x = model.body(given.x) if given.mask is None else model.body(given.x, given.mask)
                return finite_vectors(model.head.pooling(x, given.mask))

            yield from in_order(examples.lengths[:, 0], pooled).tolist()

    def unlabelled(self, raw: Sequence[str], model: Model) -> Any:
        wanted = np.zeros((len(raw), len(self.labels)), np.float32)
        return self.input.prepare([self.asked(text) for text in raw], wanted, getattr(model.body.config, "context", 0))

    def asked(self, text: str) -> Any:
        if self.pictures is not None:
            return Picture(open_picture(text), (), text, 1)
        if self.molecules is not None:
            return asked_for(text)
        if self.sounds is not None:
            return Sound(*open_sound(text), (), text, 1)
        first, _, second = text.partition("\t")
        return Labelled(first, second or None, (), "", 1)
