"""Logit lens: the residual stream after every block, and the head's prediction from it.

    prediction_l = softmax(head(norm(x_l)))          nostalgebraist 2020

With post-norm blocks x_l is normalised already. The last prediction is the model's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.modalities.protocols import Target
from regard.view.page import Tab
from regard.view.trace import Trace
from regard.view.word_pieces import display_token, space_marker

TOP_K = 5  # predictions per token
OUTPUTS = {  # what the head predicts for a token
    Target.TEXT: "the next token",
    Target.NEXT: "the next token",
    Target.MASKED: "the token at this position",
    Target.TAGS: "the tag of this word",
}

Prediction = tuple[str, float]


@dataclass(frozen=True)
class LogitLens:
    tokens: list[str]
    layers: list[str]
    states: Tensor  # (layers,T,D)
    predictions: list[list[list[Prediction]]] | None  # of each layer and token, the most probable outputs
    targets: list[str] | None
    description: str


def logit_lens(trace: Trace) -> LogitLens | None:
    """Of a stack of blocks; of an encoder-decoder, of the decoder."""
    stack = "blocks" if trace.source is None else "decoder"
    if f"body.{stack}.0.mixer" not in trace.activations:
        return None
    count = len(getattr(trace.model.body, stack))
    states = torch.cat(
        [trace.activations[f"body.{part}"] for part in ("drop", *(f"{stack}.{i}" for i in range(count)))]
    )
    tokens = trace.inputs.tokens
    if trace.task.target is Target.TAGS:  # the first token of a word predicts its tag
        first = [trace.inputs.word_ids.index(word) for word in range(len(trace.inputs.words))]
        states, tokens = states[:, first], trace.inputs.words
    output = OUTPUTS.get(trace.task.target)
    lens = (
        f"What the head predicts from the residual stream after each block: {output}, and its probability."
        if output
        else "The head makes one prediction for the whole text, so there is none per token."
    )
    return LogitLens(
        tokens,
        ["embedding", *(f"block {i + 1}" for i in range(count))],
        states,
        top_predictions(trace, states) if output else None,
        trace.targets.tokens if trace.targets else None,
        f"{lens} The chart shows the norm of each token's vector: it grows as blocks add to it (pre-norm).",
    )


@torch.inference_mode()
def lens_logits(trace: Trace, state: Tensor) -> Tensor:
    """The head applied to the residual stream after a block, (1,T,D) -> (1,T,V)."""
    body = trace.model.body
    norm = body.norm if trace.source is None else body.decoder_norm
    return trace.model.head(norm(state))


def top_predictions(trace: Trace, states: Tensor) -> list[list[list[Prediction]]]:
    names, predictions = output_names(trace.task), []
    for state in states:
        probabilities = lens_logits(trace, state[None])[0].float().softmax(-1).cpu()  # (T,V)
        top = probabilities[:, : len(names)].topk(min(TOP_K, len(names)))
        rows = zip(top.indices.tolist(), top.values.tolist(), strict=True)
        predictions.append([[(names[i], round(p, 5)) for i, p in zip(*row, strict=True)] for row in rows])
    return predictions


def output_names(task: Any) -> list[str]:
    """Tags, or tokens."""
    if task.target is Target.TAGS:
        return task.tags
    marker, tokens = space_marker(task.tokenizer), task.tokenizer.convert_ids_to_tokens(range(len(task.tokenizer)))
    return [display_token(token, marker) for token in tokens]


def lens_tab(lens: LogitLens) -> Tab:
    return {
        "kind": "lens",
        "title": "Logit lens",
        "description": lens.description,
        "tokens": lens.tokens,
        "layers": lens.layers,
        "norms": [[round(x, 4) for x in row] for row in lens.states.float().norm(dim=-1).tolist()],
        "predictions": lens.predictions,
        "targets": lens.targets,
    }
