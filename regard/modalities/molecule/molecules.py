"""Reads molecules as SMILES and turns them into graphs: atoms with properties, and a relation for each pair of atoms.

    atom      element, degree, hydrogens, charge; aromatic, in a ring, marked       C[CH2:1]O marks the second atom
    pair      0 the atom itself · 1 to 5 the bond type · then the distance in bonds · last: not connected

rdkit parses the SMILES; the extra `molecules` installs it. Each line gives one row or one `BadRow`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from regard.atomic import write_json
from regard.data.batches import Ints
from regard.data.lines import UTF8, BadRow, Dialect, Note
from regard.data.lint import BadRowsError, LintReport
from regard.data.records import Record, RecordFormat, read_records
from regard.data.rows import Row
from regard.data.text_checks import check_text
from regard.json_files import read_json
from regard.validate import check_fields

INSTALL_RDKIT = 'molecules need the library rdkit: pip install "regard[molecules]"'
FILE = "molecules.json"
MAX_ATOMS = 300  # the number of pairs grows with the square
MAX_DISTANCE = 20  # bonds; larger distances count as this one
BONDS = ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC")  # rdkit's names; all others share one kind
NUM_PAIR_KINDS = len(BONDS) + 2 + MAX_DISTANCE  # itself, the bond types, distances of 2 to MAX_DISTANCE, not connected
MAX_PROPERTIES = 7  # of an atom
TOO_LARGE = f"and at most {MAX_ATOMS} are supported"  # ends the error message of such molecules

Y = TypeVar("Y")
PairKinds = npt.NDArray[np.uint8]


class MoleculeGraph(NamedTuple):
    atoms: tuple[tuple[str, ...], ...]  # the properties of each atom, the element first
    pairs: PairKinds  # (T,T)
    smiles: str  # canonical
    text: str  # the SMILES of the file


MoleculeRow = Row[MoleculeGraph, object]


def molecule_row(graph: MoleculeGraph, target: Y, file: str = "", line: int = 1) -> Row[MoleculeGraph, Y]:
    """The key has a digest, because keys are compared without case, but c and C are different atoms."""
    return Row(graph, target, file, line, f"{graph.smiles} {blake2b(graph.smiles.encode(), digest_size=8).hexdigest()}")


def read_molecules(
    files: Sequence[str | Path],
    fields: Sequence[str] | None,
    names: tuple[str, ...],
    parse: Callable[[Record], Y | BadRow],
    dialect: Dialect = UTF8,
    label_columns: bool = False,
) -> Iterator[Row[MoleculeGraph, Y] | BadRow | Note]:
    """As texts with labels or a number, with a SMILES under the name "smiles" and the target under one of `names`. With
    `label_columns`, all fields but the first are labels."""
    if fields and len(fields) != 2 and not label_columns:
        raise ValueError(f"--fields names the SMILES and the {names[0]}, two columns or keys, not {len(fields)}")
    if label_columns and len(fields or ()) < 2:
        raise ValueError(f"fields are smiles and one column per label, not {' '.join(fields or ())} alone")
    rdkit()
    form = RecordFormat(f"SMILES and {names[-1]}", (("smiles",), names), answer_columns=label_columns)
    return read_records(files, fields, form, dialect, partial(to_molecule, parse=parse, name=names[0]))


def to_molecule(record: Record, parse: Callable[[Record], Y | BadRow], name: str) -> Row[MoleculeGraph, Y] | BadRow:
    if len(record.inputs) > 1:
        place = f"{record.file}:{record.line}"
        raise ValueError(f"{place}: three columns; say which are the SMILES and the {name}: --fields 1 3")
    if bad := check_text("SMILES", record.inputs[0], record.file, record.line):
        return bad
    graph = parse_smiles(record.inputs[0])
    if isinstance(graph, str):
        return BadRow(record.file, record.line, "over-long" if graph.endswith(TOO_LARGE) else "not a molecule", graph)
    target = parse(record)
    return target if isinstance(target, BadRow) else molecule_row(graph, target, record.file, record.line)


def parse_molecule(smiles: str) -> Row[MoleculeGraph, None]:
    """A molecule from user input."""
    graph = parse_smiles(smiles)
    if isinstance(graph, str):
        raise ValueError(f"{smiles[:80]!r} is no molecule: {graph}")
    return molecule_row(graph, None)


def parse_smiles(smiles: str) -> MoleculeGraph | str:
    """The graph, or an error message."""
    chem, words = rdkit(), smiles.split()
    if len(words) != 1:
        return "a SMILES has no spaces in it" if words else "the SMILES is empty"
    if len(words[0]) > 20 * MAX_ATOMS:
        return f"{len(words[0])} characters are too many for the atoms of a molecule, {TOO_LARGE}"
    with chem.rdBase.BlockLogs():  # the messages below replace rdkit's output
        unchecked = chem.MolFromSmiles(words[0], sanitize=False)
        if unchecked is None:
            return f"{words[0][:80]!r} is not valid SMILES syntax"
        molecule = chem.MolFromSmiles(words[0])
        if molecule is None:
            problems = [problem.Message() for problem in chem.DetectChemistryProblems(unchecked)]
            return f"{words[0][:80]!r} is chemically impossible: {(problems or ['rdkit refuses it'])[0]}"
    if molecule.GetNumAtoms() > MAX_ATOMS:
        return f"it has {molecule.GetNumAtoms()} atoms, {TOO_LARGE}"
    atoms = tuple(map(atom_properties, molecule.GetAtoms()))
    return MoleculeGraph(atoms, pair_kinds(molecule), chem.MolToSmiles(molecule), smiles)


@cache
def rdkit() -> Any:
    """rdkit.Chem, imported at its first use."""
    try:
        from rdkit import Chem
    except ImportError:
        raise ValueError(INSTALL_RDKIT) from None
    return Chem


def atom_properties(atom: Any) -> tuple[str, ...]:
    """Each property as a word; large, rare numbers are clipped."""
    charge = max(-2, min(2, atom.GetFormalCharge()))
    properties = (
        atom.GetSymbol(),
        f"{min(atom.GetDegree(), 6)} neighbours",
        f"{min(atom.GetTotalNumHs(), 4)} hydrogens",
        f"charge {charge:+}" if charge else "",
        "aromatic" * atom.GetIsAromatic(),
        "ring" * atom.IsInRing(),
        "marked" * (atom.GetAtomMapNum() > 0),
    )
    return tuple(filter(None, properties))


def pair_kinds(molecule: Any) -> PairKinds:
    """(T,T): the kind of each pair of atoms."""
    distances = rdkit().GetDistanceMatrix(molecule)
    clipped = np.minimum(distances, MAX_DISTANCE) + len(BONDS)
    kinds = np.where(distances < MAX_ATOMS, clipped, NUM_PAIR_KINDS - 1).astype(np.uint8)
    np.fill_diagonal(kinds, 0)
    for bond in molecule.GetBonds():
        kind = str(bond.GetBondType())
        ends = [bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()]
        kinds[ends, ends[::-1]] = 1 + (BONDS.index(kind) if kind in BONDS else len(BONDS))
    return kinds


@dataclass(frozen=True)
class MoleculeFeaturizer:
    """Turns molecules into integers: the atom properties of the training set, numbered from 1."""

    properties: tuple[str, ...]

    def __post_init__(self) -> None:
        words = all(isinstance(name, str) and name for name in self.properties)
        distinct = words and len({*self.properties}) == len(self.properties) > 0
        check_fields(self, properties=(distinct, "words, no two of them alike"))

    @classmethod
    def fit(cls, rows: Iterable[MoleculeRow]) -> MoleculeFeaturizer:
        return cls(tuple(sorted({name for row in rows for atom in row.input.atoms for name in atom})))

    def prepare(self, rows: Sequence[MoleculeRow]) -> list[tuple[Ints, Ints]]:
        """Per molecule, the properties of each atom (T,P) and the kinds of all pairs (T,T). An unknown element is an
        error; other unknown properties become 0."""
        numbers = {name: i for i, name in enumerate(self.properties, 1)}
        graphs: list[tuple[Ints, Ints]] = []
        for row in rows:
            if error := self.unknown_element(row):
                raise ValueError(f"{row.location}{error}" if row.file else f"{row.input.text!r:.80}: {error}")
            table = np.zeros((len(row.input.atoms), MAX_PROPERTIES), np.int64)
            for i, atom in enumerate(row.input.atoms):
                table[i, : len(atom)] = [numbers.get(name, 0) for name in atom]
            graphs.append((table, row.input.pairs.astype(np.int64)))
        return graphs

    def unknown_element(self, row: MoleculeRow) -> str:
        """An error message if an element does not occur in the training set, else ""."""
        new_elements = sorted({atom[0] for atom in row.input.atoms} - {*self.properties})
        problem = "the atom {} occurs in no training molecule, so the model cannot read it"
        return problem.format(new_elements[0]) if new_elements else ""

    def split_known(self, rows: Sequence[MoleculeRow]) -> tuple[list[MoleculeRow], list[BadRow]]:
        """The rows whose elements are all known, and an error for each other row."""
        errors = [(row, self.unknown_element(row)) for row in rows]
        bad = [BadRow(row.file, row.line, "unknown atom", error) for row, error in errors if error]
        return [row for row, error in errors if not error], bad

    def save(self, folder: Path) -> None:
        write_json(folder / FILE, {"properties": self.properties})

    @classmethod
    def load(cls, folder: Path) -> MoleculeFeaturizer:
        config = read_json(folder / FILE)
        if {*config} != {"properties"} or not isinstance(config["properties"], list):
            raise ValueError(f"{folder / FILE} must have the properties of atoms, in a list: restore the file")
        try:
            return cls(tuple(config["properties"]))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{folder / FILE}: {error}") from None


def drop_unknown_atoms(
    sets: dict[str, list[MoleculeRow]], featurizer: MoleculeFeaturizer, skip_bad: bool, report: LintReport | None = None
) -> dict[str, list[MoleculeRow]]:
    """The sets without molecules that have unknown elements. These go into the report, and are an error unless
    `skip_bad`."""
    split = {name: featurizer.split_known(rows) for name, rows in sets.items()}
    report = report or LintReport({}, [])
    for name, (rows, bad) in split.items():
        if bad:
            count = report.counts.setdefault(name, Counter({"lines": len(sets[name])}))
            count["unknown atom"], count["usable"] = len(bad), len(rows)
            report.bad.extend(bad)
    if not skip_bad and report.bad:
        raise BadRowsError(report)
    for name, (rows, bad) in split.items():
        if not rows:
            raise ValueError(f"{name}: no molecule is left; {bad[0].file}:{bad[0].line}: {bad[0].detail}")
    return {name: rows for name, (rows, _) in split.items()}
