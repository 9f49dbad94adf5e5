"""Word alignment from cross-attention: the source words that each target word attends to."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from matplotlib.figure import Figure

from regard.atomic import replace_file
from regard.data.batches import to_device
from regard.look import look
from regard.view.word_pieces import group_words, space_marker

Matrix = npt.NDArray[np.float64]


class Alignment(NamedTuple):
    source: list[str]  # words
    target: list[str]
    weights: Matrix  # (target words, source words), rows sum to 1
    layer: int


@torch.inference_mode()
def align(translator: Any, text: str, target: str | None = None) -> Alignment:
    """Attention of each target word to the source words: the mean of the heads, in the layer of the lowest entropy."""
    target = translator(text) if target is None else target
    task, model = translator.task, translator.model
    batch = to_device(task.collate(task.encode([(text, target)]), np.array([0])), next(model.parameters()).device)
    with look(model) as activations:
        model(batch.source, batch.decoder_input, batch.source_mask)
    cross = [weights for name, weights in activations.items() if name.endswith("cross.inner.weights")]
    if not cross:
        raise ValueError("this model has no cross-attention, so there is nothing to align")
    layers = [weights[0].mean(0).cpu().double().numpy() for weights in cross]  # (T,S) each
    layer = int(np.argmin([-(w * np.log(w + 1e-12)).sum(-1).mean() for w in layers]))
    marker, sides = space_marker(task.tokenizer), (batch.source, batch.targets)
    sources, targets = (group_words(task.tokenizer.convert_ids_to_tokens(ids[0].tolist()), marker) for ids in sides)
    # Row t of the decoder predicts token t of the targets: no shift between the two.
    weights = np.array([layers[layer][rows].mean(0) for _, rows in targets])
    weights = np.array([[row[columns].sum() for _, columns in sources] for row in weights])
    return Alignment([w for w, _ in sources], [w for w, _ in targets], weights, layer)


def save_alignment(translator: Any, text: str, file: Path, target: str | None = None) -> None:
    alignment = align(translator, text, target)
    rows, columns = alignment.weights.shape
    figure = Figure(figsize=(1.8 + 0.55 * columns, 1.4 + 0.42 * rows), layout="constrained")
    axes = figure.subplots()
    axes.imshow(alignment.weights, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(columns), alignment.source, rotation=45, ha="left", rotation_mode="anchor")
    axes.xaxis.tick_top()
    axes.set_yticks(range(rows), alignment.target)
    for (row, column), weight in np.ndenumerate(alignment.weights):
        if weight >= 0.1:
            axes.text(
                column, row, f"{weight:.1f}", ha="center", va="center", fontsize=8, color="w" if weight > 0.5 else "k"
            )
    axes.set_ylabel("target")
    axes.set_title(f"cross-attention, layer {alignment.layer + 1}, mean of its heads", fontsize=9)
    replace_file(file, lambda hidden: figure.savefig(hidden, dpi=130))
