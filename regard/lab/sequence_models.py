"""Small sequence models that differ in one component.

memory      RNN, GRU, LSTM   h' = f(x, h)            Transformer   every token attends to all before it
positions   learned, sinusoidal   x_t + p_t          rotary, ALiBi   by the distance of two tokens
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

from torch import Tensor, nn

from regard.models.gpt import GPT, GPTConfig
from regard.models.recurrent import RecurrentConfig, RecurrentLM
from regard.parts.attention import SelfAttention
from regard.parts.block import Block
from regard.parts.feedforward import FeedForward
from regard.parts.heads import Classifier, Model
from regard.parts.norms import LayerNorm
from regard.parts.pooling import LastPool
from regard.parts.positions import Alibi, LearnedPositions, RotaryPositions, SinusoidalPositions
from regard.parts.residual import PreNorm

CELLS: dict[str, Literal["rnn", "gru", "lstm"]] = {"RNN": "rnn", "GRU": "gru", "LSTM": "lstm"}


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
        self, vocab: int, dim: int, layers: int, heads: int, positions: nn.Module | None = None, **attention: Any
    ):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, dim), positions
        self.blocks = nn.Sequential(*(block(dim, heads, **attention) for _ in range(layers)), LayerNorm(dim))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)  # (B,T,D)
        return self.blocks(x if self.positions is None else x + self.positions(ids.size(1)))


def block(dim: int, heads: int, **attention: Any) -> Block:
    mixer = SelfAttention(dim, heads, causal=True, **attention)
    return Block(PreNorm(LayerNorm(dim), mixer), PreNorm(LayerNorm(dim), FeedForward(dim, 2 * dim)))


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
