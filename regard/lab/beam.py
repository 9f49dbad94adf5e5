"""beam: the best first word need not begin the best text.

    greedy   the most probable next word, always          beam   the K most probable beginnings, side by side
    P(text) = Π P(word | words before it)                 truth  the largest P of all texts, by trying each

Claim (deck R, "Transformer: Inference Strategies"): greedy is easy; beam search keeps a tree of beginnings, explores
more, and selects the text of the highest joint probability. First in nine texts whose probabilities are written down
here, then in many random languages, where a wider beam costs more and misses less. It promises nothing before it is as
wide as the tree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from matplotlib.axes import Axes
from torch import Tensor

from regard.choose import must
from regard.generate import Decoding, Step, generate
from regard.lab.finding import Each, Finding, drawing
from regard.parts.cache import Cache

TEXTS = {
    "time flies by": 0.11, "time flies home": 0.09, "time heals all": 0.08, "time heals us": 0.07,
    "time will tell": 0.15, "fruit flies buzz": 0.30, "fruit flies bite": 0.06, "fruit is sweet": 0.04,
    "sand runs out": 0.10,
}  # fmt: skip
LINES: dict[str, dict[str, Any]] = {
    "beam": {"color": "tab:blue", "linestyle": "-", "linewidth": 4, "zorder": 1},
    "greedy": {"color": "tab:orange", "linestyle": "--", "linewidth": 2, "zorder": 2},
    "kept": {"color": "black", "linestyle": "-"},
    "pruned": {"color": "darkgrey", "linestyle": ":"},
}
Beginning = tuple[int, ...]


@dataclass(frozen=True)
class Knobs:
    beam: int = 2  # beginnings kept side by side in the tree that is drawn
    languages: int = 400  # random ones, in which the best text is known by trying all
    words: int = 4  # that a random language has
    length: int = 4  # words of each of its texts
    sharpness: float = 1.0  # spread of the log-probabilities of a next word
    seed: int = 1  # of the random languages

    def __post_init__(self) -> None:
        must(self, **{name: (getattr(self, name) >= 2, "at least 2") for name in ("beam", "words", "length")})
        must(self, languages=(self.languages >= 1, "at least 1"))
        must(self, length=(self.words**self.length <= 10_000, f"shorter, for {self.words} words make too many texts"))


QUICK = Knobs(languages=60, length=3)


class Found(NamedTuple):
    texts: list[Beginning]  # one for each language
    chances: Tensor  # (B,) the joint probability of each
    asked: set[Beginning]  # the beginnings whose next words were asked for


def run(knobs: Knobs, each: Each) -> Finding:
    names = sorted({word for text in TEXTS for word in text.split()})
    joint = torch.zeros(1, *[len(names)] * 3)  # (1,V,V,V): the probability of every text of three words
    for text, chance in TEXTS.items():
        joint[(0, *map(names.index, text.split()))] = chance
    greedy, beam = search(joint, 1), search(joint, knobs.beam)
    best = joint.max()

    random = languages(knobs)
    widths = [2**n for n in range((knobs.words ** (knobs.length - 1) - 1).bit_length() + 1)]  # the last holds all
    found = torch.stack([search(random, width).chances for width in each(widths)])  # (widths,B)
    shares = found / random.flatten(1).amax(1)  # 1 where it is the best
    hits = [float((share > 1 - 1e-4).double().mean()) for share in shares]
    worse = int((found[1] < found[0] * (1 - 1e-4)).sum())

    figure, (left, right) = drawing(2, height=4.4)
    draw_tree(left, joint[0], names, greedy, beam)
    right.plot(widths, [100 * hit for hit in hits], "o-", color="black", label="the best of all texts is found")
    right.plot(widths, (100 * shares.mean(1)).tolist(), "s--", color="tab:blue", label="P found / P best, mean")
    right.set_xscale("log", base=2)
    right.set_xticks(widths, [str(width) for width in widths])
    right.set_ylim(0, 105)
    right.set(xlabel="beam width (1 is greedy)", ylabel="%", title=f"{knobs.languages} random languages")
    right.legend(loc="lower right")

    def told(which: Found) -> str:
        return " ".join(names[i] for i in which.texts[0])

    table: list[dict[str, str | float]] = [
        {"search": "greedy", "text": told(greedy), "P": round(float(greedy.chances), 4)},
        {"search": f"beam {knobs.beam}", "text": told(beam), "P": round(float(beam.chances), 4)},
        {"search": "all texts", "text": max(TEXTS, key=lambda text: TEXTS[text]), "P": round(float(best), 4)},
    ]
    says = (
        f'Greedy takes the best first word and ends at "{told(greedy)}" with P = {float(greedy.chances):.2f}; a beam '
        f'of {knobs.beam} keeps the second best too and finds "{told(beam)}" with P = {float(beam.chances):.2f}, where '
        f"the best of all texts has {float(best):.2f}. In {knobs.languages} random languages greedy finds the best "
        f"text in {hits[0]:.0%}, a beam of 2 in {hits[1]:.0%} (and in {worse} it finds a worse one than greedy), a "
        f"beam of {widths[-1]}, which holds every beginning, in {hits[-1]:.0%}."
    )
    return Finding(
        figure,
        table,
        says,
        wanted="beam search finds a more probable text than greedy, the best there is; and finds it more often when "
        "the beam is wider, always when it holds every beginning",
        holds=bool(greedy.chances < beam.chances)
        and bool(torch.isclose(beam.chances, best))
        and hits[0] < hits[1] <= hits[-1] == 1,
    )


def languages(knobs: Knobs) -> Tensor:
    """(B,V,...,V): the probability of every text, a product of random ones of each next word."""
    made = torch.Generator().manual_seed(knobs.seed)
    joint = torch.ones(knobs.languages)
    for _ in range(knobs.length):
        logits = torch.randn(*joint.shape, knobs.words, generator=made) * knobs.sharpness
        joint = joint[..., None] * logits.softmax(-1)
    return joint


def search(joint: Tensor, width: int) -> Found:
    """What a beam of this width finds in each language, ranked by the joint probability alone."""
    asked: set[Beginning] = set()
    rows, end = torch.arange(len(joint)), joint.size(-1)
    memory = Cache(state=(rows, torch.zeros(len(rows), 0, dtype=torch.long)))
    limits = torch.full((len(rows),), joint.dim() - 1)
    how = Decoding(beam=width, length_penalty=0.0)
    best = [answers[0].ids for answers in generate(asking(joint, asked), [memory], rows, end, limits, how, rows)]
    chances = torch.stack([language[tuple(ids)] for language, ids in zip(joint, best, strict=True)])
    return Found([tuple(ids) for ids in best], chances, asked)


def asking(joint: Tensor, asked: set[Beginning]) -> Step:
    """A step that tells the next word by adding up all texts that begin so; after the last word comes the end, V."""
    V, longest = joint.size(-1), joint.dim() - 1

    def step(ids: Tensor, caches: list[Cache]) -> Tensor:
        (memory,) = caches
        assert memory.state is not None
        rows, texts = memory.state
        if memory.length:  # a beam that ended is asked too, and not heard: any word will do
            texts = torch.cat((texts, ids.clamp(max=V - 1)), 1)  # (rows,t)
        memory.advance((rows, texts), 1)
        asked.update(map(tuple, texts.tolist()))
        logits = torch.full((len(rows), V + 1), -torch.inf)
        if texts.size(1) == longest:
            logits[:, V] = 0.0
        else:
            chances = joint[(rows, *texts.T)].reshape(len(rows), V, -1).sum(-1)
            logits[:, :V] = chances.clamp(min=1e-30).log()  # never -inf for all, of which softmax makes nan
        return logits

    return step


def draw_tree(axes: Axes, joint: Tensor, names: list[str], greedy: Found, beam: Found) -> None:
    """The beginnings that the beam kept, the words that could follow them, and which of these were pruned."""
    rows = iter(range(joint.numel()))

    def place(text: Beginning) -> float:
        """Draw what follows a beginning, the more probable above; its own height is theirs in the middle."""
        nexts = []
        if text in beam.asked and len(text) < joint.dim():
            chances = joint[text].reshape(len(names), -1).sum(-1)
            nexts = [(*text, i) for i in chances.argsort(descending=True).tolist() if chances[i] > 0]
        heights = [place(longer) for longer in nexts]
        height = sum(heights) / len(heights) if heights else next(rows)
        for longer, at in zip(nexts, heights, strict=True):
            answers = [
                name for name, one in (("beam", beam), ("greedy", greedy)) if one.texts[0][: len(longer)] == longer
            ]
            for name in answers or ["kept" if longer in beam.asked else "pruned"]:
                axes.plot([len(text), len(longer)], [height, at], **LINES[name])
        told = f"{names[text[-1]]}\n{joint[text].sum():.2f}" if text else "start"
        colour = "black" if text in beam.asked else "grey"
        axes.plot(len(text), height, "s", color="white", markersize=26, zorder=3)
        axes.text(len(text), height, told, ha="center", va="center", color=colour, fontsize=9, zorder=4)
        return height

    place(())
    for name in ("beam", "greedy", "pruned"):
        axes.plot([], [], label=name, **LINES[name])
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=3, frameon=False)
    axes.invert_yaxis()
    axes.axis("off")
    axes.set_title("P of each beginning")
