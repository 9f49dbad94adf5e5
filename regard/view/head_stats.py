"""What each head does, and what would be lost without it.

    distance   Σ_s w_ts |t - s|             how far it looks
    entropy    - Σ_s w_ts log₂ w_ts         how many tokens it spreads over          Voita et al. 2019
    shares     of its weight that fall on the first, the previous, the next and the same token
    without    the score when its weights are 0                                      Michel et al. 2019
    moved      Σ p log₂ p/p'                how far the answers p move when its weights are 0

All are means over the tokens t that ask.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regard.choose import choose
from regard.generate import Decoding
from regard.load import Loaded
from regard.look import Activations, ablate_heads, look
from regard.parts.attention import CrossAttention, SelfAttention
from regard.parts.scoring import AdditiveAttention
from regard.tasks.classify import Classify
from regard.tasks.fill import Fill
from regard.tasks.tag import Tag
from regard.tasks.translate import Translate
from regard.tasks.write import Write
from regard.view.attention_rollout import looked_at
from regard.view.trace import run

HEADS = (SelfAttention, CrossAttention, AdditiveAttention)
CHOOSE = (Classify, Fill, Tag, Translate, Write)  # tasks that choose one of several answers
MANY = 64  # heads that are not taken out one by one unless somebody asks for it
MEASURES = {
    "distance": "how many tokens away it looks",
    "entropy": "bits it takes to say where it looks: 0 is at one token, 1 at two alike, 2 at four",
    "first": "share of its weight on the first token",
    "previous": "share on the token before",
    "same": "share on the token that asks",
    "next": "share on the token after",
}


def head_roles(weights: Tensor) -> dict[str, Tensor]:
    """(...,T,S) -> (...) for each measure. A token that has no neighbour does not count for the share of that one, nor
    the first token for that of the first: it would be the same."""
    T, S = weights.shape[-2:]
    asks, answers = torch.arange(T, device=weights.device), torch.arange(S, device=weights.device)
    far = (asks[:, None] - answers).abs().to(weights.dtype)  # (T,S)
    return {
        "distance": (weights * far).sum(-1).mean(-1),
        "entropy": torch.xlogy(weights, weights).sum(-1).mean(-1).abs() / math.log(2),
        "first": mean(weights[..., 1:, 0]),
        "previous": mean(weights.diagonal(-1, -2, -1)),
        "same": mean(weights.diagonal(0, -2, -1)),
        "next": mean(weights.diagonal(1, -2, -1)),
    }


def mean(x: Tensor) -> Tensor:
    """0 of nothing."""
    return x.sum(-1) / max(1, x.size(-1))


def without_each_head(loaded: Loaded, rows: Any, name: str = "loss") -> dict[str, Any]:
    """One of the task's own scores on these rows, whole and with one head silenced: {score, whole, values}.

    The loss tells heads apart on a few rows, where what is said mostly stays the same without any one of them.
    """
    task, model = loaded.task, loaded.model
    how = task.ways(beam=1, longest=1) if name == "loss" and issubclass(task.ways, Decoding) else None
    with look(model) as seen:
        whole = task.score(model, rows, how)
    choose("score", name, [score for score, value in whole.items() if isinstance(value, float)])

    def scored(layer: str, head: int) -> float:
        with look(model, change={layer: ablate_heads(head)}):
            return float(task.score(model, rows, how)[name])

    values = [[scored(layer, head) for head in range(seen[layer].size(1))] for layer in layers_of(seen)]
    return {"score": name, "whole": whole[name], "values": values}


def moved_by_each_head(loaded: Loaded, seen: Activations, again: Callable[[], Activations]) -> dict[str, Any] | None:
    """How many bits the answers to one text move when one head is silenced, in the form of `without_each_head`."""
    if not isinstance(loaded.task, CHOOSE) or getattr(loaded.task, "many", False):
        return None
    layers, whole = layers_of(seen), seen[""].log_softmax(-1)
    if sum(seen[layer].size(1) for layer in layers) > MANY:
        return None

    def moved(layer: str, head: int) -> float:
        with look(loaded.model, change={layer: ablate_heads(head)}):
            other = again()[""].log_softmax(-1)
        return float((whole.exp() * (whole - other)).sum(-1).mean()) / math.log(2)

    values = [[moved(layer, head) for head in range(seen[layer].size(1))] for layer in layers]
    return {"score": "bits by which its answers move", "whole": 0.0, "values": values}


def layers_of(seen: Activations) -> list[str]:
    """Names of the weights (B,H,T,S) of all attention, cross-attention last. Of two towers those of the picture: the
    other may have another number of heads."""
    found = [name for name, tensor in seen.items() if name.endswith(".weights") and tensor.dim() == 4]
    found = [name for name in found if not name.startswith("body.text.")]
    return sorted(found, key=lambda name: "cross." in name)


def title_of(layer: str) -> str:
    """body.decoder.3.cross.inner.weights is "cross 4"."""
    number = re.search(r"\.(\d+)\.", layer)
    words = {"cross.": "cross", "encoder.": "encoder", "decoder.": "decoder"}
    kind = next((said for word, said in words.items() if word in layer), "block")
    return f"{kind} {int(number[1]) + 1 if number else 1}"


def heads_tab(loaded: Loaded, text: str, target: str | None = None, rows: Any = None) -> dict[str, Any] | None:
    """Of a model with attention. A few `rows` of a file, as `loaded.rows` reads them, tell what each head is worth to
    the task; without them, this text tells what each is worth here."""
    if not any(isinstance(module, HEADS) for module in loaded.model.modules()):
        return None
    if target is None and isinstance(loaded.task, Translate):
        target = loaded(text)  # whole: with a head less it may say something else

    def again() -> Activations:
        picture = looked_at(loaded, text.partition("\t")[0])
        return picture[1] if picture else run(loaded, text, target).seen

    seen = again()
    layers = layers_of(seen)
    roles = [head_roles(seen[layer][0].float().cpu()) for layer in layers]
    return {
        "kind": "heads",
        "title": "Heads",
        "says": "What each head does with this input. Heads that mostly look one token back, at the first token or at "
        "themselves are common. Removing a head shows what it is worth to the task.",
        "layers": len(layers),
        "heads": seen[layers[0]].size(1),
        "names": [title_of(layer) for layer in layers],
        "measures": [
            {"name": name, "says": says, "values": [[round(x, 4) for x in role[name].tolist()] for role in roles]}
            for name, says in MEASURES.items()
        ],
        "without": moved_by_each_head(loaded, seen, again) if rows is None else without_each_head(loaded, rows),
    }
