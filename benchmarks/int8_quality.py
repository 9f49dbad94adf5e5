"""What int8 costs in quality, for models that were trained: BLEU, perplexity, cosines; beside llama.cpp's rounding.

    python benchmarks/int8_quality.py [--minutes 8] [--only translate write embed] [--examples 1000]

translate   Transformer `tiny` on Multi30k; BLEU with beam 4 and perplexity on test_2016_flickr
write       LLaMA `tiny` on WikiText-2; perplexity on its test set
embed       MiniLM-L6, somebody else's; cosines of the vectors of 1,000 texts to those of fp32

"Q8_0" is the plain model with the same weights as llama.cpp rounds them: 32 numbers share a scale in half precision.
"Q8_0 inputs too" rounds also what is multiplied with them, in the same way: so llama.cpp computes, and so do we.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from corpus import SHARED, multi30k
from finetune import minilm
from minilm import texts, vectors
from pretrain import wikitext
from recipes import machine, options, trained
from torch import Tensor, nn

from regard.bench.regard_backend import SPEEDS, load_on_cpu
from regard.load import Loaded, load
from regard.tasks.translating import BEAM

GROUP = 32


def rounded(weight: Tensor) -> Tensor:
    """Q8_0, and back."""
    groups = weight.view(-1, GROUP)
    scale = groups.abs().amax(1, keepdim=True) / 127
    bytes_ = (groups / scale.clamp(min=1e-30)).round()
    return (bytes_ * scale.half().float()).view_as(weight)


@torch.no_grad()
def as_llama_cpp(folder: Path, inputs: bool = False) -> Loaded:
    loaded = load(folder, "cpu")
    for module in loaded.model.modules():
        if isinstance(module, nn.Linear | nn.Embedding) and module.weight.size(1) % GROUP == 0:
            module.weight.copy_(rounded(module.weight))
            if inputs and isinstance(module, nn.Linear):
                module.register_forward_pre_hook(lambda _, given: (rounded(given[0].contiguous()),))
    return loaded


def variants(folder: Path) -> dict[str, Loaded]:
    return (
        {"plain": load(folder, "cpu")}
        | {speed: load_on_cpu(folder, speed) for speed in SPEEDS}
        | {"Q8_0": as_llama_cpp(folder), "Q8_0 inputs too": as_llama_cpp(folder, inputs=True)}
    )


def translate(out: Path, minutes: float, count: int) -> dict[str, str]:
    """What each loses, told."""
    data = SHARED / "multi30k"
    files = {part: [f"{data}/{part}.{language}.gz" for language in ("en", "de")] for part in ("train", "val")}
    recipe = {"data": files["train"], "valid": files["val"], "minutes": minutes, "dropout": 0.2, "vocab": 4000}
    trained("translate", out / "multi30k", recipe | {"check-examples": 200, "checks": 3}, [])
    pairs = multi30k("test_2016_flickr")[:count]
    found = {name: one.task.score(one.model, pairs, BEAM) for name, one in variants(out / "multi30k").items()}
    losses = {}
    for name, scores in found.items():
        unchanged = sum(a == b for a, b in zip(scores["answers"], found["plain"]["answers"], strict=True)) / len(pairs)
        bleu = scores["bleu"]
        losses[name] = lost = f"{bleu - found['plain']['bleu']:+.2f}"
        print(
            f"translate {name:<16} BLEU {bleu:.2f} ({lost}), {unchanged:.1%} the same, {apart(scores, found['plain'])}"
        )
    return losses


def write(out: Path, minutes: float) -> dict[str, str]:
    wiki = {part: [wikitext(part, out / "wiki")] for part in ("train", "valid", "test")}
    recipe = {"data": wiki["train"], "valid": wiki["valid"], "minutes": minutes, "model": "llama", "checks": 2}
    trained("write", out / "wikitext", recipe, [])
    found: dict[str, Any] = {}
    for name, one in variants(out / "wikitext").items():
        rows = one.rows([str(file) for file in wiki["test"]])
        found[name] = one.task.score(one.model, rows)
        print(f"write     {name:<16} {apart(found[name], found['plain'])}", flush=True)
    return {name: f"{more_than(scores, found['plain']):+.3%}" for name, scores in found.items()}


def apart(scores: dict[str, Any], right: dict[str, Any]) -> str:
    return f"perplexity {scores['perplexity']:.3f} ({more_than(scores, right):+.4%})"


def more_than(scores: dict[str, Any], right: dict[str, Any]) -> float:
    return math.exp(scores["loss"] - right["loss"]) - 1


def embed(count: int) -> dict[str, str]:
    folder = minilm()
    every = variants(folder)
    rows = every["plain"].task.tokens(texts(count), every["plain"].model.body.config.context)  # type: ignore[attr-defined]
    right = vectors(every["plain"], rows)
    least = {}
    for name, one in every.items():
        cosines = (vectors(one, rows) * right).sum(-1).double()
        print(f"embed     {name:<16} cosine to fp32: {cosines.mean():.6f} in the middle, {cosines.min():.6f} at least")
        least[name] = f"{cosines.min():.5f}"
    return least


def main() -> None:
    given, more = options(str(__doc__), 8, "runs/quality", ("translate", "write", "embed"))
    count = int(more[more.index("--examples") + 1]) if "--examples" in more else 1000
    print(machine())
    out = Path(given.out)
    works = {
        "translate": ("BLEU, Multi30k", lambda: translate(out, given.minutes, count)),
        "write": ("perplexity, WikiText-2", lambda: write(out, given.minutes)),
        "embed": ("smallest cosine, MiniLM-L6", lambda: embed(count)),
    }
    rows = {works[name][0]: works[name][1]() for name in given.only}
    print()
    for what, lost in rows.items():
        beside = f"rounded as llama.cpp's Q8_0: {lost['Q8_0 inputs too']}, its weights alone {lost['Q8_0']}"
        print(f"| what int8 costs: {what} | {lost['int8']} | {beside} | `benchmarks/int8_quality.py` |")


if __name__ == "__main__":
    main()
