"""Number series: the synthetic sets, and monthly sea temperatures beside the seasonal-naive forecast.

    pip install statsmodels          (for its copy of the El Niño temperatures, 1950 to 2010)
    python benchmarks/series.py [--minutes 2] [-o runs/series] [options of regard train]

The temperatures are split in time: the last ten years are the test set, and the fifth before them validates. Errors are
squared, in units of the mean squared change from one month to the next.
"""

from __future__ import annotations

import csv
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from recipes import describe_machine, parse_args, train_or_load, training_seconds

from regard.data.episodes import observed
from regard.loaded_model import LoadedModel
from regard.modalities.protocols import Target
from regard.modalities.series.series_files import Values
from regard.tasks.rollout import rollout_episodes, rollout_errors

TEST_MONTHS, YEAR = 120, 12
TEMPERATURES = {"--size": "state", "--context": 36, "--dropout": 0.1, "--steps": 300}


def main() -> None:
    args, extra = parse_args(str(__doc__), 2, "runs/series")
    print(f"{describe_machine()}, seed {args.seed}")
    for task, target in (("classify", Target.LABELS), ("regress", Target.NUMBER), ("predict", Target.NEXT)):
        recipe = {"--modality": "series", "--minutes": args.minutes, "--seed": args.seed}
        loaded = train_or_load(task, args.output_dir / task, recipe, extra)
        scores = loaded.score([*loaded.modality.synthetic(target)["test"]])
        print_scores(f"{task}, synthetic", scores, training_seconds(args.output_dir / task))
    if find_spec("statsmodels") is None:
        print("temperatures: not measured, as statsmodels is not installed")
        return
    train, test = write_temperatures(args.output_dir)
    folder = args.output_dir / "temperatures"
    recipe = TEMPERATURES | {"--data": train, "--seed": args.seed}
    loaded = train_or_load("predict", folder, recipe, extra)
    rows = loaded.rows([test])
    print_scores("temperatures", loaded.score(rows), training_seconds(folder))
    print_year_ahead(loaded, rows[0].input.observations)


def print_scores(name: str, scores: dict[str, object], seconds: float) -> None:
    numbers = "  ".join(f"{key} {value:.3f}" for key, value in scores.items() if isinstance(value, float))
    print(f"{name}, {seconds:.0f} s of training: {numbers}")


def print_year_ahead(loaded: LoadedModel, values: Values) -> None:
    """The mean error of forecasts of a year that start in every month."""
    task: Any = loaded.task
    context = int(TEMPERATURES["--context"])
    windows = [observed(values[end - YEAR - context : end]) for end in range(context + YEAR, len(values) + 1)]
    rollouts = rollout_episodes(loaded.model, task.norm, windows, context, YEAR)
    errors = np.array([rollout_errors(task.preprocessor, rollout) for rollout in rollouts])  # (N,2,12)
    model, baseline = errors.mean((0, 2))
    print(f"a year ahead, {len(windows)} starts: error {model:.3f}, seasonal naive {baseline:.3f} per month")


def write_temperatures(folder: Path) -> tuple[str, str]:
    """One line a month, from a table of one line a year; training and test file."""
    spec = find_spec("statsmodels")
    assert spec is not None
    assert spec.origin is not None
    with open(Path(spec.origin).parent / "datasets" / "elnino" / "elnino.csv", encoding="utf-8") as file:
        _, *years = csv.reader(file)
    lines = [f"{year}-{month:02d},{value}\n" for year, *months in years for month, value in enumerate(months, 1)]
    folder.mkdir(parents=True, exist_ok=True)
    parts = {"train.csv": lines[:-TEST_MONTHS], "test.csv": lines[-TEST_MONTHS:]}
    for name, part in parts.items():
        (folder / name).write_text("month,temperature\n" + "".join(part), encoding="utf-8")
    return str(folder / "train.csv"), str(folder / "test.csv")


if __name__ == "__main__":
    main()
