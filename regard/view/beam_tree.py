"""Beam search as a tree: every beginning that was looked at, and what became of it.

    log P(y_1 … y_t) = log P(y_1 … y_t-1) + log P(y_t | y_1 … y_t-1)          of all these, the best `beam` go on

It is `beam_search` of generate.py spelled out for one input; a test holds their answers equal.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.data.sentences import split_sentences
from regard.generate import Decoding, Hypothesis, Step, allowed, finished
from regard.load import Loaded
from regard.parts.cache import Cache, select
from regard.parts.heads import Model
from regard.tasks.translate import Translate


class Node(NamedTuple):
    """A beginning, by its last token."""

    parent: int | None  # the place of what it goes on from; none of the first
    token: int
    logp: float  # joint log-probability of all tokens so far
    time: int  # how many tokens that are
    kept: bool  # the search goes on from here
    ended: bool  # it is an answer; if it is neither, it was pruned


class Tree(NamedTuple):
    nodes: list[Node]  # parents stand before children
    ends: list[int]  # places of the answers, best first
    answers: list[Hypothesis]  # the same

    def pieces(self, place: int) -> list[int]:
        """All tokens from the first to this one, without the start."""
        node = self.nodes[place]
        return [] if node.parent is None else [*self.pieces(node.parent), node.token]


@torch.inference_mode()
def beam_tree(step: Step, caches: list[Cache], start: Tensor, end: int, limit: int, how: Decoding) -> Tree:
    """`start` (1,) is the first id, `limit` the most tokens of an answer without </s>. Twice as many continuations as
    the beam is wide are looked at each time: as no more than half of them can end, the others are enough to go on."""
    tree = Tree([Node(None, int(start), 0.0, 0, kept=True, ended=False)], [], [])
    going, time = [0], 0
    while going and len(tree.ends) < how.beam:
        time += 1
        newest = start.new_tensor([[tree.nodes[place].token] for place in going])  # (K,1)
        logprobs = step(newest, caches).float().log_softmax(-1)
        logprobs = allowed(logprobs, time, end, [limit] * len(going), how)
        logp = logprobs.new_tensor([[tree.nodes[place].logp] for place in going])
        joint = (logp + logprobs).flatten()  # (K·V,)
        best = joint.topk(min(2 * how.beam, int(joint.isfinite().sum())))
        before, going = going, []
        rows: list[int] = []
        for rank, (value, where) in enumerate(zip(best.values.tolist(), best.indices.tolist(), strict=True)):
            row, token = divmod(where, logprobs.size(1))
            kept = token != end and len(going) < how.beam
            ended = token == end and rank < how.beam
            if kept:
                going, rows = [*going, len(tree.nodes)], [*rows, row]
            if ended:
                tree.ends.append(len(tree.nodes))
            tree.nodes.append(Node(before[row], token, value, time, kept, ended))
        select(caches, start.new_tensor(rows))
    found = {place: finished(tree.pieces(place)[:-1], tree.nodes[place].logp, how) for place in tree.ends}
    ends = sorted(found, key=lambda place: -found[place].score)
    return Tree(tree.nodes, ends, [found[place] for place in ends])


def translation_tree(task: Translate, model: Model, sentence: str, how: Decoding) -> Tree:
    """What a translator looks at on its way to an answer."""
    [ids] = task.encode([sentence])
    source = torch.tensor([ids], device=next(model.parameters()).device)
    limit = how.longest or max(2 * len(ids) + 10, how.shortest)

    def step(ids: Tensor, caches: list[Cache]) -> Tensor:
        logits = model.head(model.body.decode(ids, cache=caches)[:, -1])
        logits[:, task.tokenizer.pad] = -math.inf
        return logits

    with torch.inference_mode():
        caches = model.body.read(source, torch.ones_like(source, dtype=torch.bool)[:, None, None])
    most = model.body.config.context - 1
    return beam_tree(step, caches, source.new_tensor([task.first]), task.tokenizer.end, min(limit, most), how)


def beam_tab(loaded: Loaded, text: str, target: str | None = None) -> dict[str, Any] | None:
    """Of a translator; a text that is translated sentence by sentence shows its first one."""
    task, model = loaded.task, loaded.model
    if not isinstance(task, Translate):
        return None
    context = model.body.config.context
    if len(task.encode([text])[0]) > (task.seen or context // 2):
        text = split_sentences(text)[0]
    if len(task.encode([text])[0]) > context:
        return None
    how = Decoding()
    tree = translation_tree(task, model, text, how)
    pieces = ["start", *task.tokenizer.pieces([node.token for node in tree.nodes[1:]])]
    texts = task.tokenizer.decode([answer.ids for answer in tree.answers])
    return {
        "kind": "beam",
        "title": "Beam search",
        "says": f"At each step the {how.beam} most probable beginnings go on, and the others are cut off. A longer "
        "answer is less probable: move the length penalty and see which one would win.",
        "nodes": [
            {
                "id": place,
                "parent": node.parent,
                "piece": piece,
                "logp": round(node.logp, 5),
                "time": node.time,
                "kept": node.kept or node.ended,
                "ended": node.ended,
            }
            for place, (node, piece) in enumerate(zip(tree.nodes, pieces, strict=True))
        ],
        "answers": [
            {"node": place, "text": said, "logp": round(answer.logp, 5), "length": len(answer.ids) + 1}
            for place, said, answer in zip(tree.ends, texts, tree.answers, strict=True)
        ],
        "penalty": how.length_penalty,
    }
