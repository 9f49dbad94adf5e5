"""Batch invariance: one example, alone and in thousands of random batches, must get the same bits.

    python benchmarks/batch_invariance.py [--batches 10000] [--only "write, greedy" ...] [--rounds 5]

Each batch has 1 to 32 rows: the example at a random position, random other rows, random padding, a quarter of the
batches on two threads. The output (logits, vectors, or tokens and their log-probability) is compared with that of the
example alone on one thread. The same without `regard.reproducible` shows that the outputs differ otherwise. Finally the
overhead of the mode is measured, in CPU time, so that other load does not matter.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.batch_invariant import reproducible
from regard.generate import generate
from regard.generation_config import GenerationOptions
from regard.models import MODELS, Structure
from regard.parts.heads import Classifier, EmbeddingHead, Model, TokenClassifier
from regard.parts.pooling import MeanPool

Row = list[int]
V, MAX_TOKENS, MAX_WIDTH, END = 301, 24, 40, 2
SMALL: dict[str, Any] = {  # few of these widths are multiples of a vector register
    "vocab": V, "context": 64, "dim": 42, "layers": 2, "encoder_layers": 1, "decoder_layers": 1, "heads": 3,
    "kv_heads": 1, "hidden": 50, "image_size": 12, "channels": 3, "patch_size": 4, "pad": 0, "stages": 2,
    "image_dim": 42, "image_layers": 2, "image_heads": 3, "projection_dim": 20, "atom_features": V, "pair_kinds": 9,
    "mels": 10, "stride": 2, "observation_dim": 5, "observation_tokens": 2, "num_actions": V,
}  # fmt: skip


class Case(NamedTuple):
    run: Callable[[Sequence[Row], int], list[Tensor]]  # rows, padded width -> one output per row
    equal_lengths: bool = False  # all rows of a batch have the same length


def build_body(name: str, structure: Structure, sizes: dict[str, Any] = SMALL) -> Any:
    torch.manual_seed(1)
    config = MODELS[name].config
    body = MODELS[name].bodies[structure](config(**{n: sizes[n] for n in config.__dataclass_fields__ if n in sizes}))
    for weight in body.parameters():
        weight.data += torch.randn_like(weight) * 0.1  # weights initialised to 0 or 1 would hide differences
    return body.eval()


def encoder_model(name: str, head: Callable[[int], Any], sizes: dict[str, Any] = SMALL) -> Model:
    body = build_body(name, "encoder" if "encoder" in MODELS[name].bodies else "decoder", sizes)
    return Model(body, head(body.config.dim)).eval()


def generative_model(name: str, structure: Structure, sizes: dict[str, Any] = SMALL) -> Model:
    body = build_body(name, structure, sizes)
    return Model(body, body.lm_head()).eval()


def pad_rows(rows: Sequence[Row], width: int) -> tuple[Tensor, Tensor]:
    """Ids (B,width) and the padding mask (B,1,1,width)."""
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    return ids, (torch.arange(width) < torch.tensor([len(row) for row in rows])[:, None])[:, None, None]


def pooled_outputs(model: Model, rows: Sequence[Row], width: int) -> list[Tensor]:
    """One output per row."""
    ids, mask = pad_rows(rows, width)
    return list(model.head(model.body(ids, mask), mask))


def token_outputs(model: Model, rows: Sequence[Row], width: int) -> list[Tensor]:
    outputs = model.head(model.body(*pad_rows(rows, width)))
    return [output[: len(row)] for output, row in zip(outputs, rows, strict=True)]


def molecule_outputs(model: Model, rows: Sequence[Row], width: int) -> list[Tensor]:
    """Tokens as atoms of a chain."""
    (ids, mask), index = pad_rows(rows, width), torch.arange(width)
    pairs = (index[:, None] - index).abs().clamp(max=8).expand(len(rows), -1, -1)
    outputs = model.head(model.body(ids[..., None], mask, pairs))
    return [output[: len(row)] for output, row in zip(outputs, rows, strict=True)]


def dynamics_outputs(model: Model, rows: Sequence[Row], width: int) -> list[Tensor]:
    """Tokens as actions, each with an observation."""
    ids, mask = pad_rows(rows, width)
    observations = torch.randn(
        V, SMALL["observation_tokens"], SMALL["observation_dim"], generator=torch.Generator().manual_seed(0)
    )
    outputs = model.head(model.body(observations[ids], ids, mask))
    return [output[: len(row)] for output, row in zip(outputs, rows, strict=True)]


def teacher_forced_outputs(model: Model, rows: Sequence[Row], width: int) -> list[Tensor]:
    """Logits of a fixed target: the reversed source."""
    (source, mask), (target, _) = pad_rows(rows, width), pad_rows([row[::-1] for row in rows], width)
    outputs = model.head(model.body(source, target, mask))
    return [output[: len(row)] for output, row in zip(outputs, rows, strict=True)]


def random_images(rows: Sequence[Row]) -> Tensor:
    return torch.stack([torch.randn(3, 12, 12, generator=torch.Generator().manual_seed(sum(row))) for row in rows])


def image_outputs(model: Model, rows: Sequence[Row], width: int) -> list[Tensor]:
    return list(model.head(model.body(random_images(rows))))


def random_spectrograms(rows: Sequence[Row], width: int) -> tuple[Tensor, Tensor]:
    """Spectrograms as long as the rows, (B,frames,mels), and the padding mask."""
    mels, stride = SMALL["mels"], SMALL["stride"]
    sounds = torch.zeros(len(rows), width * stride, mels)
    for i, row in enumerate(rows):
        rng = torch.Generator().manual_seed(sum(row))
        sounds[i, : len(row) * stride] = torch.randn(len(row) * stride, mels, generator=rng)
    return sounds, pad_rows(rows, width)[1]


def audio_outputs(model: Model, rows: Sequence[Row], width: int) -> list[Tensor]:
    outputs = model.head(model.body(*random_spectrograms(rows, width)))
    return [output[: len(row)] for output, row in zip(outputs, rows, strict=True)]


def transcription_outputs(model: Model, rows: Sequence[Row], width: int) -> list[Tensor]:
    (sounds, mask), (target, _) = random_spectrograms(rows, width), pad_rows([row[::-1] for row in rows], width)
    outputs = model.head(model.body(sounds, target, mask))
    return [output[: len(row)] for output, row in zip(outputs, rows, strict=True)]


def translate(model: Model, decoding: GenerationOptions, rows: Sequence[Row], width: int) -> list[Tensor]:
    caches = model.body.decoder_caches(*pad_rows(rows, width))
    return decode_best(model, model.body.decode, caches, torch.zeros(len(rows), dtype=torch.long), rows, decoding)


def write(model: Model, decoding: GenerationOptions, rows: Sequence[Row], width: int) -> list[Tensor]:
    ids, caches = torch.tensor(rows), model.body.caches()
    if ids.size(1) > 1:
        model.body(ids[:, :-1], cache=caches)
    return decode_best(model, model.body, caches, ids[:, -1], rows, decoding)


def decode_best(
    model: Model,
    decode: Callable[..., Tensor],
    caches: Any,
    start: Tensor,
    rows: Sequence[Row],
    decoding: GenerationOptions,
) -> list[Tensor]:
    """Log-probability and tokens of each best hypothesis. The random seed of a row depends on the row alone."""
    limits = torch.tensor([decoding.max_new_tokens or 3 + len(row) % 3 for row in rows])
    seeds = torch.tensor([sum(row) for row in rows])

    def step(ids: Tensor, caches: Any) -> Tensor:
        logits: Tensor = model.head(decode(ids, cache=caches)[:, -1])
        return logits

    hypotheses = generate(step, caches, start, END, limits, decoding, seeds)
    return [torch.tensor([best[0].logp, *best[0].ids], dtype=torch.float64) for best in hypotheses]


def build_cases() -> dict[str, Case]:
    translator, writer = generative_model("transformer", "encoder-decoder"), generative_model("gpt", "decoder")
    viewer = Model(build_body("vit", "encoder", SMALL | {"conv_stem": True}), TokenClassifier(SMALL["dim"], 3)).eval()
    return {
        "translate, logits": Case(partial(teacher_forced_outputs, translator)),
        "translate, greedy": Case(partial(translate, translator, GenerationOptions(num_beams=1))),
        "translate, beam 4": Case(partial(translate, translator, GenerationOptions(num_beams=4))),
        "write, logits": Case(partial(token_outputs, writer)),
        "write, greedy": Case(partial(write, writer, GenerationOptions(num_beams=1)), equal_lengths=True),
        "write, sampled": Case(partial(write, writer, GenerationOptions(temperature=1.0)), equal_lengths=True),
        "classify, bert": Case(
            partial(pooled_outputs, encoder_model("bert", lambda dim: Classifier(dim, 5, MeanPool())))
        ),
        "classify, pictures": Case(partial(image_outputs, viewer)),
        "tag, modernbert": Case(
            partial(token_outputs, encoder_model("modernbert", lambda dim: TokenClassifier(dim, 7)))
        ),
        "tag, lstm": Case(partial(token_outputs, encoder_model("recurrent", lambda dim: TokenClassifier(dim, 7)))),
        "embed, nanochat": Case(
            partial(pooled_outputs, encoder_model("nanochat", lambda dim: EmbeddingHead(MeanPool())))
        ),
    }


def random_row(rng: random.Random, length: int | None = None) -> Row:
    return [rng.randrange(3, V) for _ in range(length or rng.randint(1, MAX_TOKENS))]


def count_different_bits(a: Tensor, b: Tensor) -> int:
    if a.shape != b.shape:
        return 32 * max(a.numel(), b.numel())
    left, right = (tensor.contiguous().numpy().view(np.uint8) for tensor in (a, b))
    return int(np.unpackbits(left ^ right).sum())


@torch.inference_mode()
def count_differences(
    case: Case, batches: int, mode: Callable[[], AbstractContextManager[Any]], threads: Sequence[int] = (1,)
) -> tuple[int, int]:
    """Number of batches in which the output of the example differs from that alone, and of bits. Every tenth batch has
    a new example."""
    rng, different, bits = random.Random(0), 0, 0
    with mode():
        for number in range(batches):
            if number % 10 == 0:
                example = random_row(rng)
                torch.set_num_threads(1)
                [expected] = case.run([example], len(example))
            rows = [random_row(rng, len(example) if case.equal_lengths else None) for _ in range(rng.randint(0, 31))]
            position = rng.randint(0, len(rows))
            rows.insert(position, example)
            torch.set_num_threads(rng.choice(threads))
            output = case.run(rows, rng.randint(max(map(len, rows)), MAX_WIDTH))[position]
            changed = count_different_bits(expected, output)
            different, bits = different + (changed > 0), bits + changed
    torch.set_num_threads(1)
    return different, bits


def measure_overhead(rounds: int) -> None:
    """CPU time with the mode and without it, interleaved, on one thread."""
    sizes = {n: MODELS[n].sizes["tiny"] | {"vocab": 8000, "pad": 0} for n in ("transformer", "gpt", "bert")}
    translator = generative_model("transformer", "encoder-decoder", sizes["transformer"])
    writer = generative_model("gpt", "decoder", sizes["gpt"])
    classifier = encoder_model("bert", lambda dim: Classifier(dim, 5, MeanPool()), sizes["bert"])
    beam, greedy = (
        GenerationOptions(num_beams=4, min_new_tokens=20, max_new_tokens=20),
        GenerationOptions(num_beams=1, min_new_tokens=20, max_new_tokens=20),
    )
    runs = {
        "translate, transformer tiny, beam 4": partial(translate, translator, beam),
        "write, gpt tiny, greedy": partial(write, writer, greedy),
        "classify, bert tiny": partial(pooled_outputs, classifier),
    }
    rng = random.Random(0)
    for name, run in runs.items():
        ratios = {}
        for batch in (1, 8, 32):
            rows = [[rng.randrange(3, 8000) for _ in range(20)] for _ in range(batch)]
            times: dict[Any, list[float]] = {nullcontext: [], reproducible: []}
            for _ in range(rounds + 1):
                for mode, seconds in times.items():
                    start = time.process_time()
                    with mode(), torch.inference_mode():
                        run(rows, 20)
                    seconds.append(time.process_time() - start)
            plain, invariant = (statistics.median(seconds[1:]) for seconds in times.values())
            ratios[batch] = invariant / plain
        overhead = ", ".join(f"{ratio:.1f} x at batch size {batch}" for batch, ratio in ratios.items())
        print(f"| CPU time of the mode: {name} | medians of {rounds} | {overhead} |", flush=True)


def cli() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=10_000, help="total number of batches of all cases")
    parser.add_argument("--only", nargs="*", help="names of cases")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of the overhead measurement; 0 for none")
    args = parser.parse_args()
    start = time.perf_counter()
    batches = math.ceil(args.batches / len(build_cases()))
    cases = {name: case for name, case in build_cases().items() if not args.only or name in args.only}
    total = 0
    for name, case in cases.items():
        different, bits = count_differences(case, batches, reproducible, (1, 1, 1, 2))
        plain_different, plain_bits = count_differences(case, batches // 4, nullcontext, (1, 1, 1, 2))
        total += different
        without = f"without the mode {plain_different} of {batches // 4} batches, {plain_bits:,} bits"
        print(f"| {name} | {batches:,} batches | {different} batches differ, {bits} bits; {without} |", flush=True)
    print(f"{batches * len(cases):,} batches, {time.perf_counter() - start:.0f} s: {total} differ")
    if args.rounds:
        measure_overhead(args.rounds)
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(cli())
