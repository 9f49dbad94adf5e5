"""beam: the best first word need not begin the best text.

    greedy   the most probable next word, always          beam   the K most probable beginnings, side by side
    P(text) = Π P(word | words before it)                 truth  the largest P of all texts, by trying each

Claim (deck R, "Transformer: Inference Strategies"): greedy is easy; beam search keeps a tree of beginnings, explores
more, and selects the text of the highest joint probability. First in nine texts whose probabilities are written down,
then in random languages, where a wider beam misses less, and promises nothing before it is as wide as the tree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import count

import torch
from matplotlib.axes import Axes
from torch import Tensor

from regard.choose import must
from regard.lab.result import Each, Finding, at_least, curves, drawing, rows
from regard.lab.tabular_lm import NEVER, languages, search, search_tree, written_down
from regard.view.beam_tree import BeamTree

TEXTS = {
    "time flies by": 0.11, "time flies home": 0.09, "time heals all": 0.08, "time heals us": 0.07,
    "time will tell": 0.15, "fruit flies buzz": 0.30, "fruit flies bite": 0.06, "fruit is sweet": 0.04,
    "sand runs out": 0.10,
}  # fmt: skip
SAME = 1 - 1e-4  # of the best probability: it is the best, but for float error
LINES = {"beam": "C0-", "greedy": "C1--", "kept": "k-", "pruned": "C7:"}
WIDE = {"beam": 4.0, "greedy": 2.0, "kept": 1.5, "pruned": 1.5}
STYLES = {"the best of all texts is found": "k-o", "P found / P best, mean": "C0--s"}


@dataclass(frozen=True)
class Knobs:
    beam: int = 2  # beginnings kept side by side in the tree that is drawn
    languages: int = 400  # random ones, in which the best text is known by trying all
    words: int = 4  # that a random language has
    length: int = 4  # words of each of its texts
    sharpness: float = 1.0  # spread of the log-probabilities of a next word
    seed: int = 1  # of the random languages

    def __post_init__(self) -> None:
        at_least(1, self, "languages")
        at_least(2, self, "beam", "words", "length")
        must(self, length=(self.words**self.length <= 10_000, f"shorter, for {self.words} words make too many texts"))


QUICK = Knobs(languages=60, length=3)


def run(knobs: Knobs, each: Each) -> Finding:
    names, joint = written_down(TEXTS)
    greedy, P_greedy = answer(joint, names, 1)
    beam, P_beam = answer(joint, names, knobs.beam)
    best, P_best = max(TEXTS.items(), key=lambda pair: pair[1])

    random = languages(knobs.languages, knobs.words, knobs.length, knobs.sharpness, knobs.seed)
    widths = [2**n for n in range((knobs.words ** (knobs.length - 1) - 1).bit_length() + 1)]  # the last holds all
    found = torch.stack([search(random, width)[1] for width in each(widths)])  # (widths,B)
    shares = found / random.flatten(1).amax(1)  # 1 where it is the best
    hits = (shares > SAME).double().mean(1).tolist()
    worse = int((found[1] < found[0] * SAME).sum())

    figure, (left, right) = drawing(2, 4.4)
    draw_tree(left, search_tree(joint, knobs.beam), names, greedy.split())
    seen = dict(zip(STYLES, (hits, shares.mean(1).tolist()), strict=True))
    curves(right, widths, seen, STYLES, xscale="log", ylim=(0, 1.05), xlabel="beam width (1 is greedy)")
    right.set(ylabel="share", title=f"{knobs.languages} random languages")
    right.legend(frameon=False, loc="lower right")
    searches = ("greedy", f"beam {knobs.beam}", "all texts")
    return Finding(
        figure,
        rows({"search": searches, "text": (greedy, beam, best), "P": (P_greedy, P_beam, P_best)}),
        says=f'Greedy takes the best first word and ends at "{greedy}" with P = {P_greedy:.2f}; a beam of {knobs.beam} '
        f'keeps the second best too and finds "{beam}" with P = {P_beam:.2f}, where the best of all texts has '
        f"{P_best:.2f}. In {knobs.languages} random languages greedy finds the best text in "
        f"{hits[0]:.0%}, a beam of 2 in {hits[1]:.0%} (and in {worse} it finds a worse one than greedy), a beam of "
        f"{widths[-1]}, which holds every beginning, in {hits[-1]:.0%}.",
        wanted="beam search finds a more probable text than greedy, the best there is; and finds it more often when "
        "the beam is wider, always when it holds every beginning",
        holds=P_greedy < P_beam == P_best and hits[0] < hits[1] <= hits[-1] == 1,
    )


def answer(joint: Tensor, names: list[str], width: int) -> tuple[str, float]:
    """What a beam of this width finds in the one language, and its probability."""
    [ids], chances = search(joint, width)
    return " ".join(names[i] for i in ids), round(float(chances), 4)


def draw_tree(axes: Axes, tree: BeamTree, names: list[str], greedy: list[str]) -> None:
    """The beginnings that the beam looked at, the more probable above, and which of them it pruned."""
    texts = {
        place: [names[i] for i in tree.tokens(place)]
        for place, node in enumerate(tree.nodes)
        if node.token < len(names) and node.logp > math.log(NEVER) / 2
    }
    answers = {"beam": texts[tree.nodes[tree.leaves[0]].parent or 0], "greedy": greedy}
    row = count()

    def draw(place: int) -> float:
        """The height of a beginning: in the middle of all that goes on from it."""
        node, text = tree.nodes[place], texts[place]
        longer = {later: draw(later) for later in texts if tree.nodes[later].parent == place}
        height = sum(longer.values()) / len(longer) if longer else -next(row)
        for later, at in longer.items():
            on = [name for name, answer in answers.items() if answer[: node.length + 1] == texts[later]]
            for name in on or ["kept" if tree.nodes[later].is_alive else "pruned"]:
                axes.plot([node.length, node.length + 1], [height, at], LINES[name], linewidth=WIDE[name])
        told = f"{text[-1]}\n{math.exp(node.logp):.2f}" if text else "start"
        axes.plot(node.length, height, "s", color="white", markersize=26, zorder=3)
        colour = "black" if node.is_alive else "grey"
        axes.text(node.length, height, told, ha="center", va="center", color=colour, fontsize=9, zorder=4)
        return height

    draw(0)
    for name in ("beam", "greedy", "pruned"):
        axes.plot([], [], LINES[name], linewidth=WIDE[name], label=name)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=3, frameon=False)
    axes.axis("off")
    axes.set_title("P of each beginning")
