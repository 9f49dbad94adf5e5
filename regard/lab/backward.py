"""backward: how does back-propagation compute every gradient in one pass?

    ŷ = w·x + b    r = y - ŷ    l = r²          ∂l/∂r = 2r    ∂l/∂ŷ = ∂l/∂b = -2r    ∂l/∂wⱼ = -2r xⱼ

Claim (deck N, "Computation graph example" and "Backpropogation"): the forward pass visits nodes in
topological order; the backward pass visits them in reverse and multiplies each incoming gradient by the local
derivative. It gives the gradients above and saves work, since factors that paths share are computed once.

The pass is done by hand, by PyTorch's autograd (traced with `look`), and by a finite difference of each node.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from torch import nn

from regard.lab.computation_graph import STEP, GraphNode, NodeValues, backward, finite_difference, forward, partials_at
from regard.lab.result import LabResult, Tracker, subplots, table_rows
from regard.look import look
from regard.validate import check_minimum

FLOAT_ERROR = 1e-12  # of float64
BOX = {"boxstyle": "round", "facecolor": "w"}
WHITE = {"facecolor": "w", "edgecolor": "w", "pad": 1}


@dataclass(frozen=True)
class BackwardOptions:
    features: int = 3  # size of x
    examples: int = 200  # random examples; the figure shows the first
    seed: int = 1  # random seed

    def __post_init__(self) -> None:
        check_minimum(self, 1, "features", "examples")


QUICK = BackwardOptions(examples=20)


def run(options: BackwardOptions, track: Tracker) -> LabResult:
    draw = torch.Generator().manual_seed(options.seed)
    runs = [all_gradients(*example(options.features, draw)) for _ in track(range(options.examples))]
    errors = {
        method: max(abs(grads["by hand"][name] - grads[method][name]) for _, values, grads in runs for name in values)
        for method in runs[0][-1]
    }
    graph, values, grads = runs[0]
    r, leaves = values["r"], options.features + 1
    products, by_path = sum(len(node.parents) for node in graph), leaves * len(graph)
    return LabResult(
        plot(graph, values, grads["by hand"]),
        table_rows(
            {"node": values, "value": values.values()},
            {method: [grads[method][name] for name in values] for method in grads},
        ),
        summary=f"In the figure r = {r:.4g}, so the gradient of b is -2r = {-2 * r:.4g}, and that of each w is this "
        f"times its x. Over {options.examples} examples the pass by hand differs by at most {errors['autograd']:.0g} "
        f"from autograd and {errors['finite difference']:.0g} from the finite difference. The pass takes {products} "
        f"products; path by path, the {leaves} gradients of w and b take {by_path}.",
        expected="-2r for the bias and -2r x for the weights: by hand, by autograd and by finite difference",
        holds=max(errors["lecture"], errors["autograd"]) < FLOAT_ERROR
        and errors["finite difference"] < STEP
        and products < by_path,
    )


def example(features: int, draw: torch.Generator) -> tuple[list[float], float, NodeValues]:
    """x, y and the leaves of the graph, with one decimal digit so that a reader can follow."""
    numbers = torch.randn(2 * features + 2, generator=draw, dtype=torch.float64).mul(10).round().div(10).tolist()
    w = {f"w{j}": number for j, number in enumerate(numbers[:features], 1)}
    return numbers[features:-2], numbers[-2], {**w, "b": numbers[-1]}


def all_gradients(
    x: list[float], y: float, leaves: NodeValues
) -> tuple[list[GraphNode], NodeValues, dict[str, NodeValues]]:
    graph = squared_error(x, y)
    values = forward(graph, leaves)
    r = values["r"]
    grads = {
        "lecture": dict(zip(values, [*(-2 * r * n for n in x), -2 * r, -2 * r, 2 * r, 1.0], strict=True)),
        "by hand": backward(graph, values),
        "autograd": by_autograd(x, y, leaves),
        "finite difference": {name: finite_difference(graph, leaves, name, value) for name, value in values.items()},
    }
    return graph, values, grads


def squared_error(x: list[float], y: float) -> list[GraphNode]:
    """The nodes in topological order: each after all of its parents."""
    inputs = [*x, 1.0]  # the bias is a weight whose input is always 1
    names = [*(f"w{j}" for j in range(1, len(x) + 1)), "b"]
    return [
        GraphNode("ŷ", names, lambda *w: sum(a * b for a, b in zip(w, inputs, strict=True)), lambda *_: inputs),
        GraphNode("r", ["ŷ"], lambda prediction: y - prediction, lambda _: [-1.0]),
        GraphNode("l", ["r"], lambda r: r * r, lambda r: [2 * r]),
    ]


def by_autograd(x: list[float], y: float, leaves: NodeValues) -> NodeValues:
    *w, b = torch.tensor(list(leaves.values()), dtype=torch.float64)
    layer = nn.Linear(len(x), 1, dtype=b.dtype)
    layer.load_state_dict({"weight": torch.stack(w)[None], "bias": b[None]})
    with look(layer, gradients=True) as activations:
        r = y - layer(torch.tensor(x, dtype=b.dtype))
        loss = r.square()
        grads = torch.autograd.grad(loss, (layer.weight, layer.bias, activations[""], r, loss))
    return dict(zip([*leaves, "ŷ", "r", "l"], torch.cat([grad.flatten() for grad in grads]).tolist(), strict=True))


def plot(graph: list[GraphNode], values: NodeValues, grads: NodeValues) -> Figure:
    figure, (axes,) = subplots(height=3.4)
    leaves = graph[0].parents
    positions = {name: (0.0, (len(leaves) - 1) / 2 - row) for row, name in enumerate(leaves)}
    positions |= {node.name: (float(column), 0.0) for column, node in enumerate(graph, 1)}
    for node in graph:
        for parent, partial in partials_at(node, values).items():
            (x0, y0), (x1, y1) = positions[parent], positions[node.name]
            axes.plot((x0, x1), (y0, y1), color="0.7", zorder=0)
            axes.text((x0 + x1) / 2, (y0 + y1) / 2, f"×{partial:.3g}", ha="center", va="center", color="C3", bbox=WHITE)
    for name, position in positions.items():
        axes.text(*position, f"{name} = {values[name]:.3g}\n{grads[name]:.3g}", ha="center", va="center", bbox=BOX)
    axes.set(xlim=(-0.4, len(graph) + 0.3), ylim=(-len(leaves) / 2, len(leaves) / 2))
    axes.set_axis_off()
    axes.set_title("values go right; gradients of l, below them, go left\nand are multiplied on the way", fontsize=10)
    return figure
