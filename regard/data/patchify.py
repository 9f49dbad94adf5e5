"""Frames in patches, and put together again: (..., height, width, perhaps colours) <-> (..., K, numbers of a patch).

A few numbers are one patch, K = 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

USUAL = 10  # pixels of a patch, about


def resolve_patch(shape: Sequence[int], patch: int | None) -> int:
    """The patch, or the one that is nearest to the usual; one that does not tile the frame is refused."""
    if len(shape) == 1:
        return 1
    height, width = shape[:2]
    fit = [side for side in range(1, min(height, width) + 1) if not height % side and not width % side]
    if patch is None:
        return min(fit, key=lambda side: (abs(side - USUAL), -side))
    if patch not in fit:
        raise ValueError(
            f"patches of {patch} x {patch} do not tile frames of {height} x {width}: take --patch "
            f"{' or '.join(map(str, fit))}"
        )
    return patch


def count_patches(shape: Sequence[int], patch: int) -> int:
    return 1 if len(shape) == 1 else shape[0] // patch * (shape[1] // patch)


def patchify(x: Tensor, shape: Sequence[int], patch: int) -> Tensor:
    if len(shape) == 1:
        return x[..., None, :]
    lead, (high, wide) = x.shape[: -len(shape)], (side // patch for side in shape[:2])
    cut = x.reshape(-1, high, patch, wide, patch, math.prod(shape[2:])).transpose(2, 3)
    return cut.reshape(*lead, high * wide, -1)


def unpatchify(x: Tensor, shape: Sequence[int], patch: int) -> Tensor:
    if len(shape) == 1:
        return x[..., 0, :]
    lead, (high, wide) = x.shape[:-2], (side // patch for side in shape[:2])
    cut = x.reshape(-1, high, wide, patch, patch, math.prod(shape[2:])).transpose(2, 3)
    return cut.reshape(*lead, *shape)
