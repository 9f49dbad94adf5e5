"""What a model is for."""

from __future__ import annotations

from regard.tasks.translate import Translate

TASKS = {"translate": Translate}
