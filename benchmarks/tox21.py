"""Tox21, twelve toxicity assays with missing labels, from scratch: ROC-AUC on molecules with unseen scaffolds.

    python benchmarks/tox21.py [--minutes 4] [-o runs/tox21] [options of regard train classify]

Split by Bemis-Murcko scaffold, 80/10/10, the largest groups first, as deepchem does. The weights are the best on valid.
Published (deepchem, on valid): graph convolutions 73.2, fingerprints with an MLP 70.3, logistic regression 65.0.
"""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

from corpus import SHARED
from rdkit import Chem, RDLogger
from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles
from recipes import describe_machine, parse_args, train_or_load, training_seconds

DATA = SHARED / "molecules" / "tox21.csv.gz"
RECIPE = {"--model": "graphormer", "--multi-label": True, "--skip-bad": True}


def write_data(folder: Path) -> tuple[dict[str, Path], list[str]]:
    """Three files, and the names of the SMILES and label columns. Rows that rdkit cannot parse are dropped, as by
    deepchem."""
    folder.mkdir(parents=True, exist_ok=True)
    RDLogger.DisableLog("rdApp.*")
    with gzip.open(DATA, "rt", encoding="utf-8", newline="") as stream:
        head, *rows = csv.reader(stream)
    smiles, labels = head.index("smiles"), [name for name in head if name not in ("smiles", "mol_id")]
    groups: dict[str, list[int]] = {}
    for i, row in enumerate(rows):
        if molecule := Chem.MolFromSmiles(row[smiles]):
            groups.setdefault(MurckoScaffoldSmiles(mol=molecule), []).append(i)
    total = sum(map(len, groups.values()))
    print(f"{total:,} of {len(rows):,} molecules can be parsed, with {len(groups):,} scaffolds")
    splits: dict[str, list[int]] = {"train": [], "valid": [], "test": []}
    for group in sorted(groups.values(), key=lambda rows: (len(rows), rows[0]), reverse=True):
        train_full = len(splits["train"]) + len(group) > 0.8 * total
        valid_full = train_full and len(splits["train"]) + len(splits["valid"]) + len(group) > 0.9 * total
        splits["test" if valid_full else "valid" if train_full else "train"] += group
    files = {split: folder / f"{split}.csv" for split in splits}
    for split, indices in splits.items():
        with open(files[split], "w", encoding="utf-8", newline="") as stream:
            csv.writer(stream).writerows([head, *(rows[i] for i in indices)])
    return files, ["smiles", *labels]


def main() -> None:
    args, extra = parse_args(str(__doc__), 4, "runs/tox21")
    files, fields = write_data(args.output_dir.parent / "tox21-data")
    recipe = {"--data": [files["train"]], "--valid": [files["valid"]], "--fields": fields}
    recipe |= {"--minutes": args.minutes, "--seed": args.seed}
    loaded = train_or_load("classify", args.output_dir, RECIPE | recipe, extra)
    print(f"{describe_machine()}, seed {args.seed}")
    for split in ("valid", "test"):
        rows = loaded.rows([str(files[split])], tuple(fields), skip_bad=True)
        with open(files[split], encoding="utf-8") as stream:
            dropped = sum(1 for _ in csv.reader(stream)) - 1 - len(rows)
        score = loaded.task.score(loaded.model, rows)["roc_auc"]
        print(f"{split}: mean ROC-AUC {score:.2f} over {len(fields) - 1} labels, {len(rows)} molecules", end="")
        print(f", without {dropped} with unknown atoms" if dropped else "")
    print(f"{training_seconds(args.output_dir) / 60:.1f} minutes of training")


if __name__ == "__main__":
    main()
