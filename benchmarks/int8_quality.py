"""Quality of int8: BLEU, perplexity and cosines of trained models, beside llama.cpp's Q8_0 quantization.

    python benchmarks/int8_quality.py [--minutes 8] [-o runs/quality] [--only translate ...] [--examples 1000]

translate   Transformer `tiny` on Multi30k; BLEU with beam 4 and perplexity on test_2016_flickr
write       LLaMA `tiny` on WikiText-2; perplexity on its test set
embed       MiniLM-L6; cosines of the vectors of 1,000 texts to those of fp32

"Q8_0" is the plain model with the weights of llama.cpp: 32 weights share a scale in half precision. "Q8_0 with inputs"
also quantizes the inputs of every matrix product in the same way, as llama.cpp and the engine do.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from corpus import SHARED, multi30k, text_rows
from finetune import minilm_folder
from minilm import embed_rows, mixed_texts, token_rows
from pretrain import wikitext
from recipes import describe_machine, parse_args, train_or_load
from torch import Tensor, nn

from regard.bench.regard_backend import SPEEDS, load_on_cpu
from regard.load import load
from regard.loaded_model import LoadedModel
from regard.tasks.translate import BEAM

GROUP = 32


def quantize_dequantize(weight: Tensor) -> Tensor:
    """Q8_0, and back."""
    groups = weight.view(-1, GROUP)
    scale = groups.abs().amax(1, keepdim=True) / 127
    integers = (groups / scale.clamp(min=1e-30)).round()
    return (integers * scale.half().float()).view_as(weight)


@torch.no_grad()
def load_q8_0(folder: Path, inputs: bool = False) -> LoadedModel:
    loaded = load(folder, "cpu")
    for module in loaded.model.modules():
        if isinstance(module, nn.Linear | nn.Embedding) and module.weight.size(1) % GROUP == 0:
            module.weight.copy_(quantize_dequantize(module.weight))
            if inputs and isinstance(module, nn.Linear):
                module.register_forward_pre_hook(lambda _, args: (quantize_dequantize(args[0].contiguous()),))
    return loaded


def variants(folder: Path) -> dict[str, LoadedModel]:
    return (
        {"plain": load(folder, "cpu")}
        | {speed: load_on_cpu(folder, speed) for speed in SPEEDS}
        | {"Q8_0": load_q8_0(folder), "Q8_0 with inputs": load_q8_0(folder, inputs=True)}
    )


def translate(folder: Path, minutes: float, count: int) -> dict[str, str]:
    """BLEU of each variant, as the difference to the plain model."""
    data = SHARED / "multi30k"
    files = {split: [f"{data}/{split}.{language}.gz" for language in ("en", "de")] for split in ("train", "val")}
    recipe = {"--data": files["train"], "--valid": files["val"], "--minutes": minutes, "--dropout": 0.2}
    recipe |= {"--vocab-size": 4000, "--eval-examples": 200, "--evals": 3}
    train_or_load("translate", folder / "multi30k", recipe, [])
    pairs = text_rows(multi30k("test_2016_flickr")[:count])
    scores = {name: v.task.score(v.model, pairs, BEAM) for name, v in variants(folder / "multi30k").items()}
    plain, differences = scores["plain"], {}
    for name, score in scores.items():
        unchanged = sum(a == b for a, b in zip(score["predictions"], plain["predictions"], strict=True)) / len(pairs)
        differences[name] = f"{score['bleu'] - plain['bleu']:+.2f}"
        bleu = f"BLEU {score['bleu']:.2f} ({differences[name]}), {unchanged:.1%} of the outputs unchanged"
        print(f"translate {name:<16} {bleu}, {format_perplexity(score, plain)}")
    return differences


def write(folder: Path, minutes: float) -> dict[str, str]:
    """Perplexity of each variant, as the relative difference to the plain model."""
    wiki = {split: [wikitext(split, folder / "wiki")] for split in ("train", "valid", "test")}
    recipe = {"--data": wiki["train"], "--valid": wiki["valid"], "--minutes": minutes}
    train_or_load("write", folder / "wikitext", recipe | {"--model": "llama", "--evals": 2}, [])
    scores: dict[str, Any] = {}
    for name, variant in variants(folder / "wikitext").items():
        rows = variant.rows([str(file) for file in wiki["test"]])
        scores[name] = variant.task.score(variant.model, rows)
        print(f"write     {name:<16} {format_perplexity(scores[name], scores['plain'])}", flush=True)
    return {name: f"{perplexity_increase(score, scores['plain']):+.3%}" for name, score in scores.items()}


def format_perplexity(scores: dict[str, Any], plain: dict[str, Any]) -> str:
    return f"perplexity {scores['perplexity']:.3f} ({perplexity_increase(scores, plain):+.4%})"


def perplexity_increase(scores: dict[str, Any], plain: dict[str, Any]) -> float:
    return math.exp(scores["loss"] - plain["loss"]) - 1


def embed(count: int) -> dict[str, str]:
    """The smallest cosine of each variant to fp32."""
    models = variants(minilm_folder())
    plain = models["plain"]
    rows = token_rows(plain, mixed_texts(count))
    reference = embed_rows(plain, rows)
    smallest = {}
    for name, model in models.items():
        cosines = (embed_rows(model, rows) * reference).sum(-1).double()
        print(f"embed     {name:<16} cosine to fp32: mean {cosines.mean():.6f}, smallest {cosines.min():.6f}")
        smallest[name] = f"{cosines.min():.5f}"
    return smallest


def main() -> None:
    args, extra = parse_args(str(__doc__), 8, "runs/quality", ("translate", "write", "embed"))
    count = int(extra[extra.index("--examples") + 1]) if "--examples" in extra else 1000
    print(describe_machine())
    measures = {
        "translate": ("BLEU, Multi30k", lambda: translate(args.output_dir, args.minutes, count)),
        "write": ("perplexity, WikiText-2", lambda: write(args.output_dir, args.minutes)),
        "embed": ("smallest cosine, MiniLM-L6", lambda: embed(count)),
    }
    results = {measures[name][0]: measures[name][1]() for name in args.only}
    print()
    for measure, values in results.items():
        peer = f"llama.cpp's Q8_0: {values['Q8_0 with inputs']}, its weights alone {values['Q8_0']}"
        print(f"| change by int8: {measure} | {values['int8']} | {peer} | `benchmarks/int8_quality.py` |")


if __name__ == "__main__":
    main()
