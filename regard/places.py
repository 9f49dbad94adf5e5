"""Where things of ours are kept on the user's machine."""

from __future__ import annotations

CACHE = "~/.cache/regard"  # the tokens of texts, the lock of models
