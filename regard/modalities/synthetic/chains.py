"""Generates synthetic proteins with a secondary structure label per residue: H helix, E strand, C coil.

    GKVTIEVSSNGDPEELARKLLELAKKTG
    CEEEEEECCCCHHHHHHHHHHHHHHHCC

Real proteins fold so that hydrophobic residues are buried inside. A helix turns by 100 degrees per residue, so its
buried side recurs every 3.6 residues; in a strand every second residue is buried; a coil has no period. The residue
frequencies of the states also differ, about as in nature, but no single residue determines its state: the period does,
and it shows only in several residues. The rest is random, so the accuracy of any model stays below 100 %.
"""

import math
import random
from typing import NamedTuple

from regard.modalities.synthetic.distinct import draw_distinct, split_by_hash

HELIX_ANGLE = math.radians(100)  # rotation per residue of a helix
SEGMENT_LENGTHS = {"H": (8, 20), "E": (4, 10), "C": (3, 9)}  # least and most residues of a segment
PROTEIN_LENGTHS = (40, 110)  # residues of a protein, about
BURIAL_FIDELITY = 0.9  # probability of a hydrophobic residue on the buried side
HYDROPHOBIC = {  # frequencies of hydrophobic residues, by state
    "H": {"A": 14, "L": 13, "M": 4, "I": 6, "V": 5, "F": 4, "W": 1, "Y": 2, "C": 1},
    "E": {"A": 5, "L": 9, "M": 2, "I": 11, "V": 14, "F": 6, "W": 2, "Y": 5, "C": 2},
    "C": {"A": 10, "L": 9, "M": 2, "I": 5, "V": 7, "F": 5, "W": 2, "Y": 4, "C": 2},
}
HYDROPHILIC = {  # frequencies of hydrophilic residues, by state
    "H": {"E": 12, "K": 10, "R": 8, "Q": 6, "D": 5, "S": 5, "N": 4, "T": 4, "H": 2, "G": 2, "P": 1},
    "E": {"T": 10, "K": 7, "R": 6, "E": 6, "S": 7, "Q": 4, "N": 3, "D": 3, "H": 3, "G": 4, "P": 1},
    "C": {"G": 13, "N": 8, "D": 9, "P": 9, "S": 9, "T": 6, "K": 6, "E": 5, "R": 4, "Q": 3, "H": 2},
}


class Protein(NamedTuple):
    residues: str
    states: str  # H, E or C for each


def chains(count: int = 4_000, seed: int = 0) -> list[Protein]:
    """`count` distinct proteins; the same seed gives the same proteins."""
    return draw_distinct(draw_protein, lambda protein: protein.residues, count, seed, "proteins")


def split(protein: Protein) -> str:
    """'train', 'valid' or 'test', by a hash of the residues."""
    return split_by_hash(protein.residues, 5)


def draw_protein(rng: random.Random) -> Protein:
    """Helices and strands with coils between them, until the length is reached."""
    residues, states, length_limit = "", "", rng.randint(*PROTEIN_LENGTHS)
    while len(residues) < length_limit:
        for state in ("C", rng.choice("HE")):
            length = rng.randint(*SEGMENT_LENGTHS[state])
            residues += draw_segment(state, length, rng)
            states += state * length
    return Protein(residues, states)


def draw_segment(state: str, length: int, rng: random.Random) -> str:
    phase = rng.random() * 2 * math.pi  # angle of the first residue
    return "".join(draw_residue(state, hydrophobic_probability(state, i, phase), rng) for i in range(length))


def hydrophobic_probability(state: str, position: int, phase: float) -> float:
    """The probability that a residue is hydrophobic."""
    if state == "C":
        return 0.35
    is_buried = math.cos(phase + position * (HELIX_ANGLE if state == "H" else math.pi)) > 0
    return BURIAL_FIDELITY if is_buried else 1 - BURIAL_FIDELITY


def draw_residue(state: str, p: float, rng: random.Random) -> str:
    weights = (HYDROPHOBIC if rng.random() < p else HYDROPHILIC)[state]
    return rng.choices([*weights], [*weights.values()])[0]
