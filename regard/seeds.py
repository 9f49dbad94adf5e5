"""Seeds that follow from other seeds."""

from __future__ import annotations

import hashlib


def derive_seed(seed: int, step: int) -> int:
    """A seed that no other (seed, step) shares."""
    return int.from_bytes(hashlib.blake2b(f"{seed}/{step}".encode(), digest_size=7).digest())
