"""Tox21, twelve tests of toxicity with gaps, from scratch: ROC-AUC on molecules with scaffolds that were never seen.

    python benchmarks/tox21.py [--minutes 4] [--output-dir runs/tox21] [options of regard train classify]

Split by Bemis-Murcko scaffold, 80/10/10, the largest groups first, as deepchem does. The weights are those that were
best on valid. Beside it (deepchem's own list, on valid): graph convolutions 73.2, fingerprints and an MLP 70.3,
logistic regression 65.0.
"""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

from corpus import SHARED
from rdkit import Chem, RDLogger
from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles
from recipes import machine, options, seconds, trained

DATA = SHARED / "molecules" / "tox21.csv.gz"
RECIPE = {"model": "graph", "many": True, "skip-bad": True}


def written(folder: Path) -> tuple[dict[str, Path], list[str]]:
    """Three files, and the names of the SMILES and the labels. What rdkit cannot read is left out, as by deepchem."""
    folder.mkdir(parents=True, exist_ok=True)
    RDLogger.DisableLog("rdApp.*")
    with gzip.open(DATA, "rt", encoding="utf-8", newline="") as stream:
        head, *rows = csv.reader(stream)
    smiles, labels = head.index("smiles"), [name for name in head if name not in ("smiles", "mol_id")]
    groups: dict[str, list[int]] = {}
    for i, row in enumerate(rows):
        if made := Chem.MolFromSmiles(row[smiles]):
            groups.setdefault(MurckoScaffoldSmiles(mol=made), []).append(i)
    whole = sum(map(len, groups.values()))
    print(f"{whole:,} of {len(rows):,} molecules can be read, with {len(groups):,} scaffolds")
    parts: dict[str, list[int]] = {"train": [], "valid": [], "test": []}
    for group in sorted(groups.values(), key=lambda some: (len(some), some[0]), reverse=True):
        held = len(parts["train"]) + len(group) > 0.8 * whole
        far = held and len(parts["train"]) + len(parts["valid"]) + len(group) > 0.9 * whole
        parts["test" if far else "valid" if held else "train"] += group
    found = {name: folder / f"{name}.csv" for name in parts}
    for name, chosen in parts.items():
        with open(found[name], "w", encoding="utf-8", newline="") as stream:
            csv.writer(stream).writerows([head, *(rows[i] for i in chosen)])
    return found, ["smiles", *labels]


def main() -> None:
    given, more = options(str(__doc__), 4, "runs/tox21")
    output_dir = Path(given.output_dir)
    files, fields = written(output_dir.parent / "tox21-data")
    recipe = {"data": [files["train"]], "valid": [files["valid"]], "fields": fields}
    loaded = trained("classify", output_dir, RECIPE | recipe | {"minutes": given.minutes, "seed": given.seed}, more)
    print(f"{machine()}, seed {given.seed}")
    for part in ("valid", "test"):
        rows = loaded.rows([str(files[part])], tuple(fields), skip_bad=True)
        with open(files[part], encoding="utf-8") as stream:
            left = sum(1 for _ in csv.reader(stream)) - 1 - len(rows)
        score = loaded.task.score(loaded.model, rows)["roc_auc"]
        print(f"{part}: mean ROC-AUC {score:.2f} over {len(fields) - 1} labels, {len(rows)} molecules", end="")
        print(f", without {left} of atoms never seen" if left else "")
    print(f"{seconds(output_dir) / 60:.1f} minutes of training")


if __name__ == "__main__":
    main()
