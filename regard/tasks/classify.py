"""Classify: labels of a text, a pair of texts, an image, a recording or a molecule.

one label      loss = - Σ log softmax(logits)[label]
multi-label    loss = - Σ log σ(±logits), + for labels that the example has, - for the others; unknown ones add nothing
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.audio_augment import AudioAugment
from regard.data.audio_files import LabelledAudio, read_labelled_audio
from regard.data.audio_io import open_audio
from regard.data.batches import Ints, batched, to_device
from regard.data.bundled import phrasebook, shapes
from regard.data.image_augment import ImageAugment
from regard.data.image_files import LabelledImage, open_image, read_images
from regard.data.image_transform import ImageTransform
from regard.data.labelled_text import LabelledText, read_labelled
from regard.data.lines import UTF8, Dialect
from regard.data.logmel import LogMel
from regard.data.molecules import MoleculeFeaturizer, parse_molecule, read_molecules
from regard.data.splits import Rows
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_train import TokenizerOptions
from regard.metrics import accuracy, macro_f1, mean_roc_auc, micro_f1
from regard.parts.heads import Classifier, Model, check_finite, head_transform
from regard.parts.pooling import POOLINGS
from regard.tasks.audio_input import AudioInput, bundled_clips, fit_audio
from regard.tasks.inputs import (
    ImageInput,
    Inputs,
    TargetBatch,
    TextInput,
    finite_vectors,
    fit_tokenizer,
    map_by_length,
    select_options,
)
from regard.tasks.molecule_input import MoleculeInput, MoleculeTask, bundled_paths
from regard.tasks.task import DecodeOptions, Loss, Prediction, fitted, make_samples
from regard.validate import check_fields


@dataclass
class Classify(MoleculeTask):
    pooling: Literal["mean", "sum", "first", "last", "attention", "pooler"] = "mean"  # pooling of the token vectors
    multi_label: bool = False  # an example has any number of labels instead of exactly one
    label_smoothing: float = 0.0  # target probability spread uniformly over all labels
    labels: list[str] = fitted()
    tokenizer: Tokenizer | None = fitted(None)
    image_processor: ImageTransform | None = fitted(None)
    molecules: MoleculeFeaturizer | None = fitted(None)
    image_augment: dict[str, Any] | None = fitted(None)  # augmentation of images in training
    feature_extractor: LogMel | None = fitted(None)
    audio_augment: dict[str, Any] | None = fitted(None)  # augmentation of recordings in training

    def __post_init__(self) -> None:
        check_fields(
            self,
            label_smoothing=(0 <= self.label_smoothing < 1, "at least 0 and below 1"),
            labels=(len(self.labels) > 0, "one label or more"),
        )

    description = "a text, two texts, an image, a recording or a molecule in, a label out"
    file_formats = (
        ".tsv, .csv or .jsonl of texts or SMILES and labels; folders of images or recordings, idx files or .npz"
    )
    bundled_data = (
        "kinds of sentences; for image models, shapes; for audio models, spoken digits; for molecules, paths of atoms"
    )
    requires = ("reads", "gathers", "sees", "hears", "bonds")
    default = "modernbert"
    head_fields = ("labels", "multi_label", "pooling")
    throughput_unit = "examples"
    percent_metrics = ("accuracy",)

    @classmethod
    def option_groups(cls, ability: str) -> tuple[type, ...]:
        return {"sees": (ImageAugment,), "hears": (AudioAugment,), "bonds": ()}.get(ability, (TokenizerOptions,))

    @classmethod
    def excluded_options(cls, ability: str) -> frozenset[str]:
        return frozenset({"max_words"}) if ability in ("hears", "bonds") else cls.ignored_options

    @classmethod
    def rows(
        cls,
        paths: tuple[str, ...],
        fields: tuple[str, ...] | None,
        ability: str,
        dialect: Dialect = UTF8,
        **task_options: Any,
    ) -> Rows:
        match ability:
            case "sees":
                return read_images(paths)
            case "hears":
                return read_labelled_audio(paths, fields)
            case "bonds":
                return read_molecules(paths, fields, "label", task_options["multi_label"], dialect)
        return read_labelled(paths, fields, task_options["multi_label"], dialect)

    @classmethod
    def bundled_rows(cls, ability: str, **_: Any) -> dict[str, Rows]:
        """The kind of a sentence; the main shape of an image; the spoken digit; the distance of two atoms."""
        if ability in ("hears", "bonds"):
            return dict(bundled_clips()) if ability == "hears" else bundled_paths()
        parts: dict[str, list[Any]] = {"train": [], "valid": [], "test": []}
        if ability == "sees":
            for line, scene in enumerate(shapes.shapes(), 1):
                parts[shapes.split(scene)].append(LabelledImage(scene.pixels, (scene.label,), "shapes", line))
        else:
            for line, phrase in enumerate(phrasebook.phrases(), 1):
                row = LabelledText(phrase.english, None, (phrase.kind,), "phrasebook", line)
                parts[phrasebook.split(phrase)].append(row)
        return dict(parts)

    @classmethod
    def fit(
        cls,
        rows: Any,
        ability: str,
        input_options: dict[str, Any],
        preprocessors: dict[str, Any],
        **task_options: Any,
    ) -> Classify:
        labels = sorted({label for row in rows for label in (*row.labels, *getattr(row, "missing_labels", ()))})
        if empty := [label for label in labels if all(label in getattr(row, "missing_labels", ()) for row in rows)]:
            raise ValueError(f"{rows[0].file}: the label {empty[0]!r} has only missing values: leave its column out")
        if len(labels) < 2 and not task_options["multi_label"]:
            raise ValueError(f"every example has the label {labels[0]!r}: a classifier needs at least two labels")
        if ability == "sees":
            processor = preprocessors.get("image_processor") or ImageTransform.fit(rows, input_options["image_size"])
            augment = select_options(ImageAugment, input_options)
            return cls(**task_options, labels=labels, image_processor=processor, image_augment=augment)
        if ability == "hears":
            return cls(**task_options, labels=labels, **fit_audio(rows, input_options, preprocessors))
        if ability == "bonds":
            return cls(
                **task_options, labels=labels, molecules=preprocessors.get("molecules") or MoleculeFeaturizer.fit(rows)
            )
        tokenizer = fit_tokenizer((text for row in rows for text in row.texts), input_options, preprocessors)
        return cls(**task_options, labels=labels, tokenizer=tokenizer)

    @cached_property
    def input(self) -> TextInput | ImageInput | AudioInput | MoleculeInput:
        if self.molecules is not None:
            return MoleculeInput(self.molecules)
        if self.image_processor is not None:
            return ImageInput(self.image_processor, ImageAugment(**self.image_augment or {}))
        if self.feature_extractor is not None:
            return AudioInput(self.feature_extractor, AudioAugment(**self.audio_augment or {}))
        assert self.tokenizer is not None
        return TextInput(self.tokenizer)

    def sizes(self) -> dict[str, int]:
        return self.input.sizes()

    def head(self, body: Any) -> Model:
        c, pooling = body.config, POOLINGS[self.pooling](body.config.dim)
        return Model(body, Classifier(c.dim, len(self.labels), pooling, c.dropout, head_transform(body)))

    def encode(self, rows: Sequence[Any], context: int) -> Any:
        targets = np.zeros((len(rows), len(self.labels)), np.float32)
        index = {label: i for i, label in enumerate(self.labels)}
        for i, row in enumerate(rows):
            for label in row.labels:
                if label not in index:
                    raise ValueError(f"{row.file}:{row.line}: the training data do not have the label {label!r}")
                targets[i, index[label]] = 1.0
            for label in index.keys() & {*getattr(row, "missing_labels", ())}:
                targets[i, index[label]] = math.nan
        return self.input.encode(rows, targets, context)

    def collate(self, examples: Any, rows: Ints, training: bool = True) -> TargetBatch:
        return TargetBatch(self.input.collate(examples, rows, training), torch.from_numpy(examples.targets[rows]))

    def logits(self, model: Model, inputs: Inputs) -> Tensor:
        return model.head(model.body(*inputs.arguments), inputs.mask)  # (B,classes)

    def loss(self, model: Model, batch: TargetBatch) -> Loss:
        logits = self.logits(model, batch.inputs)
        return Loss(self.sum_loss(logits, batch.targets, self.label_smoothing), len(logits))

    def sum_loss(self, logits: Tensor, targets: Tensor, label_smoothing: float) -> Tensor:
        if self.multi_label:
            smooth, labelled = targets * (1 - label_smoothing) + label_smoothing / 2, ~targets.isnan()
            return F.binary_cross_entropy_with_logits(logits[labelled], smooth[labelled], reduction="sum")
        return F.cross_entropy(logits, targets.argmax(-1), reduction="sum", label_smoothing=label_smoothing)

    @torch.inference_mode()
    def score(self, model: Model, rows: Sequence[Any], options: DecodeOptions | None = None) -> dict[str, Any]:
        examples = self.encode(rows, getattr(model.body.config, "context", 0))
        logits = self.all_logits(model, examples)
        loss = self.sum_loss(logits, torch.from_numpy(examples.targets), 0.0).item() / len(rows)
        missing_labels = [getattr(row, "missing_labels", ()) for row in rows]
        predicted = [
            tuple(label for label in self.predicted_labels(row_logits) if label not in missing)
            for row_logits, missing in zip(logits, missing_labels, strict=True)
        ]
        targets = [tuple(row.labels) for row in rows]
        predictions = [", ".join(labels) for labels in predicted]
        truth = [", ".join(sorted(labels)) for labels in targets]
        scored = [i for i, labelled in enumerate(~np.isnan(examples.targets)) if labelled.any()]
        if not scored:
            raise ValueError(f"{rows[0].file}: no row has a known label, so there is nothing to score")
        scores = {"loss": loss, "accuracy": accuracy([truth[i] for i in scored], [predictions[i] for i in scored])}
        scores["f1"] = micro_f1(targets, predicted) if self.multi_label else macro_f1(truth, predictions)
        if self.multi_label and (area := mean_roc_auc(examples.targets, logits.numpy())) is not None:
            scores["roc_auc"] = area
        sources = [getattr(row, "text", f"{row.file}:{row.line}") for row in rows]
        return {**scores, "predictions": predictions, "samples": make_samples(sources, truth, predictions)}

    def all_logits(self, model: Model, examples: Any) -> Tensor:
        device = next(model.parameters()).device

        def batch_logits(rows: Ints) -> Tensor:
            logits = self.logits(model, to_device(self.input.collate(examples, rows, training=False), device))
            return check_finite(logits.float().cpu())

        return map_by_length(examples.lengths[:, 0], batch_logits)

    def predicted_labels(self, logits: Tensor) -> tuple[str, ...]:
        indices = (logits > 0).nonzero()[:, 0] if self.multi_label else logits.argmax(-1, keepdim=True)
        return tuple(self.labels[i] for i in indices.tolist())

    def example(self) -> str:
        kinds = {"picture.png": self.image_processor, "sound.wav": self.feature_extractor, "CCO": self.molecules}
        return next((example for example, preprocessor in kinds.items() if preprocessor is not None), "your text")

    def rank(self, scores: dict[str, Any]) -> tuple[float, ...]:
        """By accuracy, or F1 of multi-label data. Labels of molecules are rare, so these rank by ROC AUC."""
        main = "f1" if self.multi_label else "accuracy"
        main = "roc_auc" if self.molecules and "roc_auc" in scores else main
        return round(scores[main], 3), -round(scores["loss"], 4)

    @torch.inference_mode()
    def predict(
        self, model: Model, raw: Iterable[str], options: DecodeOptions, first: int = 0
    ) -> Iterator[list[Prediction]]:
        """Inputs are texts, two texts separated by a tab, names of image or audio files, or SMILES."""
        for chunk in batched(raw, 256):
            for logits in self.all_logits(model, self.encode_raw(chunk, model)):
                probs = logits.sigmoid() if self.multi_label else logits.softmax(-1)
                best = probs.topk(min(options.num_return, len(self.labels)))
                pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
                predictions = [Prediction(self.labels[i], float(np.log(max(p, 1e-38))), p) for p, i in pairs]
                if self.multi_label and options.num_return == 1:
                    predictions = [predictions[0]._replace(text=", ".join(self.predicted_labels(logits)))]
                yield predictions

    @torch.inference_mode()
    def embed(self, model: Model, raw: Iterable[str]) -> Iterator[list[float]]:
        """The pooled vector that the classifier reads."""
        device = next(model.parameters()).device
        for chunk in batched(raw, 256):
            examples = self.encode_raw(chunk, model)

            def pooled(rows: Ints, examples: Any = examples) -> Tensor:
                inputs = to_device(self.input.collate(examples, rows, training=False), device)
                return finite_vectors(model.head.pooling(model.body(*inputs.arguments), inputs.mask))

            yield from map_by_length(examples.lengths[:, 0], pooled).tolist()

    def encode_raw(self, raw: Sequence[str], model: Model) -> Any:
        rows, targets = [self.parse_input(text) for text in raw], np.zeros((len(raw), len(self.labels)), np.float32)
        return self.input.encode(rows, targets, getattr(model.body.config, "context", 0))

    def parse_input(self, text: str) -> Any:
        if self.image_processor is not None:
            return LabelledImage(open_image(text), (), text, 1)
        if self.molecules is not None:
            return parse_molecule(text)
        if self.feature_extractor is not None:
            return LabelledAudio(*open_audio(text), (), text, 1)
        first, _, second = text.partition("\t")
        return LabelledText(first, second or None, (), "", 1)
