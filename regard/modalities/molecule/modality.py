"""Molecules: SMILES in tables, with labels or a number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from regard.data.rows import Labels, Row
from regard.data.splits import Data, DataOptions, Rows
from regard.data.targets import LABEL_NAMES, VALUE_NAMES, parse_label_columns, parse_labels, parse_value
from regard.json_files import lexists
from regard.modalities.molecule import molecules
from regard.modalities.molecule.molecules import MoleculeFeaturizer, MoleculeGraph
from regard.modalities.molecule.preprocessor import MoleculePreprocessor
from regard.modalities.protocols import FitOptions, Modality, ReadOptions, Target
from regard.modalities.synthetic import paths
from regard.modalities.synthetic.distinct import split_items

TABLES = ".tsv, .csv or .jsonl of SMILES"


class MoleculeModality(Modality):
    name = "molecule"
    unit = "molecules"
    file = "molecules.json"
    size_names = ("atom_features", "pair_kinds")
    formats = {Target.LABELS: f"{TABLES} and labels", Target.NUMBER: f"{TABLES} and numbers"}
    synthetic_data = dict.fromkeys((Target.LABELS, Target.NUMBER), "distances of two marked atoms")
    default_models = {"encoder": "graphormer"}
    default_overrides = {"pooling": "sum"}
    rare_labels = True

    def read(self, paths: Sequence[str], how: ReadOptions) -> Rows:
        if how.target is Target.NUMBER:
            return molecules.read_molecules(paths, how.fields, VALUE_NAMES, parse_value, how.dialect)
        if how.multi_label and how.fields:  # one column for each label
            parse = partial(parse_label_columns, names=how.fields[1:], labels=how.labels)
            return molecules.read_molecules(paths, how.fields, LABEL_NAMES, parse, how.dialect, label_columns=True)
        parse_list = partial(parse_labels, multi_label=how.multi_label)
        return molecules.read_molecules(paths, how.fields, LABEL_NAMES, parse_list, how.dialect)

    def synthetic(self, target: Target) -> Mapping[str, Rows]:
        """Molecules with two marked atoms; the target is the length of the shortest path between them."""

        def make_row(path: paths.MarkedMolecule, number: int) -> Row[MoleculeGraph, float | Labels]:
            length = float(path.length) if target is Target.NUMBER else Labels((str(path.length),))
            return molecules.molecule_row(molecules.parse_molecule(path.smiles).input, length, "paths", number)

        return split_items(paths.paths(), paths.split, make_row)

    def read_sets(self, files: DataOptions, how: ReadOptions, output: Modality | None = None) -> Data:
        """Validation and test sets may contain atoms of the training set only. Molecules of an automatic validation
        split with an atom that the training set lacks join the training set."""
        data = super().read_sets(files, how, output)
        sets, featurizer = data.sets, MoleculeFeaturizer.fit(data.sets["train"])
        if files.data and not files.valid and (common := featurizer.split_known(sets["valid"])[0]):
            rare = [row for row in sets["valid"] if featurizer.unknown_element(row)]
            sets = sets | {"train": [*sets["train"], *rare], "valid": common}
            featurizer = MoleculeFeaturizer.fit(sets["train"])
        return data._replace(sets=molecules.drop_unknown_atoms(sets, featurizer, files.skip_bad, data.report))

    def fit(self, rows: Sequence[Row[MoleculeGraph, object]], how: FitOptions) -> MoleculePreprocessor:
        start = how.start
        return start if isinstance(start, MoleculePreprocessor) else MoleculePreprocessor(MoleculeFeaturizer.fit(rows))

    def load(self, folder: Path, stored: Mapping[str, object]) -> MoleculePreprocessor | None:
        if not lexists(folder / molecules.FILE):
            return None
        return MoleculePreprocessor(MoleculeFeaturizer.load(folder))
