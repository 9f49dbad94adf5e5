"""Cross-attention as an alignment: for every word written, the words of the source that were looked at."""

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
from regard.view.word_pieces import mark_of, words

Table = npt.NDArray[np.float64]


class Alignment(NamedTuple):
    source: list[str]  # words
    target: list[str]
    weights: Table  # (target words, source words), rows sum to 1
    layer: int


@torch.inference_mode()
def align(translator: Any, text: str, target: str | None = None) -> Alignment:
    """Which source words each target word attended to: the mean of the heads, in the layer that looks most sharply."""
    target = translator(text) if target is None else target
    task, model = translator.task, translator.model
    batch = to_device(task.batch(task.prepare([(text, target)]), np.array([0])), next(model.parameters()).device)
    with look(model) as seen:
        model(batch.source, batch.target, batch.source_mask)
    crosses = [weights for name, weights in seen.items() if name.endswith("cross.inner.weights")]
    if not crosses:
        raise ValueError("this model has no attention from the words it writes to those it reads: nothing to align")
    layers = [weights[0].mean(0).cpu().double().numpy() for weights in crosses]  # (T,S) each
    layer = int(np.argmin([-(w * np.log(w + 1e-12)).sum(-1).mean() for w in layers]))
    mark = mark_of(task.tokenizer)
    sources, targets = (words(task.tokenizer.pieces(ids[0].tolist()), mark) for ids in (batch.source, batch.wanted))
    # Row t of the decoder wrote token t of `wanted`: the two are not shifted against each other.
    weights = np.array([layers[layer][rows].mean(0) for _, rows in targets])
    weights = np.array([[row[columns].sum() for _, columns in sources] for row in weights])
    return Alignment([w for w, _ in sources], [w for w, _ in targets], weights, layer)


def alignment(translator: Any, text: str, file: Path, target: str | None = None) -> None:
    found = align(translator, text, target)
    rows, columns = found.weights.shape
    figure = Figure(figsize=(1.8 + 0.55 * columns, 1.4 + 0.42 * rows), layout="constrained")
    axes = figure.subplots()
    axes.imshow(found.weights, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(columns), found.source, rotation=45, ha="left", rotation_mode="anchor")
    axes.xaxis.tick_top()
    axes.set_yticks(range(rows), found.target)
    for (row, column), weight in np.ndenumerate(found.weights):
        if weight >= 0.1:
            axes.text(
                column, row, f"{weight:.1f}", ha="center", va="center", fontsize=8, color="w" if weight > 0.5 else "k"
            )
    axes.set_ylabel("written")
    axes.set_title(f"where the decoder looked, layer {found.layer + 1}, mean of its heads", fontsize=9)
    replace_file(file, lambda hidden: figure.savefig(hidden, dpi=130))
