"""The position table of a model, and the cosine similarity of positions by distance.

    similarity(d) = mean over t of cos(p_t, p_t+d)

Sinusoidal positions work like a binary counter: each column oscillates, more slowly than the one before.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from regard.parts.positions import LearnedPositions, RotaryPositions, SinusoidalPositions
from regard.view.page import Tab, blob

MAX_POSITIONS = 128  # on a page
MAX_NUMBERS = 100_000  # of the table; wide tables show fewer positions
DESCRIPTIONS = {
    "sinusoidal": "Sines on the left, cosines on the right, the highest frequencies first: each row encodes a position "
    "like a binary number, but continuously.",
    "learned": "One trained vector per position. Nearby rows become similar, though no loss asks for it.",
    "rotary": "The sines (left) and cosines (right) of the angles by which queries and keys are rotated.",
}


def position_table(body: nn.Module) -> tuple[str, Tensor] | None:
    """The kind and the rows of a body's positions, (context,D)."""
    match getattr(body, "positions", None):
        case SinusoidalPositions() as sinusoidal:
            return "sinusoidal", sinusoidal.table
        case RotaryPositions() as rotary:
            return "rotary", rotary.table
        case LearnedPositions() as learned:
            return "learned", learned.weight.detach()[getattr(learned, "offset", 0) :]
    return None


def similarity_by_distance(table: Tensor) -> list[float]:
    """The mean cosine of two positions, by their distance, from 0 on."""
    unit = F.normalize(table.double(), dim=-1)
    cosines = unit @ unit.T  # (P,P)
    return [float(cosines.diagonal(distance).mean()) for distance in range(len(table))]


def binary_counter(positions: int) -> list[list[int]]:
    """Every position as a binary number, the lowest bit first."""
    bits = max(1, (positions - 1).bit_length())
    return [[position >> bit & 1 for bit in range(bits)] for position in range(positions)]


def positions_tab(body: nn.Module) -> Tab | None:
    kind_and_table = position_table(body)
    if kind_and_table is None:
        return None
    name, table = kind_and_table
    table = table[: min(MAX_POSITIONS, max(1, MAX_NUMBERS // table.size(1)))].float().cpu()
    return {
        "kind": "positions",
        "title": "Positions",
        "description": DESCRIPTIONS[name],
        "name": name,
        "table": blob(table.numpy()),
        "shape": list(table.shape),
        "similarity": [round(x, 5) for x in similarity_by_distance(table)],
        "binary": binary_counter(len(table)),
    }
