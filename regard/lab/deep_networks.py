"""Plain, residual and dense networks of any depth that map D numbers to D numbers.

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
from regard.parts.residual import DenseConnections, PreNorm


def two_layer_mlp(inputs: int, dim: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))


def plain(dim: int, depth: int) -> nn.Module:
    return nn.Sequential(*(two_layer_mlp(dim, dim) for _ in range(depth)))


def plain_he_init(dim: int, depth: int) -> nn.Module:
    """With an initialisation that preserves the variance of activations (He et al. 2015)."""
    network = plain(dim, depth)
    for name, weight in network.named_parameters():
        if weight.dim() == 1:
            nn.init.zeros_(weight)
        else:  # the ReLU before it halves the variance
            nn.init.normal_(weight, std=math.sqrt((2 if name.endswith("2.weight") else 1) / weight.size(1)))
    return network


def densenet(dim: int, depth: int) -> nn.Module:
    dense = DenseConnections(two_layer_mlp((i + 1) * dim, dim) for i in range(depth - 1))
    return nn.Sequential(dense, two_layer_mlp(depth * dim, dim))


def resnet(dim: int, depth: int) -> nn.Module:
    return nn.Sequential(*(PreNorm(nn.Identity(), two_layer_mlp(dim, dim)) for _ in range(depth)))


def resnet_layer_norm(dim: int, depth: int) -> nn.Module:
    return nn.Sequential(*(PreNorm(LayerNorm(dim), two_layer_mlp(dim, dim)) for _ in range(depth)))


def linear_layers(depth: int, width: int) -> list[nn.Linear]:
    return [nn.Linear(width, width, bias=False) for _ in range(depth)]


def layer_outputs(layers: Iterable[nn.Module], norm: nn.Module, x: Tensor) -> list[Tensor]:
    """The output of each layer, after the norm."""
    return list(accumulate(layers, lambda x, layer: norm(layer(x)), initial=x))[1:]


def layer_norms(layers: list[nn.Linear], norm: nn.Module) -> tuple[list[float], list[float]]:
    """After each layer, the RMS of its outputs and the gradient norm of one output at the first weights."""
    outputs, weight = layer_outputs(layers, norm, torch.ones(layers[0].in_features)), layers[0].weight
    gradient_norms = [torch.autograd.grad(x[0], weight, retain_graph=True)[0].norm().item() for x in outputs]
    return [x.square().mean().sqrt().item() for x in outputs], gradient_norms
