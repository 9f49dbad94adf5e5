"""The KV cache of one layer: keys and values of all tokens so far, and those of the source.

A recurrent layer caches its state instead, which does not grow. The cache is an argument of `forward`, `None` in
training, and never module state.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor


class Cache:
    """Keys and values of one layer, (B,G,S,E), in buffers whose capacity doubles when it is exhausted.

    `source` holds the keys and values of a decoder's source. They never grow, and several rows (the beams of one
    sentence) share them. `state` is the state of a recurrent layer, batch first.
    """

    def __init__(
        self,
        source: tuple[Tensor, Tensor] | None = None,
        source_mask: Tensor | None = None,
        state: tuple[Tensor, ...] | None = None,
    ):
        self.length = 0
        self.source, self.source_mask, self.state = source, source_mask, state
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append new keys and values; returns all so far."""
        end = self.length + keys.size(2)
        self._keys = _with_capacity(self._keys, keys, self.length, end)
        self._values = _with_capacity(self._values, values, self.length, end)
        self._keys[:, :, self.length : end] = keys
        self._values[:, :, self.length : end] = values
        self.length = end
        return self._keys[:, :, :end], self._values[:, :, :end]

    def advance(self, state: tuple[Tensor, ...], tokens: int) -> None:
        """Store the state of a recurrent layer after `tokens` more tokens."""
        self.state, self.length = state, self.length + tokens

    def select(self, rows: Tensor) -> None:
        """Keep these rows only, in this order: beams fork, sentences finish."""
        if self.state is not None:
            self.state = tuple(part[rows] for part in self.state)
        if self._keys is not None and self._values is not None:
            self._keys, self._values = self._keys[rows], self._values[rows]

    def select_sources(self, sources: Tensor) -> None:
        if self.source is not None:
            self.source = (self.source[0][sources], self.source[1][sources])
        if self.source_mask is not None:
            self.source_mask = self.source_mask[sources]


def select(caches: Iterable[Cache], rows: Tensor, sources: Tensor | None = None) -> None:
    for cache in caches:
        cache.select(rows)
        if sources is not None:
            cache.select_sources(sources)


def _with_capacity(buffer: Tensor | None, new: Tensor, length: int, end: int) -> Tensor:
    """A buffer of at least `end` positions that holds the first `length` ones."""
    if buffer is not None and buffer.size(2) >= end:
        return buffer
    B, G, _, E = new.shape
    grown = new.new_empty(B, G, max(end, 2 * length, 16), E)
    if buffer is not None:
        grown[:, :, :length] = buffer[:, :, :length]
    return grown
