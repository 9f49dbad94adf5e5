"""A computation graph of scalars: forward pass for values, backward pass (back-propagation) for gradients.

    ∂l/∂parent = Σ ∂l/∂child · ∂child/∂parent,  over all children          Linnainmaa 1970, Rumelhart et al. 1986

A graph is a list of nodes, each after all of its parents: this is the topological order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

NodeValues = dict[str, float]  # by node name
STEP = 1e-4  # step of the finite difference, which is exact for a loss that is quadratic in each node


class GraphNode(NamedTuple):
    name: str
    parents: list[str]
    value: Callable[..., float]  # a function of its parents' values
    partials: Callable[..., list[float]]  # its partial derivative with respect to each parent, at these values


def forward(graph: list[GraphNode], inputs: NodeValues) -> NodeValues:
    """The value of every node, from those of `inputs`."""
    values = dict(inputs)
    for node in graph:
        if node.name not in inputs:
            values[node.name] = node.value(*(values[parent] for parent in node.parents))
    return values


def backward(graph: list[GraphNode], values: NodeValues) -> NodeValues:
    """The gradient of the last node with respect to each node."""
    gradients = dict.fromkeys(values, 0.0) | {graph[-1].name: 1.0}
    for node in reversed(graph):
        for parent, partial in partials_at(node, values).items():
            gradients[parent] += gradients[node.name] * partial
    return gradients


def partials_at(node: GraphNode, values: NodeValues) -> NodeValues:
    return dict(zip(node.parents, node.partials(*(values[parent] for parent in node.parents)), strict=True))


def finite_difference(graph: list[GraphNode], leaves: NodeValues, name: str, value: float) -> float:
    """The same gradient for one node by a central finite difference."""
    low, high = (forward(graph, {**leaves, name: value + step})[graph[-1].name] for step in (-STEP, STEP))
    return (high - low) / (2 * STEP)
