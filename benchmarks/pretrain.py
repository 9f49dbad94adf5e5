"""What pre-training brings: `fill` on WikiText-2, then `classify` on CLINC150 with a tenth of the labels.

    python benchmarks/pretrain.py [--minutes 20] [--fine 3] [--output-dir runs/pretrain]

The same body and minutes of `classify`, once from random weights and once from those that `fill` learnt.
"""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path

from clinc import written
from corpus import SHARED
from recipes import machine, seconds, trained

BODY = {"model": "modernbert", "dim": 192, "heads": 6, "hidden": 288, "context": 64, "lowercase": True}
FILL = {"vocab": 4000, "share": 0.3}
CLASSIFY = {"lr": 0.0025, "weight-decay": 1, "evals": 5}  # the rate that fill begins with; its weights have grown


def wikitext(part: str, folder: Path) -> Path:
    """Lines of text only: no headings, no empty lines, and nothing for <unk> to hide."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = gzip.decompress((SHARED / "wikitext2" / f"wiki.{part}.tokens.gz").read_bytes()).decode().splitlines()
    kept = [
        line.strip().replace("<unk>", "").replace(" @-@ ", "-") for line in lines if line.strip() and " = " not in line
    ]
    file = folder / f"{part}.txt"
    file.write_text("\n".join(kept) + "\n", encoding="utf-8")
    return file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20, help="of fill")
    parser.add_argument("--fine", type=float, default=3, help="minutes of classify, each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output-dir", type=Path, default=Path("runs/pretrain"))
    given, more = parser.parse_known_args()
    data = given.output_dir / "data"
    wiki = {"data": [wikitext("train", data)], "valid": [wikitext("valid", data)]}
    clinc = written(data, 0.1)
    labels = {"data": [clinc["train"]], "valid": [clinc["val"]], "minutes": given.fine, "seed": given.seed} | CLASSIFY
    trained(
        "fill", given.output_dir / "fill", wiki | BODY | FILL | {"minutes": given.minutes, "seed": given.seed}, more
    )
    print(f"{machine()}, seed {given.seed}")
    for name, start in (("from scratch", BODY), ("from fill", {"from": given.output_dir / "fill"})):
        loaded = trained("classify", given.output_dir / name.replace(" ", "-"), labels | start, more)
        scores = loaded.task.score(loaded.model, loaded.rows([str(clinc["test"])]))
        spent = f"after {seconds(given.output_dir / name.replace(' ', '-')) / 60:.1f} minutes"
        print(f"CLINC150, a tenth of the labels, {name}: {scores['accuracy']:.2f} on test {spent}", flush=True)


if __name__ == "__main__":
    main()
