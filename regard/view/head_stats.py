"""Statistics of each attention head, and the effect of its ablation.

    distance   Σ_s w_ts |t - s|             mean distance of attention
    entropy    - Σ_s w_ts log₂ w_ts         in bits                                  Voita et al. 2019
    shares     of the attention on the first, the previous, the next and the same token
    ablation   the task's score with the head's weights set to 0                     Michel et al. 2019
    KL         Σ p log₂ p/p'                from the predictions p to those without the head, in bits

All are means over the query tokens t.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import torch
from torch import Tensor

from regard.data.documents import RowSet
from regard.generation_config import GenerationOptions
from regard.loaded_model import LoadedModel
from regard.look import Activations, ablate_heads, look
from regard.modalities.protocols import Target
from regard.parts.attention import CrossAttention, SelfAttention
from regard.parts.attention_scores import AdditiveAttention
from regard.validate import check_choice
from regard.view.attention_rollout import trace_image
from regard.view.page import Tab
from regard.view.trace import is_translator, trace_text

ATTENTION = (SelfAttention, CrossAttention, AdditiveAttention)
# Targets of which the head gives a softmax over classes
CATEGORICAL = (Target.LABELS, Target.TAGS, Target.TEXT, Target.MASKED, Target.NEXT)
MAX_HEADS = 64  # heads that are ablated one by one without `rows`
MEASURES = {
    "distance": "mean distance of attention, in tokens",
    "entropy": "entropy of attention in bits: 0 = one token, 1 = two tokens equally, 2 = four",
    "first": "share of attention on the first token",
    "previous": "share on the previous token",
    "same": "share on the query token itself",
    "next": "share on the next token",
}


def head_stats(weights: Tensor) -> dict[str, Tensor]:
    """(...,T,S) -> (...) for each measure. The shares of the previous and the next token leave out tokens that have
    none; the share of the first token leaves out the first token itself."""
    T, S = weights.shape[-2:]
    queries, keys = torch.arange(T, device=weights.device), torch.arange(S, device=weights.device)
    distance = (queries[:, None] - keys).abs().to(weights.dtype)  # (T,S)
    return {
        "distance": (weights * distance).sum(-1).mean(-1),
        "entropy": torch.xlogy(weights, weights).sum(-1).mean(-1).abs() / math.log(2),
        "first": mean_or_zero(weights[..., 1:, 0]),
        "previous": mean_or_zero(weights.diagonal(-1, -2, -1)),
        "same": mean_or_zero(weights.diagonal(0, -2, -1)),
        "next": mean_or_zero(weights.diagonal(1, -2, -1)),
    }


def mean_or_zero(x: Tensor) -> Tensor:
    return x.sum(-1) / max(1, x.size(-1))


def score_ablations(loaded: LoadedModel, rows: RowSet, name: str = "loss") -> Tab:
    """One of the task's metrics on these rows, of the full model and with each head ablated: {score, baseline, values}.

    The loss separates heads on a few rows, where ablating a single head rarely changes the decoded output.
    """
    task, model = loaded.task, loaded.model
    how = (
        task.decode_options(num_beams=1, max_new_tokens=1)
        if name == "loss" and issubclass(task.decode_options, GenerationOptions)
        else None
    )
    with look(model) as activations:
        baseline = task.score(model, rows, how)
    check_choice("score", name, [score for score, value in baseline.items() if isinstance(value, float)])
    values = measure_ablations(loaded, activations, lambda: float(task.score(model, rows, how)[name]))
    return {"score": name, "baseline": baseline[name], "values": values}


def kl_ablations(loaded: LoadedModel, activations: Activations, rerun: Callable[[], Activations]) -> Tab | None:
    """KL divergence in bits between the predictions for one text with and without each head, as `score_ablations`."""
    task = loaded.task
    if task.target not in CATEGORICAL or task.contrastive or getattr(task, "multi_label", False):
        return None
    layers, logp = attention_layers(activations), activations[""].log_softmax(-1)
    if sum(activations[layer].size(1) for layer in layers) > MAX_HEADS:
        return None

    def divergence() -> float:
        return float((logp.exp() * (logp - rerun()[""].log_softmax(-1))).sum(-1).mean()) / math.log(2)

    values = measure_ablations(loaded, activations, divergence)
    return {"score": "KL divergence (bits)", "baseline": 0.0, "values": values}


def measure_ablations(loaded: LoadedModel, activations: Activations, measure: Callable[[], float]) -> list[list[float]]:
    """The measure with each head of each layer ablated."""
    values: list[list[float]] = []
    for layer in attention_layers(activations):
        values.append([])
        for head in range(activations[layer].size(1)):
            with look(loaded.model, change={layer: ablate_heads(head)}):
                values[-1].append(measure())
    return values


def attention_layers(activations: Activations) -> list[str]:
    """Names of the weights (B,H,T,S) of all attention, cross-attention last. Of two towers only the image tower's: the
    text tower may have another number of heads."""
    names = [name for name, tensor in activations.items() if name.endswith(".weights") and tensor.dim() == 4]
    names = [name for name in names if not name.startswith("body.text.")]
    return sorted(names, key=lambda name: "cross." in name)


def layer_title(layer: str) -> str:
    """body.decoder.3.cross.inner.weights is "cross 4"."""
    number = re.search(r"\.(\d+)\.", layer)
    stacks = {"cross.": "cross", "encoder.": "encoder", "decoder.": "decoder"}
    kind = next((title for path, title in stacks.items() if path in layer), "block")
    return f"{kind} {int(number[1]) + 1 if number else 1}"


def heads_tab(loaded: LoadedModel, text: str, target: str | None = None, rows: RowSet | None = None) -> Tab | None:
    """For a model with attention. With `rows` of a file, as `loaded.rows` reads them, ablation measures the task's
    loss; without, the change of the predictions for this text."""
    if not any(isinstance(module, ATTENTION) for module in loaded.model.modules()):
        return None
    if target is None and is_translator(loaded.task):
        target = loaded(text)  # of the full model: an ablated one may translate differently

    def rerun() -> Activations:
        image = trace_image(loaded, text.partition("\t")[0])
        return image[1] if image else trace_text(loaded, text, target).activations

    activations = rerun()
    layers = attention_layers(activations)
    stats = [head_stats(activations[layer][0].float().cpu()) for layer in layers]
    return {
        "kind": "heads",
        "title": "Heads",
        "description": "Statistics of each head on this input. Heads that attend mostly to the previous token, to the "
        "first token or to themselves are common. Ablation shows how much the model depends on a head.",
        "layers": len(layers),
        "heads": activations[layers[0]].size(1),
        "names": [layer_title(layer) for layer in layers],
        "measures": [
            {
                "name": name,
                "description": text,
                "values": [[round(x, 4) for x in layer[name].tolist()] for layer in stats],
            }
            for name, text in MEASURES.items()
        ],
        "ablation": kl_ablations(loaded, activations, rerun) if rows is None else score_ablations(loaded, rows),
    }
