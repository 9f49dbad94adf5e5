"""Multi30k, English to German: an LSTM without attention, with attention, and the Transformer, in equal minutes.

    python benchmarks/recurrent.py [--minutes 20] [--only Transformer] [--out runs/recurrent]

Test BLEU is sacreBLEU's, raw and cased, beam 5, on test_2016_flickr.
"""

from __future__ import annotations

from pathlib import Path

from corpus import SHARED
from recipes import machine, options, seconds, trained

from regard.tasks.translating import Translating
from regard.training.loop import parameters

DATA = SHARED / "multi30k"
COMMON = {"vocab": 4000, "dropout": 0.2, "batch-tokens": 3072, "checks": 5, "check-examples": 300}
MODELS = {
    "LSTM without attention": {"model": "recurrent", "size": "small", "no-attention": True},
    "LSTM with attention": {"model": "recurrent", "size": "small"},
    "Transformer": {"model": "transformer", "size": "tiny"},
}


def files(part: str) -> list[str]:
    return [str(DATA / f"{part}.{language}.gz") for language in ("en", "de")]


def main() -> None:
    given, more = options(str(__doc__), 20, "runs/recurrent", only=list(MODELS))
    print(f"{machine()}, seed {given.seed}")
    for name, body in MODELS.items():
        if name not in given.only:
            continue
        folder = Path(given.out) / name.replace(" ", "-").lower()
        recipe = {"data": files("train"), "valid": files("val"), "minutes": given.minutes, "seed": given.seed}
        loaded = trained("translate", folder, COMMON | body | recipe, more)
        scores = loaded.task.score(loaded.model, loaded.rows(files("test_2016_flickr")), Translating(num_beams=5))
        size = f"{parameters(loaded.model) / 1e6:.1f} M parameters"
        print(f"{name:<24}{size:<20}{seconds(folder) / 60:5.1f} minutes   BLEU {scores['bleu']:.1f}", flush=True)


if __name__ == "__main__":
    main()
