"""BERT (Devlin et al. 2019): a bidirectional encoder, trained to predict masked tokens.

It differs from the Transformer's encoder in learned positions, segment embeddings, a norm after the embedding, and
GELU. RoBERTa (Liu et al. 2019) is the same body, trained longer; its positions start after the padding id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from regard.parts.attention import SelfAttention
from regard.parts.block import Block, PostNorm
from regard.parts.document_mask import Mask
from regard.parts.dropout import Dropout
from regard.parts.embedding import segment_ids
from regard.parts.feedforward import ACTIVATIONS, FeedForward
from regard.parts.heads import Body, HeadTransform, MaskedLMHead
from regard.parts.norms import LayerNorm
from regard.parts.positions import LearnedPositions, lookup_positions
from regard.validate import check_config


@dataclass(frozen=True)
class BertConfig:
    vocab: int  # vocabulary size
    context: int = 512  # maximum tokens per sequence
    dim: int = 128  # model width
    layers: int = 2  # number of blocks
    heads: int = 2  # attention heads per block
    hidden: int = 512  # hidden width of the feed-forward
    dropout: float = 0.1  # dropout probability
    pad: int = -1  # padding id; a negative id counts from the end of the vocabulary
    segments: int = 2  # number of segments (token types)
    sep: int = -1  # id of the separator token; negative = none
    segment_start: int = 1  # separators before the second segment, set by the tokenizer; 0 = one segment
    activation: Literal["gelu", "gelu-tanh", "quick-gelu", "relu", "relu2", "silu"] = "gelu"  # feed-forward activation
    norm_eps: float = 1e-12  # epsilon of the norms, added to the variance
    positions_after_pad: bool = False  # start positions at pad + 1, as RoBERTa does, instead of 0

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


class OffsetPositions(LearnedPositions):
    """Learned positions whose first `offset` rows are unused."""

    def __init__(self, context: int, dim: int, offset: int):
        super().__init__(offset + context, dim)
        self.offset = offset

    def forward(self, length: int, start: int = 0, mask: Mask | None = None) -> Tensor:
        return lookup_positions(self.weight[self.offset :], length, start, mask)  # (T,D) or (B,T,D)


class Bert(Body):
    def __init__(self, c: BertConfig):
        super().__init__(c)

        def residual(inner: nn.Module) -> nn.Module:
            return PostNorm(LayerNorm(c.dim, c.norm_eps), inner, c.dropout)

        self.tokens = nn.Embedding(c.vocab, c.dim)
        self.positions = (
            OffsetPositions(c.context, c.dim, c.pad + 1)
            if c.positions_after_pad
            else LearnedPositions(c.context, c.dim)
        )
        self.segments = nn.Embedding(c.segments, c.dim)
        self.embed_norm = LayerNorm(c.dim, c.norm_eps)
        self.drop = Dropout(c.dropout)
        self.blocks = nn.ModuleList(
            Block(
                mixer=residual(SelfAttention(c.dim, c.heads)),
                feedforward=residual(FeedForward(c.dim, c.hidden, ACTIVATIONS[c.activation])),
            )
            for _ in range(c.layers)
        )
        self.norm = nn.Identity()  # the last block ends with a norm
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    def forward(self, ids: Tensor, mask: Mask | None = None) -> Tensor:
        x = self.tokens(ids) + self.positions(ids.size(1), mask=mask) + self.segments(self.segment_ids(ids, mask))
        x = self.drop(self.embed_norm(x))  # (B,T,D)
        for block in self.blocks:
            x = block(x, mask=mask)
        return self.norm(x)

    def segment_ids(self, ids: Tensor, mask: Mask | None) -> Tensor:
        """Segment of each token, (B,T): the tokenizer's token_type_ids."""
        return segment_ids(ids, self.config.sep, self.config.segment_start, mask).clamp(max=self.config.segments - 1)

    def lm_head(self) -> nn.Module:
        """HeadTransform, then the tied token embedding. RoBERTa always has GELU in the transform."""
        c = self.config
        activation = ACTIVATIONS["gelu" if c.positions_after_pad else c.activation]
        return MaskedLMHead(self.tokens.weight, HeadTransform(c.dim, c.norm_eps, activation=activation))
