"""Secondary structure of proteins, from scratch: helix, strand or coil for every residue (Q3), from the sequence alone.

    python benchmarks/proteins.py [--minutes 10] [--pretrain M] [-o runs/proteins] [options of train tag]

The chains of NetSurfP-2.0 (Klausen et al. 2019) in the splits of FLIP (Dallago et al. 2021): 9,712 for training, 1,080
for validation, 364 for the test; unresolved residues are not scored. With --pretrain the same body first predicts
masked residues of the training chains for M minutes, and a second run learns the labels for --minutes from there.
"""

from __future__ import annotations

import argparse
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from corpus import SHARED
from recipes import describe_machine, train_or_load, training_seconds

DATA = SHARED / "protein_ss" / "splits.zip"
BODY = {"--model": "protein_encoder"}
TAG = {"--evals": 8}
FROM = {"--lr": 0.0067}  # that of a run from scratch, so that only the start differs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, help="training time of each run of tag")
    parser.add_argument("--pretrain", type=float, default=0, help="minutes of fill before a second run; 0 for none")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output-dir", type=Path, default=Path("runs/proteins"))
    args, extra = parser.parse_known_args()
    files, seed = write_data(args.output_dir / "data"), {"--seed": args.seed}
    labels = {"--data": files["train"], "--valid": files["valid"], "--minutes": args.minutes} | seed | TAG
    starts: dict[str, dict[str, Any]] = {"from scratch": BODY}
    if args.pretrain:
        pretrained = args.output_dir / "fill"
        chains = {"--data": files["train"][:1], "--valid": files["valid"][:1], "--minutes": args.pretrain}
        train_or_load("fill", pretrained, chains | seed | BODY, [])
        starts["from fill"] = {"--from": pretrained} | FROM
    print(f"{describe_machine()}, seed {args.seed}")
    for name, start in starts.items():
        folder = args.output_dir / name.replace(" ", "-")
        loaded = train_or_load("tag", folder, labels | start, extra)
        rows = loaded.rows(map(str, files["test"]))
        q3 = loaded.task.score(loaded.model, rows)["accuracy"]
        minutes = training_seconds(folder) / 60
        print(f"Q3 on {len(rows)} test chains, {name}: {q3:.2f} after {minutes:.1f} minutes", flush=True)
    print(f"always the most frequent state of the training chains: {most_frequent_share(files):.2f}")


def records(text: str) -> Iterator[tuple[str, str]]:
    lines = text.splitlines()
    return zip(lines[::2], lines[1::2], strict=True)


def write_data(folder: Path) -> dict[str, list[Path]]:
    """Chains and labels of each split as two files; - is the label of an unresolved residue."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(DATA) as archive:
        names = ("sequences", "sampled", "mask")
        texts = {name: archive.read(f"splits/{name}.fasta").decode() for name in names}
    chains, masks = dict(records(texts["sequences"])), dict(records(texts["mask"]))
    splits: dict[str, list[list[str]]] = {"train": [[], []], "valid": [[], []], "test": [[], []]}
    for header, labels in records(texts["sampled"]):
        name = header.split()[0]
        split = "test" if "SET=test" in header else "valid" if "VALIDATION=True" in header else "train"
        pairs = zip(labels, masks[name], strict=True)
        splits[split][0].append(f"{name}\n{chains[name]}\n")
        splits[split][1].append(f"{name}\n{''.join(label if bit == '1' else '-' for label, bit in pairs)}\n")
    files = {split: [folder / f"{split}.fasta", folder / f"{split}.labels.fasta"] for split in splits}
    for split, contents in splits.items():
        for file, rows in zip(files[split], contents, strict=True):
            file.write_text("".join(rows), encoding="utf-8")
    return files


def most_frequent_share(files: dict[str, list[Path]]) -> float:
    """Percentage of the test residues that have the most frequent state of the training residues."""
    counts = {
        split: Counter("".join(labels for _, labels in records(files[split][1].read_text())))
        for split in ("train", "test")
    }
    for count in counts.values():
        del count["-"]
    return 100 * counts["test"][counts["train"].most_common(1)[0][0]] / counts["test"].total()


if __name__ == "__main__":
    main()
