"""Beam search as a tree: every hypothesis that the search scored, and whether it was expanded, finished or pruned.

    log P(y_1 … y_t) = log P(y_1 … y_t-1) + log P(y_t | y_1 … y_t-1)          the `beam` best hypotheses are expanded

It is `BeamSearch` of decode_batch.py for one input, spelled out; a test holds their hypotheses equal.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.data.batches import to_device
from regard.decode_request import FinishReason, Hypothesis, score_hypothesis
from regard.generate import Step
from regard.generation_config import GenerationOptions
from regard.loaded_model import LoadedModel
from regard.parts.cache import Cache, select
from regard.parts.heads import Model
from regard.sampling import ending_state, limit_length
from regard.tasks.translate import Translate
from regard.view.page import Tab
from regard.view.trace import START, is_translator


class BeamNode(NamedTuple):
    """A hypothesis, by its last token."""

    parent: int | None  # index of the node that it extends; None for the root
    token: int
    logp: float  # joint log-probability of all tokens so far
    length: int  # number of tokens
    is_alive: bool  # the search expands it
    is_finished: bool  # it ends with </s>; a node that is neither alive nor finished was pruned


class BeamTree(NamedTuple):
    nodes: list[BeamNode]  # parents before children
    leaves: list[int]  # indices of the finished hypotheses, best first
    hypotheses: list[Hypothesis]  # the same

    def tokens(self, index: int) -> list[int]:
        """All tokens from the first to this one, without the start token."""
        node = self.nodes[index]
        return [] if node.parent is None else [*self.tokens(node.parent), node.token]


@torch.inference_mode()
def beam_tree(
    step: Step, caches: list[Cache], start: Tensor, end: int, limit: int, options: GenerationOptions
) -> BeamTree:
    """`start` (1,) is the first id, `limit` the maximum number of tokens without </s>. Each step scores twice as many
    continuations as the beam is wide: at most half of them can end, so the others suffice to fill the beam."""
    tree = BeamTree([BeamNode(None, int(start), 0.0, 0, is_alive=True, is_finished=False)], [], [])
    beam, length = [0], 0
    while beam and len(tree.leaves) < options.num_beams:
        endings = np.full(len(beam), ending_state(length, limit, options.min_new_tokens), np.int8)
        length += 1
        last_tokens = start.new_tensor([[tree.nodes[index].token] for index in beam])  # (K,1)
        logprobs = limit_length(step(last_tokens, caches).float().log_softmax(-1), end, endings)
        logp = logprobs.new_tensor([[tree.nodes[index].logp] for index in beam])
        joint = (logp + logprobs).flatten()  # (K·V,)
        top = joint.topk(min(2 * options.num_beams, int(joint.isfinite().sum())))
        parents, beam = beam, []
        rows: list[int] = []
        for rank, (value, flat_index) in enumerate(zip(top.values.tolist(), top.indices.tolist(), strict=True)):
            row, token = divmod(flat_index, logprobs.size(1))
            is_alive = token != end and len(beam) < options.num_beams
            is_finished = token == end and rank < options.num_beams
            if is_alive:
                beam, rows = [*beam, len(tree.nodes)], [*rows, row]
            if is_finished:
                tree.leaves.append(len(tree.nodes))
            tree.nodes.append(BeamNode(parents[row], token, value, length, is_alive, is_finished))
        select(caches, start.new_tensor(rows))
    hypotheses = {}
    for index in tree.leaves:
        ids = tree.tokens(index)[:-1]
        reason: FinishReason = "length" if len(ids) >= limit else "stop"
        hypotheses[index] = score_hypothesis(ids, tree.nodes[index].logp, options, reason)
    leaves = sorted(hypotheses, key=lambda index: -hypotheses[index].score)
    return BeamTree(tree.nodes, leaves, [hypotheses[index] for index in leaves])


def translation_tree(task: Translate, model: Model, sentence: str, options: GenerationOptions) -> BeamTree:
    """The beam search of a translator for one sentence."""
    device = next(model.parameters()).device
    sources = task.encode_sources([task.preprocessor.parse(sentence, task.target)])
    inputs = to_device(task.preprocessor.collate(sources, np.array([0]), training=False), device)
    limit = options.max_new_tokens or max(2 * int(sources.lengths[0, 0]) + 10, options.min_new_tokens)

    def step(ids: Tensor, caches: list[Cache]) -> Tensor:
        logits = model.head(model.body.decode(ids, cache=caches)[:, -1])
        logits[:, task.tokenizer.pad_token_id] = -math.inf
        return logits

    with torch.inference_mode():
        caches = model.body.decoder_caches(inputs.x, inputs.mask)
    max_length = model.body.config.context - 1
    return beam_tree(
        step,
        caches,
        torch.tensor([task.start_token], device=device),
        task.tokenizer.eos_token_id,
        min(limit, max_length),
        options,
    )


def beam_tab(loaded: LoadedModel, text: str, target: str | None = None) -> Tab | None:
    """For translators; of a text that is translated sentence by sentence, the tree of its first sentence."""
    task, model = loaded.task, loaded.model
    if not is_translator(task):
        return None
    context = model.body.config.context
    passages = task.preprocessor.passages(text, task.max_train_length or context // 2)
    text = next((part for part, _ in passages if part is not None), text)
    if task.encode_sources([task.preprocessor.parse(text, task.target)]).lengths[0, 0] > context:
        return None
    options = GenerationOptions()
    tree = translation_tree(task, model, text, options)
    tokens = [START, *task.tokenizer.convert_ids_to_tokens([node.token for node in tree.nodes[1:]])]
    texts = task.tokenizer.decode([hypothesis.ids for hypothesis in tree.hypotheses])
    return {
        "kind": "beam",
        "title": "Beam search",
        "description": f"At each step the search expands the {options.num_beams} best hypotheses and prunes the "
        "others. Longer hypotheses are less probable: move the length penalty and see which one ranks first.",
        "nodes": [
            {
                "id": index,
                "parent": node.parent,
                "token": token,
                "logp": round(node.logp, 5),
                "length": node.length,
                "pruned": not (node.is_alive or node.is_finished),
                "finished": node.is_finished,
            }
            for index, (node, token) in enumerate(zip(tree.nodes, tokens, strict=True))
        ],
        "hypotheses": [
            {"node": index, "text": text, "logp": round(hypothesis.logp, 5), "length": len(hypothesis.ids) + 1}
            for index, text, hypothesis in zip(tree.leaves, texts, tree.hypotheses, strict=True)
        ],
        "penalty": options.length_penalty,
    }
