"""Positions: attention sees a set, so order has to be told.

Added to the tokens:
    sinusoidal   p[t, j] = sin(t / 10000^(2j/D)), p[t, D/2 + j] = cos(the same)         Vaswani et al. 2017, section 3.5
    learned      p[t] is a row of a matrix                                              Gehring et al. 2017
A turn of queries and keys, or a bias on their scores, which both depend on the distance only:
    rotary       (a, b) -> (a cos - b sin, b cos + a sin), angle t · base^(-2j/E)       Su et al. 2021
    ALiBi        - slope_h · distance, slopes 2^(-8/H), 2^(-16/H), ...                  Press et al. 2022
    relative     b[h, bucket of the distance]                                           Raffel et al. 2020 (T5)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from regard.parts.norms import bare_rms_norm


def sinusoids(context: int, dim: int, interleaved: bool = False) -> Tensor:
    """(context, D). All sines then all cosines, or in turn as the paper prints them: the same columns, reordered."""
    if dim % 2:
        raise ValueError(f"sinusoidal positions pair a sine with a cosine: dim must be even, not {dim}")
    time = torch.arange(context, dtype=torch.float64)[:, None]
    angle = time * 10_000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)  # (context, D/2)
    waves = (angle.sin(), angle.cos())
    return (torch.stack(waves, -1).flatten(1) if interleaved else torch.cat(waves, -1)).float()


class SinusoidalPositions(nn.Module):
    """A fixed table, computed once, not saved: it follows from two numbers."""

    table: Tensor

    def __init__(self, context: int, dim: int, interleaved: bool = False):
        super().__init__()
        self.register_buffer("table", sinusoids(context, dim, interleaved), persistent=False)

    def forward(self, length: int, start: int = 0, mask: Tensor | None = None) -> Tensor:
        return lookup_positions(self.table, length, start, mask)  # (T,D) or (B,T,D)


class LearnedPositions(nn.Module):
    """A trained vector for each position."""

    def __init__(self, context: int, dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(context, dim) * 0.02)

    def forward(self, length: int, start: int = 0, mask: Tensor | None = None) -> Tensor:
        return lookup_positions(self.weight, length, start, mask)  # (T,D) or (B,T,D)


class RotaryPositions(nn.Module):
    """Turns each pair of numbers of q and k by an angle that grows with the place of the token; a pair is a number of
    the first half of a head with its partner in the second half. `turn` -1 turns the other way round.

    `stretch` lets a model see farther than the `trained` tokens it learned on (Llama 3, Dubey et al. 2024): an angle f
    of one token becomes

        f · (s + (1 - s) / stretch),    s = (trained · f / 2π - 1) / 3, at least 0 and at most 1

    so pairs that come round less than once in the trained tokens turn slower, and those that do so four times stay.
    Where `trained` is 0, so is every s: all turn slower (Chen et al. 2023).
    """

    table: Tensor

    def __init__(
        self,
        dim: int,
        context: int,
        base: float = 10_000.0,
        turn: float = 1.0,
        stretch: float = 1.0,
        trained: int = 0,
    ):
        super().__init__()
        if dim % 2:
            raise ValueError(f"rotary positions turn pairs of numbers: a head's width must be even, not {dim}")
        angle = 1.0 / base ** (torch.arange(0.0, dim, 2) / dim)  # (E/2)
        s = ((trained * angle / (2 * math.pi) - 1) / 3).clamp(0, 1)
        # In single precision, as all who train such models do: far out in a text the rounding is part of the model.
        angles = torch.arange(float(context))[:, None] * (angle * (s + (1 - s) / stretch))  # (context, E/2)
        self.register_buffer("table", torch.cat((turn * angles.sin(), angles.cos()), -1), persistent=False)

    def forward(self, q: Tensor, k: Tensor, start: int) -> tuple[Tensor, Tensor]:
        sines, cosines = lookup_positions(self.table, q.size(2), start).chunk(2, -1)  # (T,E/2)

        def turned(x: Tensor) -> Tensor:
            a, b = x.chunk(2, -1)
            return torch.cat((a * cosines - b * sines, b * cosines + a * sines), -1)

        return turned(q), turned(k)


class RotaryQKNorm(RotaryPositions):
    """Then every q and k gets the same length, so that no score can grow without bound (Henry et al. 2020)."""

    def __init__(self, dim: int, context: int, base: float = 10_000.0, turn: float = 1.0, eps: float = 1e-6):
        super().__init__(dim, context, base, turn)
        self.eps = eps

    def forward(self, q: Tensor, k: Tensor, start: int) -> tuple[Tensor, Tensor]:
        q, k = super().forward(q, k, start)
        return bare_rms_norm(q, self.eps), bare_rms_norm(k, self.eps)


class Alibi(nn.Module):
    """The farther a token, the less it is heard; each head has another slope."""

    slopes: Tensor

    def __init__(self, heads: int):
        super().__init__()
        whole = 2 ** int(math.log2(heads))  # for other numbers of heads the paper fills up from twice as many
        slopes = [2.0 ** (-8 * i / whole) for i in range(1, whole + 1)]
        slopes += [2.0 ** (-4 * i / whole) for i in range(1, 2 * (heads - whole), 2)]
        self.register_buffer("slopes", torch.tensor(slopes)[:, None, None], persistent=False)

    def forward(self, T: int, S: int) -> Tensor:
        return (-self.slopes * distances(T, S, self.slopes).abs())[None]  # (1,H,T,S)


class RelativePositionBias(nn.Module):
    """A trained number for each head and distance. Near distances have a bucket each, farther ones share wider and
    wider buckets, and all from `farthest` on share the last. Unless `causal`, half of the buckets look ahead."""

    def __init__(self, heads: int, buckets: int = 32, farthest: int = 128, causal: bool = False):
        super().__init__()
        near = buckets // 2 if causal else buckets // 4
        if not 0 < near < farthest:
            raise ValueError(f"{buckets} buckets cannot share out distances up to {farthest}")
        self.near, self.farthest, self.causal = near, farthest, causal
        self.weight = nn.Parameter(torch.randn(buckets, heads) * 0.02)

    def forward(self, T: int, S: int) -> Tensor:
        return self.weight[self.buckets(T, S)].permute(2, 0, 1)[None]  # (1,H,T,S)

    def buckets(self, T: int, S: int) -> Tensor:
        back = distances(T, S, self.weight)
        count = len(self.weight) if self.causal else len(self.weight) // 2
        far = back.clamp(min=0) if self.causal else back.abs()
        steps = (far.clamp(min=self.near) / self.near).log() / math.log(self.farthest / self.near)  # 1 at the farthest
        shared = self.near + (steps * (count - self.near)).long()
        bucket = torch.where(far < self.near, far, shared.clamp(max=count - 1))
        return bucket if self.causal else bucket + count * (back < 0)


def distances(T: int, S: int, like: Tensor) -> Tensor:
    """(T,S): how far back each answer lies. The last of the T questions is the last of the S tokens."""
    place = torch.arange(S, device=like.device)
    return place[S - T :, None] - place


def places(mask: Tensor | None, length: int, start: int = 0) -> slice | Tensor:
    """Where each token stands in its text, as an index into a table.

    Texts packed into one row have a mask (B,1,T,S) that tells who shares a text: a token stands where as many tokens
    of its text come before it as if the text were alone.
    """
    if mask is None or mask.size(-2) == 1:
        return slice(start, start + length)
    return mask[:, 0].tril(start - 1).sum(-1)  # (B,T)


def lookup_positions(table: Tensor, length: int, start: int, mask: Tensor | None = None) -> Tensor:
    if start + length > len(table):
        raise ValueError(
            f"{start + length} tokens do not fit this model's context of {len(table)}: shorten or split the text, "
            "or train with a larger --context"
        )
    return table[places(mask, length, start)]
