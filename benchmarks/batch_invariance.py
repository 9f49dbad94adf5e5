"""A needle in a haystack: one request, alone and in thousands of random batches, must get the same bits.

    python benchmarks/batch_invariance.py [--batches 10000] [--only "write, greedy" ...] [--rounds 5]

Each batch has 1 to 32 requests: the needle at a random place, random company, random padding, a quarter on two threads.
What the model gives (logits, vectors, or tokens and their log-probability) is compared with what it gave the needle
alone, on one thread. The same without `regard.reproducible` shows that there is something to be seen. Then: the cost,
in seconds of the processor, so that it may be measured on a busy machine.
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

from regard.generate import Decoding, generate
from regard.models import MODELS
from regard.parts.heads import Classifier, Model, PerToken, Vector
from regard.parts.pooling import Mean
from regard.reproducible import reproducible

Row = list[int]
V, LONGEST, WIDEST, END = 301, 24, 40, 2
SMALL: dict[str, Any] = {  # few of these widths are multiples of what a processor takes at once
    "vocab": V, "context": 64, "dim": 42, "layers": 2, "encoder_layers": 1, "decoder_layers": 1, "heads": 3,
    "kv_heads": 1, "hidden": 50, "image": 12, "channels": 3, "patch": 4, "pad": 0, "stages": 2,
    "image_dim": 42, "image_layers": 2, "image_heads": 3, "joint": 20, "properties": V, "pairs": 9,
    "mels": 10, "stride": 2, "observation": 5, "places": 2, "actions": V,
}  # fmt: skip


class Case(NamedTuple):
    run: Callable[[Sequence[Row], int], list[Tensor]]  # requests, and how wide they are padded -> an answer for each
    alike: bool = False  # requests that go together are equally long


def build_body(name: str, ability: str, sizes: dict[str, Any] = SMALL) -> Any:
    torch.manual_seed(1)
    config = MODELS[name].config
    body = MODELS[name].bodies[ability](config(**{n: sizes[n] for n in config.__dataclass_fields__ if n in sizes}))
    for weight in body.parameters():
        weight.data += torch.randn_like(weight) * 0.1  # what begins as 0 or 1 would hide much
    return body.eval()


def reader(name: str, head: Callable[[int], Any], sizes: dict[str, Any] = SMALL) -> Model:
    body = build_body(name, "reads", sizes)
    return Model(body, head(body.config.dim)).eval()


def speaker(name: str, ability: str, sizes: dict[str, Any] = SMALL) -> Model:
    body = build_body(name, ability, sizes)
    return Model(body, body.vocabulary()).eval()


def padded(rows: Sequence[Row], width: int) -> tuple[Tensor, Tensor]:
    """Ids (B,width) and the mask (B,1,1,width)."""
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    return ids, (torch.arange(width) < torch.tensor([len(row) for row in rows])[:, None])[:, None, None]


def whole(model: Model, rows: Sequence[Row], width: int) -> list[Tensor]:
    """One answer for each text."""
    ids, mask = padded(rows, width)
    return list(model.head(model.body(ids, mask), mask))


def token_outputs(model: Model, rows: Sequence[Row], width: int) -> list[Tensor]:
    answers = model.head(model.body(*padded(rows, width)))
    return [answer[: len(row)] for answer, row in zip(answers, rows, strict=True)]


def molecule_outputs(model: Model, rows: Sequence[Row], width: int) -> list[Tensor]:
    """Tokens as atoms in a chain."""
    (ids, mask), place = padded(rows, width), torch.arange(width)
    pairs = (place[:, None] - place).abs().clamp(max=8).expand(len(rows), -1, -1)
    answers = model.head(model.body(torch.cat((ids[..., None], pairs), -1), mask))
    return [answer[: len(row)] for answer, row in zip(answers, rows, strict=True)]


def dynamics_outputs(model: Model, rows: Sequence[Row], width: int) -> list[Tensor]:
    """Tokens as actions, and what each is seen to do."""
    ids, mask = padded(rows, width)
    shown = torch.randn(V, SMALL["places"], SMALL["observation"], generator=torch.Generator().manual_seed(0))
    answers = model.head(model.body(shown[ids], ids, mask))
    return [answer[: len(row)] for answer, row in zip(answers, rows, strict=True)]


def teacher_forced_outputs(model: Model, rows: Sequence[Row], width: int) -> list[Tensor]:
    """Logits for a translation that is given: the source, backwards."""
    (source, mask), (target, _) = padded(rows, width), padded([row[::-1] for row in rows], width)
    answers = model.head(model.body(source, target, mask))
    return [answer[: len(row)] for answer, row in zip(answers, rows, strict=True)]


def pictures(rows: Sequence[Row]) -> Tensor:
    return torch.stack([torch.randn(3, 12, 12, generator=torch.Generator().manual_seed(sum(row))) for row in rows])


def image_outputs(model: Model, rows: Sequence[Row], width: int) -> list[Tensor]:
    return list(model.head(model.body(pictures(rows))))


def frames(rows: Sequence[Row], width: int) -> tuple[Tensor, Tensor]:
    """Sounds of as many tokens as a row has, (B,frames,mels), and the mask."""
    mels, stride = SMALL["mels"], SMALL["stride"]
    sounds = torch.zeros(len(rows), width * stride, mels)
    for i, row in enumerate(rows):
        luck = torch.Generator().manual_seed(sum(row))
        sounds[i, : len(row) * stride] = torch.randn(len(row) * stride, mels, generator=luck)
    return sounds, padded(rows, width)[1]


def audio_outputs(model: Model, rows: Sequence[Row], width: int) -> list[Tensor]:
    answers = model.head(model.body(*frames(rows, width)))
    return [answer[: len(row)] for answer, row in zip(answers, rows, strict=True)]


def transcription_outputs(model: Model, rows: Sequence[Row], width: int) -> list[Tensor]:
    (sounds, mask), (target, _) = frames(rows, width), padded([row[::-1] for row in rows], width)
    answers = model.head(model.body(sounds, target, mask))
    return [answer[: len(row)] for answer, row in zip(answers, rows, strict=True)]


def translated(model: Model, how: Decoding, rows: Sequence[Row], width: int) -> list[Tensor]:
    caches = model.body.read(*padded(rows, width))
    return said(model, model.body.decode, caches, torch.zeros(len(rows), dtype=torch.long), rows, how)


def written(model: Model, how: Decoding, rows: Sequence[Row], width: int) -> list[Tensor]:
    ids, caches = torch.tensor(rows), model.body.caches()
    if ids.size(1) > 1:
        model.body(ids[:, :-1], cache=caches)
    return said(model, model.body, caches, ids[:, -1], rows, how)


def said(
    model: Model, decode: Callable[..., Tensor], caches: Any, start: Tensor, rows: Sequence[Row], how: Decoding
) -> list[Tensor]:
    """Log-probability and tokens of each best answer. The random numbers of a request follow from itself."""
    limits = torch.tensor([how.longest or 3 + len(row) % 3 for row in rows])
    numbers = torch.tensor([sum(row) for row in rows])

    def step(ids: Tensor, caches: Any) -> Tensor:
        logits: Tensor = model.head(decode(ids, cache=caches)[:, -1])
        return logits

    found = generate(step, caches, start, END, limits, how, numbers)
    return [torch.tensor([best[0].logp, *best[0].ids], dtype=torch.float64) for best in found]


def build_cases() -> dict[str, Case]:
    translator, writer = speaker("transformer", "translates"), speaker("gpt", "writes")
    viewer = Model(build_body("vit", "sees", SMALL | {"convolution": True}), PerToken(SMALL["dim"], 3)).eval()
    return {
        "translate, logits": Case(partial(teacher_forced_outputs, translator)),
        "translate, greedy": Case(partial(translated, translator, Decoding(beam=1))),
        "translate, beam 4": Case(partial(translated, translator, Decoding(beam=4))),
        "write, logits": Case(partial(token_outputs, writer)),
        "write, greedy": Case(partial(written, writer, Decoding(beam=1)), alike=True),
        "write, sampled": Case(partial(written, writer, Decoding(temperature=1.0)), alike=True),
        "classify, bert": Case(partial(whole, reader("bert", lambda dim: Classifier(dim, 5, Mean())))),
        "classify, pictures": Case(partial(image_outputs, viewer)),
        "tag, modernbert": Case(partial(token_outputs, reader("modernbert", lambda dim: PerToken(dim, 7)))),
        "tag, lstm": Case(partial(token_outputs, reader("recurrent", lambda dim: PerToken(dim, 7)))),
        "embed, nano": Case(partial(whole, reader("nano", lambda dim: Vector(Mean())))),
    }


def drawn(draw: random.Random, length: int | None = None) -> Row:
    return [draw.randrange(3, V) for _ in range(length or draw.randint(1, LONGEST))]


def count_different_bits(one: Tensor, other: Tensor) -> int:
    if one.shape != other.shape:
        return 32 * max(one.numel(), other.numel())
    a, b = (tensor.contiguous().numpy().view(np.uint8) for tensor in (one, other))
    return int(np.unpackbits(a ^ b).sum())


@torch.inference_mode()
def count_differences(
    kind: Case, batches: int, mode: Callable[[], AbstractContextManager[Any]], threads: Sequence[int] = (1,)
) -> tuple[int, int]:
    """In how many batches the needle's answer is another one, and in how many bits. Every tenth batch, a new needle."""
    draw, wrong, bits = random.Random(0), 0, 0
    with mode():
        for number in range(batches):
            if number % 10 == 0:
                needle = drawn(draw)
                torch.set_num_threads(1)
                [alone] = kind.run([needle], len(needle))
            rows = [drawn(draw, len(needle) if kind.alike else None) for _ in range(draw.randint(0, 31))]
            place = draw.randint(0, len(rows))
            rows.insert(place, needle)
            torch.set_num_threads(draw.choice(threads))
            apart = count_different_bits(alone, kind.run(rows, draw.randint(max(map(len, rows)), WIDEST))[place])
            wrong, bits = wrong + (apart > 0), bits + apart
    torch.set_num_threads(1)
    return wrong, bits


