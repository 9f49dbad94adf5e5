"""Molecules as model inputs: one token for each atom, and the kind of every pair of atoms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from regard.data.batches import Ints, padding_mask
from regard.data.lines import BadRow
from regard.data.rows import Row
from regard.modalities.molecule import molecules
from regard.modalities.molecule.molecules import MAX_PROPERTIES, MoleculeFeaturizer, MoleculeGraph, parse_molecule
from regard.modalities.protocols import EncodedInputs, Inputs, Preprocessor, Target
from regard.modalities.synthetic import paths

PROBE_POOL = 200  # from which the probes are those of one size


class Graphs(EncodedInputs):
    """Features of atoms and kinds of pairs of atoms. Batches are random, not sorted by length: the target often
    correlates with the number of atoms."""

    def __init__(self, graphs: list[tuple[Ints, Ints]]):
        super().__init__(np.array([len(features) for features, _ in graphs]), bucketed=False)
        self.graphs = graphs


@dataclass
class MoleculePreprocessor(Preprocessor):
    featurizer: MoleculeFeaturizer

    modality = "molecule"
    example = "CCO"

    def encode(self, rows: Sequence[Row[MoleculeGraph, object]], context: int, whole: bool = False) -> Graphs:
        return Graphs(self.featurizer.prepare(rows))

    def collate(self, inputs: Graphs, rows: Ints, training: bool) -> Inputs:
        lengths = inputs.lengths[rows, 0]
        T = int(lengths.max())
        x, pairs = np.zeros((len(rows), T, MAX_PROPERTIES), np.int64), np.zeros((len(rows), T, T), np.int64)
        for i, row in enumerate(rows):
            features, kinds = inputs.graphs[row]
            x[i, : len(features)], pairs[i, : len(kinds), : len(kinds)] = features, kinds
        return Inputs(torch.from_numpy(x), padding_mask(lengths, T), torch.from_numpy(pairs))

    def sizes(self) -> dict[str, int]:
        return {"atom_features": len(self.featurizer.properties) + 1, "pair_kinds": molecules.NUM_PAIR_KINDS}

    def parse(self, raw: str, target: Target) -> Row[MoleculeGraph, None]:
        """A SMILES."""
        return parse_molecule(raw)

    def probes(self, count: int, target: Target) -> Sequence[Row[MoleculeGraph, object]]:
        """Molecules of one size, and of atoms in the model's vocabulary."""
        rows = [parse_molecule(path.unmarked_smiles) for path in paths.paths(PROBE_POOL)]
        known = [row for row in rows if not self.featurizer.unknown_element(row)]
        sizes = Counter(len(row.input.atoms) for row in known)
        return [row for row in known if len(row.input.atoms) == max(sizes, key=sizes.__getitem__)][:count]

    def check(self, row: Row[MoleculeGraph, object]) -> BadRow | None:
        problem = self.featurizer.unknown_element(row)
        return BadRow(row.file, row.line, "unknown atom", problem) if problem else None

    def as_request(self, row: Row[MoleculeGraph, object]) -> str | None:
        return row.input.text

    def save(self, folder: Path) -> dict[str, object]:
        self.featurizer.save(folder)
        return {}
