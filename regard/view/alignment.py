"""Word alignment from cross-attention: the source words that each target word attends to."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from regard.atomic import replace_file
from regard.loaded_model import LoadedModel
from regard.view.figures import plot_weights
from regard.view.trace import is_translator, run_traced, translation_ids
from regard.view.word_attention import Matrix, sharpest_layer
from regard.view.word_pieces import group_words, space_marker

NO_CROSS_ATTENTION = "this model has no cross-attention, so there is nothing to align"


class Alignment(NamedTuple):
    source: list[str]  # words
    target: list[str]
    weights: Matrix  # (target words, source words), rows sum to 1
    layer: int


def align(translator: LoadedModel, text: str, target: str | None = None) -> Alignment:
    """Attention of each target word to the source words: the mean of the heads, in the layer of the lowest entropy."""
    task = translator.task
    if not is_translator(task):
        raise ValueError(NO_CROSS_ATTENTION)
    source_ids, input_ids, target_ids = translation_ids(task, text, translator(text) if target is None else target)
    activations, _ = run_traced(translator.model, source_ids, input_ids)
    cross = [weights for name, weights in activations.items() if name.endswith("cross.inner.weights")]
    if not cross:
        raise ValueError(NO_CROSS_ATTENTION)
    layers = np.stack([weights[0].mean(0, keepdim=True).cpu().double().numpy() for weights in cross])  # (L,1,T,S)
    layer, marker = sharpest_layer(layers), space_marker(task.tokenizer)
    sides = (task.tokenizer.convert_ids_to_tokens(ids) for ids in (source_ids, target_ids))
    sources, targets = (group_words(tokens, marker) for tokens in sides)
    # Row t of the decoder predicts token t of the targets: no shift between the two.
    weights = np.array([layers[layer, 0, rows].mean(0) for _, rows in targets])
    weights = np.array([[row[columns].sum() for _, columns in sources] for row in weights])
    return Alignment([w for w, _ in sources], [w for w, _ in targets], weights, layer)


def save_alignment(translator: LoadedModel, text: str, file: Path, target: str | None = None) -> None:
    alignment = align(translator, text, target)
    rows, columns = alignment.weights.shape
    figure = Figure(figsize=(1.8 + 0.55 * columns, 1.4 + 0.42 * rows), layout="constrained")
    axes = figure.subplots()
    plot_weights(axes, alignment.weights, alignment.target, alignment.source, 8)
    axes.set_ylabel("target")
    axes.set_title(f"cross-attention, layer {alignment.layer + 1}, mean of its heads", fontsize=9)
    replace_file(file, lambda hidden: figure.savefig(hidden, dpi=130))