def cost(rounds: int) -> None:
    """With the mode and without it, in turn, on one thread."""
    size = {n: MODELS[n].sizes["tiny"] | {"vocab": 8000, "pad": 0} for n in ("transformer", "gpt", "bert")}
    translator, writer = (
        speaker("transformer", "translates", size["transformer"]),
        speaker("gpt", "writes", size["gpt"]),
    )
    many, one = Decoding(beam=4, shortest=20, longest=20), Decoding(beam=1, shortest=20, longest=20)
    runs = {
        "translate, transformer tiny, beam 4": partial(translated, translator, many),
        "write, gpt tiny, greedy": partial(written, writer, one),
        "classify, bert tiny": partial(whole, reader("bert", lambda dim: Classifier(dim, 5, Mean()), size["bert"])),
    }
    draw = random.Random(0)
    for name, run in runs.items():
        ratios = {}
        for batch in (1, 8, 32):
            rows = [[draw.randrange(3, 8000) for _ in range(20)] for _ in range(batch)]
            spent: dict[Any, list[float]] = {nullcontext: [], reproducible: []}
            for _ in range(rounds + 1):
                for mode, seconds in spent.items():
                    began = time.process_time()
                    with mode(), torch.inference_mode():
                        run(rows, 20)
                    seconds.append(time.process_time() - began)
            plain, ours = (statistics.median(seconds[1:]) for seconds in spent.values())
            ratios[batch] = ours / plain
        told = ", ".join(f"{ratio:.1f} x in a batch of {batch}" for batch, ratio in ratios.items())
        print(f"| its cost: {name} | medians of {rounds} | {told} |", flush=True)


def cli() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=10_000)
    parser.add_argument("--only", nargs="*", help="some of the kinds")
    parser.add_argument("--rounds", type=int, default=5, help="of the cost; 0 leaves it out")
    asked = parser.parse_args()
    began = time.perf_counter()
    each = math.ceil(asked.batches / len(build_cases()))
    runs = {name: kind for name, kind in build_cases().items() if not asked.only or name in asked.only}
    all_wrong = 0
    for name, kind in runs.items():
        wrong, bits = count_differences(kind, each, reproducible, (1, 1, 1, 2))
        plain, lost = count_differences(kind, each // 4, nullcontext, (1, 1, 1, 2))
        all_wrong += wrong
        without = f"without the mode {plain} of {each // 4}, {lost:,} bits"
        print(f"| {name} | {each:,} batches | other bits in {wrong} of them, {bits}; {without} |", flush=True)
    print(f"{each * len(runs):,} batches, {time.perf_counter() - began:.0f} s: {all_wrong} differ")
    if asked.rounds:
        cost(asked.rounds)
    return 1 if all_wrong else 0


if __name__ == "__main__":
    sys.exit(cli())
