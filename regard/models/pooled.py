"""Deep averaging network (Iyyer et al. 2015): the mean of the token embeddings, then an MLP. It ignores word order.

y = feedforward(1/T Σ_t tokens(x_t))
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from regard.parts.document_mask import Mask, as_tensor
from regard.parts.dropout import Dropout
from regard.parts.embedding import ScaledEmbedding
from regard.parts.feedforward import FeedForward
from regard.parts.heads import Body
from regard.validate import check_config


@dataclass(frozen=True)
class PooledConfig:
    vocab: int  # vocabulary size
    context: int = 512  # maximum tokens per text
    dim: int = 128  # width of the token embeddings
    hidden: int = 256  # hidden width of the feed-forward
    dropout: float = 0.1  # dropout probability
    pad: int = -1  # padding id; a negative id counts from the end of the vocabulary

    def __post_init__(self) -> None:
        check_config(self)


SIZES: dict[str, dict[str, int]] = {
    "tiny": {"dim": 128, "hidden": 256},
    "small": {"dim": 256, "hidden": 512},
}


class Pooled(Body):
    def __init__(self, c: PooledConfig):
        super().__init__(c)
        self.tokens = ScaledEmbedding(c.vocab, c.dim, c.pad)
        self.drop = Dropout(c.dropout)
        self.feedforward = FeedForward(c.dim, c.hidden)

    def forward(self, ids: Tensor, mask: Mask | None = None) -> Tensor:  # (B,T) -> (B,1,D)
        x, visible = self.drop(self.tokens(ids)), as_tensor(mask)
        if visible is None:
            mean = x.mean(1, keepdim=True)
        else:
            real = visible[:, 0].to(x.dtype)  # (B,1,T); (B,T,T) of packed texts
            mean = real @ x / real.sum(-1, keepdim=True).clamp(min=1)
        return self.feedforward(mean)
