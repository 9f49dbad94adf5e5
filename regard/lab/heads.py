"""heads: which words should "like" attend to, and are all heads needed?

    output = [softmax(Q₁K₁ᵀ/√E) V₁, ..., softmax(Q_H K_Hᵀ/√E) V_H] W_O          a head is removed: its weights become 0

Claim (deck N, "Multi-head attention: motivation"; deck R, "Encoder"): a word plays several roles in "Time flies like an
arrow", so one attention is not enough, and each head looks at something else. Deck T, "Multi Head Attention and Self
Attention", asks whether all are needed. Here one layer learns to guess a hidden word of a small language: an article
depends on the next word, a verb on its subject, "like" on the noun, the arrow on time. Then each head is taken out in
turn (Michel et al. 2019).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor

from regard.choose import must
from regard.lab.finding import Each, Finding, Row, drawing, grid
from regard.lab.grammar import HIDDEN, KINDS, NONE, SENTENCE, WORDS, language
from regard.lab.learning import learn, rates
from regard.look import Change, look, without
from regard.models.bert import Bert, BertConfig
from regard.parts.heads import Model

WEIGHTS = "body.blocks.0.mixer.inner.weights"


@dataclass(frozen=True)
class Knobs:
    heads: int = 8  # in the one layer
    dim: int = 64  # width of the residual stream
    steps: int = 600  # of training, with 64 hidden words each
    asked: int = 200  # sentences kept for the test; each of their words is hidden once
    seed: int = 1  # of everything random

    def __post_init__(self) -> None:
        must(self, heads=(self.heads >= 2, "at least 2"), asked=(20 <= self.asked <= 2000, "20 to 2000"))


QUICK = Knobs(dim=32, steps=160, asked=60)


def run(knobs: Knobs, each: Each) -> Finding:
    torch.manual_seed(knobs.seed)
    sentences = language()
    others = sentences[1:][torch.randperm(len(sentences) - 1)]
    model = trained(others[knobs.asked :], knobs, each)
    asked = torch.cat((sentences[:1], others[: knobs.asked]))
    rows, at = (asked != NONE).nonzero().T  # each word of each sentence
    ids, heads = asked[rows], range(knobs.heads)

    loss, weights = guess(model, ids, at)
    costs = torch.stack([guess(model, ids, at, without(head))[0] - loss for head in heads])  # (H,N)
    hidden = [WORDS[i] for i in ids[range(len(at)), at].tolist()]
    kinds = torch.tensor([[word in words for word in hidden] for words in KINDS.values()])  # (kinds,N)
    of_kind = torch.stack([costs[:, kind].mean(1) for kind in kinds], 1)  # (H,kinds)
    total = costs.mean(1)
    order, (cheapest, dearest) = total.argsort().tolist(), total.aminmax()
    together = [(guess(model, ids, at, without(*order[:n]))[0] - loss).mean() for n in range(1, knobs.heads)]
    free = sum(bool(cost < dearest) for cost in together)
    shared = [torch.minimum(weights[:, a], weights[:, b]).sum(-1).mean() for a, b in combinations(heads, 2)]
    overlap = sum(shared) / len(shared)
    worst = [[*KINDS][int(costly.argmax())] for costly in of_kind]
    return Finding(
        drawn(weights[SENTENCE.index("like"), :, : len(SENTENCE)], torch.cat((total[:, None], of_kind), 1)),
        [
            {
                "head": head + 1,
                **looks(weights[:, head], at),
                "cost": rounded(total[head]),
                "worst for": worst[head] if total[head] > 0.01 else "nothing",
            }
            for head in heads
        ],
        says=f"Two heads share {overlap:.0%} of their attention. To lose head {order[-1] + 1} costs {dearest:.2f} nats "
        f"a word, most of all for the {worst[order[-1]]}; to lose head {order[0] + 1} costs {rounded(cheapest):.2f}. "
        f"Taken out one after the other, the cheapest first, {free} of {knobs.heads} heads can go for less than that "
        f"one alone.",
        wanted="heads look at different words: two share less than half of their attention; and not all are needed: "
        "the cheapest to remove costs less than a quarter of the dearest, which costs at least 0.1 nats a word",
        holds=bool(overlap < 0.5 and dearest >= 0.1 and cheapest < dearest / 4),
    )


def looks(weights: Tensor, at: Tensor) -> Row:
    """Of one head: how far its words are, how evenly it looks, and its share for some places. Weights are (N,T)."""
    away = torch.arange(weights.size(1)) - at[:, None]  # (N,T)
    measured = {
        "distance": weights * away.abs(),
        "entropy": torch.special.entr(weights),
        "first": weights * (away == -at[:, None]),
        **{name: weights * (away == step) for name, step in (("previous", -1), ("same", 0), ("next", 1))},
    }
    return {name: rounded(each.sum(-1).mean()) for name, each in measured.items()}


def rounded(number: Tensor) -> float:
    return round(number.item(), 2) or 0.0  # no -0.00


def trained(sentences: Tensor, knobs: Knobs, each: Each) -> Model:
    body = Bert(BertConfig(len(WORDS), 7, knobs.dim, 1, knobs.heads, 2 * knobs.dim, dropout=0.0))
    model = Model(body, body.vocabulary())

    def lesson() -> Tensor:
        ids = sentences[torch.randint(len(sentences), (64,))]
        return answers(model, ids, (torch.rand(64) * (ids != NONE).sum(1)).long()).mean()

    learn(model, lesson, each(rates(0.64 / knobs.dim, knobs.steps)))
    return model


def answers(model: Model, ids: Tensor, at: Tensor) -> Tensor:
    """(N,): - log P of the word of each row that stands there, hidden."""
    x = model.body(ids.scatter(1, at[:, None], HIDDEN), (ids != NONE)[:, None, None])  # (N,T,D)
    return F.cross_entropy(model.head(x[range(len(at)), at]), ids[range(len(at)), at], reduction="none")


@torch.no_grad()
def guess(model: Model, ids: Tensor, at: Tensor, change: Change | None = None) -> tuple[Tensor, Tensor]:
    """The loss of each guess (N,), and where it looked (N,H,T)."""
    with look(model, {WEIGHTS: change} if change else None) as seen:
        loss = answers(model, ids, at)
    return loss, seen[WEIGHTS][range(len(at)), :, at]


def drawn(weights: Tensor, costs: Tensor) -> Figure:
    figure, (left, right) = drawing(2, 3.8)
    names = [f"head {head + 1}" for head in range(len(weights))]
    for axes, table, most, columns, title in (
        (left, weights, 1.0, SENTENCE, 'where the hidden "like" looks'),
        (right, costs, float(costs.max()), ["all words", *KINDS], "cost of its removal, nats a word"),
    ):
        told = [[f"{rounded(number):.2f}" for number in row] for row in table]
        grid(axes, table, most, told, names, columns)
        axes.tick_params("x", rotation=30)
        axes.set_title(title)
    return figure
