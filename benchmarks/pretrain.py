"""Pre-training: `fill` on WikiText-2, then `classify` on CLINC150 with a tenth of the labels.

    python benchmarks/pretrain.py [--minutes 20] [--finetune-minutes 3] [-o runs/pretrain]

The same body and minutes of `classify`, once from random weights and once from those of `fill`.
"""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path

from clinc import write_data
from corpus import SHARED
from recipes import describe_machine, train_or_load, training_seconds

BODY = {
    "--model": "modernbert", "--dim": 192, "--heads": 6, "--hidden": 288, "--context": 64, "--lowercase": True,
}  # fmt: skip
FILL = {"--vocab-size": 4000, "--mask-prob": 0.3}
CLASSIFY = {"--lr": 0.0025, "--weight-decay": 1, "--evals": 5}  # the learning rate of fill: its weights have grown


def wikitext(split: str, folder: Path) -> Path:
    """Lines of text without headings, empty lines and <unk>."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = gzip.decompress((SHARED / "wikitext2" / f"wiki.{split}.tokens.gz").read_bytes()).decode().splitlines()
    texts = [
        line.strip().replace("<unk>", "").replace(" @-@ ", "-") for line in lines if line.strip() and " = " not in line
    ]
    file = folder / f"{split}.txt"
    file.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20, help="training time of fill")
    parser.add_argument("--finetune-minutes", type=float, default=3, help="training time of each run of classify")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output-dir", type=Path, default=Path("runs/pretrain"))
    args, extra = parser.parse_known_args()
    data, pretrained, seed = args.output_dir / "data", args.output_dir / "fill", {"--seed": args.seed}
    texts = {"--data": [wikitext("train", data)], "--valid": [wikitext("valid", data)]}
    clinc = write_data(data, 0.1)
    labels = {"--data": [clinc["train"]], "--valid": [clinc["val"]], "--minutes": args.finetune_minutes}
    train_or_load("fill", pretrained, texts | BODY | FILL | seed | {"--minutes": args.minutes}, extra)
    print(f"{describe_machine()}, seed {args.seed}")
    for name, start in (("from scratch", BODY), ("from fill", {"--from": pretrained})):
        folder = args.output_dir / name.replace(" ", "-")
        loaded = train_or_load("classify", folder, labels | CLASSIFY | seed | start, extra)
        scores = loaded.task.score(loaded.model, loaded.rows([str(clinc["test"])]))
        minutes = training_seconds(folder) / 60
        accuracy = f"test accuracy {scores['accuracy']:.2f} after {minutes:.1f} minutes"
        print(f"CLINC150, a tenth of the labels, {name}: {accuracy}", flush=True)


if __name__ == "__main__":
    main()
