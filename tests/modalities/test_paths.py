"""rdkit confirms the length of every path and the validity of every molecule; all lengths are frequent."""

from collections import Counter

import pytest
from rdkit import Chem

from regard.modalities.synthetic import distinct
from regard.modalities.synthetic import paths as module
from regard.modalities.synthetic.paths import MAX_LENGTH, VALENCES, paths, split

PATHS = paths(600)


def test_the_length_is_the_distance_of_the_marked_atoms() -> None:
    for path in PATHS:
        molecule = Chem.MolFromSmiles(path.smiles)
        assert molecule is not None, path.smiles
        first, second = (atom.GetIdx() for atom in molecule.GetAtoms() if atom.GetAtomMapNum())
        assert Chem.GetDistanceMatrix(molecule)[first, second] == path.length


def test_marks_change_only_the_marked_atoms() -> None:
    for path in PATHS[:200]:
        molecule = Chem.MolFromSmiles(path.smiles)
        for atom in molecule.GetAtoms():
            assert atom.GetSymbol() in VALENCES
            assert not atom.GetNumRadicalElectrons()
            atom.SetAtomMapNum(0)
        assert Chem.MolToSmiles(molecule) == Chem.CanonSmiles(path.unmarked_smiles)


def test_molecules_follow_from_the_seed() -> None:
    assert paths(50) == PATHS[:50]
    assert paths(50, seed=1) != PATHS[:50]
    assert len({Chem.CanonSmiles(path.unmarked_smiles) for path in PATHS}) == len(PATHS)


def test_all_lengths_are_frequent_and_rings_occur() -> None:
    counts = Counter(path.length for path in PATHS)
    assert {*counts} <= {*range(1, MAX_LENGTH + 1)}
    assert max(counts.values()) < 0.2 * len(PATHS)
    assert min(counts[length] for length in range(1, 9)) > 0.03 * len(PATHS)
    assert 0.2 < sum("1" in path.unmarked_smiles for path in PATHS) / len(PATHS) < 0.8


def test_the_split_does_not_depend_on_the_marks() -> None:
    """And in whatever spelling: a thousand more, small ones among them, hold the same molecule twice."""
    parts = Counter(map(split, PATHS))
    assert parts["train"] > 0.85 * len(PATHS)
    assert min(parts["valid"], parts["test"]) > 0
    sets: dict[str, set[str]] = {}
    for seed in (1, 2):
        for path in paths(1_000, seed):
            sets.setdefault(Chem.CanonSmiles(path.unmarked_smiles), set()).add(split(path))
    assert len(sets) < 2_000
    assert all(len(subset) == 1 for subset in sets.values())


def test_too_many_molecules_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ATOMS", 6)
    monkeypatch.setattr(module, "ELEMENT_WEIGHTS", (1, 0, 0, 0, 0, 0))
    monkeypatch.setattr(distinct, "MAX_REPEATS", 300)
    with pytest.raises(ValueError, match="5,000 different molecules were requested, but only"):
        paths(5_000)
