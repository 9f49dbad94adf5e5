"""English to German on Multi30k with the `tiny` Transformer: BLEU on test_2016_flickr against minutes of training.

    python benchmarks/multi30k.py [-o runs/multi30k] [options of regard train translate, such as --minutes 60]

Everything is selected on `val`; the test set is only translated, after training, with the EMA weights of every save. A
finished run is not trained again.
BLEU in two forms: sacreBLEU, raw and cased; and lower-cased and Moses-tokenised with beam 5, as the published 41.02 of
Transformer-Tiny (Wu et al. 2021; more than 80 epochs on two GPUs).
"""

from __future__ import annotations

from itertools import accumulate

import torch
from corpus import SHARED, multi30k
from recipes import describe_machine, parse_args, train_or_load
from sacremoses import MosesPunctNormalizer, MosesTokenizer
from safetensors.torch import load_file

from regard.generation_config import GenerationOptions
from regard.metrics import Score, bleu
from regard.training.checkpoint import list_checkpoints
from regard.training.run_folder import RunFolder

SPLITS = ("train", "val")
RECIPE = {
    "--dropout": 0.2, "--vocab-size": 4000, "--batch-tokens": 3072, "--evals": 10, "--keep": 10,
    "--eval-examples": 1014,
}  # fmt: skip
DECODING = GenerationOptions(
    num_beams=5, length_penalty=1.6
)  # 1.0 to 2.0 tried on val: 39.81 to 40.03 in the published form


def moses_bleu(predictions: list[str], references: list[str]) -> Score:
    """BLEU of lower-cased texts with punctuation and tokens of Moses."""
    normalizer, tokenizer = MosesPunctNormalizer(lang="de"), MosesTokenizer(lang="de")

    def moses(texts: list[str]) -> list[str]:
        return [tokenizer.tokenize(normalizer.normalize(t).lower(), return_str=True, escape=False) for t in texts]

    return bleu(moses(predictions), moses(references), tokenize="none")


def main() -> None:
    args, extra = parse_args(str(__doc__), 60, "runs/multi30k")
    folder, test = args.output_dir, multi30k("test_2016_flickr")
    files = {split: [SHARED / "multi30k" / f"{split}.{language}.gz" for language in ("en", "de")] for split in SPLITS}
    data = {"--data": files["train"], "--valid": files["val"], "--minutes": args.minutes, "--seed": args.seed}
    translate = train_or_load("translate", folder, RECIPE | data, extra)
    metrics = RunFolder(folder).metrics()
    steps = [m for m in metrics if "loss" in m]
    seconds = dict(zip((m["step"] for m in steps), accumulate(m["seconds"] for m in steps), strict=True))
    valid = {m["step"]: m["valid"]["bleu"] for m in metrics if "valid" in m}
    best = {name: w.clone() for name, w in translate.model.named_parameters()}
    sources, references = zip(*test, strict=True)

    def print_row(name: str, step: int) -> tuple[Score, Score]:
        predictions = [a[0].text for a in translate.task.predict(translate.model, [*sources], DECODING)]
        raw, moses = bleu(predictions, [*references]), moses_bleu(predictions, [*references])
        scores = f"{valid[step]:>12.2f}{raw.value:>12.2f}{moses.value:>12.2f}"
        print(f"{name:<18}{seconds[step] / 60:>8.1f}{scores}", flush=True)
        return raw, moses

    print(f"\n{'step':<18}{'minutes':>8}{'val, greedy':>12}{'test, raw':>12}{'published':>12}")
    for save in reversed(list_checkpoints(folder)):
        state = load_file(save / "state.safetensors")
        with torch.no_grad():
            for name, weight in translate.model.named_parameters():
                weight.copy_(state[f"ema/{name}"])
        print_row(save.name, int(save.name.removeprefix("step-")))
    with torch.no_grad():
        for name, weight in translate.model.named_parameters():
            weight.copy_(best[name])
    raw, moses = print_row("final model", max(valid, key=lambda step: valid[step]))
    print(f"\nraw        {raw.signature}\npublished  lower-cased, Moses-tokenised (de), beam 5: {moses.signature}")
    print(f"{describe_machine()}; published: 41.02")


if __name__ == "__main__":
    main()
