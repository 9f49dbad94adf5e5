"""Parts of speech on UD English EWT, from scratch: accuracy of UPOS on the test set after some minutes of training.

    python benchmarks/ewt.py [--minutes 10] [--out runs/ewt] [any other option of regard train tag]

Everything is chosen on dev. Published, with word vectors from much more text: 95.4 (Stanza, from raw text).
"""

from __future__ import annotations

from pathlib import Path

from corpus import SHARED
from recipes import machine, options, seconds, trained

DATA = SHARED / "ud_english_ewt"
RECIPE = {
    "model": "recurrent", "size": "small", "dropout": 0.4, "checks": 8,
    "data": [DATA / "en_ewt-ud-train.conllu.gz"], "valid": [DATA / "en_ewt-ud-dev.conllu.gz"],
}  # fmt: skip


def main() -> None:
    given, more = options(str(__doc__), 10, "runs/ewt")
    folder = Path(given.out)
    loaded = trained("tag", folder, RECIPE | {"minutes": given.minutes, "seed": given.seed}, more)
    scores = loaded.task.score(loaded.model, loaded.rows([str(DATA / "en_ewt-ud-test.conllu.gz")]))
    print(f"{machine()}, seed {given.seed}")
    print(f"UPOS accuracy on test {scores['accuracy']:.2f} after {seconds(folder) / 60:.1f} minutes of training")


if __name__ == "__main__":
    main()
