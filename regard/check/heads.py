"""Attention heads: whether each says something, and looks at something.

heads       outputs change when a head's weights become 0                                Michel et al. 2019
attention   entropy - Σ_s w_s log w_s, from 0 (one token) to log n (all n alike)         Voita et al. 2019
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from regard.check.asking import apart, outputs
from regard.check.sample import Given, Sample
from regard.check.verdict import Verdict, named
from regard.load import Loaded
from regard.look import ablate_heads, look

NOTHING = 1e-7  # by which a head may move an output and still count as dead
EVEN = 1e-6  # share by which weights may miss 1/n and still count as uniform
ONE = 0.01  # share of log n below which a head looks at one token alone
ROWS = 3  # texts or pictures


class Layer(NamedTuple):
    name: str  # of its weights
    weights: Tensor  # (B,H,T,S)
    visible: Tensor  # (B,1,T,1) or what becomes that: how many tokens may be looked at
    given: Given  # what it was seen with

    def head(self, number: int) -> str:
        return f"{self.name.removesuffix('.weights').removesuffix('.inner')} head {number}"


def heads(loaded: Loaded, sample: Sample) -> list[Verdict]:
    layers = layers_of(loaded, sample)
    if not layers:
        return []
    count = sum(layer.weights.size(1) for layer in layers)
    dead = [layer.head(i) for layer in layers for i in dead_in(loaded, layer)]
    first = Verdict("heads", "ok", f"each of {count} heads changes the outputs", 0, 0)
    if dead:
        advice = f"Without {named(dead)} nothing changes: prune it, or find out why it was never loaded or trained."
        first = Verdict("heads", "FAILS", f"dead: {len(dead)} of {count} heads", len(dead), 0, advice)
    return [first, attention(layers, count)]


def layers_of(loaded: Loaded, sample: Sample) -> list[Layer]:
    """Of two towers, texts run through one and pictures through the other."""
    asked = [] if sample.pixels is None or sample.targets else [Given(sample.pixels[:ROWS])]
    asked += [sample.given(range(min(ROWS, len(sample.ids))))] if sample.ids else []
    found = []
    for given in asked:
        with look(loaded.model) as seen:
            outputs(loaded, given)
        for name, weights in seen.items():
            if name.endswith(".weights") and weights.dim() == 4:
                mask = seen.get(f"{name.removesuffix('weights')}mask", weights > 0)
                found.append(Layer(name, weights, mask.sum(-1, keepdim=True), given))
    return found


def dead_in(loaded: Loaded, layer: Layer) -> list[int]:
    """Compared with weights that are changed into themselves: a changed layer takes the spelled-out path."""
    with look(loaded.model, change={layer.name: torch.clone}):
        whole = outputs(loaded, layer.given)
    found = []
    for head in range(layer.weights.size(1)):
        with look(loaded.model, change={layer.name: ablate_heads(head)}):
            moved = apart(whole, outputs(loaded, layer.given))
        found += [head] if moved <= NOTHING else []
    return found


def attention(layers: list[Layer], count: int) -> Verdict:
    uniform: list[str] = []
    fixed: list[str] = []
    for layer in layers:
        uneven, entropy = spread(layer)
        uniform += [layer.head(i) for i in (uneven <= EVEN).nonzero()[:, 0].tolist()]
        fixed += [layer.head(i) for i in (entropy <= ONE).nonzero()[:, 0].tolist()]
    if uniform:
        advice = f"{named(uniform)}: every token gets the same weight, as if queries or keys were 0; were they loaded?"
        return Verdict(
            "attention", "FAILS", f"looking everywhere alike: {len(uniform)} of {count} heads", len(uniform), 0, advice
        )
    if fixed:
        advice = f"{named(fixed)}: the softmax is saturated or the head rests; common, but nothing is learnt there."
        return Verdict(
            "attention", "note", f"looking at one token only: {len(fixed)} of {count} heads", len(fixed), 0, advice
        )
    return Verdict("attention", "ok", "no head looks everywhere alike, none at one token only", 0, 0)


def spread(layer: Layer) -> tuple[Tensor, Tensor]:
    """(H,) each: by what share a weight misses 1/n at most, and the largest entropy as a share of log n. A token that
    can look at one only tells nothing."""
    weights, visible = layer.weights.double(), layer.visible
    several = (visible > 1).expand(*weights.shape[:-1], 1).squeeze(-1)  # (B,H,T)
    uneven = ((weights * visible - 1).abs() * (weights > 0)).amax(-1)
    entropy = -torch.xlogy(weights, weights).sum(-1, keepdim=True) / visible.clamp(min=2).log()
    never = ~several.any(2).any(0)
    found = ((part * several).amax((0, 2)) for part in (uneven, entropy.squeeze(-1)))
    return tuple(part.masked_fill(never, torch.inf).cpu() for part in found)  # type: ignore[return-value]
