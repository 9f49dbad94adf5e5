"""Molecules: a SMILES becomes atoms with properties, and pairs of atoms with a bond or a distance.

    atom      element, degree, hydrogens, charge; aromatic, in a ring, marked       C[CH2:1]O marks the second atom
    pair      0 itself · 1 to 5 the bond · then how far apart, over the fewest bonds · the last, in another piece

rdkit reads the SMILES; it comes with the extra `molecules`. Every line gives exactly one row or one `Bad`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from regard.atomic import write_json
from regard.data.batches import Ints
from regard.data.labelled import Raw, labels_of, number_of, read_raw
from regard.data.lines import UTF8, Bad, Dialect, Note
from regard.data.lint import BadLines, Report
from regard.hub.files import read_json, there
from regard.validate import check_fields

NEEDED = 'molecules are read with the library rdkit: pip install "regard[molecules]"'
FILE = "molecules.json"
MOST = 300  # atoms: their pairs grow with the square
FARTHEST = 20  # bonds between two atoms that are told apart; all beyond count as so many
BONDS = ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC")  # as rdkit names them; others are of one kind
KINDS = len(BONDS) + 2 + FARTHEST  # itself, a bond or another one, 2 ... FARTHEST bonds apart, not joined
TOO_MANY = f"and no more than {MOST} can be read"  # ends what is said of such molecules
TRUTH = {"1": True, "1.0": True, "0": False, "0.0": False, "": None}  # what a column of a label may say

Pairs = npt.NDArray[np.uint8]


class Graph(NamedTuple):
    atoms: tuple[tuple[str, ...], ...]  # the properties of each, the element first
    pairs: Pairs  # (T,T)
    smiles: str  # the same for every spelling of it


class Molecule(NamedTuple):
    text: str  # SMILES as given
    graph: Graph
    labels: tuple[str, ...]  # those that it has
    gaps: tuple[str, ...]  # those of which nobody knows
    value: float
    file: str
    line: int

    @property
    def asked(self) -> str:
        """With a digest: c and C are not the same atom, but the same letter to those who compare texts."""
        return f"{self.graph.smiles} {blake2b(self.graph.smiles.encode(), digest_size=8).hexdigest()}"

    @property
    def said(self) -> str:
        return "\t".join((self.asked, *self.labels, "?", *self.gaps, repr(self.value)))


def read_molecules(
    files: Sequence[str | Path],
    fields: Sequence[str] | None,
    answer: str,
    many: bool = False,
    dialect: Dialect = UTF8,
) -> Iterator[Molecule | Bad | Note]:
    """As texts with labels or values are read, the text being a SMILES and named so. `answer` is "label" or "value".

    With `many`, `fields` are the SMILES and a column for each label: 1, 0, or nothing where nobody knows.
    """
    columns = bool(many and fields)
    if fields and len(fields) != 2 and not many:
        raise ValueError(f"--fields names the SMILES and the {answer}, two columns or keys, not {len(fields)}")
    rdkit()
    names = ("label", "labels") if answer == "label" else (answer,)
    for raw in read_raw(files, fields, names, "smiles", columns, dialect):
        yield molecule_of(raw, answer, many, (fields or ())[1:] if columns else None) if isinstance(raw, Raw) else raw


def molecule_of(raw: Raw, answer: str, many: bool, columns: Sequence[str] | None) -> Molecule | Bad:
    if raw.pair is not None:
        raise ValueError(
            f"{raw.file}:{raw.line}: three columns; say which are the SMILES and the {answer}: --fields 1 3"
        )
    graph = parsed(raw.text)
    if isinstance(graph, str):
        return Bad(raw.file, raw.line, "over-long" if graph.endswith(TOO_MANY) else "not a molecule", graph)
    labels: tuple[str, ...] | Bad = ()
    gaps: tuple[str, ...] = ()
    value: float | Bad = 0.0
    if columns is not None:
        said = [truth_of(cell) for cell in raw.answer]
        if wrong := [i for i, one in enumerate(said) if isinstance(one, str)]:
            detail = f"{columns[wrong[0]]} is {said[wrong[0]]!r:.40}, where a label is 1, 0 or a gap"
            return Bad(raw.file, raw.line, "wrong type", detail)
        labels = tuple(name for name, one in zip(columns, said, strict=True) if one is True)
        gaps = tuple(name for name, one in zip(columns, said, strict=True) if one is None)
    elif answer == "label":
        labels = labels_of(raw, many)
    else:
        value = number_of(raw)
    if isinstance(labels, Bad):
        return labels
    return value if isinstance(value, Bad) else Molecule(raw.text, graph, labels, gaps, value, raw.file, raw.line)


def truth_of(cell: Any) -> bool | str | None:
    """Whether a label is there; None for a gap, the cell itself for what is neither."""
    plain = "" if cell is None else str(cell).strip()
    return TRUTH.get(plain, plain) if not isinstance(cell, bool) else cell


def asked_for(smiles: str) -> Molecule:
    """One without an answer, from somebody who asks."""
    graph = parsed(smiles)
    if isinstance(graph, str):
        raise ValueError(f"{smiles[:80]!r} is no molecule: {graph}")
    return Molecule(smiles, graph, (), (), 0.0, "", 1)


def parsed(smiles: str) -> Graph | str:
    """The graph, or what is wrong with it."""
    chem, words = rdkit(), smiles.split()
    if len(words) != 1:
        return "a SMILES has no spaces in it" if words else "the SMILES is empty"
    if len(words[0]) > 20 * MOST:
        return f"{len(words[0])} characters are more than its atoms may need, {TOO_MANY}"
    with chem.rdBase.BlockLogs():  # what rdkit would print is told below
        plain = chem.MolFromSmiles(words[0], sanitize=False)
        if plain is None:
            return f"{words[0][:80]!r} is not written as a SMILES is"
        made = chem.MolFromSmiles(words[0])
        if made is None:
            problems = [problem.Message() for problem in chem.DetectChemistryProblems(plain)]
            return f"{words[0][:80]!r} cannot be: {(problems or ['rdkit refuses it'])[0]}"
    if made.GetNumAtoms() > MOST:
        return f"it has {made.GetNumAtoms()} atoms, {TOO_MANY}"
    return Graph(tuple(map(properties, made.GetAtoms())), pairs_of(made), chem.MolToSmiles(made))


@cache
def rdkit() -> Any:
    """Read when it is first needed: most who use this package have no molecules."""
    try:
        from rdkit import Chem
    except ImportError:
        raise ValueError(NEEDED) from None
    return Chem


def properties(atom: Any) -> tuple[str, ...]:
    """Each as a word; numbers that are rare count as the largest that is not."""
    charge = max(-2, min(2, atom.GetFormalCharge()))
    found = (
        atom.GetSymbol(),
        f"{min(atom.GetDegree(), 6)} neighbours",
        f"{min(atom.GetTotalNumHs(), 4)} hydrogens",
        f"charge {charge:+}" if charge else "",
        "aromatic" * atom.GetIsAromatic(),
        "ring" * atom.IsInRing(),
        "marked" * (atom.GetAtomMapNum() > 0),
    )
    return tuple(filter(None, found))


def pairs_of(made: Any) -> Pairs:
    """(T,T): the kind of every pair of atoms."""
    apart = rdkit().GetDistanceMatrix(made)
    joined = apart < MOST
    kinds = np.where(joined, np.minimum(apart, FARTHEST) + len(BONDS), KINDS - 1).astype(np.uint8)
    np.fill_diagonal(kinds, 0)
    for bond in made.GetBonds():
        kind = str(bond.GetBondType())
        ends = [bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()]
        kinds[ends, ends[::-1]] = 1 + (BONDS.index(kind) if kind in BONDS else len(BONDS))
    return kinds


@dataclass(frozen=True)
class Molecules:
    """Makes molecules ready for a model: which properties it knows, in the order of their numbers from 1."""

    properties: tuple[str, ...]

    def __post_init__(self) -> None:
        words = all(isinstance(name, str) and name for name in self.properties)
        unlike = words and len({*self.properties}) == len(self.properties) > 0
        check_fields(self, properties=(unlike, "words, no two of them alike"))

    @classmethod
    def fit(cls, rows: Iterable[Molecule]) -> Molecules:
        return cls(tuple(sorted({name for row in rows for atom in row.graph.atoms for name in atom})))

    def prepare(self, rows: Sequence[Molecule]) -> list[Ints]:
        """(T,P+T) of each: the properties of every atom, then what it is to each atom. What else is new of a known
        element says nothing."""
        number = {name: i for i, name in enumerate(self.properties, 1)}
        made: list[Ints] = []
        for row in rows:
            if new := self.unknown(row):
                raise ValueError(f"{row.file}:{row.line}: {new}" if row.file else f"{row.text!r:.80}: {new}")
            table = np.zeros((len(row.graph.atoms), PROPERTIES), np.int64)
            for i, atom in enumerate(row.graph.atoms):
                table[i, : len(atom)] = [number.get(name, 0) for name in atom]
            made.append(np.concatenate((table, row.graph.pairs.astype(np.int64)), 1))
        return made

    def unknown(self, row: Molecule) -> str:
        """What is wrong if an element was never seen in training."""
        new = sorted({atom[0] for atom in row.graph.atoms} - {*self.properties})
        return f"the atom {new[0]} is in no molecule that was trained on, so nothing is known of it" if new else ""

    def sift(self, rows: Sequence[Molecule]) -> tuple[list[Molecule], list[Bad]]:
        """Rows all of whose atoms are known, and what is wrong with the others."""
        told = [(row, self.unknown(row)) for row in rows]
        bad = [Bad(row.file, row.line, "unknown atom", new) for row, new in told if new]
        return [row for row, new in told if not new], bad

    def save(self, folder: Path) -> None:
        write_json(folder / FILE, {"properties": self.properties})

    @classmethod
    def load(cls, folder: Path) -> Molecules:
        said = read_json(folder / FILE)
        if {*said} != {"properties"} or not isinstance(said["properties"], list):
            raise ValueError(f"{folder / FILE} must name the properties of atoms, in a list: put it back as it was")
        try:
            return cls(tuple(said["properties"]))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{folder / FILE}: {error}") from None

    @staticmethod
    def lies_in(folder: Path) -> bool:
        return there(folder / FILE)


PROPERTIES = 7  # of an atom at most


def with_known_atoms(
    sets: dict[str, list[Molecule]], reader: Molecules, skip_bad: bool, report: Report | None = None
) -> dict[str, list[Molecule]]:
    """What is held out or asked must be made of atoms that were trained on. What is not is told in the report."""
    sifted = {name: reader.sift(rows) for name, rows in sets.items()}
    report = report or Report({}, [], MOST)
    for name, (rows, some) in sifted.items():
        if some:
            count = report.counts.setdefault(name, Counter({"lines": len(sets[name])}))
            count["unknown atom"], count["usable"] = len(some), len(rows)
            report.bad.extend(some)
    if not skip_bad and report.bad:
        raise BadLines(report)
    for name, (rows, some) in sifted.items():
        if not rows:
            raise ValueError(f"{name}: no molecule is left; {some[0].file}:{some[0].line}: {some[0].detail}")
    return {name: rows for name, (rows, _) in sifted.items()}
