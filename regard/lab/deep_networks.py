"""Networks as deep as one likes, which are given some numbers and hand on as many; and what is seen on the way.

    plain  z' = f(z)          ResNet  z' = z + f(z)          DenseNet  z' = f(x and every z before)

He et al. 2015 and 2016, Huang et al. 2017. Every layer f is wide enough to be the identity, relu(x) - relu(-x) = x.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import accumulate

import torch
from torch import Tensor, nn

from regard.parts.norms import LayerNorm
from regard.parts.residual import Dense, PreNorm


def layer(given: int, dim: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(given, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))


def plain(dim: int, depth: int) -> nn.Module:
    return nn.Sequential(*(layer(dim, dim) for _ in range(depth)))


def plain_kept_in_size(dim: int, depth: int) -> nn.Module:
    """It starts with weights that keep the size of its numbers."""
    network = plain(dim, depth)
    for name, weight in network.named_parameters():
        if weight.dim() == 1:
            nn.init.zeros_(weight)
        else:  # a ReLU before it halves what comes in
            nn.init.normal_(weight, std=math.sqrt((2 if name.endswith("2.weight") else 1) / weight.size(1)))
    return network


def densenet(dim: int, depth: int) -> nn.Module:
    seeing_all = Dense(layer((i + 1) * dim, dim) for i in range(depth - 1))
    return nn.Sequential(seeing_all, layer(depth * dim, dim))


def resnet(dim: int, depth: int) -> nn.Module:
    return nn.Sequential(*(PreNorm(nn.Identity(), layer(dim, dim)) for _ in range(depth)))


def normed_resnet(dim: int, depth: int) -> nn.Module:
    return nn.Sequential(*(PreNorm(LayerNorm(dim), layer(dim, dim)) for _ in range(depth)))


def linears(depth: int, width: int) -> list[nn.Linear]:
    return [nn.Linear(width, width, bias=False) for _ in range(depth)]


def through(layers: Iterable[nn.Module], norm: nn.Module, x: Tensor) -> list[Tensor]:
    """The outputs of each layer, and a norm after it."""
    return list(accumulate(layers, lambda x, layer: norm(layer(x)), initial=x))[1:]


def measured(layers: list[nn.Linear], norm: nn.Module) -> tuple[list[float], list[float]]:
    """After each layer, the size of its outputs, and how long the gradient of one is by the weights of the first."""
    outputs, first = through(layers, norm, torch.ones(layers[0].in_features)), layers[0].weight
    slopes = [torch.autograd.grad(x[0], first, retain_graph=True)[0].norm().item() for x in outputs]
    return [x.square().mean().sqrt().item() for x in outputs], slopes
