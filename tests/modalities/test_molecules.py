"""A SMILES gives the same atoms and pairs in any spelling, and errors name file and line."""

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rdkit import Chem

from regard.data.lines import BadRow
from regard.data.rows import Row
from regard.modalities.molecule import molecules as module
from regard.modalities.molecule.modality import MoleculeModality
from regard.modalities.molecule.molecules import (
    MAX_ATOMS,
    MAX_DISTANCE,
    MAX_PROPERTIES,
    NUM_PAIR_KINDS,
    MoleculeFeaturizer,
    MoleculeGraph,
    parse_molecule,
    parse_smiles,
)
from regard.modalities.protocols import ReadOptions, Target

SOME = ["CCO", "c1ccccc1O", "CC(=O)[O-].[Na+]", "C[N+](C)(C)CC#N", "OC1CC1", "[CH3:1]CC[CH3:1]", "FC(F)(F)c1ccncc1"]


def graph(smiles: str) -> MoleculeGraph:
    result = parse_smiles(smiles)
    assert isinstance(result, MoleculeGraph), result
    return result


def test_atom_properties() -> None:
    assert graph("CCO").atoms == (
        ("C", "1 neighbours", "3 hydrogens"),
        ("C", "2 neighbours", "2 hydrogens"),
        ("O", "1 neighbours", "1 hydrogens"),
    )
    assert graph("[NH4+]").atoms == (("N", "0 neighbours", "4 hydrogens", "charge +1"),)
    assert graph("c1ccccc1").atoms[0] == ("C", "2 neighbours", "1 hydrogens", "aromatic", "ring")
    assert graph("C[CH2:1]O").atoms[1][-1] == "marked"
    assert max(len(atom) for smiles in SOME for atom in graph(smiles).atoms) <= MAX_PROPERTIES


def test_pair_kinds_by_hand() -> None:
    """Of acetate with its sodium: single and double bonds, two bonds apart, not joined."""
    apart = NUM_PAIR_KINDS - 1
    assert graph("CC(=O)[O-].[Na+]").pairs.tolist() == [
        [0, 1, 6, 6, apart],
        [1, 0, 2, 1, apart],
        [6, 2, 0, 6, apart],
        [6, 1, 6, 0, apart],
        [apart, apart, apart, apart, 0],
    ]
    assert graph("C#N").pairs[0, 1] == 3
    assert graph("c1ccccc1").pairs[0].tolist() == [0, 4, 6, 7, 6, 4]
    assert graph("[NH3]->[Fe]").pairs[0, 1] == 5
    chain = graph("C" * 30).pairs
    assert chain[0, MAX_DISTANCE] == chain[0, 29] == chain[0, MAX_DISTANCE - 1] + 1 == apart - 1


@given(smiles=st.sampled_from(SOME), seed=st.integers(0, 999))
@settings(deadline=None, derandomize=True, max_examples=40)
def test_another_smiles_of_the_same_molecule_gives_the_same_graph(smiles: str, seed: int) -> None:
    mol = Chem.MolFromSmiles(smiles)
    order = np.random.default_rng(seed).permutation(mol.GetNumAtoms()).tolist()
    mixed = Chem.RenumberAtoms(mol, order)
    first, second = graph(smiles), graph(Chem.MolToSmiles(mixed, canonical=False))
    assert parse_molecule(smiles).input_key == parse_molecule(Chem.MolToSmiles(mixed, canonical=False)).input_key
    assert sorted(first.atoms) == sorted(second.atoms)
    assert sorted(map(sorted, first.pairs.tolist())) == sorted(map(sorted, second.pairs.tolist()))


def test_keys_distinguish_aromatic_atoms_without_case() -> None:
    """Case marks aromatic atoms, but texts are compared without case."""
    first, second = parse_molecule("c1ccccc1").input_key.lower(), parse_molecule("C1CCCCC1").input_key.lower()
    assert first != second


@pytest.mark.parametrize(
    ("smiles", "says"),
    [
        ("", "the SMILES is empty"),
        ("  ", "the SMILES is empty"),
        ("CC(C", r"'CC\(C' is not valid SMILES syntax"),
        ("Xy", "'Xy' is not valid SMILES syntax"),
        ("C(C)(C)(C)(C)C", "is chemically impossible: .*valence"),
        ("c1cccc1", "is chemically impossible: .*kekulize"),
        ("CCO ethanol", "no spaces"),
        ("C" * (MAX_ATOMS + 1), f"it has {MAX_ATOMS + 1} atoms, and at most {MAX_ATOMS} are supported"),
        ("C" * 50_000, "50000 characters are too many"),
    ],
)
def test_invalid_smiles_give_the_reason(smiles: str, says: str, capfd: Any) -> None:
    with pytest.raises(ValueError, match=says):
        parse_molecule(smiles)
    assert capfd.readouterr().err == "", "rdkit prints nothing"


def written(file: Path, *rows: str) -> list[str]:
    file.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return [str(file)]


