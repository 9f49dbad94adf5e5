"""Recurrent encoder and language model: a stack of RNN, GRU or LSTM layers over token embeddings.

    RecurrentEncoder    bidirectional layers, to classify or tag          Schuster & Paliwal 1997, Graves 2005
    RecurrentLM         left-to-right layers, a language model            Mikolov et al. 2010

They differ from the deep averaging network in that word order counts. Dropout acts between layers, never between time
steps (Zaremba et al. 2014); from the second layer on there are residual connections (Wu et al. 2016).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from regard.parts.cache import Cache
from regard.parts.document_mask import Mask
from regard.parts.dropout import Dropout
from regard.parts.embedding import ScaledEmbedding
from regard.parts.heads import BiasedLMHead, Body
from regard.parts.recurrence import GRU, LSTM, RNN, Bidirectional, Recurrence
from regard.validate import check_choice, check_config

CELLS: dict[str, type[Recurrence]] = {"rnn": RNN, "gru": GRU, "lstm": LSTM}


@dataclass(frozen=True)
class RecurrentConfig:
    vocab: int  # vocabulary size
    context: int = 512  # maximum tokens per text
    dim: int = 256  # width of embeddings and states
    layers: int = 2  # recurrent layers; in a translator, per side
    cell: Literal["rnn", "gru", "lstm"] = "lstm"  # recurrent cell
    unidirectional: bool = False  # read from left to right only, instead of both ways
    bptt_length: int = 0  # tokens of truncated back-propagation through time; 0 = no truncation
    dropout: float = 0.1  # dropout probability
    attention: bool = True  # attention to the source, in a translator
    pad: int = -1  # padding id; a negative id counts from the end of the vocabulary

    def __post_init__(self) -> None:
        check_config(self, allow_zero=("bptt_length",))
        check_choice("cell", self.cell, CELLS)
        if self.dim % 2 and not self.unidirectional:
            raise ValueError(
                f"each direction has half of dim: dim must be even, not {self.dim}, or add --unidirectional"
            )


SIZES: dict[str, dict[str, int]] = {
    "tiny": {"dim": 128, "layers": 1},
    "small": {"dim": 256, "layers": 2},
    "base": {"dim": 512, "layers": 2},
    "big": {"dim": 1024, "layers": 4},  # about the size of Sutskever et al. 2014
}


def unidirectional_layer(c: RecurrentConfig) -> Recurrence:
    return CELLS[c.cell](c.dim, bptt_length=c.bptt_length)


def encoder_layer(c: RecurrentConfig) -> nn.Module:
    """Each direction has half of the width, so the output is as wide as the input."""
    if c.unidirectional:
        return unidirectional_layer(c)
    left, right = (CELLS[c.cell](c.dim, c.dim // 2, bptt_length=c.bptt_length) for _ in range(2))
    return Bidirectional(left, right)


def run_layers(
    blocks: nn.ModuleList, x: Tensor, drop: Dropout, mask: Mask | None = None, cache: list[Cache] | None = None
) -> Tensor:
    for i, block in enumerate(blocks):
        y = drop(block(x, mask=mask, cache=cache[i] if cache else None))
        x = x + y if i else y
    return x


class RecurrentStack(Body):
    """Base class of the encoder and the language model."""

    def __init__(self, c: RecurrentConfig, blocks: Iterable[nn.Module]):
        super().__init__(c)
        self.tokens = ScaledEmbedding(c.vocab, c.dim, c.pad)
        self.drop = Dropout(c.dropout)
        self.blocks = nn.ModuleList(blocks)

    def forward(self, ids: Tensor, mask: Mask | None = None, cache: list[Cache] | None = None) -> Tensor:
        return run_layers(self.blocks, self.drop(self.tokens(ids)), self.drop, mask, cache)  # (B,T,D)

    def lm_head(self) -> nn.Module:
        """The tied token embedding, with a bias."""
        return BiasedLMHead(self.tokens)


class RecurrentEncoder(RecurrentStack):
    def __init__(self, c: RecurrentConfig):
        super().__init__(c, [encoder_layer(c) for _ in range(c.layers)])


class RecurrentLM(RecurrentStack):
    def __init__(self, c: RecurrentConfig):
        super().__init__(c, [unidirectional_layer(c) for _ in range(c.layers)])

    def caches(self) -> list[Cache]:
        """Empty caches, one per layer."""
        return [Cache() for _ in self.blocks]
