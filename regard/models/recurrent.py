"""Recurrent readers and writers: a stack of RNN, GRU or LSTM layers over word vectors.

    Reader    each layer reads the text both ways: to classify, to tag          Schuster & Paliwal 1997, Graves 2005
    Writer    each layer reads from left to right: a language model             Mikolov et al. 2010

They differ from the mean of word vectors in that order counts. Dropout stands between layers, never between one token
and the next (Zaremba et al. 2014), and from the second layer on each adds to what is there (Wu et al. 2016).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from regard.parts.cache import Cache
from regard.parts.dropout import Dropout
from regard.parts.embed import ScaledEmbedding
from regard.parts.heads import Unembed
from regard.parts.recurrence import GRU, LSTM, RNN, BothWays, Recurrence
from regard.validate import check_choice, check_config

CELLS: dict[str, type[Recurrence]] = {"rnn": RNN, "gru": GRU, "lstm": LSTM}


@dataclass(frozen=True)
class RecurrentConfig:
    vocab: int  # different tokens
    context: int = 512  # most tokens of a text
    dim: int = 256  # width of word vectors and states
    layers: int = 2  # recurrent layers; a translator has as many on each side
    cell: Literal["rnn", "gru", "lstm"] = "lstm"  # what a layer does with its state
    one_way: bool = False  # read from left to right only
    truncate: int = 0  # gradients stop every so many tokens; 0 is never
    dropout: float = 0.1  # share of numbers dropped in training
    attention: bool = True  # of a translator: look at the source again for every word
    pad: int = -1  # id of the padding, counted from the end if negative

    def __post_init__(self) -> None:
        check_config(self, allow_zero=("truncate",))
        check_choice("cell", self.cell, CELLS)
        if self.dim % 2 and not self.one_way:
            raise ValueError(f"half of dim reads from each side: dim must be even, not {self.dim}, or --one-way be set")


SIZES: dict[str, dict[str, int]] = {
    "tiny": {"dim": 128, "layers": 1},
    "small": {"dim": 256, "layers": 2},
    "base": {"dim": 512, "layers": 2},
    "big": {"dim": 1024, "layers": 4},  # about that of Sutskever et al. 2014
}


def one_way_layer(c: RecurrentConfig) -> Recurrence:
    return CELLS[c.cell](c.dim, truncate=c.truncate)


def reading_layer(c: RecurrentConfig) -> nn.Module:
    """Each direction has half of the width, so that a layer's output is as wide as its input."""
    if c.one_way:
        return one_way_layer(c)
    left, right = (CELLS[c.cell](c.dim, c.dim // 2, truncate=c.truncate) for _ in range(2))
    return BothWays(left, right)


def through(
    blocks: nn.ModuleList, x: Tensor, drop: Dropout, mask: Tensor | None = None, cache: list[Cache] | None = None
) -> Tensor:
    for i, block in enumerate(blocks):
        y = drop(block(x, mask=mask, cache=cache[i] if cache else None))
        x = x + y if i else y
    return x


class Stack(nn.Module):
    """What a reader and a writer share."""

    def __init__(self, c: RecurrentConfig, blocks: Iterable[nn.Module]):
        super().__init__()
        self.config = c
        self.tokens = ScaledEmbedding(c.vocab, c.dim, c.pad)
        self.drop = Dropout(c.dropout)
        self.blocks = nn.ModuleList(blocks)

    def forward(self, ids: Tensor, mask: Tensor | None = None, cache: list[Cache] | None = None) -> Tensor:
        return through(self.blocks, self.drop(self.tokens(ids)), self.drop, mask, cache)  # (B,T,D)

    def vocabulary(self) -> nn.Module:
        """The output layer of a language model: every token is scored by its own vector."""
        return Unembed(self.tokens)


class Reader(Stack):
    def __init__(self, c: RecurrentConfig):
        super().__init__(c, [reading_layer(c) for _ in range(c.layers)])


class Writer(Stack):
    def __init__(self, c: RecurrentConfig):
        super().__init__(c, [one_way_layer(c) for _ in range(c.layers)])

    def caches(self) -> list[Cache]:
        """Of a text that has not begun."""
        return [Cache() for _ in self.blocks]
