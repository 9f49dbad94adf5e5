"""Attention rollout of images, and the similarity of images and captions.

    R_l = ½ (A_l + I) R_l-1,   A_l the mean of the heads of layer l          Abnar & Zuidema 2020, section 4

Row t of R_l is the share of each patch in vector t after l layers, under the assumption that attention and the residual
connection alone move information. The output depends on the pooled row: the class token, or the mean of all vectors.
"""

from __future__ import annotations

import math
from typing import TypeGuard

import numpy as np
import torch
from torch import Tensor

from regard.data.batches import to_device
from regard.data.rows import Row
from regard.loaded_model import LoadedModel
from regard.look import Activations, look
from regard.tasks.inference import context_of
from regard.tasks.match import Match
from regard.tasks.task import Task
from regard.view.page import Tab, blob

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


def has_two_towers(task: Task) -> TypeGuard[Match]:
    return "two-tower" in task.structures


def trace_image(loaded: LoadedModel, name: str) -> tuple[Row[object, None], Activations] | None:
    """The row of an image file and the activations of its forward pass; None if the model reads no pictures."""
    task, model, preprocessor = loaded.task, loaded.model, loaded.task.preprocessor
    if not preprocessor.has_pictures:
        return None
    row = preprocessor.parse(name, task.target)
    inputs = preprocessor.collate(preprocessor.encode([row], context_of(model)), np.array([0]), training=False)
    body = task.towers(model)[0] if has_two_towers(task) else model
    with torch.inference_mode(), look(model) as activations:
        body(*to_device(inputs, next(model.parameters()).device).arguments)
    return row, activations


def image_tab(loaded: LoadedModel, text: str, target: str | None = None) -> Tab | None:
    """For a model that attends to image patches; `text` is the name of an image file, perhaps with captions."""
    name, *fields = text.split("\t")
    trace = trace_image(loaded, name)
    if not trace:
        return None
    row, activations = trace
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
        "image": loaded.task.preprocessor.draw(row),
        "grid": [side, side],
        "layers": weights.size(0),
        "heads": weights.size(1),
        "rollout": blob((patches / patches.sum(1, keepdim=True)).numpy()),
        "weights": blob((255 * pooling @ weights)[..., first:].round().to(torch.uint8).numpy()),
        "predictions": predictions(loaded, name, split_inputs(loaded.task, fields)[1]),
    }


def predictions(loaded: LoadedModel, name: str, captions: list[str]) -> list[tuple[str, float]]:
    """The most probable labels with their probabilities; a model that matches images needs captions."""
    if loaded.task.contrastive and not captions:
        return []
    [best] = loaded.generate(["\t".join([name, *captions])], num_return=TOP_K)
    return [(answer.text, answer.score) for answer in best]


def similarity_tab(loaded: LoadedModel, text: str, target: str | None = None) -> Tab | None:
    """For a model that matches images and texts; `text` holds image files and captions, separated by tabs."""
    task, model = loaded.task, loaded.model
    if not has_two_towers(task):
        return None
    first, *fields = text.split("\t")
    others, captions = split_inputs(task, fields)
    if not captions:
        return None
    rows = [task.preprocessor.parse(first, task.target), *others]
    input_vectors, text_vectors = task.embed_inputs(model, rows), task.embed_texts(model, captions)
    device = next(model.parameters()).device
    with torch.inference_mode():
        logits = model.body.scores(input_vectors.to(device), text_vectors.to(device)).cpu()
    return {
        "kind": "similarity",
        "title": "Image-text similarity",
        "description": "The cosine similarity of each image and each caption, and the softmax over the captions.",
        "images": [*map(task.preprocessor.draw, rows)],
        "texts": captions,
        "cosines": (input_vectors @ text_vectors.T).tolist(),
        "probabilities": logits.softmax(-1).tolist(),
    }


def split_inputs(task: Task, fields: list[str]) -> tuple[list[Row[object, None]], list[str]]:
    """Fields that name an image file as rows; the others are captions."""
    rows: list[Row[object, None]] = []
    captions = []
    for field in fields:
        try:
            rows.append(task.preprocessor.parse(field, task.target))
        except ValueError:
            captions.append(field)
    return rows, captions
