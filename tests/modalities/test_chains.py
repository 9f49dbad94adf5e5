"""Synthetic proteins have the periods of their secondary structure, and no residue determines its state."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.modalities.protein.protein_alphabet import AMINO_ACIDS
from regard.modalities.synthetic.chains import HYDROPHILIC, HYDROPHOBIC, Protein, chains, split


@pytest.fixture(scope="module")
def proteins() -> list[Protein]:
    return chains()


def test_4_000_distinct_proteins_with_a_state_per_residue(proteins: list[Protein]) -> None:
    assert len({protein.residues for protein in proteins}) == len(proteins) == 4_000
    assert all(len(protein.residues) == len(protein.states) for protein in proteins)
    assert {letter for protein in proteins for letter in protein.residues} == {*AMINO_ACIDS}
    assert {state for protein in proteins for state in protein.states} == {*"HEC"}


@given(seed=st.integers(0, 2**32))
def test_short_lists_are_prefixes(seed: int) -> None:
    assert chains(3, seed) == chains(6, seed)[:3]


def test_every_residue_is_hydrophobic_or_hydrophilic_in_every_state() -> None:
    for likes in (HYDROPHOBIC, HYDROPHILIC):
        assert {*map(frozenset, likes.values())} == {frozenset(likes["H"])}
    assert {*HYDROPHOBIC["H"]} | {*HYDROPHILIC["H"]} == {*AMINO_ACIDS}
    assert not {*HYDROPHOBIC["H"]} & {*HYDROPHILIC["H"]}


@pytest.mark.parametrize(("state", "period"), [("H", 3.6), ("E", 2.0)])
def test_hydrophobicity_has_the_period_of_the_state(proteins: list[Protein], state: str, period: float) -> None:
    """Of all periods between 2 and 6, this one has the largest amplitude in the hydrophobicity."""
    periods = [2 + step / 20 for step in range(81)]
    strength = Counter[float]()
    for protein in proteins[:500]:
        for run in runs(protein, state):
            signs = [1 if letter in HYDROPHOBIC["H"] else -1 for letter in run]
            for each in periods:
                waves = [
                    sum(sign * turn(2 * math.pi * i / each) for i, sign in enumerate(signs))
                    for turn in (math.cos, math.sin)
                ]
                strength[each] += math.hypot(*waves) ** 2 / len(run)
    assert strength.most_common(1)[0][0] == pytest.approx(period, abs=0.15)


def runs(protein: Protein, state: str) -> list[str]:
    marked = "".join(
        letter if it == state else " " for letter, it in zip(protein.residues, protein.states, strict=True)
    )
    return marked.split()


def test_a_single_residue_predicts_little(proteins: list[Protein]) -> None:
    """The commonest state is right for fewer than half, the commonest of each letter for a few more."""
    pairs = Counter(pair for protein in proteins for pair in zip(protein.residues, protein.states, strict=True))
    states = Counter[str]()
    for (_, state), count in pairs.items():
        states[state] += count
    total = pairs.total()
    assert 0.35 < max(states.values()) / total < 0.5
    by_letter = sum(max(pairs[letter, state] for state in "HEC") for letter in AMINO_ACIDS) / total
    assert by_letter < 0.6


def test_about_5_percent_are_valid_and_5_percent_test(proteins: list[Protein]) -> None:
    counts = Counter(map(split, proteins))
    assert {*counts} == {"train", "valid", "test"}
    assert all(150 < counts[part] < 250 for part in ("valid", "test"))