def read(files: list[str], fields: Any, multi_label: bool = True) -> list[Any]:
    """With one column for each label, or with a number."""
    target = Target.LABELS if multi_label else Target.NUMBER
    return [*MoleculeModality().read(files, ReadOptions(target, fields, multi_label=multi_label))]


def test_label_columns_may_have_missing_values(tmp_path: Path) -> None:
    file = written(tmp_path / "a.csv", "A,id,B,smiles,C", "1,x,,CCO,0", "0,y,1.0,CC,", ",z,,C,")
    rows = read(file, ("smiles", "A", "B", "C"))
    assert [(row.input.text, *row.target, row.line) for row in rows if isinstance(row, Row)] == [
        ("CCO", ("A",), ("B",), 2),
        ("CC", ("B",), ("C",), 3),
        ("C", (), ("A", "B", "C"), 4),
    ]


def test_json_lines_may_have_missing_labels(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", '{"smiles": "CCO", "A": 1, "B": null}', '{"smiles": "CC", "A": false}')
    rows = read(file, ("smiles", "A", "B"))
    assert [row.target for row in rows if isinstance(row, Row)] == [
        (("A",), ("B",)),
        ((), ("B",)),
    ]


@pytest.mark.parametrize(
    ("row", "why", "detail"),
    [
        ("C(C,1,0", "not a molecule", "not valid SMILES syntax"),
        ("c1cccc1,1,0", "not a molecule", "Unkekulized atoms"),
        (",1,0", "empty", "empty"),
        ("CC,2,0", "wrong type", "A is '2', but a label is 1, 0 or empty"),
        ("CC,yes,0", "wrong type", "A is 'yes'"),
        (f"{'C' * 301},1,0", "over-long", "301 atoms"),
        ("CC,1", "unequal counts", "2 columns"),
    ],
)
def test_bad_lines_are_reported_with_file_and_line(row: str, why: str, detail: str, tmp_path: Path) -> None:
    file = written(tmp_path / "a.csv", "smiles,A,B", "CCO,1,0", row, "CC,0,1")
    first, bad, last = read(file, ("smiles", "A", "B"))
    assert isinstance(first, Row)
    assert isinstance(last, Row)
    assert isinstance(bad, BadRow)
    assert (bad.file, bad.line, bad.reason) == (*file, 3, why)
    assert detail in bad.detail


@pytest.mark.parametrize(
    ("fields", "many", "says"),
    [
        (("smiles", "A", "B"), False, "--fields names the SMILES and the value, two columns or keys, not 3"),
        (("smiles",), True, "fields are smiles and one column per label"),
        (("smiles", "Z"), True, "no column is named 'Z'; the header names 'smiles', 'A', 'B'"),
    ],
)
def test_missing_fields_are_refused(fields: Any, many: bool, says: str, tmp_path: Path) -> None:
    file = written(tmp_path / "a.csv", "smiles,A,B", "CCO,1,0")
    with pytest.raises(ValueError, match=says):
        read(file, fields, many)


def test_three_columns_without_fields_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a\.tsv:1: three columns; say which are the SMILES and the value"):
        read(written(tmp_path / "a.tsv", "CC\tCO\t1"), None, multi_label=False)


def test_a_featurizer_survives_a_folder_and_refuses_unknown_elements(tmp_path: Path) -> None:
    reader = MoleculeFeaturizer.fit([parse_molecule("CCO"), parse_molecule("CN")])
    assert reader.properties[:3] == ("1 hydrogens", "1 neighbours", "2 hydrogens")
    reader.save(tmp_path)
    assert (tmp_path / "molecules.json").is_file()
    assert MoleculeFeaturizer.load(tmp_path) == reader
    [(features, pairs)] = reader.prepare([parse_molecule("CO")])
    assert (features.shape, pairs.shape) == ((2, MAX_PROPERTIES), (2, 2))
    assert [reader.properties[i - 1] for i in features[1] if i] == ["O", "1 neighbours", "1 hydrogens"]
    with pytest.raises(ValueError, match="'CCl': the atom Cl occurs in no training molecule"):
        reader.prepare([parse_molecule("CCl")])
    [(charged, _)] = reader.prepare([parse_molecule("C[O-]")])
    assert charged[1, MAX_PROPERTIES - 1] == charged[1, 3] == 0, "a charge that was never seen says nothing"


@pytest.mark.parametrize("said", ['{"properties": "C"}', '{"properties": ["C", "C"]}', '{"properties": [1]}', "{}"])
def test_a_broken_featurizer_file_is_refused_by_name(said: str, tmp_path: Path) -> None:
    (tmp_path / "molecules.json").write_text(said)
    with pytest.raises(ValueError, match=r"molecules\.json"):
        MoleculeFeaturizer.load(tmp_path)


def test_without_rdkit_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    right = builtins.__import__

    def without(name: str, *args: Any, **more: Any) -> Any:
        if name.startswith("rdkit"):
            raise ImportError(name)
        return right(name, *args, **more)

    module.rdkit.cache_clear()
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ValueError, match=r'rdkit: pip install "regard\[molecules\]"'):
        parse_molecule("CCO")
