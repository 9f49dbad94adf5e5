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
from regard.lab.finding import Each, Finding, drawing
from regard.look import look
from regard.models.recurrent import RecurrentConfig
from regard.models.seq2seq import Seq2Seq
from regard.parts.heads import Model
from regard.training.optimizer import optimizers, scale_and_clip
from regard.training.schedule import decay

GOOD, LOST = 0.9, 0.6  # share of the words in their places: at least, and below
TESTED = 128  # sentences of each length
STYLES = {True: "C1-s", False: "k-o"}
NAMES = {True: "with attention", False: "without"}


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
        must(
            self,
            longest=(self.longest >= 4, "at least 4"),
            words=(self.words >= self.longest, "at least longest, since none comes twice"),
            steps=(self.steps >= 1, "at least 1"),
        )


QUICK = Knobs(longest=8, words=8, dim=48, batch=16, steps=100, rate=0.03)


def run(knobs: Knobs, each: Each) -> Finding:
    lengths = sorted({*range(2, knobs.longest, max(1, knobs.longest // 8)), knobs.longest})
    right: dict[bool, list[float]] = {}
    for attention in each([False, True]):
        model = taught(attention, knobs)
        right[attention] = [share_right(model, length, knobs) for length in lengths]
    source, target, _ = sentences(1, lengths[-1], knobs)
    with torch.no_grad(), look(model) as seen:  # the last one has attention
        model(source, target)
    weights = seen["body.cross.inner.weights"][0, 0]  # (T,S)
    table: list[dict[str, str | float]] = [
        {"words in the sentence": length, **{NAMES[attention]: right[attention][i] for attention in right}}
        for i, length in enumerate(lengths)
    ]
    short, long = lengths[0], lengths[-1]
    return Finding(
        drawn(lengths, right, weights),
        table,
        says=f"Of a sentence of {short} words, {right[False][0]:.0%} are in their places without attention and "
        f"{right[True][0]:.0%} with it; of one of {long} words, {right[False][-1]:.0%} and {right[True][-1]:.0%}.",
        wanted=f"both know short sentences; of long ones less than {LOST:.0%} comes through without attention, and at "
        f"least {GOOD:.0%} with it",
        holds=min(right[False][0], right[True][0], right[True][-1]) >= GOOD and right[False][-1] < LOST,
    )


def sentences(count: int, length: int, knobs: Knobs) -> tuple[Tensor, Tensor, Tensor]:
    """Source (B,S), what the decoder is given (B,T), and what it should say: the words backwards, then an end."""
    source = torch.rand(count, knobs.words).argsort(1)[:, :length]
    end, start = (torch.full((count, 1), knobs.words + i) for i in (0, 1))
    return source, torch.cat((start, source.flip(1)), 1), torch.cat((source.flip(1), end), 1)


def taught(attention: bool, knobs: Knobs) -> Model:
    torch.manual_seed(knobs.seed)
    vocab = knobs.words + 2  # with the end, and the padding, which is also the start
    body = Seq2Seq(RecurrentConfig(vocab, dim=knobs.dim, layers=knobs.layers, attention=attention, dropout=0.0))
    model = Model(body, body.vocabulary())
    learners = optimizers(model, weight_decay=0.0, kind="muon")
    for step in range(knobs.steps):
        for group in (group for learner in learners for group in learner.param_groups):
            group["lr"] = knobs.rate * decay(step, knobs.steps, warmup=knobs.steps // 20, share=0.5)
        length = int(torch.randint(1, knobs.longest + 1, ()))
        source, target, wanted = sentences(knobs.batch, length, knobs)
        model.head.loss(model.body(source, target).flatten(0, 1), wanted.flatten()).backward()
        scale_and_clip(list(model.parameters()), wanted.numel(), clip=1.0)
        for learner in learners:
            learner.step()
        model.zero_grad()
    return model


@torch.inference_mode()
def share_right(model: Model, length: int, knobs: Knobs) -> float:
    """Of the words in their places, when it writes by itself."""
    source, target, wanted = sentences(TESTED, length, knobs)
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


def drawn(lengths: list[int], right: dict[bool, list[float]], weights: Tensor) -> Figure:
    figure, (left, picture) = drawing(2)
    for attention, shares in right.items():
        left.plot(lengths, shares, STYLES[attention], label=NAMES[attention])
    left.set_ylim(0, 1.05)
    left.set_xlabel("words in the sentence")
    left.set_ylabel("share of words in their places")
    left.legend(frameon=False)
    shades = picture.imshow(weights.numpy(), cmap="Greys", vmin=0, vmax=1)
    picture.set_xlabel("word that was read")
    picture.set_ylabel("word that is written")
    figure.colorbar(shades, ax=picture, label="attention")
    return figure
