"""bottleneck: how much of a sentence fits through one vector?

    without attention    x₁ … x_S → one state → y₁ … y_T
    with attention       the same, and every y looks at all x again

Claim (deck R, "Limitations of Recurrent Models": encoding bottleneck; deck T, "Common Architectures", and "Attention is
all you need"): an encoder-decoder without attention hands over its last state only. The longer the sentence, the more
of it is lost. If the decoder may look at all states of the encoder, little is.

Two recurrent translators that differ in attention alone (`Seq2Seq`) learn to say a sentence backwards, with the same
lessons, and then write by themselves. No word comes twice in a sentence, and any may follow any: there is no grammar
that would help to guess.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from torch import Tensor

from regard.choose import must
from regard.generate import Decoding, generate
from regard.lab.optimize import learn, rates
from regard.lab.result import Each, Finding, at_least, curves, drawing, rows
from regard.lab.synthetic_tasks import backwards
from regard.look import look
from regard.models.recurrent import RecurrentConfig
from regard.models.seq2seq import Seq2Seq
from regard.parts.heads import Model

GOOD, LOST = 0.9, 0.6  # share of the words in their places: at least, and below
TESTED = 128  # sentences of each length
STYLES = {"without attention": "k-o", "with attention": "C1-s"}


@dataclass(frozen=True)
class Knobs:
    longest: int = 16  # words of the longest sentence
    words: int = 24  # different words
    dim: int = 32  # width of words and states
    layers: int = 1  # of the encoder and of the decoder
    batch: int = 32  # sentences in a lesson, all of one length
    steps: int = 600  # lessons
    rate: float = 0.02  # highest learning rate
    seed: int = 1  # of weights and sentences

    def __post_init__(self) -> None:
        at_least(1, self, "steps")
        at_least(4, self, "longest")
        must(self, words=(self.words >= self.longest, "at least longest, since none comes twice"))


QUICK = Knobs(longest=8, words=8, dim=48, batch=16, steps=100, rate=0.03)


def run(knobs: Knobs, each: Each) -> Finding:
    lengths = sorted({*range(2, knobs.longest, max(1, knobs.longest // 8)), knobs.longest})
    right: dict[str, list[float]] = {}
    for kind in each(list(STYLES)):
        model = taught(kind == "with attention", knobs)
        right[kind] = [share_right(model, length, knobs) for length in lengths]
    source, target, _ = backwards(1, lengths[-1], knobs.words)
    with torch.no_grad(), look(model) as seen:  # the last one has attention
        model(source, target)
    without, attending = right.values()
    return Finding(
        drawn(lengths, right, seen["body.cross.inner.weights"][0, 0]),
        rows({"words in the sentence": lengths, **right}),
        says=f"Of a sentence of {lengths[0]} words, {without[0]:.0%} are in their places without attention and "
        f"{attending[0]:.0%} with it; of one of {lengths[-1]} words, {without[-1]:.0%} and {attending[-1]:.0%}.",
        wanted=f"both know short sentences; of long ones less than {LOST:.0%} comes through without attention, and at "
        f"least {GOOD:.0%} with it",
        holds=min(without[0], attending[0], attending[-1]) >= GOOD and without[-1] < LOST,
    )


def taught(attention: bool, knobs: Knobs) -> Model:
    torch.manual_seed(knobs.seed)
    vocab = knobs.words + 2  # with the end, and the padding, which is also the start
    body = Seq2Seq(RecurrentConfig(vocab, dim=knobs.dim, layers=knobs.layers, attention=attention, dropout=0.0))
    model = Model(body, body.vocabulary())
    torch.manual_seed(knobs.seed)  # the same lessons for both

    def lesson() -> Tensor:
        source, target, wanted = backwards(knobs.batch, int(torch.randint(1, knobs.longest + 1, ())), knobs.words)
        return model.head.loss(model.body(source, target).flatten(0, 1), wanted.flatten()) / wanted.numel()

    learn(model, lesson, rates(knobs.rate, knobs.steps), clip=1.0)
    return model


@torch.inference_mode()
def share_right(model: Model, length: int, knobs: Knobs) -> float:
    """Of the words in their places, when it writes by itself."""
    source, target, wanted = backwards(TESTED, length, knobs.words)
    written = generate(
        lambda ids, caches: model.head(model.body.decode(ids, cache=caches))[:, -1],
        model.body.read(source),
        start=target[:, 0],
        end=knobs.words,
        limits=torch.full((TESTED,), length),
        how=Decoding(beam=1, shortest=length),
        numbers=torch.arange(TESTED),
    )
    ids = torch.tensor([best[0].ids for best in written])
    return float((ids == wanted[:, :-1]).float().mean())


def drawn(lengths: list[int], right: dict[str, list[float]], weights: Tensor) -> Figure:
    figure, (left, picture) = drawing(2)
    curves(left, lengths, right, STYLES, xlabel="words in the sentence", ylabel="share of words in their places")
    left.set_ylim(0, 1.05)
    left.legend(frameon=False)
    shades = picture.imshow(weights.numpy(), cmap="Greys", vmin=0, vmax=1)
    picture.set(xlabel="word that was read", ylabel="word that is written")
    figure.colorbar(shades, ax=picture, label="attention")
    return figure
