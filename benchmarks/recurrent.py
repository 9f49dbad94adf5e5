"""Multi30k, English to German: LSTM without attention, LSTM with attention, and Transformer, in equal minutes.

    python benchmarks/recurrent.py [--minutes 20] [--only Transformer] [-o runs/recurrent]

Test BLEU is sacreBLEU's, raw and cased, beam 5, on test_2016_flickr.
"""

from __future__ import annotations

from corpus import SHARED
from recipes import describe_machine, parse_args, train_or_load, training_seconds

from regard.tasks.translate import TranslateOptions
from regard.training.loop import num_parameters

DATA = SHARED / "multi30k"
COMMON = {
    "--vocab-size": 4000, "--dropout": 0.2, "--batch-tokens": 3072, "--evals": 5, "--eval-examples": 300,
}  # fmt: skip
MODELS = {
    "LSTM without attention": {"--model": "recurrent", "--size": "small", "--no-attention": True},
    "LSTM with attention": {"--model": "recurrent", "--size": "small"},
    "Transformer": {"--model": "transformer", "--size": "tiny"},
}


def split_files(split: str) -> list[str]:
    return [str(DATA / f"{split}.{language}.gz") for language in ("en", "de")]


def main() -> None:
    args, extra = parse_args(str(__doc__), 20, "runs/recurrent", only=list(MODELS))
    print(f"{describe_machine()}, seed {args.seed}")
    data = {"--data": split_files("train"), "--valid": split_files("val")}
    for name in args.only:
        folder = args.output_dir / name.replace(" ", "-").lower()
        recipe = COMMON | MODELS[name] | data | {"--minutes": args.minutes, "--seed": args.seed}
        loaded = train_or_load("translate", folder, recipe, extra)
        scores = loaded.task.score(
            loaded.model, loaded.rows(split_files("test_2016_flickr")), TranslateOptions(num_beams=5)
        )
        size = f"{num_parameters(loaded.model) / 1e6:.1f} M parameters"
        minutes = training_seconds(folder) / 60
        print(f"{name:<24}{size:<20}{minutes:5.1f} minutes   BLEU {scores['bleu']:.1f}", flush=True)


if __name__ == "__main__":
    main()
