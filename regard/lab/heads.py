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
from itertools import combinations, product

import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from torch import Tensor

from regard.choose import must
from regard.lab.finding import Each, Finding, drawing
from regard.look import Change, look, without
from regard.models.bert import Bert, BertConfig
from regard.parts.heads import Model
from regard.training.optimizer import optimizers
from regard.training.schedule import decay

SENTENCE = ["time", "flies", "like", "an", "arrow"]  # never learnt from
SUBJECTS = {
    "time": "arrow river", "hope": "anchor candle", "anger": "ember storm", "love": "apple rose",
    "years": "eagle wheel", "words": "axe seed", "tears": "ocean pearl", "stars": "eye lamp",
}  # fmt: skip
VERBS = "flies fly", "comes come", "falls fall", "grows grow"
PLACES = ["island", "abyss", "hill", "bridge"]
ADJECTIVES = ["old", "empty", "golden", "silent"]
KINDS = {
    "subject": [*SUBJECTS], "verb": " ".join(VERBS).split(), "link": ["like", "over"], "article": ["a", "an"],
    "adjective": ADJECTIVES, "noun": [*" ".join(SUBJECTS.values()).split(), *PLACES],
}  # fmt: skip
WORDS = ["", "?", *(word for words in KINDS.values() for word in words)]
NONE, HIDDEN = 0, 1
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


QUICK = Knobs(dim=32, steps=120, asked=60)


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
    total = costs.mean(1)
    kinds = [[WORDS[i] in words for i in ids[range(len(at)), at].tolist()] for words in KINDS.values()]
    of_kind = torch.stack([costs[:, kind].mean(1) for kind in torch.tensor(kinds)], 1)  # (H,kinds)
    away = torch.arange(ids.size(1)) - at[:, None]  # (N,T)
    shared = [torch.minimum(weights[:, a], weights[:, b]).sum(-1).mean().item() for a, b in combinations(heads, 2)]
    overlap, order = sum(shared) / len(shared), total.argsort().tolist()
    together = [(guess(model, ids, at, without(*order[:n]))[0] - loss).mean().item() for n in range(1, knobs.heads)]

    def share(head: int, where: Tensor) -> float:
        return round((weights[:, head] * where).sum(-1).mean().item(), 2)

    table: list[dict[str, str | float]] = [
        {
            "head": head + 1,
            "distance": share(head, away.abs()),
            "entropy": round(torch.special.entr(weights[:, head]).sum(-1).mean().item(), 2),
            "first": share(head, away == -at[:, None]),
            "previous": share(head, away == -1),
            "same": share(head, away == 0),
            "next": share(head, away == 1),
            "cost": round(total[head].item(), 2) or 0.0,
            "worst for": [*KINDS][int(of_kind[head].argmax())] if total[head] > 0.01 else "nothing",
        }
        for head in heads
    ]
    figure, (left, right) = drawing(2, height=3.8)
    numbers(left, weights[SENTENCE.index("like"), :, : len(SENTENCE)], SENTENCE, 'where the hidden "like" looks')
    numbers(right, torch.cat((total[:, None], of_kind), 1), ["all words", *KINDS], "cost of its removal, nats a word")
    dearest, cheapest = total.max().item(), total.min().item()
    free = sum(cost < dearest for cost in together)
    says = (
        f"Two heads share {overlap:.0%} of their attention. To lose head {order[-1] + 1} costs {dearest:.2f} nats a "
        f"word, most of all for the {table[order[-1]]['worst for']}; to lose head {order[0] + 1} costs "
        f"{abs(cheapest):.2f}. Taken out one after the other, the cheapest first, {free} of {knobs.heads} heads can go "
        f"for less than that one alone."
    )
    return Finding(
        figure,
        table,
        says,
        wanted="heads look at different words: two share less than half of their attention; and not all are needed: "
        "the cheapest to remove costs less than a quarter of the dearest, which costs at least 0.1 nats a word",
        holds=overlap < 0.5 and dearest >= 0.1 and cheapest < dearest / 4,
    )


def language() -> Tensor:
    """(N,T) ids of every sentence, the lecture's first.

    [adjective] subject verb like a(n) [adjective] image, or [adjective] subject verb over a(n) [adjective] place.
    """
    made, adjectives = [], ["", *ADJECTIVES]
    for (subject, images), verbs, first, second in product(SUBJECTS.items(), VERBS, adjectives, adjectives):
        verb = verbs.split()[subject.endswith("s")]
        for link, noun in [*product(["like"], images.split()), *product(["over"], PLACES)]:
            article = "an" if f"{second}{noun}"[0] in "aeiou" else "a"
            made.append(f"{first} {subject} {verb} {link} {article} {second} {noun}".split())
    made.sort(key=lambda sentence: sentence != SENTENCE)
    return torch.tensor([[WORDS.index(word) for word in one] + [NONE] * (7 - len(one)) for one in made])


def trained(sentences: Tensor, knobs: Knobs, each: Each) -> Model:
    body = Bert(BertConfig(len(WORDS), 7, knobs.dim, 1, knobs.heads, 2 * knobs.dim, dropout=0.0))
    model = Model(body, body.vocabulary())
    makers = optimizers(model, weight_decay=0.01, kind="muon")
    for step in each(range(knobs.steps)):
        for group in (group for maker in makers for group in maker.param_groups):
            group["lr"] = 0.64 / knobs.dim * decay(step, knobs.steps, knobs.steps // 10, 0.6)
        ids = sentences[torch.randint(len(sentences), (64,))]
        at = (torch.rand(64) * (ids != NONE).sum(1)).long()
        answers(model, ids, at).mean().backward()
        for maker in makers:
            maker.step()
        model.zero_grad()
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


def numbers(axes: Axes, table: Tensor, columns: list[str], title: str) -> None:
    most = table.max().item()
    axes.imshow(table.numpy(), cmap="Blues", aspect="auto", vmin=0, vmax=most)
    for row, column in product(*map(range, table.shape)):
        value = round(table[row, column].item(), 2) or 0.0  # no -0.00
        colour = "white" if value > 0.6 * most else "black"
        axes.text(column, row, f"{value:.2f}", ha="center", va="center", color=colour, fontsize=8)
    axes.set_xticks(range(len(columns)), columns, rotation=30, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(table)), [f"head {row + 1}" for row in range(len(table))])
    axes.set_title(title)
