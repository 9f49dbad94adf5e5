"""What a picture's answer is made of: attention rollout, and how well pictures and captions fit.

    R_l = ½ (A_l + I) R_l-1,   A_l the mean of the heads of layer l          Abnar & Zuidema 2020, section 4

Row t of R_l says how much of each patch is in vector t after l layers, as if nothing but attention and the residual
moved anything. The answer is made of the row that gathers: the first vector, or a mean of all.
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

from regard.data.images import FORMATS, Pixels, open_picture, to_image
from regard.load import Loaded
from regard.look import Activations, look
from regard.tasks.classify import Classify
from regard.tasks.match import Match
from regard.view.page import blob

MOST = 5  # labels that are shown


def rollout(weights: Tensor) -> Tensor:
    """(L,H,T,T) -> (L,T,T), every row sums to 1."""
    flows = (weights.mean(1) + torch.eye(weights.size(-1), dtype=weights.dtype, device=weights.device)) / 2
    found = [flows[0]]
    for flow in flows[1:]:
        found.append(flow @ found[-1])
    return torch.stack(found)


def gathers(pooling: str, seen: Activations, places: int) -> Tensor:
    """(T,), how much of each vector is in the one that the answer is made of."""
    if pooling == "attention":
        return seen["head.pooling.weights"][0, 0].cpu()
    if pooling == "mean":
        return torch.full((places,), 1 / places)
    return torch.eye(places)[-1 if pooling == "last" else 0]


def looked_at(loaded: Loaded, name: str) -> tuple[Pixels, Activations] | None:
    """A picture as the model is given it, (C,H,W), and all that it makes the model do; None if it sees no pictures."""
    task, model = loaded.task, loaded.model
    if not isinstance(task, Match | Classify) or task.pictures is None:
        return None
    ready = task.pictures.prepare([open_picture(name)])  # (1,C,H,W)
    pixels = task.pictures.normal(torch.from_numpy(ready)).to(next(model.parameters()).device)
    with torch.inference_mode(), look(model) as seen:
        model.body.image(pixels) if isinstance(task, Match) else model(pixels)
    return ready[0], seen


def picture_tab(loaded: Loaded, text: str, target: str | None = None) -> dict[str, Any] | None:
    """Of a model that attends to the patches of a picture; the text is the name of its file, perhaps with captions."""
    (name, *_), captions = told(text)
    looked = looked_at(loaded, name)
    if not looked:
        return None
    ready, seen = looked
    layers = [tensor[0] for path, tensor in seen.items() if path.endswith(".mixer.inner.weights")]
    if not layers:
        return None
    weights = torch.stack(layers).float().cpu()  # (L,H,T,T)
    gathering = gathers(getattr(loaded.task, "pooling", "first"), seen, weights.size(-1))
    first = int(getattr(loaded.model.body.config, "class_token", True))  # it stands for no patch
    reached = (gathering @ rollout(weights))[:, first:]  # (L,P)
    side = math.isqrt(reached.size(1))
    return {
        "kind": "picture",
        "title": "Picture",
        "says": "Bright patches went into the answer. Rollout follows attention through all layers up to one; a single "
        "head shows where it looked itself.",
        "image": as_url(ready),
        "grid": [side, side],
        "layers": weights.size(0),
        "heads": weights.size(1),
        "rollout": blob((reached / reached.sum(1, keepdim=True)).numpy()),
        "weights": blob((255 * gathering @ weights)[..., first:].round().to(torch.uint8).numpy()),
        "answers": answers(loaded, name, captions),
    }


def answers(loaded: Loaded, name: str, captions: list[str]) -> list[list[Any]]:
    """The best labels and their probabilities; a picture that must choose among captions needs some."""
    if isinstance(loaded.task, Match) and not captions:
        return []
    [best] = loaded.answers(["\t".join([name, *captions])], n_best=MOST)
    return [[answer.text, answer.score] for answer in best]


def similarity_tab(loaded: Loaded, text: str, target: str | None = None) -> dict[str, Any] | None:
    """Of a model that matches; the text holds files of pictures and captions, with tabs between them."""
    task, model = loaded.task, loaded.model
    if not isinstance(task, Match):
        return None
    names, captions = told(text)
    if not captions:
        return None
    pictures = [open_picture(name) for name in names]
    seen, said = task.embed_pictures(model, pictures), task.embed_texts(model, captions)
    device = next(model.parameters()).device
    with torch.inference_mode():
        scores = model.body.scores(seen.to(device), said.to(device)).cpu()
    return {
        "kind": "similarity",
        "title": "Pictures and captions",
        "says": "The cosine of each picture and each caption, and the probability of each caption if it must be one "
        "of these.",
        "pictures": [as_url(ready) for ready in task.pictures.prepare(pictures)],
        "texts": captions,
        "scores": (seen @ said.T).tolist(),
        "chances": scores.softmax(-1).tolist(),
    }


def told(text: str) -> tuple[list[str], list[str]]:
    """Files of pictures, and captions: what comes first is a picture, and what is no picture file else is a caption."""
    first, *others = text.split("\t")
    files = [one for one in others if Path(one).suffix.lower() in FORMATS and Path(one).is_file()]
    return [first, *files], [one for one in others if one not in files]


def as_url(pixels: Pixels) -> str:
    """What the model sees of a picture, (C,H,W), as a page takes it."""
    stream = BytesIO()
    to_image(np.ascontiguousarray(pixels.transpose(1, 2, 0))).save(stream, "PNG")
    return "data:image/png;base64," + b64encode(stream.getvalue()).decode()
