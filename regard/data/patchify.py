"""Splits frames into patches and back: (..., height, width[, channels]) <-> (..., K, numbers of a patch).

An observation vector is one patch, K = 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

PREFERRED_PATCH = 10  # pixels


def resolve_patch(shape: Sequence[int], patch: int | None) -> int:
    """`patch`, which must tile the frame; by default the size that tiles it and is nearest to PREFERRED_PATCH."""
    if len(shape) == 1:
        return 1
    height, width = shape[:2]
    sizes = [size for size in range(1, min(height, width) + 1) if not height % size and not width % size]
    if patch is None:
        return min(sizes, key=lambda size: (abs(size - PREFERRED_PATCH), -size))
    if patch not in sizes:
        remedy = f"take --patch-size {' or '.join(map(str, sizes))}"
        raise ValueError(f"patches of {patch} x {patch} do not tile frames of {height} x {width}: {remedy}")
    return patch


def count_patches(shape: Sequence[int], patch: int) -> int:
    return 1 if len(shape) == 1 else shape[0] // patch * (shape[1] // patch)


def patchify(x: Tensor, shape: Sequence[int], patch: int) -> Tensor:
    if len(shape) == 1:
        return x[..., None, :]
    lead, (rows, columns) = x.shape[: -len(shape)], (side // patch for side in shape[:2])
    patches = x.reshape(-1, rows, patch, columns, patch, math.prod(shape[2:])).transpose(2, 3)
    return patches.reshape(*lead, rows * columns, -1)


def unpatchify(x: Tensor, shape: Sequence[int], patch: int) -> Tensor:
    if len(shape) == 1:
        return x[..., 0, :]
    lead, (rows, columns) = x.shape[:-2], (side // patch for side in shape[:2])
    frames = x.reshape(-1, rows, columns, patch, patch, math.prod(shape[2:])).transpose(2, 3)
    return frames.reshape(*lead, *shape)
