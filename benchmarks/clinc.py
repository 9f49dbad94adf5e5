"""CLINC150, from scratch: accuracy over 150 intents on the in-scope test set.

    python benchmarks/clinc.py [--minutes 5] [--output-dir runs/clinc] [options of regard train classify]

Beside it (Larson et al. 2019, table 2, full): FastText 89.0, SVM 91.0, CNN 91.2, MLP 93.5, BERT 96.9.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from corpus import SHARED
from recipes import machine, options, seconds, trained

RECIPE = {
    "model": "recurrent", "size": "small", "dropout": 0.4, "smoothing": 0.1, "pooling": "attention", "vocab": 2000,
}  # fmt: skip


def written(folder: Path, share: float = 1.0) -> dict[str, Path]:
    """The three sets as tables; `share` of the training sentences of every intent."""
    folder.mkdir(parents=True, exist_ok=True)
    data = json.loads(gzip.decompress((SHARED / "clinc150" / "data_full.json.gz").read_bytes()))
    found = {}
    for part in ("train", "val", "test"):
        rows, seen = [], dict.fromkeys({intent for _, intent in data[part]}, 0)
        for text, intent in data[part]:
            seen[intent] += 1
            if part != "train" or seen[intent] <= share * 100:
                rows.append(f"{text}\t{intent}\n")
        found[part] = folder / f"{part}-{share:g}.tsv"
        found[part].write_text("".join(rows), encoding="utf-8")
    return found


def main() -> None:
    given, more = options(str(__doc__), 5, "runs/clinc")
    files = written(Path(given.output_dir).parent / "clinc-data")
    recipe = {"data": [files["train"]], "valid": [files["val"]], "minutes": given.minutes, "seed": given.seed}
    loaded = trained("classify", Path(given.output_dir), RECIPE | recipe, more)
    scores = loaded.task.score(loaded.model, loaded.rows([str(files["test"])]))
    print(f"{machine()}, seed {given.seed}")
    print(f"accuracy on test {scores['accuracy']:.2f} after {seconds(Path(given.output_dir)) / 60:.1f} minutes")


if __name__ == "__main__":
    main()
