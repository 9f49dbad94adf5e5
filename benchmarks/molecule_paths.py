"""The bundled paths: how many bonds lie between two marked atoms? With the bias of bonds and distances, and without it.

    python benchmarks/molecule_paths.py [--minutes 3] [--out runs/paths] [any other option of regard train regress]

An answer is right if it is nearest to the true number. Beside it: always the commonest length.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from recipes import machine, options, seconds, trained

from regard.scores import accuracy
from regard.tasks.bonds import bundled_paths


def main() -> None:
    given, more = options(str(__doc__), 3, "runs/paths")
    out = Path(given.out)
    rows = [*bundled_paths()["test"]]
    wanted = [row.value for row in rows]
    print(f"{machine()}, seed {given.seed}")
    for name, how in (("with", {}), ("without", {"no-bias": True})):
        folder = out / name
        recipe = {"model": "graph", "minutes": given.minutes, "seed": given.seed}
        loaded = trained("regress", folder, recipe | how, more)
        said = [float(answer) for answer in loaded([row.text for row in rows])]
        exact = accuracy(wanted, [float(round(one)) for one in said])
        print(f"{name} the bias: {exact:.1f} % exact on {len(rows)} molecules, {seconds(folder):.0f} s of training")
    common = max(Counter(wanted).values()) / len(wanted)
    print(f"always the commonest length: {100 * common:.1f} %")


if __name__ == "__main__":
    main()
