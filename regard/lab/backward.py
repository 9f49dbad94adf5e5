"""backward: how does back-propagation find every slope in one walk?

    ŷ = w·x + b    r = y - ŷ    l = r²          ∂l/∂r = 2r    ∂l/∂ŷ = ∂l/∂b = -2r    ∂l/∂wⱼ = -2r xⱼ

Claim (deck N, "Computation graph example" and "Backpropogation"): forward goes through the graph so that every node
comes after what it is made of; backward goes the other way, and multiplies the slope of each node by the slope that
came from behind it. It gives the slopes above, and saves work, since what all paths share is computed once.

The walk is done here by hand, by PyTorch's autograd (seen through `look`), and a third time without any calculus:
nudge one node, and see how much the loss moves.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from torch import nn

from regard.lab.computation_graph import NUDGE, Node, Values, backward, by_nudging, forward, slopes_at
from regard.lab.result import Each, Finding, at_least, drawing, rows
from regard.look import look

FLOAT_ERROR = 1e-12  # of doubles
BOX = {"boxstyle": "round", "facecolor": "w"}
WHITE = {"facecolor": "w", "edgecolor": "w", "pad": 1}


@dataclass(frozen=True)
class Knobs:
    features: int = 3  # numbers in x
    examples: int = 200  # random ones; the first is shown
    seed: int = 1  # of x, y, w and b

    def __post_init__(self) -> None:
        at_least(1, self, "features", "examples")


QUICK = Knobs(examples=20)


def run(knobs: Knobs, each: Each) -> Finding:
    draw = torch.Generator().manual_seed(knobs.seed)
    found = [all_ways(*example(knobs.features, draw)) for _ in each(range(knobs.examples))]
    worst = {
        way: max(abs(slopes["by hand"][name] - slopes[way][name]) for _, values, slopes in found for name in values)
        for way in found[0][-1]
    }
    graph, values, slopes = found[0]
    r, leaves = values["r"], knobs.features + 1
    shared, apart = sum(len(node.parents) for node in graph), leaves * len(graph)
    return Finding(
        drawn(graph, values, slopes["by hand"]),
        rows(
            {"node": values, "value": values.values()}, {way: [slopes[way][name] for name in values] for way in slopes}
        ),
        says=f"In the example drawn r = {r:.4g}, so the slope of b is -2r = {-2 * r:.4g}, and that of each w is this "
        f"times its x. Over {knobs.examples} examples the walk by hand differs by at most {worst['autograd']:.0g} from "
        f"autograd and {worst['by nudging']:.0g} from nudging. The walk takes {shared} products; path by path, the "
        f"{leaves} slopes of w and b take {apart}.",
        wanted="-2r for the bias and -2r x for the weights: by hand, by autograd and by nudging",
        holds=max(worst["lecture"], worst["autograd"]) < FLOAT_ERROR and worst["by nudging"] < NUDGE and shared < apart,
    )


def example(features: int, draw: torch.Generator) -> tuple[list[float], float, Values]:
    """x, y and the leaves of the graph, with one digit after the point so that a reader can follow."""
    numbers = torch.randn(2 * features + 2, generator=draw, dtype=torch.float64).mul(10).round().div(10).tolist()
    w = {f"w{j}": number for j, number in enumerate(numbers[:features], 1)}
    return numbers[features:-2], numbers[-2], {**w, "b": numbers[-1]}


def all_ways(x: list[float], y: float, leaves: Values) -> tuple[list[Node], Values, dict[str, Values]]:
    graph = squared_error(x, y)
    values = forward(graph, leaves)
    r = values["r"]
    slopes = {
        "lecture": dict(zip(values, [*(-2 * r * n for n in x), -2 * r, -2 * r, 2 * r, 1.0], strict=True)),
        "by hand": backward(graph, values),
        "autograd": by_autograd(x, y, leaves),
        "by nudging": {name: by_nudging(graph, leaves, name, value) for name, value in values.items()},
    }
    return graph, values, slopes


def squared_error(x: list[float], y: float) -> list[Node]:
    """The nodes in topological order: each after all of its parents."""
    inputs = [*x, 1.0]  # the bias is a weight whose input is always 1
    names = [*(f"w{j}" for j in range(1, len(x) + 1)), "b"]
    return [
        Node("ŷ", names, lambda *w: sum(a * b for a, b in zip(w, inputs, strict=True)), lambda *_: inputs),
        Node("r", ["ŷ"], lambda guessed: y - guessed, lambda _: [-1.0]),
        Node("l", ["r"], lambda r: r * r, lambda r: [2 * r]),
    ]


def by_autograd(x: list[float], y: float, leaves: Values) -> Values:
    *w, b = torch.tensor(list(leaves.values()), dtype=torch.float64)
    layer = nn.Linear(len(x), 1, dtype=b.dtype)
    layer.load_state_dict({"weight": torch.stack(w)[None], "bias": b[None]})
    with look(layer, gradients=True) as seen:
        r = y - layer(torch.tensor(x, dtype=b.dtype))
        loss = r.square()
        slopes = torch.autograd.grad(loss, (layer.weight, layer.bias, seen[""], r, loss))
    return dict(zip([*leaves, "ŷ", "r", "l"], torch.cat([slope.flatten() for slope in slopes]).tolist(), strict=True))


def drawn(graph: list[Node], values: Values, moves: Values) -> Figure:
    figure, (axes,) = drawing(height=3.4)
    leaves = graph[0].parents
    spots = {name: (0.0, (len(leaves) - 1) / 2 - row) for row, name in enumerate(leaves)}
    spots |= {node.name: (float(column), 0.0) for column, node in enumerate(graph, 1)}
    for node in graph:
        for parent, slope in slopes_at(node, values).items():
            (x0, y0), (x1, y1) = spots[parent], spots[node.name]
            axes.plot((x0, x1), (y0, y1), color="0.7", zorder=0)
            axes.text((x0 + x1) / 2, (y0 + y1) / 2, f"×{slope:.3g}", ha="center", va="center", color="C3", bbox=WHITE)
    for name, spot in spots.items():
        axes.text(*spot, f"{name} = {values[name]:.3g}\n{moves[name]:.3g}", ha="center", va="center", bbox=BOX)
    axes.set(xlim=(-0.4, len(graph) + 0.3), ylim=(-len(leaves) / 2, len(leaves) / 2))
    axes.set_axis_off()
    axes.set_title("values go right; slopes of l, below them, go left\nand are multiplied on the way", fontsize=10)
    return figure
