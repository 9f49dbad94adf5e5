"""Match: image-text matching (CLIP, Radford et al. 2021). Images and texts of a pair have similar vectors.

    loss = - ½ Σ_i (log softmax_j(s[i, :])[i] + log softmax_j(s[:, i])[i]),   s[i, j] = score(image i, text j)

The other pairs of a batch are the negatives. A text that is known to belong to the image too, or an image to the text,
is left out of the softmax.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from regard.data.batches import BucketedExamples, Ints, Ragged, batched, to_device
from regard.data.bundled import shapes
from regard.data.image_augment import ImageAugment
from regard.data.image_files import IMAGE_FORMATS, CaptionedImage, Pixels, digest, open_image, read_captioned_images
from regard.data.image_transform import ImageTransform
from regard.data.lines import UTF8, Dialect
from regard.data.splits import Rows
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_train import TokenizerOptions
from regard.metrics import recall_at
from regard.parts.heads import Model, check_finite
from regard.tasks.contrastive import contrastive_loss, deduplicate, false_negatives, retrieval_ranks
from regard.tasks.inputs import (
    ImageExamples,
    ImageInput,
    TextExamples,
    TextInput,
    finite_vectors,
    fit_tokenizer,
    map_by_length,
    select_options,
)
from regard.tasks.task import DecodeOptions, Loss, Prediction, Task, fitted, make_samples
from regard.validate import check_fields

EVAL_BATCH = 50  # pairs over which the loss of an evaluation is computed


@dataclass(frozen=True)
class MatchOptions(DecodeOptions):
    """Decode options of zero-shot classification."""

    prompt: str = "{}"  # text around each label, which replaces {}: "a photo of a {}"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, prompt=("{}" in self.prompt, "a text with {} in it, where the label goes"))


class ImageTextBatch(NamedTuple):
    pixels: Tensor  # (B,C,H,W)
    ids: Tensor  # (B,T)
    mask: Tensor  # (B,1,1,T), True = a token
    false_negatives: Tensor  # (B,B), True = image and text of two pairs that are a pair elsewhere


class ImageTextExamples(BucketedExamples):
    """Each image and each text once, and the pairs by index. All pairs count as equally long, so that a batch holds
    texts of all lengths."""

    def __init__(self, images: ImageExamples, texts: TextExamples, pairs: Ints):
        self.images, self.texts = images, texts
        self.pairs = pairs  # (2,N), indices of image and text
        self.units = pairs.shape[1]
        self.lengths = np.full((self.units, 1), max(images.lengths.max(), texts.lengths.max()))


@dataclass
class Match(Task):
    tokenizer: Tokenizer = fitted()
    image_processor: ImageTransform = fitted()
    image_augment: dict[str, Any] | None = fitted(None)  # augmentation of images in training

    description = "an image and candidate labels in, the label that fits best out"
    file_formats = "a .tsv of image files and captions, or a folder with captions.tsv"
    bundled_data = "shapes, with captions"
    requires = ("matches",)
    default = "clip"
    throughput_unit = "pairs"
    percent_metrics = ("recall_at_1",)
    eval_limit = 1000
    decode_options = MatchOptions

    @classmethod
    def option_groups(cls, ability: str) -> tuple[type, ...]:
        return (TokenizerOptions, ImageAugment)

    @classmethod
    def rows(
        cls, paths: tuple[str, ...], fields: tuple[str, ...] | None, ability: str, dialect: Dialect = UTF8, **_: Any
    ) -> Rows:
        return read_captioned_images(paths, fields, dialect)

    @classmethod
    def bundled_rows(cls, ability: str, **_: Any) -> dict[str, Rows]:
        """Images of coloured shapes, and their captions."""
        parts: dict[str, list[Any]] = {"train": [], "valid": [], "test": []}
        for line, scene in enumerate(shapes.shapes(), 1):
            parts[shapes.split(scene)].append(CaptionedImage(scene.pixels, scene.caption, "shapes", line))
        return dict(parts)

    @classmethod
    def fit(
        cls,
        rows: Any,
        ability: str,
        input_options: dict[str, Any],
        preprocessors: dict[str, Any],
        **task_options: Any,
    ) -> Match:
        if len({row.caption for row in rows}) < 2:
            raise ValueError(f"every image has the caption {rows[0].caption!r}: at least two captions are needed")
        tokenizer = fit_tokenizer((row.caption for row in rows), input_options, preprocessors)
        augment = select_options(ImageAugment, input_options)
        processor = preprocessors.get("image_processor") or ImageTransform.fit(rows, input_options["image_size"])
        return cls(**task_options, tokenizer=tokenizer, image_processor=processor, image_augment=augment)

    @property
    def image_input(self) -> ImageInput:
        return ImageInput(self.image_processor, ImageAugment(**self.image_augment or {}))

    @property
    def text_input(self) -> TextInput:
        return TextInput(self.tokenizer)

    def sizes(self) -> dict[str, int]:
        return self.text_input.sizes() | self.image_input.sizes()

    def head(self, body: Any) -> Model:
        """The towers contain their projections."""
        return Model(body, nn.Identity())

    def encode(self, rows: Sequence[CaptionedImage], context: int) -> ImageTextExamples:
        """A caption longer than the context is truncated."""
        pixels, images = deduplicate((self.image_processor.prepare([row.pixels])[0] for row in rows), digest)
        ids, texts = deduplicate(self.tokenizer.encode([row.caption for row in rows], context), tuple)
        examples = ImageExamples(np.stack(pixels), None), TextExamples(Ragged(ids), None)
        return ImageTextExamples(*examples, np.stack([images, texts]))

    def collate(self, examples: ImageTextExamples, rows: Ints) -> ImageTextBatch:
        pairs = examples.pairs[:, rows]
        pixels = self.image_input.collate(examples.images, pairs[0], training=True).x
        ids, mask, _ = self.text_input.collate(examples.texts, pairs[1], training=True)
        assert mask is not None
        return ImageTextBatch(pixels, ids, mask, false_negatives(examples.pairs, rows))

    def loss(self, model: Model, batch: ImageTextBatch) -> Loss:
        pixels, ids, mask, ignore = batch
        return Loss(contrastive_loss(model(pixels, ids, mask), ignore), len(ids))

    def embed(self, model: Model, raw: Iterable[str]) -> Iterator[list[float]]:
        """The vector in the joint space. A line that names an existing image file is an image, any other a text."""
        for line in raw:
            is_image = Path(line).suffix.lower() in IMAGE_FORMATS and Path(line).is_file()
            vectors = self.embed_images(model, [open_image(line)]) if is_image else self.embed_texts(model, [line])
            yield vectors[0].tolist()

    @torch.inference_mode()
    def text_vectors(self, model: Model, texts: TextExamples) -> Tensor:
        device = next(model.parameters()).device

        def embed_batch(rows: Ints) -> Tensor:
            ids, mask, _ = to_device(self.text_input.collate(texts, rows, training=False), device)
            return finite_vectors(model.body.text(ids, mask))

        return map_by_length(texts.lengths[:, 0], embed_batch)  # (N,E)

    @torch.inference_mode()
    def image_vectors(self, model: Model, images: ImageExamples) -> Tensor:
        device = next(model.parameters()).device

        def embed_batch(rows: Ints) -> Tensor:
            return finite_vectors(model.body.image(self.image_input.collate(images, rows, training=False).x.to(device)))

        return map_by_length(images.lengths[:, 0], embed_batch)  # (N,E)

    def embed_texts(self, model: Model, texts: Sequence[str]) -> Tensor:
        """(N,E), normalised."""
        ids = self.tokenizer.encode(texts, model.body.config.context)
        return self.text_vectors(model, TextExamples(Ragged(ids), None))

    def embed_images(self, model: Model, images: Sequence[Pixels]) -> Tensor:
        """(N,E), normalised."""
        return self.image_vectors(model, ImageExamples(self.image_processor.prepare(images), None))

    def search(
        self, model: Model, rows: Sequence[CaptionedImage], query: str | Pixels
    ) -> list[tuple[CaptionedImage, float]]:
        """All rows with their cosine similarities, best first: a text retrieves images, an image texts."""
        if isinstance(query, str):
            cosines = self.embed_images(model, [row.pixels for row in rows]) @ self.embed_texts(model, [query])[0]
        else:
            cosines = self.embed_texts(model, [row.caption for row in rows]) @ self.embed_images(model, [query])[0]
        return [(rows[i], cosines[i].item()) for i in cosines.argsort(descending=True, stable=True).tolist()]

    @torch.inference_mode()
    def score(
        self, model: Model, rows: Sequence[CaptionedImage], options: MatchOptions | None = None
    ) -> dict[str, Any]:
        """Retrieval of a text of each image among all texts, and of an image of each text among all images."""
        examples = self.encode(rows, model.body.config.context)
        images, texts = self.image_vectors(model, examples.images), self.text_vectors(model, examples.texts)
        device, total = next(model.parameters()).device, 0.0
        for chunk in (slice(i, i + EVAL_BATCH) for i in range(0, len(rows), EVAL_BATCH)):
            image, text = examples.pairs[:, chunk]
            scores = model.body.scores(images[image].to(device), texts[text].to(device)).cpu()
            total += contrastive_loss(scores, false_negatives(examples.pairs, chunk)).item()
        image, text = examples.pairs
        cosines = images @ texts.T  # (images, texts)
        relevant = torch.zeros_like(cosines, dtype=torch.bool)
        relevant[image, text] = True
        numbers = {"loss": total / len(rows)}
        for name, ranks in (
            ("text", retrieval_ranks(cosines, relevant)),
            ("image", retrieval_ranks(cosines.T, relevant.T)),
        ):
            numbers |= {f"{name}_recall_at_{k}": recall_at(ranks, k) for k in (1, 5, 10)}
        mean = {"recall_at_1": (numbers["text_recall_at_1"] + numbers["image_recall_at_1"]) / 2}
        captions = {index: row.caption for index, row in zip(text.tolist(), rows, strict=True)}
        predictions = [captions[index] for index in cosines.argmax(1)[image].tolist()]
        samples = make_samples([f"{row.file}:{row.line}" for row in rows], [row.caption for row in rows], predictions)
        return {**mean, **numbers, "predictions": predictions, "samples": samples}

    def example(self) -> str:
        return "picture.png\ta cat\ta dog"

    def rank(self, scores: dict[str, Any]) -> tuple[float, ...]:
        return round(scores["recall_at_1"], 3), -round(scores["loss"], 4)

    @torch.inference_mode()
    def predict(
        self, model: Model, raw: Iterable[str], options: MatchOptions, first: int = 0
    ) -> Iterator[list[Prediction]]:
        """An input is the name of an image file and candidate labels, separated by tabs; zero-shot classification."""
        device = next(model.parameters()).device
        for chunk in batched(raw, 256):
            queries = [line.split("\t") for line in chunk]
            for line, (_, *labels) in enumerate(queries, first + 1):
                if not labels or not all(label.strip() for label in labels):
                    text = chunk[line - first - 1][:60]
                    raise ValueError(f"input:{line}: give an image file and labels, separated by tabs, not {text!r}")
            first += len(chunk)
            texts = list(dict.fromkeys(label for _, *labels in queries for label in labels))
            index = {label: i for i, label in enumerate(texts)}
            prompts = self.embed_texts(model, [options.prompt.replace("{}", label) for label in texts])
            images = self.embed_images(model, [open_image(file) for file, *_ in queries])
            scores = check_finite(model.body.scores(images.to(device), prompts.to(device)).cpu())  # (lines, labels)
            for row, (_, *labels) in zip(scores, queries, strict=True):
                names = list(dict.fromkeys(labels))
                best = row[[index[name] for name in names]].log_softmax(-1).topk(min(options.num_return, len(names)))
                pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
                yield [Prediction(names[i], logprob, float(np.exp(logprob))) for logprob, i in pairs]
