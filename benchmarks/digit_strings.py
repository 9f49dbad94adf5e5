"""Strings of spoken digits (FSDD): one to seven clips of a speaker, joined with pauses; wrong words and whole strings.

    python benchmarks/digit_strings.py [--minutes 10] [--out runs/strings] [any other option of regard train translate]

Tested are joins of the official test clips, which are in no string that was learnt from. The bar is 8 % of wrong words.
"""

from __future__ import annotations

from pathlib import Path

from fsdd import official
from recipes import machine, options, seconds, trained

from regard.tasks.translating import BEAM


def main() -> None:
    given, more = options(str(__doc__), 10, "runs/strings")
    files = official(Path(given.out).parent / "speech-data" / "official")
    recipe = {
        "data": [files["train"]], "valid": [files["valid"]], "model": "transcriber", "batch-tokens": 2048,
        "minutes": given.minutes, "seed": given.seed,
    }  # fmt: skip
    loaded = trained("translate", Path(given.out), recipe, more)
    rows = loaded.rows([str(files["test"])])
    scores = loaded.task.score(loaded.model, rows, BEAM)
    print(f"{machine()}, seed {given.seed}")
    print(f"{len(rows)} strings after {seconds(Path(given.out)) / 60:.1f} minutes of training:")
    print(f"wrong words {scores['wer']:.2f} %, strings without a mistake {scores['exact']:.2f} %")


if __name__ == "__main__":
    main()
