"""Attention rollout of images, and the similarity of images and captions.

    R_l = ½ (A_l + I) R_l-1,   A_l the mean of the heads of layer l          Abnar & Zuidema 2020, section 4

Row t of R_l is the share of each patch in vector t after l layers, under the assumption that attention and the residual
connection alone move information. The output depends on the pooled row: the class token, or the mean of all vectors.
"""

from __future__ import annotations

import math
from base64 import b64encode
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.data.image_files import IMAGE_FORMATS, Pixels, open_image, to_image
from regard.load import LoadedModel
from regard.look import Activations, look
from regard.tasks.classify import Classify
from regard.tasks.match import Match
from regard.view.page import blob

TOP_K = 5  # labels on the page


def rollout(weights: Tensor) -> Tensor:
    """(L,H,T,T) -> (L,T,T), every row sums to 1."""
    flows = (weights.mean(1) + torch.eye(weights.size(-1), dtype=weights.dtype, device=weights.device)) / 2
    layers = [flows[0]]
    for flow in flows[1:]:
        layers.append(flow @ layers[-1])
    return torch.stack(layers)


def pooling_weights(pooling: str, activations: Activations, length: int) -> Tensor:
    """(T,), the weight of each vector in the pooled vector."""
    if pooling == "attention":
        return activations["head.pooling.weights"][0, 0].cpu()
    if pooling == "mean":
        return torch.full((length,), 1 / length)
    return torch.eye(length)[-1 if pooling == "last" else 0]


def trace_image(loaded: LoadedModel, name: str) -> tuple[Pixels, Activations] | None:
    """The preprocessed image, (C,H,W), and the activations of its forward pass; None if the model reads no images."""
    task, model = loaded.task, loaded.model
    if not isinstance(task, Match | Classify) or task.image_processor is None:
        return None
    images = task.image_processor.prepare([open_image(name)])  # (1,C,H,W)
    pixels = task.image_processor.normalize(torch.from_numpy(images)).to(next(model.parameters()).device)
    with torch.inference_mode(), look(model) as activations:
        model.body.image(pixels) if isinstance(task, Match) else model(pixels)
    return images[0], activations


def image_tab(loaded: LoadedModel, text: str, target: str | None = None) -> dict[str, Any] | None:
    """For a model that attends to image patches; `text` is the name of an image file, perhaps with captions."""
    (name, *_), captions = split_images_and_captions(text)
    trace = trace_image(loaded, name)
    if not trace:
        return None
    image, activations = trace
    layers = [tensor[0] for path, tensor in activations.items() if path.endswith(".mixer.inner.weights")]
    if not layers:
        return None
    weights = torch.stack(layers).float().cpu()  # (L,H,T,T)
    pooling = pooling_weights(getattr(loaded.task, "pooling", "first"), activations, weights.size(-1))
    first = int(getattr(loaded.model.body.config, "class_token", True))  # the class token is no patch
    patches = (pooling @ rollout(weights))[:, first:]  # (L,P)
    side = math.isqrt(patches.size(1))
    return {
        "kind": "image",
        "title": "Attention rollout",
        "description": "Bright patches contribute most to the output. Rollout multiplies the attention of all layers "
        "up to one; a single head shows its own weights.",
        "image": data_url(image),
        "grid": [side, side],
        "layers": weights.size(0),
        "heads": weights.size(1),
        "rollout": blob((patches / patches.sum(1, keepdim=True)).numpy()),
        "weights": blob((255 * pooling @ weights)[..., first:].round().to(torch.uint8).numpy()),
        "predictions": predictions(loaded, name, captions),
    }


def predictions(loaded: LoadedModel, name: str, captions: list[str]) -> list[list[Any]]:
    """The most probable labels with their probabilities; a model that matches images needs captions."""
    if isinstance(loaded.task, Match) and not captions:
        return []
    [best] = loaded.generate(["\t".join([name, *captions])], num_return=TOP_K)
    return [[answer.text, answer.score] for answer in best]


def similarity_tab(loaded: LoadedModel, text: str, target: str | None = None) -> dict[str, Any] | None:
    """For a model that matches images and texts; `text` holds image files and captions, separated by tabs."""
    task, model = loaded.task, loaded.model
    if not isinstance(task, Match):
        return None
    names, captions = split_images_and_captions(text)
    if not captions:
        return None
    images = [open_image(name) for name in names]
    image_vectors, text_vectors = task.embed_images(model, images), task.embed_texts(model, captions)
    device = next(model.parameters()).device
    with torch.inference_mode():
        logits = model.body.scores(image_vectors.to(device), text_vectors.to(device)).cpu()
    return {
        "kind": "similarity",
        "title": "Image-text similarity",
        "description": "The cosine similarity of each image and each caption, and the softmax over the captions.",
        "images": [data_url(image) for image in task.image_processor.prepare(images)],
        "texts": captions,
        "cosines": (image_vectors @ text_vectors.T).tolist(),
        "probabilities": logits.softmax(-1).tolist(),
    }


def split_images_and_captions(text: str) -> tuple[list[str], list[str]]:
    """The first field is an image file; of the others, those that name an image file are images, the rest captions."""
    first, *fields = text.split("\t")
    files = [field for field in fields if Path(field).suffix.lower() in IMAGE_FORMATS and Path(field).is_file()]
    return [first, *files], [field for field in fields if field not in files]


def data_url(pixels: Pixels) -> str:
    """A preprocessed image (C,H,W) as a data URL."""
    stream = BytesIO()
    to_image(np.ascontiguousarray(pixels.transpose(1, 2, 0))).save(stream, "PNG")
    return "data:image/png;base64," + b64encode(stream.getvalue()).decode()
