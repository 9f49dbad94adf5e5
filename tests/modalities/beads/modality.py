"""A toy modality, outside of the package: a string of coloured beads, "red blue green", with a label."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.data.batches import Ints, Ragged, padding_mask
from regard.data.lines import BadRow, Lines
from regard.data.rows import Labels, Row
from regard.modalities.protocols import (
    EncodedInputs,
    FitOptions,
    Inputs,
    Modality,
    Preprocessor,
    ReadOptions,
    Target,
    request_row,
)

Beads = tuple[str, ...]


class BeadIds(EncodedInputs):
    def __init__(self, rows: list[list[int]]):
        self.ids = Ragged(rows)
        super().__init__(self.ids.lengths)


@dataclass
class BeadPreprocessor(Preprocessor):
    colours: list[str]  # id 0 is padding

    modality = "beads"
    example = "red blue green"

    def encode(self, rows: Sequence[Row[Beads, object]], context: int, whole: bool = False) -> BeadIds:
        return BeadIds([[1 + self.colours.index(bead) for bead in row.input][: context or None] for row in rows])

    def collate(self, inputs: BeadIds, rows: Ints, training: bool) -> Inputs:
        ids = inputs.ids.pad(rows, 0)
        return Inputs(ids, padding_mask(inputs.ids.lengths[rows], ids.size(1)))

    def sizes(self) -> dict[str, int]:
        return {"vocab": 1 + len(self.colours), "pad": 0}

    def parse(self, raw: str, target: Target) -> Row[Beads, None]:
        beads = tuple(raw.split())
        if unknown := [bead for bead in beads if bead not in self.colours] or not beads:
            raise ValueError(f"give beads of the colours {', '.join(self.colours)}, not {unknown or raw!r}")
        return request_row(beads, raw)

    def probes(self, count: int, target: Target) -> Sequence[Row[Beads, object]]:
        draw = random.Random(0)
        strings = (tuple(draw.choices(self.colours, k=4 + i % 3)) for i in range(count))
        return [request_row(beads, " ".join(beads)) for beads in strings]

    def as_request(self, row: Row[Beads, object]) -> str:
        return " ".join(row.input)

    def save(self, folder: Path) -> dict[str, Any]:
        return {"colours": self.colours}


class BeadModality(Modality):
    name = "beads"
    unit = "strings of beads"
    like = ("text",)  # ids
    file = "colours in task.json"
    size_names = ("vocab", "pad")
    formats = {Target.LABELS: ".beads: a label, a colon and the colours, one string a line"}
    synthetic_data = {Target.LABELS: "strings with more warm or more cold colours"}
    default_models = {"encoder": "bert"}

    def recognizes(self, path: str) -> bool:
        return path.endswith(".beads")

    def read(self, paths: Sequence[str], how: ReadOptions) -> Iterator[Row[Beads, Labels] | BadRow]:
        for path in paths:
            for number, line in enumerate(Lines(path), 1):
                label, colon, beads = str(line).partition(":")
                if colon and beads.split():
                    yield Row(tuple(beads.split()), Labels((label.strip(),)), path, number, beads.strip())
                else:
                    yield BadRow(path, number, "missing field", "no beads after the label")

    def synthetic(self, target: Target) -> Mapping[str, list[Row[Beads, Labels]]]:
        sets, draw = {}, random.Random(1)
        for name, count in (("train", 300), ("valid", 40), ("test", 40)):
            strings = [tuple(draw.choices(("red", "orange", "blue", "green"), k=9)) for _ in range(count)]
            sets[name] = [
                Row(beads, Labels((warmth(beads),)), name, i, " ".join(beads)) for i, beads in enumerate(strings, 1)
            ]
        return sets

    def fit(self, rows: Any, how: FitOptions) -> BeadPreprocessor:
        return BeadPreprocessor(sorted({bead for row in rows for bead in row.input}))

    def load(self, folder: Path, stored: Mapping[str, Any]) -> BeadPreprocessor | None:
        return BeadPreprocessor(stored["colours"]) if "colours" in stored else None


def warmth(beads: Beads) -> str:
    return "warm" if sum(bead in ("red", "orange") for bead in beads) > 4 else "cold"
