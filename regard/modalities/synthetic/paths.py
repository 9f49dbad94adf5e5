"""Generates random molecules with two marked atoms, and the number of bonds between these.

    "C[CH2:1]CC(N)[CH2:1]O"  ->  3

The elements say little about the answer: a model must use the bonds. A molecule grows atom by atom, within the
valences, and may close rings. The pair is drawn so that all lengths are about equally frequent. `split` depends only on
the skeleton, the molecule without marks and bond orders, which is the same for all of its SMILES.
"""

import random
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

from regard.modalities.synthetic.distinct import draw_distinct

VALENCES = {"C": 4, "N": 3, "O": 2, "S": 2, "F": 1, "Cl": 1}
ELEMENT_WEIGHTS = (14, 3, 3, 1, 1, 1)  # relative frequencies of these
MIN_ATOMS, MAX_ATOMS = 6, 24
MAX_LENGTH = 12  # most bonds between the marked atoms
EXTEND_PROBABILITY = 0.55  # probability that an atom is added to the last one, which makes molecules long
RINGS = (0, 0, 1, 1, 2)  # rings of a molecule, drawn uniformly; fewer if no atoms fit
RING_SIZES = range(4, 7)  # atoms of a ring


class MarkedMolecule(NamedTuple):
    smiles: str
    length: int  # fewest bonds between the two marked atoms
    unmarked_smiles: str  # without the marks
    skeleton: str  # a hash that is the same for every SMILES of the molecule


class PartialMolecule:
    """A molecule under construction: elements, and the bond order of each atom to its neighbours."""

    def __init__(self, first: str):
        self.atoms = [first]
        self.bonds: list[dict[int, int]] = [{}]

    def free_valence(self, atom: int) -> int:
        return VALENCES[self.atoms[atom]] - sum(self.bonds[atom].values())

    def add_atom(self, element: str, neighbour: int) -> None:
        self.atoms.append(element)
        self.bonds.append({})
        self.add_bond(len(self.atoms) - 1, neighbour)

    def add_bond(self, i: int, j: int) -> None:
        for a, b in ((i, j), (j, i)):
            self.bonds[a][b] = self.bonds[a].get(b, 0) + 1

    def distances(self, start: int) -> list[int]:
        """The distances in bonds from one atom to each (breadth-first search)."""
        distance, queue = {start: 0}, [start]
        for atom in queue:  # grows during the loop
            for neighbour in self.bonds[atom].keys() - distance.keys():
                distance[neighbour] = distance[atom] + 1
                queue.append(neighbour)
        return [distance[atom] for atom in range(len(self.atoms))]


def paths(count: int = 8_000, seed: int = 0) -> list[MarkedMolecule]:
    """`count` molecules with distinct skeletons; the same seed gives the same molecules."""
    return draw_distinct(draw_path, lambda path: path.skeleton, count, seed, "molecules")


def split(path: MarkedMolecule) -> str:
    """'train', 'valid' or 'test', by the skeleton's hash."""
    share = int(path.skeleton[:8], 16) % 100
    return "valid" if share < 3 else "test" if share < 6 else "train"


def draw_path(rng: random.Random) -> MarkedMolecule:
    molecule = draw_molecule(rng)
    distances = [molecule.distances(atom) for atom in range(len(molecule.atoms))]
    pairs: dict[int, list[tuple[int, int]]] = {}  # by distance
    for i, row in enumerate(distances):
        for j, distance in enumerate(row[:i]):
            pairs.setdefault(distance, []).append((i, j))
    length = rng.choice([distance for distance in sorted(pairs) if distance <= MAX_LENGTH])
    neighbours = [sorted(zip(row, molecule.atoms, strict=True)) for row in distances]
    environments = sorted(zip(molecule.atoms, neighbours, strict=True))
    skeleton = blake2b(repr(environments).encode(), digest_size=8).hexdigest()
    return MarkedMolecule(to_smiles(molecule, rng.choice(pairs[length])), length, to_smiles(molecule, ()), skeleton)


def draw_molecule(rng: random.Random) -> PartialMolecule:
    molecule = PartialMolecule("C")
    free = molecule.free_valence
    for _ in range(rng.randrange(MIN_ATOMS, MAX_ATOMS + 1) - 1):
        unsaturated = [atom for atom in range(len(molecule.atoms)) if free(atom)]
        if not unsaturated:
            break
        last = len(molecule.atoms) - 1
        neighbour = last if free(last) and rng.random() < EXTEND_PROBABILITY else rng.choice(unsaturated)
        molecule.add_atom(rng.choices([*VALENCES], ELEMENT_WEIGHTS)[0], neighbour)
    for _ in range(rng.choice(RINGS)):
        i = rng.randrange(len(molecule.atoms))
        candidates = [j for j, distance in enumerate(molecule.distances(i)) if distance + 1 in RING_SIZES and free(j)]
        if free(i) and candidates:
            molecule.add_bond(i, rng.choice(candidates))
    for i, bonds in enumerate(molecule.bonds):
        for j in [*bonds]:
            if i < j and bonds[j] == 1 and free(i) and free(j) and rng.random() < 0.1:
                molecule.add_bond(i, j)
    return molecule


def to_smiles(molecule: PartialMolecule, marked: Sequence[int]) -> str:
    """SMILES, starting with the first atom. A bond that closes a ring is written as a number at both of its ends."""
    order: list[int] = []
    tree: dict[int, list[int]] = {atom: [] for atom in range(len(molecule.atoms))}
    rings: dict[int, list[tuple[int, int]]] = {atom: [] for atom in tree}

    def visit(atom: int, parent: int) -> None:
        order.append(atom)
        for neighbour in molecule.bonds[atom]:
            if neighbour == parent:
                continue
            if neighbour not in order:
                tree[atom].append(neighbour)
                visit(neighbour, atom)
            elif order.index(neighbour) < order.index(atom):
                number = 1 + sum(map(len, rings.values())) // 2
                rings[atom].append((neighbour, number))
                rings[neighbour].append((atom, number))

    def bond_symbol(i: int, j: int) -> str:
        return "" if molecule.bonds[i][j] == 1 else "="

    def write(atom: int) -> str:
        closing = "".join(f"{bond_symbol(atom, neighbour)}{number}" for neighbour, number in rings[atom])
        parts = [bond_symbol(atom, neighbour) + write(neighbour) for neighbour in tree[atom]]
        branches = "".join(f"({part})" for part in parts[:-1])
        return atom_symbol(molecule, atom, atom in marked) + closing + branches + "".join(parts[-1:])

    visit(0, -1)
    return write(0)


def atom_symbol(molecule: PartialMolecule, atom: int, marked: bool) -> str:
    """A marked atom is written in brackets, with its hydrogens."""
    if not marked:
        return molecule.atoms[atom]
    hydrogens = molecule.free_valence(atom)
    return f"[{molecule.atoms[atom]}{'H' * (hydrogens > 0)}{hydrogens if hydrogens > 1 else ''}:1]"
