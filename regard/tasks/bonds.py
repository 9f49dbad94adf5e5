"""Molecules as what a task is given: atoms as tokens, and what each is to the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from regard.data.batches import ByLength, Ints, cut, padding_mask
from regard.data.bundled import paths
from regard.data.files import Data, Files, Rows
from regard.data.lines import UTF8, Dialect
from regard.data.molecules import MAX_PROPERTIES, NUM_PAIR_KINDS, MoleculeFeaturizer, drop_unknown_atoms, parse_molecule
from regard.tasks.inputs import Given
from regard.tasks.task import Task


class Bonded(ByLength):
    """Molecules, with the answer to each."""

    def __init__(self, tables: list[Ints], wanted: Any):
        self.rows, self.wanted = tables, wanted
        self.lengths = np.array([[len(table)] for table in tables])
        self.units = len(tables)

    def epoch(self, budget: int, seed: int, epoch: int) -> list[Ints]:
        """In any order: what is wanted of a molecule often follows its size, and a batch should hold all sorts."""
        order = np.random.default_rng([seed, epoch]).permutation(len(self.rows))
        return [order[a:b] for a, b in cut(self.lengths[order, 0], budget)]


@dataclass
class MoleculeInput:
    molecules: MoleculeFeaturizer

    def prepare(self, rows: Any, wanted: Any, context: int) -> Bonded:
        return Bonded(self.molecules.prepare(rows), wanted)

    def given(self, examples: Bonded, rows: Ints, training: bool) -> Given:
        lengths = examples.lengths[rows, 0]
        T = int(lengths.max())
        x = np.zeros((len(rows), T, MAX_PROPERTIES + T), np.int64)
        for i, row in enumerate(rows):
            table = examples.rows[row]
            x[i, : len(table), : table.shape[1]] = table
        return Given(torch.from_numpy(x), padding_mask(lengths, T))

    def sizes(self) -> dict[str, int]:
        return {"properties": len(self.molecules.properties) + 1, "pairs": NUM_PAIR_KINDS}


class MayBond(Task):
    """A task that molecules can be given to, too. What is held out or scored must be made of atoms that are known."""

    molecules: MoleculeFeaturizer | None

    @classmethod
    def usual(cls, ability: str) -> dict[str, Any]:
        return {"pooling": "sum"} if ability == "bonds" else {}

    @classmethod
    def leaves_out(cls, ability: str) -> frozenset[str]:
        return frozenset({"longest"}) if ability == "bonds" else cls.unused

    @classmethod
    def read(cls, files: Files, ability: str, reading: dict[str, Any], **aim: Any) -> Data:
        """A molecule that we would hold out, and that has an atom of its own, is better learnt from."""
        data = super().read(files, ability, reading, **aim)
        if ability != "bonds":
            return data
        sets, reader = data.sets, MoleculeFeaturizer.fit(data.sets["train"])
        if files.data and not files.valid and (known := reader.split_known(sets["valid"])[0]):
            rare = [row for row in sets["valid"] if reader.unknown_element(row)]
            sets = sets | {"train": [*sets["train"], *rare], "valid": known}
            reader = MoleculeFeaturizer.fit(sets["train"])
        return data._replace(sets=drop_unknown_atoms(sets, reader, files.skip_bad, data.report))

    def read_one(
        self,
        paths: tuple[str, ...],
        fields: tuple[str, ...] | None,
        ability: str,
        skip_bad: bool,
        dialect: Dialect = UTF8,
    ) -> Any:
        rows = super().read_one(paths, fields, ability, skip_bad, dialect)
        if self.molecules is None:
            return rows
        if getattr(self, "many", False) and fields:  # of a label without a column nothing is known
            missing = tuple(label for label in getattr(self, "labels", ()) if label not in fields[1:])
            rows = [row._replace(missing_labels=(*row.missing_labels, *missing)) for row in rows]
        return drop_unknown_atoms({"test": rows}, self.molecules, skip_bad)["test"]


def bundled_paths() -> dict[str, Rows]:
    """Molecules with two marked atoms, and how far apart these are."""
    parts: dict[str, list[Any]] = {"train": [], "valid": [], "test": []}
    for line, path in enumerate(paths.paths(), 1):
        length = path.length
        row = parse_molecule(path.smiles)._replace(labels=(str(length),), value=float(length), file="paths", line=line)
        parts[paths.split(path)].append(row)
    return dict(parts)
