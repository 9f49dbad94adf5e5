"""Small networks that differ in one component.

    depth       plain  z' = f(z)          ResNet  z' = z + f(z)          DenseNet  z' = f(x and every z before)
    memory      RNN, GRU, LSTM   h' = f(x, h)            Transformer   every token attends to all before it
    positions   learned, sinusoidal   x_t + p_t          rotary, ALiBi   by the distance of two tokens

He et al. 2015 and 2016, Huang et al. 2017. Every layer f of a deep network is wide enough to be the identity,
relu(x) - relu(-x) = x.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from itertools import accumulate
from typing import Literal

import torch
from torch import Tensor, nn

from regard.models.gpt import GPT, GPTConfig
from regard.models.recurrent import RecurrentConfig, RecurrentLM
from regard.parts.attention import Rotate, ScoreBias, SelfAttention
from regard.parts.block import Block, DenseConnections, PreNorm
from regard.parts.feedforward import FeedForward
from regard.parts.heads import Classifier, Model
from regard.parts.norms import LayerNorm
from regard.parts.pooling import LastPool
from regard.parts.positions import Alibi, LearnedPositions, RotaryPositions, SinusoidalPositions

CELLS: dict[str, Literal["rnn", "gru", "lstm"]] = {"RNN": "rnn", "GRU": "gru", "LSTM": "lstm"}


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


def recall_model(kind: str, vocab: int, context: int, dim: int, classes: int, truncate: int = 0) -> Model:
    """One layer, classified at the last token. `truncate`: tokens per segment of truncated BPTT; 0 = none."""
    head = Classifier(dim, classes, LastPool())
    if kind == "Transformer":
        return Model(GPT(GPTConfig(vocab, context, dim, layers=1, heads=4, hidden=2 * dim, dropout=0.0)), head)
    config = RecurrentConfig(vocab, dim=dim, layers=1, cell=CELLS[kind], bptt_length=truncate, dropout=0.0)
    return Model(RecurrentLM(config), head)


class SmallDecoder(nn.Module):
    """A decoder with positions that are added to the embeddings, or applied in its attention."""

    def __init__(
        self,
        vocab: int,
        dim: int,
        layers: int,
        heads: int,
        positions: nn.Module | None = None,
        rotate: Rotate | None = None,
        score_bias: ScoreBias | None = None,
    ):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, dim), positions
        blocks = []
        for _ in range(layers):
            mixer = SelfAttention(dim, heads, causal=True, rotate=rotate, score_bias=score_bias)
            blocks.append(Block(PreNorm(LayerNorm(dim), mixer), PreNorm(LayerNorm(dim), FeedForward(dim, 2 * dim))))
        self.blocks = nn.Sequential(*blocks, LayerNorm(dim))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)  # (B,T,D)
        return self.blocks(x if self.positions is None else x + self.positions(ids.size(1)))


def decoders_by_position(vocab: int, context: int, dim: int, layers: int, heads: int) -> dict[str, SmallDecoder]:
    """One decoder per kind of positions; the first has none."""
    decoder = partial(SmallDecoder, vocab, dim, layers, heads)
    return {
        "none": decoder(),
        "learned": decoder(LearnedPositions(context, dim)),
        "sinusoidal": decoder(SinusoidalPositions(context, dim)),
        "rotary": decoder(rotate=RotaryPositions(dim // heads, context)),
        "ALiBi": decoder(score_bias=Alibi(heads)),
    }
