"""The recurrent translator: one recurrent stack reads the source, another writes the target.

    without attention    a summary of the source is where the decoder starts, and all it sees    Sutskever et al. 2014
    with attention       for every word it looks at the source again                             Bahdanau et al. 2015

Its successor, the Transformer, lets any two words meet in one step; here the step from word to word is all there is.
As in Wu et al. 2016 the first layer asks and the later ones hear the answer. No answer goes back into the layer that
asked, so that a whole target is read at once in training.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from regard.models.recurrent import RecurrentConfig, one_way_layer, reading_layer, through
from regard.parts.attention_scores import AdditiveAttention
from regard.parts.cache import Cache
from regard.parts.dropout import Dropout
from regard.parts.embedding import ScaledEmbedding
from regard.parts.heads import BiasedLMHead
from regard.parts.residual import PreNorm


class Seq2Seq(nn.Module):
    def __init__(self, c: RecurrentConfig):
        super().__init__()
        self.config = c
        self.tokens = ScaledEmbedding(c.vocab, c.dim, c.pad)
        self.drop = Dropout(c.dropout)
        self.encoder = nn.ModuleList(reading_layer(c) for _ in range(c.layers))
        decoder = [one_way_layer(c) for _ in range(c.layers)]
        self.decoder = nn.ModuleList(decoder)
        self.starts = nn.ModuleList(nn.Linear(c.dim, c.dim * block.states) for block in decoder)
        self.cross = PreNorm(nn.Identity(), AdditiveAttention(c.dim), c.dropout) if c.attention else None
        # Where no layer follows that could mix what was asked with what was answered.
        mixing = c.attention and c.layers == 1
        self.out = nn.Sequential(nn.Linear(c.dim, c.dim), nn.Tanh()) if mixing else nn.Identity()

    def forward(self, source: Tensor, target: Tensor, source_mask: Tensor | None = None) -> Tensor:
        return self.decode(target, self.encode(source, source_mask), source_mask)

    def encode(self, source: Tensor, mask: Tensor | None = None) -> Tensor:  # (B,S) -> (B,S,D)
        return through(self.encoder, self.drop(self.tokens(source)), self.drop, mask)

    def decode(
        self,
        target: Tensor,
        source: Tensor | None = None,
        source_mask: Tensor | None = None,
        cache: list[Cache] | None = None,
    ) -> Tensor:  # (B,T) -> (B,T,D)
        if cache is None:
            assert source is not None, "a decoder needs a source, or a cache that has read one"
            cache = self.begin(source, source_mask)
        x = self.drop(self.tokens(target))
        x = self.drop(self.decoder[0](x, cache=cache[0]))
        if self.cross is not None:
            x = self.cross(x, cache=cache[0])
        for block, kept in zip(self.decoder[1:], cache[1:], strict=True):
            x = x + self.drop(block(x, cache=kept))
        return self.out(x)

    def decoder_caches(self, source: Tensor, mask: Tensor | None = None) -> list[Cache]:
        """What the decoder needs of a source, computed once."""
        return self.begin(self.encode(source, mask), mask)

    def begin(self, source: Tensor, mask: Tensor | None = None) -> list[Cache]:
        """The first state of every layer follows from a summary of the encoded source, (B,S,D)."""
        summary, dim = self.summary(source, mask), self.config.dim
        caches = [Cache(state=start(summary).tanh().split(dim, -1)) for start in self.starts]
        if self.cross is not None:
            attention: Any = self.cross.inner
            caches[0].source, caches[0].source_mask = attention.project_kv(source), mask
        return caches

    def summary(self, source: Tensor, mask: Tensor | None = None) -> Tensor:  # (B,S,D) -> (B,D)
        """What each direction knew when it had read everything."""
        rows = torch.arange(len(source), device=source.device)
        last = source[rows, -1 if mask is None else mask[:, 0, 0].sum(-1) - 1]
        if self.config.unidirectional:
            return last
        return torch.cat((last.chunk(2, -1)[0], source[:, 0].chunk(2, -1)[1]), -1)

    def lm_head(self) -> nn.Module:
        return BiasedLMHead(self.tokens)
