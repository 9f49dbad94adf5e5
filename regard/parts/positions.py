"""Positions: attention is permutation-equivariant, so the order of tokens must be encoded.

Added to the token embeddings:
    sinusoidal   p[t, j] = sin(t / 10000^(2j/D)), p[t, D/2 + j] = cos(the same)         Vaswani et al. 2017, section 3.5
    learned      p[t] is a row of a matrix                                              Gehring et al. 2017
A rotation of queries and keys, or a bias on the scores; both depend on the distance only:
    rotary       (a, b) -> (a cos - b sin, b cos + a sin), angle t · theta^(-2j/E)      Su et al. 2021
    ALiBi        - slope_h · distance, slopes 2^(-8/H), 2^(-16/H), ...                  Press et al. 2022
    relative     b[h, bucket of the distance]                                           Raffel et al. 2020 (T5)
    pairs        b[h, kind of the pair], of atoms: their distance and bond               Ying et al. 2021 (Graphormer)
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.parts.document_mask import DocumentMask, Mask
from regard.parts.norms import bare_rms_norm


def sinusoids(context: int, dim: int, interleaved: bool = False) -> Tensor:
    """(context, D): all sines, then all cosines; `interleaved` alternates them, as in the paper."""
    if dim % 2:
        raise ValueError(f"sinusoidal positions pair a sine with a cosine: dim must be even, not {dim}")
    time = torch.arange(context, dtype=torch.float64)[:, None]
    angle = time * 10_000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)  # (context, D/2)
    waves = (angle.sin(), angle.cos())
    return (torch.stack(waves, -1).flatten(1) if interleaved else torch.cat(waves, -1)).float()


class SinusoidalPositions(nn.Module):
    """A fixed table, computed from `context` and `dim` and not saved."""

    table: Tensor

    def __init__(self, context: int, dim: int, interleaved: bool = False):
        super().__init__()
        self.register_buffer("table", sinusoids(context, dim, interleaved), persistent=False)

    def forward(self, length: int, start: int = 0, mask: Mask | None = None) -> Tensor:
        return lookup_positions(self.table, length, start, mask)  # (T,D) or (B,T,D)


class LearnedPositions(nn.Module):
    """One trained vector per position."""

    def __init__(self, context: int, dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(context, dim) * 0.02)

    def forward(self, length: int, start: int = 0, mask: Mask | None = None) -> Tensor:
        return lookup_positions(self.weight, length, start, mask)  # (T,D) or (B,T,D)


class RotaryPositions(nn.Module):
    """Rotary position embedding (RoPE): rotates each pair of components of q and k by an angle proportional to the
    position. A pair is a component of the first half of a head and its counterpart in the second half. `sign` -1
    reverses the rotation.

    `factor` extends the context beyond the `original_context` of training (Llama 3, Dubey et al. 2024): an angle f per
    token becomes

        f · (s + (1 - s) / factor),    s = (original_context · f / 2π - 1) / 3, clamped to [0, 1]

    Pairs that complete less than one rotation in the original context are slowed down by `factor`; those that complete
    four or more stay. With `original_context` 0, every s is 0: all are slowed down (Chen et al. 2023).
    """

    table: Tensor

    def __init__(
        self,
        dim: int,
        context: int,
        theta: float = 10_000.0,
        sign: float = 1.0,
        factor: float = 1.0,
        original_context: int = 0,
    ):
        super().__init__()
        if dim % 2:
            raise ValueError(f"rotary positions rotate pairs of components: head_dim must be even, not {dim}")
        angle = 1.0 / theta ** (torch.arange(0.0, dim, 2) / dim)  # (E/2)
        s = ((original_context * angle / (2 * math.pi) - 1) / 3).clamp(0, 1)
        # In single precision, as in training elsewhere: at large positions the rounding is part of the model.
        angles = torch.arange(float(context))[:, None] * (angle * (s + (1 - s) / factor))  # (context, E/2)
        self.register_buffer("table", torch.cat((sign * angles.sin(), angles.cos()), -1), persistent=False)

    def forward(self, q: Tensor, k: Tensor, start: int) -> tuple[Tensor, Tensor]:
        sines, cosines = lookup_positions(self.table, q.size(2), start).chunk(2, -1)  # (T,E/2)

        def rotate(x: Tensor) -> Tensor:
            a, b = x.chunk(2, -1)
            return torch.cat((a * cosines - b * sines, b * cosines + a * sines), -1)

        return rotate(q), rotate(k)


class RotaryQKNorm(RotaryPositions):
    """Rotary positions, then RMSNorm of q and k (QK-norm, Henry et al. 2020), which bounds the scores."""

    def __init__(self, dim: int, context: int, theta: float = 10_000.0, sign: float = 1.0, eps: float = 1e-6):
        super().__init__(dim, context, theta, sign)
        self.eps = eps

    def forward(self, q: Tensor, k: Tensor, start: int) -> tuple[Tensor, Tensor]:
        q, k = super().forward(q, k, start)
        return bare_rms_norm(q, self.eps), bare_rms_norm(k, self.eps)


class Alibi(nn.Module):
    """Attention with linear biases: a penalty proportional to the distance, with one slope per head."""

    slopes: Tensor

    def __init__(self, heads: int):
        super().__init__()
        power = 2 ** int(math.log2(heads))  # other counts take the remaining slopes from those of 2 · power heads
        slopes = [2.0 ** (-8 * i / power) for i in range(1, power + 1)]
        slopes += [2.0 ** (-4 * i / power) for i in range(1, 2 * (heads - power), 2)]
        self.register_buffer("slopes", torch.tensor(slopes)[:, None, None], persistent=False)

    def forward(self, T: int, S: int) -> Tensor:
        return (-self.slopes * distances(T, S, self.slopes).abs())[None]  # (1,H,T,S)


class RelativePositionBias(nn.Module):
    """One trained number per head and bucket of distances. Small distances have a bucket each, larger ones share
    logarithmically wider buckets, and all from `max_distance` on share the last. Unless `causal`, half of the buckets
    are for later keys."""

    def __init__(self, heads: int, buckets: int = 32, max_distance: int = 128, causal: bool = False):
        super().__init__()
        exact = buckets // 2 if causal else buckets // 4
        if not 0 < exact < max_distance:
            raise ValueError(f"{buckets} buckets cannot cover distances up to {max_distance}")
        self.exact, self.max_distance, self.causal = exact, max_distance, causal
        self.weight = nn.Parameter(torch.randn(buckets, heads) * 0.02)

    def forward(self, T: int, S: int) -> Tensor:
        return self.weight[self.buckets(T, S)].permute(2, 0, 1)[None]  # (1,H,T,S)

    def buckets(self, T: int, S: int) -> Tensor:
        distance = distances(T, S, self.weight)
        count = len(self.weight) if self.causal else len(self.weight) // 2
        size = distance.clamp(min=0) if self.causal else distance.abs()
        share = (size.clamp(min=self.exact) / self.exact).log() / math.log(
            self.max_distance / self.exact
        )  # 1 at the max
        wide = self.exact + (share * (count - self.exact)).long()
        bucket = torch.where(size < self.exact, size, wide.clamp(max=count - 1))
        return bucket if self.causal else bucket + count * (distance < 0)


class PairBias(nn.Module):
    """One trained number per pair kind, layer and head; all start at 0. Graphormer has a table of distances and one of
    bonds; a bond exists exactly where the distance is 1, so one table is equivalent."""

    def __init__(self, kinds: int, layers: int, heads: int):
        super().__init__()
        self.layers = layers
        self.weight = nn.Parameter(torch.zeros(kinds, layers * heads))

    def forward(self, pairs: Tensor) -> Tensor:  # (B,T,T)
        return F.embedding(pairs, self.weight).unflatten(-1, (self.layers, -1)).permute(3, 0, 4, 1, 2)  # (L,B,H,T,T)


def distances(T: int, S: int, like: Tensor) -> Tensor:
    """(T,S): query position minus key position. The last of the T queries is the last of the S tokens."""
    position = torch.arange(S, device=like.device)
    return position[S - T :, None] - position


def position_ids(mask: Mask | None, length: int, start: int = 0) -> slice | Tensor:
    """The position of each token in its text, as an index into a table.

    For texts packed into one row, the mask, compact or (B,1,T,S), says which tokens share a text, and positions count
    the earlier tokens of the same text.
    """
    if isinstance(mask, DocumentMask):
        return mask.offsets
    if mask is None or mask.size(-2) == 1:
        return slice(start, start + length)
    return mask[:, 0].tril(start - 1).sum(-1)  # (B,T)


def lookup_positions(table: Tensor, length: int, start: int, mask: Mask | None = None) -> Tensor:
    if start + length > len(table):
        raise ValueError(
            f"{start + length} tokens do not fit this model's context of {len(table)}: shorten or split the text, "
            "or train with a larger --context"
        )
    return table[position_ids(mask, length, start)]
