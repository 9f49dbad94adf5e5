"""Secondary structure of proteins, from scratch: helix, strand or coil for every residue (Q3), from the sequence alone.

    python benchmarks/proteins.py [--minutes 10] [--pretrain M] [--output-dir runs/proteins] [options of train tag]

The chains of NetSurfP-2.0 (Klausen et al. 2019) as FLIP (Dallago et al. 2021) has them: 9,712 to learn from, 1,080 to
choose by, 364 to test on; residues that were not resolved count for nothing. With --pretrain the same body also guesses
hidden residues of the training chains for M minutes first, and learns the labels for --minutes again from there.
"""

from __future__ import annotations

import argparse
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from corpus import SHARED
from recipes import machine, seconds, trained

DATA = SHARED / "protein_ss" / "splits.zip"
BODY = {"model": "chain"}
TAG = {"evals": 8}
FROM = {"lr": 0.0067}  # that of a run from scratch, so that only the start differs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, help="of tag, each run")
    parser.add_argument("--pretrain", type=float, default=0, help="minutes of fill before a second run; 0 for none")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output-dir", type=Path, default=Path("runs/proteins"))
    given, more = parser.parse_known_args()
    files = written(given.output_dir / "data")
    learnt = {"data": files["train"], "valid": files["valid"], "minutes": given.minutes, "seed": given.seed} | TAG
    starts: dict[str, dict[str, Any]] = {"from scratch": BODY}
    if given.pretrain:
        chains = {"data": files["train"][:1], "valid": files["valid"][:1], "seed": given.seed}
        trained("fill", given.output_dir / "fill", chains | BODY | {"minutes": given.pretrain}, [])
        starts["from fill"] = {"from": given.output_dir / "fill"} | FROM
    print(f"{machine()}, seed {given.seed}")
    for name, start in starts.items():
        folder = given.output_dir / name.replace(" ", "-")
        loaded = trained("tag", folder, learnt | start, more)
        rows = loaded.rows(map(str, files["test"]))
        q3 = loaded.task.score(loaded.model, rows)["accuracy"]
        print(f"Q3 on {len(rows)} test chains, {name}: {q3:.2f} after {seconds(folder) / 60:.1f} minutes", flush=True)
    print(f"the commonest state of the training chains: {commonest(files):.2f}")


def records(text: str) -> Iterator[tuple[str, str]]:
    lines = text.splitlines()
    return zip(lines[::2], lines[1::2], strict=True)


def written(folder: Path) -> dict[str, list[Path]]:
    """Chains and labels of each set as two files; - is the label of what was not resolved."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(DATA) as archive:
        names = ("sequences", "sampled", "mask")
        texts = {name: archive.read(f"splits/{name}.fasta").decode() for name in names}
    chains, masks = dict(records(texts["sequences"])), dict(records(texts["mask"]))
    sets: dict[str, list[list[str]]] = {"train": [[], []], "valid": [[], []], "test": [[], []]}
    for told, labels in records(texts["sampled"]):
        name = told.split()[0]
        part = "test" if "SET=test" in told else "valid" if "VALIDATION=True" in told else "train"
        seen = zip(labels, masks[name], strict=True)
        sets[part][0].append(f"{name}\n{chains[name]}\n")
        sets[part][1].append(f"{name}\n{''.join(label if known == '1' else '-' for label, known in seen)}\n")
    files = {part: [folder / f"{part}.fasta", folder / f"{part}.labels.fasta"] for part in sets}
    for part, both in sets.items():
        for file, rows in zip(files[part], both, strict=True):
            file.write_text("".join(rows), encoding="utf-8")
    return files


def commonest(files: dict[str, list[Path]]) -> float:
    counts = {
        part: Counter("".join(labels for _, labels in records(files[part][1].read_text())))
        for part in ("train", "test")
    }
    for count in counts.values():
        del count["-"]
    return 100 * counts["test"][counts["train"].most_common(1)[0][0]] / counts["test"].total()


if __name__ == "__main__":
    main()
