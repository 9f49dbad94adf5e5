"""Paths: random molecules with two marked atoms, and how many bonds lie between these; as many as are wanted.

    "C[CH2:1]CC(N)[CH2:1]O"  ->  3

Which atoms there are says little about the answer: it is for models that know which atoms are joined. A molecule grows
atom by atom, as the valences allow, and may close rings; the pair is drawn so that all lengths are about as frequent.
`split` goes by the skeleton, the molecule without its marks and with all bonds alike, in whatever spelling.
"""

import random
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

VALENCES = {"C": 4, "N": 3, "O": 2, "S": 2, "F": 1, "Cl": 1}
WEIGHTS = (14, 3, 3, 1, 1, 1)  # how often each is drawn
SMALLEST, LARGEST = 6, 24  # atoms
LONGEST = 12  # bonds between the marked atoms
ONWARD = 0.55  # share of atoms that go on where the last one was, which makes molecules long
RINGS = (0, 0, 1, 1, 2)  # closed in a molecule, if there is room
ROUND = range(4, 7)  # atoms of a ring
PATIENCE = 20_000  # draws without a new molecule, after which all count as found


class Path(NamedTuple):
    smiles: str
    length: int  # fewest bonds between the two marked atoms
    bare: str  # SMILES without the marks
    skeleton: str  # the same for every spelling of it


class Sketch:
    """A molecule while it grows: elements, and to which others each atom is joined by how many bonds."""

    def __init__(self, first: str):
        self.atoms = [first]
        self.bonds: list[dict[int, int]] = [{}]

    def free(self, atom: int) -> int:
        return VALENCES[self.atoms[atom]] - sum(self.bonds[atom].values())

    def add(self, element: str, to: int) -> None:
        self.atoms.append(element)
        self.bonds.append({})
        self.join(len(self.atoms) - 1, to)

    def join(self, one: int, other: int) -> None:
        for a, b in ((one, other), (other, one)):
            self.bonds[a][b] = self.bonds[a].get(b, 0) + 1

    def apart(self, start: int) -> list[int]:
        """Bonds from one atom to each, over the shortest way."""
        far, reached = {start: 0}, [start]
        for here in reached:  # which grows meanwhile
            for there in self.bonds[here].keys() - far.keys():
                far[there] = far[here] + 1
                reached.append(there)
        return [far[atom] for atom in range(len(self.atoms))]


def paths(count: int = 8_000, seed: int = 0) -> list[Path]:
    """`count` molecules, no two of one skeleton, the same for the same seed."""
    rng = random.Random(seed)
    found: dict[str, Path] = {}
    idle = 0
    while len(found) < count and idle < PATIENCE:
        drawn = draw(rng)
        idle = idle + 1 if drawn.skeleton in found else 0
        found.setdefault(drawn.skeleton, drawn)
    if len(found) < count:
        raise ValueError(f"{count:,} different molecules were asked for, but only {len(found):,} were found")
    return list(found.values())


def split(path: Path) -> str:
    """'train', 'valid' or 'test', decided by the skeleton alone."""
    share = int(path.skeleton[:8], 16) % 100
    return "valid" if share < 3 else "test" if share < 6 else "train"


def draw(rng: random.Random) -> Path:
    made = grown(rng)
    apart = [made.apart(atom) for atom in range(len(made.atoms))]
    ways: dict[int, list[tuple[int, int]]] = {}
    for one, others in enumerate(apart):
        for other, far in enumerate(others[:one]):
            ways.setdefault(far, []).append((one, other))
    length = rng.choice([far for far in sorted(ways) if far <= LONGEST])
    around = sorted((made.atoms[i], sorted(zip(far, made.atoms, strict=True))) for i, far in enumerate(apart))
    skeleton = blake2b(repr(around).encode(), digest_size=8).hexdigest()
    return Path(spelt(made, rng.choice(ways[length])), length, spelt(made, ()), skeleton)


def grown(rng: random.Random) -> Sketch:
    made = Sketch("C")
    for _ in range(rng.randrange(SMALLEST, LARGEST + 1) - 1):
        room = [atom for atom in range(len(made.atoms)) if made.free(atom)]
        if not room:
            break
        last = len(made.atoms) - 1
        to = last if made.free(last) and rng.random() < ONWARD else rng.choice(room)
        made.add(rng.choices([*VALENCES], WEIGHTS)[0], to)
    for _ in range(rng.choice(RINGS)):
        one = rng.randrange(len(made.atoms))
        far = made.apart(one)
        near = [other for other in range(len(made.atoms)) if far[other] + 1 in ROUND and made.free(other)]
        if made.free(one) and near:
            made.join(one, rng.choice(near))
    for one, bonds in enumerate(made.bonds):
        for other in [*bonds]:
            if one < other and bonds[other] == 1 and made.free(one) and made.free(other) and rng.random() < 0.1:
                made.join(one, other)
    return made


def spelt(made: Sketch, marked: Sequence[int]) -> str:
    """SMILES, from the first atom on. A bond that closes a ring stands as a number at both of its ends."""
    order: list[int] = []
    tree: dict[int, list[int]] = {atom: [] for atom in range(len(made.atoms))}
    rings: dict[int, list[tuple[int, int]]] = {atom: [] for atom in tree}

    def visit(atom: int, parent: int) -> None:
        order.append(atom)
        for other in made.bonds[atom]:
            if other == parent:
                continue
            if other not in order:
                tree[atom].append(other)
                visit(other, atom)
            elif order.index(other) < order.index(atom):
                number = 1 + sum(map(len, rings.values())) // 2
                rings[atom].append((other, number))
                rings[other].append((atom, number))

    def sign(one: int, other: int) -> str:
        return "" if made.bonds[one][other] == 1 else "="

    def write(atom: int) -> str:
        closing = "".join(f"{sign(atom, other)}{number}" for other, number in rings[atom])
        parts = [sign(atom, other) + write(other) for other in tree[atom]]
        branches = "".join(f"({part})" for part in parts[:-1])
        return symbol(made, atom, atom in marked) + closing + branches + "".join(parts[-1:])

    visit(0, -1)
    return write(0)


def symbol(made: Sketch, atom: int, marked: bool) -> str:
    """A marked atom stands in brackets, where its hydrogens have to be told."""
    if not marked:
        return made.atoms[atom]
    hydrogens = made.free(atom)
    return f"[{made.atoms[atom]}{'H' * (hydrogens > 0)}{hydrogens if hydrogens > 1 else ''}:1]"
