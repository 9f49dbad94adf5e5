"""heads: which words should "like" attend to, and are all heads needed?

    output = [softmax(Q₁K₁ᵀ/√E) V₁, ..., softmax(Q_H K_Hᵀ/√E) V_H] W_O          ablation of a head: its weights become 0

Claim (deck N, "Multi-head attention: motivation"; deck R, "Encoder"): a word plays several roles in "Time flies like an
arrow", so one head is not enough, and each head attends to other words. Deck T, "Multi Head Attention and Self
Attention", asks whether all are needed. Here one layer learns to predict a masked word of a toy language: an article
depends on the next word, a verb on its subject, "like" on the noun. Then each head is ablated (Michel et al. 2019).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor

from regard.lab.optimize import lr_schedule, optimize
from regard.lab.result import LabResult, Tracker, plot_table, subplots, table_rows
from regard.lab.synthetic_data import CATEGORIES, MASK, PAD, SENTENCE, WORDS, all_sentences, category_masks
from regard.look import Change, ablate_heads, look
from regard.models.bert import Bert, BertConfig
from regard.parts.heads import Model
from regard.validate import check_fields

WEIGHTS = "body.blocks.0.mixer.inner.weights"


@dataclass(frozen=True)
class HeadsOptions:
    heads: int = 8  # attention heads of the one layer
    dim: int = 64  # width of the residual stream
    steps: int = 600  # training steps of 64 masked words
    sentences: int = 200  # size of the test set; each of its words is masked once
    seed: int = 1  # random seed

    def __post_init__(self) -> None:
        check_fields(self, heads=(self.heads >= 2, "at least 2"))
        check_fields(self, sentences=(20 <= self.sentences <= 2000, "20 to 2000"))


QUICK = HeadsOptions(dim=32, steps=160, sentences=60)


def run(options: HeadsOptions, track: Tracker) -> LabResult:
    torch.manual_seed(options.seed)
    sentences = all_sentences()
    others = sentences[1:][torch.randperm(len(sentences) - 1)]
    model = train(others[options.sentences :], options, track)
    test_ids = torch.cat((sentences[:1], others[: options.sentences]))
    row, at = (test_ids != PAD).nonzero().T  # every word of every sentence
    ids, heads = test_ids[row], range(options.heads)
    loss, weights = predict(model, ids, at)
    costs = torch.stack([predict(model, ids, at, ablate_heads(head))[0] - loss for head in heads])  # (H,N)
    masks = category_masks(ids[range(len(at)), at])
    by_category = torch.stack([costs[:, mask].mean(1) for mask in masks], 1)  # (H,categories)
    total = costs.mean(1)
    order, (lowest, highest) = total.argsort().tolist(), total.aminmax()
    joint_costs = [(predict(model, ids, at, ablate_heads(*order[:n]))[0] - loss).mean() for n in heads[1:]]
    removable = sum(bool(cost < highest) for cost in joint_costs)
    shared = torch.minimum(weights[:, :, None], weights[:, None]).sum(-1).mean(0)  # (H,H)
    overlap = shared[~torch.eye(options.heads, dtype=torch.bool)].mean()
    worst = [[*CATEGORIES][int(cost.argmax())] for cost in by_category]
    return LabResult(
        plot(weights[SENTENCE.index("like"), :, : len(SENTENCE)], torch.cat((total[:, None], by_category), 1)),
        table_rows(
            {"head": [head + 1 for head in heads], **attention_stats(weights, at), "cost": map(round2, total)},
            {"most for": [worst[head] if total[head] > 0.01 else "nothing" for head in heads]},
        ),
        summary=f"Two heads share {overlap:.0%} of their attention. Ablating head {order[-1] + 1} costs "
        f"{highest:.2f} nats a word, most for the {worst[order[-1]]}; ablating head {order[0] + 1} "
        f"{round2(lowest):.2f}. Ablated together, the cheapest first, {removable} of {options.heads} cost less than "
        "that head alone.",
        expected="heads attend to different words: two share less than half of their attention; and not all are "
        "needed: the cheapest ablation costs less than a quarter of the most expensive, which costs at least 0.1 "
        "nats a word",
        holds=bool(overlap < 0.5 and highest >= 0.1 and lowest < highest / 4),
    )


def attention_stats(weights: Tensor, at: Tensor) -> dict[str, list[float]]:
    """By head: mean distance and entropy of attention, and its share on four positions. Weights are (N,H,T)."""
    key, at = torch.arange(weights.size(-1)), at[:, None, None]
    shares = {"first": key == 0, "previous": key == at - 1, "same": key == at, "next": key == at + 1}
    measures = {"distance": weights * (key - at).abs(), "entropy": torch.special.entr(weights)}
    measures |= {name: weights * mask for name, mask in shares.items()}
    return {name: [round2(head) for head in values.sum(-1).mean(0)] for name, values in measures.items()}


def round2(number: Tensor) -> float:
    return round(number.item(), 2) or 0.0  # no -0.00


def train(sentences: Tensor, options: HeadsOptions, track: Tracker) -> Model:
    body = Bert(BertConfig(len(WORDS), 7, options.dim, 1, options.heads, 2 * options.dim, dropout=0.0))
    model = Model(body, body.lm_head())

    def batch_loss() -> Tensor:
        ids = sentences[torch.randint(len(sentences), (64,))]
        return masked_losses(model, ids, (torch.rand(64) * (ids != PAD).sum(1)).long()).mean()

    optimize(model, batch_loss, track(lr_schedule(0.64 / options.dim, options.steps)))
    return model


def masked_losses(model: Model, ids: Tensor, at: Tensor) -> Tensor:
    """(N,): - log P of the word at position `at` of each row, which is masked."""
    x = model.body(ids.scatter(1, at[:, None], MASK), (ids != PAD)[:, None, None])  # (N,T,D)
    return F.cross_entropy(model.head(x[range(len(at)), at]), ids[range(len(at)), at], reduction="none")


@torch.no_grad()
def predict(model: Model, ids: Tensor, at: Tensor, change: Change | None = None) -> tuple[Tensor, Tensor]:
    """The loss of each prediction (N,), and its attention weights (N,H,T)."""
    with look(model, {WEIGHTS: change} if change else None) as activations:
        loss = masked_losses(model, ids, at)
    return loss, activations[WEIGHTS][range(len(at)), :, at]


def plot(weights: Tensor, costs: Tensor) -> Figure:
    figure, (left, right) = subplots(2, 3.8)
    names = [f"head {head + 1}" for head in range(len(weights))]
    plot_table(left, weights, 1.0, names, SENTENCE, 'attention of the masked "like"')
    plot_table(right, costs, float(costs.max()), names, ["all words", *CATEGORIES], "cost of ablation, nats per word")
    for axes in (left, right):
        axes.tick_params("x", rotation=30)
    return figure
