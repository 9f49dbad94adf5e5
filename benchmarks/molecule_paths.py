"""The bundled task of paths: the number of bonds between two marked atoms, with the bond and distance bias and without.

    python benchmarks/molecule_paths.py [--minutes 3] [-o runs/paths] [options of regard train regress]

A prediction is exact if it rounds to the true number. Baseline: the most frequent length.
"""

from __future__ import annotations

from collections import Counter

from recipes import describe_machine, parse_args, train_or_load, training_seconds

from regard.metrics import accuracy
from regard.modalities.synthetic import paths


def main() -> None:
    args, extra = parse_args(str(__doc__), 3, "runs/paths")
    rows = [path for path in paths.paths() if paths.split(path) == "test"]
    targets = [float(path.length) for path in rows]
    print(f"{describe_machine()}, seed {args.seed}")
    for name, options in (("with", {}), ("without", {"--no-pair-bias": True})):
        folder = args.output_dir / name
        recipe = {"--model": "graphormer", "--minutes": args.minutes, "--seed": args.seed}
        loaded = train_or_load("regress", folder, recipe | options, extra)
        predictions = [float(round(float(answer))) for answer in loaded([path.smiles for path in rows])]
        exact = f"{accuracy(targets, predictions):.1f} % exact on {len(rows)} molecules"
        print(f"{name} the bias: {exact}, {training_seconds(folder):.0f} s of training")
    most_frequent = max(Counter(targets).values()) / len(targets)
    print(f"always the most frequent length: {100 * most_frequent:.1f} %")


if __name__ == "__main__":
    main()
