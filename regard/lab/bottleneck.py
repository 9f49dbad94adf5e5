"""bottleneck: how much of a sentence fits through one vector?

    without attention    x₁ … x_S → one state → y₁ … y_T
    with attention       the same, and every y attends to all x

Claim (deck R, "Limitations of Recurrent Models": encoding bottleneck; deck T, "Common Architectures", and "Attention is
all you need"): an encoder-decoder without attention passes on its last state only. The longer the sentence, the more
of it is lost. If the decoder attends to all encoder states, little is lost.

Two recurrent translators (`Seq2Seq`) that differ only in attention learn to reverse a sentence, on the same batches,
and then decode. No word occurs twice in a sentence, and any word may follow any other: there is no grammar to exploit.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from torch import Tensor

from regard.generate import generate
from regard.generation_config import GenerationOptions
from regard.lab.optimize import lr_schedule, optimize
from regard.lab.result import LabResult, Tracker, plot_curves, subplots, table_rows
from regard.lab.synthetic_data import reversal_batch
from regard.look import look
from regard.models.recurrent import RecurrentConfig
from regard.models.seq2seq import Seq2Seq
from regard.parts.heads import Model
from regard.validate import check_fields, check_minimum

MIN_ACCURACY, MAX_ACCURACY = 0.9, 0.6  # token accuracy: at least with attention, below without
TEST_SENTENCES = 128  # per length
STYLES = {"without attention": "k-o", "with attention": "C1-s"}


@dataclass(frozen=True)
class BottleneckOptions:
    longest: int = 16  # maximum sentence length in words
    words: int = 24  # vocabulary size
    dim: int = 32  # width of embeddings and states
    layers: int = 1  # layers of the encoder and of the decoder
    batch: int = 32  # sentences per batch, all of one length
    steps: int = 600  # training steps
    lr: float = 0.02  # peak learning rate
    seed: int = 1  # random seed

    def __post_init__(self) -> None:
        check_minimum(self, 1, "steps")
        check_minimum(self, 4, "longest")
        check_fields(self, words=(self.words >= self.longest, "at least longest, since no word repeats"))


QUICK = BottleneckOptions(longest=8, words=8, dim=48, batch=16, steps=100, lr=0.03)


def run(options: BottleneckOptions, track: Tracker) -> LabResult:
    lengths = sorted({*range(2, options.longest, max(1, options.longest // 8)), options.longest})
    accuracy: dict[str, list[float]] = {}
    for name in track(list(STYLES)):
        model = train_model(name == "with attention", options)
        accuracy[name] = [token_accuracy(model, length, options) for length in lengths]
    source, target, _ = reversal_batch(1, lengths[-1], options.words)
    with torch.no_grad(), look(model) as activations:  # the last model has attention
        model(source, target)
    no_attention, with_attention = accuracy.values()
    return LabResult(
        plot(lengths, accuracy, activations["body.cross.inner.weights"][0, 0]),
        table_rows({"words in the sentence": lengths, **accuracy}),
        summary=f"Accuracy on sentences of {lengths[0]} words: {no_attention[0]:.0%} without attention and "
        f"{with_attention[0]:.0%} with it; on {lengths[-1]} words, {no_attention[-1]:.0%} and "
        f"{with_attention[-1]:.0%}.",
        expected=f"both models reverse short sentences; on long ones the accuracy is below {MAX_ACCURACY:.0%} "
        f"without attention and at least {MIN_ACCURACY:.0%} with it",
        holds=min(no_attention[0], with_attention[0], with_attention[-1]) >= MIN_ACCURACY
        and no_attention[-1] < MAX_ACCURACY,
    )


def train_model(attention: bool, options: BottleneckOptions) -> Model:
    torch.manual_seed(options.seed)
    vocab = options.words + 2  # with the end token, and padding, which is also the start token
    body = Seq2Seq(RecurrentConfig(vocab, dim=options.dim, layers=options.layers, attention=attention, dropout=0.0))
    model = Model(body, body.lm_head())
    torch.manual_seed(options.seed)  # the same batches for both models

    def batch_loss() -> Tensor:
        source, target, labels = reversal_batch(
            options.batch, int(torch.randint(1, options.longest + 1, ())), options.words
        )
        return model.head.loss(model.body(source, target).flatten(0, 1), labels.flatten()) / labels.numel()

    optimize(model, batch_loss, lr_schedule(options.lr, options.steps), grad_clip=1.0)
    return model


@torch.inference_mode()
def token_accuracy(model: Model, length: int, options: BottleneckOptions) -> float:
    """Share of correct words in greedy decoding."""
    source, target, labels = reversal_batch(TEST_SENTENCES, length, options.words)
    hypotheses = generate(
        lambda ids, caches: model.head(model.body.decode(ids, cache=caches))[:, -1],
        model.body.decoder_caches(source),
        start=target[:, 0],
        end=options.words,
        limits=torch.full((TEST_SENTENCES,), length),
        options=GenerationOptions(num_beams=1, min_new_tokens=length),
        numbers=torch.arange(TEST_SENTENCES),
    )
    ids = torch.tensor([best[0].ids for best in hypotheses])
    return float((ids == labels[:, :-1]).float().mean())


def plot(lengths: list[int], accuracy: dict[str, list[float]], weights: Tensor) -> Figure:
    figure, (left, right) = subplots(2)
    plot_curves(left, lengths, accuracy, STYLES, xlabel="words in the sentence", ylabel="token accuracy")
    left.set_ylim(0, 1.05)
    left.legend(frameon=False)
    image = right.imshow(weights.numpy(), cmap="Greys", vmin=0, vmax=1)
    right.set(xlabel="source word", ylabel="target word")
    figure.colorbar(image, ax=right, label="attention")
    return figure
