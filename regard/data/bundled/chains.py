"""Chains: made-up proteins, a letter for each residue and one for what it is part of: H helix, E strand, C coil.

    GKVTIEVSSNGDPEELARKLLELAKKTG
    CEEEEEECCCCHHHHHHHHHHHHHHHCC

Real ones are folded so that fat residues face inwards and others the water. A helix turns by 100 degrees from residue
to residue, so its inner side comes round every 3.6; a strand is flat, and every second residue faces in; a coil has no
side. Which letters a state likes differs too, about as it does in nature, but no letter gives its state away: what does
is the period, which shows only in several. The rest is chance, so nobody can be right everywhere.
"""

import math
import random
from hashlib import blake2b
from typing import NamedTuple

TURN = math.radians(100)  # of a helix, from a residue to the next
LENGTHS = {"H": (8, 20), "E": (4, 10), "C": (3, 9)}  # least and most residues of a piece
WHOLE = (40, 110)  # residues of a chain, about
SURE = 0.9  # the share of residues that face as they should
HYDROPHOBIC = {  # how much each state likes a residue that shuns water
    "H": {"A": 14, "L": 13, "M": 4, "I": 6, "V": 5, "F": 4, "W": 1, "Y": 2, "C": 1},
    "E": {"A": 5, "L": 9, "M": 2, "I": 11, "V": 14, "F": 6, "W": 2, "Y": 5, "C": 2},
    "C": {"A": 10, "L": 9, "M": 2, "I": 5, "V": 7, "F": 5, "W": 2, "Y": 4, "C": 2},
}
HYDROPHILIC = {  # and one that likes it
    "H": {"E": 12, "K": 10, "R": 8, "Q": 6, "D": 5, "S": 5, "N": 4, "T": 4, "H": 2, "G": 2, "P": 1},
    "E": {"T": 10, "K": 7, "R": 6, "E": 6, "S": 7, "Q": 4, "N": 3, "D": 3, "H": 3, "G": 4, "P": 1},
    "C": {"G": 13, "N": 8, "D": 9, "P": 9, "S": 9, "T": 6, "K": 6, "E": 5, "R": 4, "Q": 3, "H": 2},
}


class Protein(NamedTuple):
    residues: str
    states: str  # H, E or C for each


def chains(count: int = 4_000, seed: int = 0) -> list[Protein]:
    """`count` proteins, no two alike, the same for the same seed."""
    rng = random.Random(seed)
    found: dict[str, Protein] = {}
    while len(found) < count:
        protein = draw(rng)
        found.setdefault(protein.residues, protein)
    return list(found.values())


def split(protein: Protein) -> str:
    """'train', 'valid' or 'test', decided by the residues."""
    share = int.from_bytes(blake2b(protein.residues.encode(), digest_size=4).digest(), "big") % 100
    return "valid" if share < 5 else "test" if share < 10 else "train"


def draw(rng: random.Random) -> Protein:
    """Pieces with coils between them, until it is long enough."""
    residues, states, enough = "", "", rng.randint(*WHOLE)
    while len(residues) < enough:
        for state in ("C", rng.choice("HE")):
            length = rng.randint(*LENGTHS[state])
            residues += piece(state, length, rng)
            states += state * length
    return Protein(residues, states)


def piece(state: str, length: int, rng: random.Random) -> str:
    start = rng.random() * 2 * math.pi  # where its first residue faces
    return "".join(letter(state, faces_in(state, i, start), rng) for i in range(length))


def faces_in(state: str, place: int, start: float) -> float:
    """How probable it is that a residue shuns water."""
    if state == "C":
        return 0.35
    inwards = math.cos(start + place * (TURN if state == "H" else math.pi)) > 0
    return SURE if inwards else 1 - SURE


def letter(state: str, shuns: float, rng: random.Random) -> str:
    likes = (HYDROPHOBIC if rng.random() < shuns else HYDROPHILIC)[state]
    return rng.choices([*likes], [*likes.values()])[0]
