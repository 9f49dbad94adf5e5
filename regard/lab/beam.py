"""beam: the most probable first word need not begin the most probable text.

    greedy   the most probable next word, always          beam   the K most probable prefixes in parallel
    P(text) = Π P(word | words before it)                 truth  the largest P of all texts, by enumeration

Claim (deck R, "Transformer: Inference Strategies"): greedy is easy; beam search keeps a tree of prefixes, explores
more, and selects the text of the highest joint probability. First on nine texts with known probabilities, then on
random languages, where a wider beam misses less, and guarantees the optimum only when it is as wide as the tree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import count

import torch
from matplotlib.axes import Axes
from torch import Tensor

from regard.lab.result import LabResult, Tracker, plot_curves, subplots, table_rows
from regard.lab.synthetic_data import MIN_PROB, language_from_texts, random_languages, search, search_tree
from regard.validate import check_fields, check_minimum
from regard.view.beam_tree import BeamTree

TEXTS = {
    "time flies by": 0.11, "time flies home": 0.09, "time heals all": 0.08, "time heals us": 0.07,
    "time will tell": 0.15, "fruit flies buzz": 0.30, "fruit flies bite": 0.06, "fruit is sweet": 0.04,
    "sand runs out": 0.10,
}  # fmt: skip
MAX_TEXTS = 10_000  # of a random language: all are enumerated
SAME = 1 - 1e-4  # share of the best probability that counts as equal, given float error
LINES = {"beam": "C0-", "greedy": "C1--", "alive": "k-", "pruned": "C7:"}
LINE_WIDTHS = {"beam": 4.0, "greedy": 2.0, "alive": 1.5, "pruned": 1.5}
STYLES = {"the best of all texts is found": "k-o", "P found / P best, mean": "C0--s"}


@dataclass(frozen=True)
class BeamOptions:
    beam: int = 2  # beam width of the tree in the figure
    languages: int = 400  # number of random languages, whose best text is known by enumeration
    words: int = 4  # vocabulary size of a random language
    length: int = 4  # words per text
    sharpness: float = 1.0  # standard deviation of the logits of a next word
    seed: int = 1  # random seed

    def __post_init__(self) -> None:
        check_minimum(self, 1, "languages")
        check_minimum(self, 2, "beam", "words", "length")
        fits = self.length < MAX_TEXTS.bit_length() and self.words**self.length <= MAX_TEXTS
        check_fields(self, length=(fits, f"shorter, for {self.words} words make too many texts"))


QUICK = BeamOptions(languages=60, length=3)


def run(options: BeamOptions, track: Tracker) -> LabResult:
    names, joint = language_from_texts(TEXTS)
    greedy, P_greedy = search_text(joint, names, 1)
    beam, P_beam = search_text(joint, names, options.beam)
    best, P_best = max(TEXTS.items(), key=lambda pair: pair[1])

    random = random_languages(options.languages, options.words, options.length, options.sharpness, options.seed)
    widths = [2**n for n in range((options.words ** (options.length - 1) - 1).bit_length() + 1)]  # the last holds all
    probabilities = torch.stack([search(random, width)[1] for width in track(widths)])  # (widths,B)
    shares = probabilities / random.flatten(1).amax(1)  # 1 where the search is optimal
    hits = (shares > SAME).double().mean(1).tolist()
    worse = int((probabilities[1] < probabilities[0] * SAME).sum())

    figure, (left, right) = subplots(2, 4.4)
    draw_tree(left, search_tree(joint, options.beam), names, greedy.split())
    lines = dict(zip(STYLES, (hits, shares.mean(1).tolist()), strict=True))
    plot_curves(right, widths, lines, STYLES, xscale="log", ylim=(0, 1.05), xlabel="beam width (1 is greedy)")
    right.set(ylabel="share", title=f"{options.languages} random languages")
    right.legend(frameon=False, loc="lower right")
    searches = ("greedy", f"beam {options.beam}", "all texts")
    return LabResult(
        figure,
        table_rows({"search": searches, "text": (greedy, beam, best), "P": (P_greedy, P_beam, P_best)}),
        summary=f'Greedy search takes the best first word and ends at "{greedy}" with P = {P_greedy:.2f}; a beam of '
        f'{options.beam} keeps the second best too and finds "{beam}" with P = {P_beam:.2f}, where the best of all '
        f"texts has {P_best:.2f}. In {options.languages} random languages greedy finds the best text in "
        f"{hits[0]:.0%}, a beam of 2 in {hits[1]:.0%} (in {worse} it finds a worse text than greedy), a beam of "
        f"{widths[-1]}, which holds every prefix, in {hits[-1]:.0%}.",
        expected="beam search finds a more probable text than greedy, the best there is; and finds it more often "
        "when the beam is wider, always when it holds every prefix",
        holds=P_greedy < P_beam == P_best and hits[0] < hits[1] <= hits[-1] == 1,
    )


def search_text(joint: Tensor, names: list[str], width: int) -> tuple[str, float]:
    """The result of beam search of this width in one language, and its probability."""
    [ids], probability = search(joint, width)
    return " ".join(names[i] for i in ids), round(float(probability), 4)


def draw_tree(axes: Axes, tree: BeamTree, names: list[str], greedy: list[str]) -> None:
    """Draw the prefixes that the search scored, the more probable above, and mark pruned ones."""
    texts = {
        index: [names[i] for i in tree.tokens(index)]
        for index, node in enumerate(tree.nodes)
        if node.token < len(names) and node.logp > math.log(MIN_PROB) / 2
    }
    answers = {"beam": texts[tree.nodes[tree.leaves[0]].parent or 0], "greedy": greedy}
    leaf_rows = count()

    def draw(index: int) -> float:
        """The height of a prefix: the mean of its continuations."""
        node, text = tree.nodes[index], texts[index]
        children = {child: draw(child) for child in texts if tree.nodes[child].parent == index}
        height = sum(children.values()) / len(children) if children else -next(leaf_rows)
        for child, y in children.items():
            paths = [name for name, text_of_path in answers.items() if text_of_path[: node.length + 1] == texts[child]]
            for name in paths or ["alive" if tree.nodes[child].is_alive else "pruned"]:
                axes.plot([node.length, node.length + 1], [height, y], LINES[name], linewidth=LINE_WIDTHS[name])
        label = f"{text[-1]}\n{math.exp(node.logp):.2f}" if text else "start"
        axes.plot(node.length, height, "s", color="white", markersize=26, zorder=3)
        colour = "black" if node.is_alive else "grey"
        axes.text(node.length, height, label, ha="center", va="center", color=colour, fontsize=9, zorder=4)
        return height

    draw(0)
    for name in ("beam", "greedy", "pruned"):
        axes.plot([], [], LINES[name], linewidth=LINE_WIDTHS[name], label=name)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=3, frameon=False)
    axes.axis("off")
    axes.set_title("P of each prefix")
