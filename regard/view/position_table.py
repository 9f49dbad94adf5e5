"""The positions of a model as a table: which place is told by which numbers, and how alike two places are.

    alike(d) = mean over t of cos(p_t, p_t+d)

Sinusoidal positions count as a binary number does: each column turns, and each slower than the one before.
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from regard.parts.positions import Learned, Rotary, Sinusoidal
from regard.view.page import blob

MOST = 128  # places shown
ROOM = 100_000  # numbers of the table; wide ones show fewer places
SAYS = {
    "sinusoidal": "Sines on the left, cosines on the right, the fast waves first: a place is told as by the digits of "
    "a binary number, but smoothly.",
    "learned": "One trained vector for each place. Rows near each other become alike, though nobody asked for it.",
    "rotary": "The sines on the left and the cosines on the right of the angles by which queries and keys are turned.",
}


def table_of(body: Any) -> tuple[str, Tensor] | None:
    """The name and the rows of a body's positions, (context,D)."""
    match getattr(body, "positions", None):
        case Sinusoidal() as fixed:
            return "sinusoidal", fixed.table
        case Rotary() as turn:
            return "rotary", turn.table
        case Learned() as trained:
            return "learned", trained.weight.detach()[getattr(trained, "unused", 0) :]
    return None


def alike(table: Tensor) -> list[float]:
    """The mean cosine of two places, by their distance, from 0 on."""
    unit = F.normalize(table.double(), dim=-1)
    cosines = unit @ unit.T  # (P,P)
    return [float(cosines.diagonal(distance).mean()) for distance in range(len(table))]


def counter(places: int) -> list[list[int]]:
    """Every place as a binary number, the fastest digit first."""
    digits = max(1, (places - 1).bit_length())
    return [[place >> digit & 1 for digit in range(digits)] for place in range(places)]


def positions_tab(body: Any) -> dict[str, Any] | None:
    found = table_of(body)
    if found is None:
        return None
    name, table = found
    table = table[: min(MOST, max(1, ROOM // table.size(1)))].float().cpu()
    return {
        "kind": "positions",
        "title": "Positions",
        "says": SAYS[name],
        "name": name,
        "table": blob(table.numpy()),
        "shape": list(table.shape),
        "alike": [round(x, 5) for x in alike(table)],
        "counter": counter(len(table)),
    }
