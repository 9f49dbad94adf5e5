"""BERT (Devlin et al. 2019): the encoder alone, which sees both sides of a hidden token and guesses it.

It differs from the Transformer's encoder in learned positions, a vector for the first and the second sentence, a norm
after the embedding, and GELU. RoBERTa (Liu et al. 2019) is the same body, trained longer; its positions are counted
from the row after that of the padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from regard.parts.attention import SelfAttention
from regard.parts.block import Block
from regard.parts.dropout import Dropout
from regard.parts.embed import segments
from regard.parts.feedforward import ACTIVATIONS, FeedForward
from regard.parts.heads import MaskedOutput, Thought
from regard.parts.norms import LayerNorm
from regard.parts.positions import Learned, look_up
from regard.parts.residual import PostNorm
from regard.validate import check_config


@dataclass(frozen=True)
class BertConfig:
    vocab: int  # different tokens
    context: int = 512  # most tokens seen at once
    dim: int = 128  # width of the residual stream
    layers: int = 2  # blocks
    heads: int = 2  # attention heads in each block
    hidden: int = 512  # inner width of the feed-forward
    dropout: float = 0.1  # share of numbers dropped in training
    pad: int = -1  # id of the padding, counted from the end if negative
    segments: int = 2  # sentences of a text that are told apart
    sep: int = -1  # id of the token that ends a sentence; none if negative
    segment_start: int = 1  # separators before the second segment of a pair, by the tokenizer; 0: only one segment
    activation: Literal["gelu", "gelu-tanh", "quick-gelu", "relu", "relu2", "silu"] = "gelu"  # of the feed-forward
    eps: float = 1e-12  # added to the variance in each norm
    after_pad: bool = False  # count positions from pad + 1, as RoBERTa does, instead of 0

    def __post_init__(self) -> None:
        check_config(self, allow_zero=("segment_start",))


SIZES: dict[str, dict[str, int]] = {
    # Turc et al. 2019
    "tiny": {"layers": 2, "dim": 128, "heads": 2, "hidden": 512},
    "mini": {"layers": 4, "dim": 256, "heads": 4, "hidden": 1024},
    "small": {"layers": 4, "dim": 512, "heads": 8, "hidden": 2048},
    # Devlin et al. 2019
    "base": {"layers": 12, "dim": 768, "heads": 12, "hidden": 3072},
    "large": {"layers": 24, "dim": 1024, "heads": 16, "hidden": 4096},
}


class Later(Learned):
    """Positions of which the first rows stand for no token."""

    def __init__(self, context: int, dim: int, unused: int):
        super().__init__(unused + context, dim)
        self.unused = unused

    def forward(self, length: int, start: int = 0, mask: Tensor | None = None) -> Tensor:
        return look_up(self.weight[self.unused :], length, start, mask)  # (T,D) or (B,T,D)


class Bert(nn.Module):
    def __init__(self, c: BertConfig):
        super().__init__()
        self.config = c

        def around(inner: nn.Module) -> nn.Module:
            return PostNorm(LayerNorm(c.dim, c.eps), inner, c.dropout)

        self.tokens = nn.Embedding(c.vocab, c.dim)
        self.positions = Later(c.context, c.dim, c.pad + 1) if c.after_pad else Learned(c.context, c.dim)
        self.segments = nn.Embedding(c.segments, c.dim)
        self.embed_norm = LayerNorm(c.dim, c.eps)
        self.drop = Dropout(c.dropout)
        self.blocks = nn.ModuleList(
            Block(
                mixer=around(SelfAttention(c.dim, c.heads)),
                feedforward=around(FeedForward(c.dim, c.hidden, ACTIVATIONS[c.activation])),
            )
            for _ in range(c.layers)
        )
        self.norm = nn.Identity()  # the last block has normed already
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.tokens(ids) + self.positions(ids.size(1), mask=mask) + self.segments(self.segment(ids, mask))
        x = self.drop(self.embed_norm(x))  # (B,T,D)
        for block in self.blocks:
            x = block(x, mask=mask)
        return self.norm(x)

    def segment(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        """Which sentence of its text each token is of, (B,T): the type_ids of the tokenizer."""
        return segments(ids, self.config.sep, self.config.segment_start, mask).clamp(max=self.config.segments - 1)

    def vocabulary(self) -> nn.Module:
        """The output layer of this family: one more layer, then the token embedding itself. RoBERTa has GELU there."""
        c = self.config
        activation = ACTIVATIONS["gelu" if c.after_pad else c.activation]
        return MaskedOutput(self.tokens.weight, Thought(c.dim, c.eps, activation=activation))
