"""A graph of numbers that are made of other numbers, walked forward for their values and backward for their slopes.

    ∂l/∂parent = Σ ∂l/∂child · ∂child/∂parent,  over all children          Linnainmaa 1970, Rumelhart et al. 1986

A graph is a list of nodes, each after all of its parents: this is the topological order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

Values = dict[str, float]  # by the name of the node
NUDGE = 1e-4  # of a node; where the loss is a parabola in each, the size of the step makes no error of its own


class Node(NamedTuple):
    name: str
    parents: list[str]
    value: Callable[..., float]  # of the values of its parents
    slopes: Callable[..., list[float]]  # by each of its parents, at these values


def forward(graph: list[Node], known: Values) -> Values:
    """The value of every node, from those that are known."""
    values = dict(known)
    for node in graph:
        if node.name not in known:
            values[node.name] = node.value(*(values[parent] for parent in node.parents))
    return values


def backward(graph: list[Node], values: Values) -> Values:
    """How fast the last node moves with each node."""
    moves = dict.fromkeys(values, 0.0) | {graph[-1].name: 1.0}
    for node in reversed(graph):
        for parent, slope in slopes_at(node, values).items():
            moves[parent] += moves[node.name] * slope
    return moves


def slopes_at(node: Node, values: Values) -> Values:
    return dict(zip(node.parents, node.slopes(*(values[parent] for parent in node.parents)), strict=True))


def by_nudging(graph: list[Node], leaves: Values, name: str, value: float) -> float:
    """The same of one node, without any calculus: it is moved a little, and all that follows is computed anew."""
    low, high = (forward(graph, {**leaves, name: value + step})[graph[-1].name] for step in (-NUDGE, NUDGE))
    return (high - low) / (2 * NUDGE)
