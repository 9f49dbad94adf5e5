"""Recurrent sequence-to-sequence model: one recurrent stack encodes the source, another decodes the target.

    without attention    the decoder starts from a summary of the source, all it sees    Sutskever et al. 2014
    with attention       the decoder attends to the source at every step                 Bahdanau et al. 2015

As in Wu et al. 2016, the first decoder layer produces the queries and the later layers receive the attention output. It
is not fed back into the first layer, so training processes a whole target at once.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from regard.models.recurrent import RecurrentConfig, encoder_layer, run_layers, unidirectional_layer
from regard.parts.attention_scores import AdditiveAttention
from regard.parts.block import PreNorm
from regard.parts.cache import Cache
from regard.parts.dropout import Dropout
from regard.parts.embedding import ScaledEmbedding
from regard.parts.heads import BiasedLMHead, Body


class Seq2Seq(Body):
    def __init__(self, c: RecurrentConfig):
        super().__init__(c)
        self.tokens = ScaledEmbedding(c.vocab, c.dim, c.pad)
        self.drop = Dropout(c.dropout)
        self.encoder = nn.ModuleList(encoder_layer(c) for _ in range(c.layers))
        decoder = [unidirectional_layer(c) for _ in range(c.layers)]
        self.decoder = nn.ModuleList(decoder)
        self.initial_states = nn.ModuleList(nn.Linear(c.dim, c.dim * block.states) for block in decoder)
        self.cross = PreNorm(nn.Identity(), AdditiveAttention(c.dim), c.dropout) if c.attention else None
        # With a single decoder layer, nothing else mixes the state with the attention output.
        needs_mixing = c.attention and c.layers == 1
        self.out = nn.Sequential(nn.Linear(c.dim, c.dim), nn.Tanh()) if needs_mixing else nn.Identity()

    def forward(self, source: Tensor, target: Tensor, source_mask: Tensor | None = None) -> Tensor:
        return self.decode(target, self.encode(source, source_mask), source_mask)

    def encode(self, source: Tensor, mask: Tensor | None = None) -> Tensor:  # (B,S) -> (B,S,D)
        return run_layers(self.encoder, self.drop(self.tokens(source)), self.drop, mask)

    def decode(
        self,
        target: Tensor,
        source: Tensor | None = None,
        source_mask: Tensor | None = None,
        cache: list[Cache] | None = None,
    ) -> Tensor:  # (B,T) -> (B,T,D)
        if cache is None:
            assert source is not None, "a decoder needs a source, or a cache that was made from one"
            cache = self.caches_from(source, source_mask)
        x = self.drop(self.tokens(target))
        x = self.drop(self.decoder[0](x, cache=cache[0]))
        if self.cross is not None:
            x = self.cross(x, cache=cache[0])
        for block, layer_cache in zip(self.decoder[1:], cache[1:], strict=True):
            x = x + self.drop(block(x, cache=layer_cache))
        return self.out(x)

    def decoder_caches(self, source: Tensor, mask: Tensor | None = None) -> list[Cache]:
        """Encode a source once, into the decoder's initial caches."""
        return self.caches_from(self.encode(source, mask), mask)

    def caches_from(self, source: Tensor, mask: Tensor | None = None) -> list[Cache]:
        """Initial states from the summary of the encoded source (B,S,D), and the keys and values of attention."""
        summary, dim = self.summary(source, mask), self.config.dim
        caches = [Cache(state=layer(summary).tanh().split(dim, -1)) for layer in self.initial_states]
        if self.cross is not None:
            attention: Any = self.cross.inner
            caches[0].source, caches[0].source_mask = attention.project_kv(source), mask
        return caches

    def summary(self, source: Tensor, mask: Tensor | None = None) -> Tensor:  # (B,S,D) -> (B,D)
        """The final state of each direction."""
        rows = torch.arange(len(source), device=source.device)
        last = source[rows, -1 if mask is None else mask[:, 0, 0].sum(-1) - 1]
        if self.config.unidirectional:
            return last
        return torch.cat((last.chunk(2, -1)[0], source[:, 0].chunk(2, -1)[1]), -1)

    def lm_head(self) -> nn.Module:
        return BiasedLMHead(self.tokens)
