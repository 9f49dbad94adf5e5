"""heads: which words should "like" attend to, and are all heads needed?

    output = [softmax(Q₁K₁ᵀ/√E) V₁, ..., softmax(Q_H K_Hᵀ/√E) V_H] W_O          a head is removed: its weights become 0

Claim (deck N, "Multi-head attention: motivation"; deck R, "Encoder"): a word plays several roles in "Time flies like an
arrow", so one attention is not enough, and each head looks at something else. Deck T, "Multi Head Attention and Self
Attention", asks whether all are needed. Here one layer learns to guess a hidden word of a small language: an article
depends on the next word, a verb on its subject, "like" on the noun. Then each head is taken out (Michel et al. 2019).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor

from regard.choose import must
from regard.lab.optimize import learn, rates
from regard.lab.result import Each, Finding, drawing, grid, rows
from regard.lab.toy_language import HIDDEN, KINDS, NONE, SENTENCE, WORDS, kinds_of, language
from regard.look import Change, ablate_heads, look
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
    sentence, at = (asked != NONE).nonzero().T  # each word of each sentence
    ids, heads = asked[sentence], range(knobs.heads)
    loss, weights = guess(model, ids, at)
    costs = torch.stack([guess(model, ids, at, ablate_heads(head))[0] - loss for head in heads])  # (H,N)
    of_kind = torch.stack([costs[:, kind].mean(1) for kind in kinds_of(ids[range(len(at)), at])], 1)  # (H,kinds)
    total = costs.mean(1)
    order, (cheapest, dearest) = total.argsort().tolist(), total.aminmax()
    together = [(guess(model, ids, at, ablate_heads(*order[:n]))[0] - loss).mean() for n in range(1, knobs.heads)]
    free = sum(bool(cost < dearest) for cost in together)
    shared = torch.minimum(weights[:, :, None], weights[:, None]).sum(-1).mean(0)  # (H,H)
    overlap = shared[~torch.eye(knobs.heads, dtype=torch.bool)].mean()
    worst = [[*KINDS][int(costly.argmax())] for costly in of_kind]
    return Finding(
        drawn(weights[SENTENCE.index("like"), :, : len(SENTENCE)], torch.cat((total[:, None], of_kind), 1)),
        rows(
            {"head": [head + 1 for head in heads], **looks(weights, at), "cost": map(rounded, total)},
            {"worst for": [worst[head] if total[head] > 0.01 else "nothing" for head in heads]},
        ),
        says=f"Two heads share {overlap:.0%} of their attention. To lose head {order[-1] + 1} costs {dearest:.2f} nats "
        f"a word, most of all for the {worst[order[-1]]}; to lose head {order[0] + 1} costs {rounded(cheapest):.2f}. "
        f"Taken out together, the cheapest first, {free} of {knobs.heads} can go for less than that one alone.",
        wanted="heads look at different words: two share less than half of their attention; and not all are needed: "
        "the cheapest to remove costs less than a quarter of the dearest, which costs at least 0.1 nats a word",
        holds=bool(overlap < 0.5 and dearest >= 0.1 and cheapest < dearest / 4),
    )


def looks(weights: Tensor, at: Tensor) -> dict[str, list[float]]:
    """By head: how far its words are, how evenly it looks, and its share for some places. Weights are (N,H,T)."""
    place, at = torch.arange(weights.size(-1)), at[:, None, None]
    shares = {"first": place == 0, "previous": place == at - 1, "same": place == at, "next": place == at + 1}
    measured = {"distance": weights * (place - at).abs(), "entropy": torch.special.entr(weights)}
    measured |= {name: weights * there for name, there in shares.items()}
    return {name: [rounded(head) for head in each.sum(-1).mean(0)] for name, each in measured.items()}


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
    grid(left, weights, 1.0, names, SENTENCE, 'where the hidden "like" looks')
    grid(right, costs, float(costs.max()), names, ["all words", *KINDS], "cost of its removal, nats a word")
    for axes in (left, right):
        axes.tick_params("x", rotation=30)
    return figure
