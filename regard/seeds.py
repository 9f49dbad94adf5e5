"""Seeds that follow from other seeds."""

from __future__ import annotations

import hashlib


def derive_seed(seed: int, step: int, batch: int = 0) -> int:
    """A seed that no other (seed, step, batch) shares."""
    path = f"{seed}/{step}/{batch}" if batch else f"{seed}/{step}"
    return int.from_bytes(hashlib.blake2b(path.encode(), digest_size=7).digest())
