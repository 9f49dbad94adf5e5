"""Molecules as model inputs: one token for each atom, and the kind of every pair of atoms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from regard.data.batches import BucketedExamples, Ints, padding_mask, split_by_budget
from regard.data.bundled import paths
from regard.data.lines import UTF8, Dialect
from regard.data.molecules import MAX_PROPERTIES, NUM_PAIR_KINDS, MoleculeFeaturizer, drop_unknown_atoms, parse_molecule
from regard.data.splits import Data, DataOptions, Rows
from regard.tasks.inputs import Inputs
from regard.tasks.task import Task


class GraphExamples(BucketedExamples):
    """Features of atoms and kinds of pairs of atoms, and their targets."""

    def __init__(self, graphs: list[tuple[Ints, Ints]], targets: Any):
        self.rows, self.targets = graphs, targets
        self.lengths = np.array([[len(features)] for features, _ in graphs])
        self.units = len(graphs)

    def epoch(self, budget: int, seed: int, epoch: int) -> list[Ints]:
        """Random batches, not sorted by length: the target often correlates with the number of atoms."""
        order = np.random.default_rng([seed, epoch]).permutation(len(self.rows))
        return [order[a:b] for a, b in split_by_budget(self.lengths[order, 0], budget)]


@dataclass
class MoleculeInput:
    molecules: MoleculeFeaturizer

    def encode(self, rows: Any, targets: Any, context: int) -> GraphExamples:
        return GraphExamples(self.molecules.prepare(rows), targets)

    def collate(self, examples: GraphExamples, rows: Ints, training: bool) -> Inputs:
        lengths = examples.lengths[rows, 0]
        T = int(lengths.max())
        x, pairs = np.zeros((len(rows), T, MAX_PROPERTIES), np.int64), np.zeros((len(rows), T, T), np.int64)
        for i, row in enumerate(rows):
            features, kinds = examples.rows[row]
            x[i, : len(features)], pairs[i, : len(kinds), : len(kinds)] = features, kinds
        return Inputs(torch.from_numpy(x), padding_mask(lengths, T), torch.from_numpy(pairs))

    def sizes(self) -> dict[str, int]:
        return {"atom_features": len(self.molecules.properties) + 1, "pair_kinds": NUM_PAIR_KINDS}


class MoleculeTask(Task):
    """A task whose input may be molecules. Validation and test sets may contain atoms of the training set only."""

    molecules: MoleculeFeaturizer | None

    @classmethod
    def default_overrides(cls, ability: str) -> dict[str, Any]:
        return {"pooling": "sum"} if ability == "bonds" else {}

    @classmethod
    def excluded_options(cls, ability: str) -> frozenset[str]:
        return frozenset({"max_words"}) if ability == "bonds" else cls.ignored_options

    @classmethod
    def read(cls, files: DataOptions, ability: str, input_options: dict[str, Any], **task_options: Any) -> Data:
        """Molecules of an automatic validation split with an atom that the training set lacks join the training set."""
        data = super().read(files, ability, input_options, **task_options)
        if ability != "bonds":
            return data
        sets, molecules = data.sets, MoleculeFeaturizer.fit(data.sets["train"])
        if files.data and not files.valid and (common := molecules.split_known(sets["valid"])[0]):
            rare = [row for row in sets["valid"] if molecules.unknown_element(row)]
            sets = sets | {"train": [*sets["train"], *rare], "valid": common}
            molecules = MoleculeFeaturizer.fit(sets["train"])
        return data._replace(sets=drop_unknown_atoms(sets, molecules, files.skip_bad, data.report))

    def read_test_rows(
        self,
        paths: tuple[str, ...],
        fields: tuple[str, ...] | None,
        ability: str,
        skip_bad: bool,
        dialect: Dialect = UTF8,
    ) -> Any:
        rows = super().read_test_rows(paths, fields, ability, skip_bad, dialect)
        if self.molecules is None:
            return rows
        if getattr(self, "multi_label", False) and fields:  # a label without a column is unknown in all rows
            missing = tuple(label for label in getattr(self, "labels", ()) if label not in fields[1:])
            rows = [row._replace(missing_labels=(*row.missing_labels, *missing)) for row in rows]
        return drop_unknown_atoms({"test": rows}, self.molecules, skip_bad)["test"]


def bundled_paths() -> dict[str, Rows]:
    """Molecules with two marked atoms; the label is the length of the shortest path between them."""
    parts: dict[str, list[Any]] = {"train": [], "valid": [], "test": []}
    for line, path in enumerate(paths.paths(), 1):
        length = path.length
        row = parse_molecule(path.smiles)._replace(labels=(str(length),), value=float(length), file="paths", line=line)
        parts[paths.split(path)].append(row)
    return dict(parts)
