"""One step of beam search: expand the beams, finish hypotheses, prune to the best beams. Pure functions on arrays.

    joint(beam, token) = log P(beam) + log P(token | beam)          B inputs with K beams each

`BeamSearch` of decode_batch.py runs them at every step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from regard.data.batches import Ints
from regard.sampling import Endings, Floats, largest, limit_length, log_softmax_, topk

Bools = npt.NDArray[np.bool_]


class Beams(NamedTuple):
    """The unfinished hypotheses of beam search: K for each input whose search continues."""

    tokens: list[list[int]]  # (B·K) texts so far
    logp: Floats  # (B,K) joint log-probabilities; -inf: an unused beam


class Candidates(NamedTuple):
    """The most probable continuations of the beams of each input, best first."""

    logp: Floats  # (B,2K) joint log-probabilities; NaN first if there is one
    beams: Ints  # (B,2K) the beam, from 0 to K-1, that each continues
    tokens: Ints  # (B,2K)


FindCandidates = Callable[[Tensor, Floats, int, Endings], Candidates]  # the call of `find_candidates`


def find_candidates(logits: Tensor, logp: Floats, end: int, endings: Endings) -> Candidates:
    """The candidates of beams with joint log-probabilities `logp` (B,K), by logits (B·K,V), which are overwritten."""
    return expand(limit_length(log_softmax_(logits), end, endings), logp)


def expand(logprobs: Tensor, logp: Floats) -> Candidates:
    """The 2K most probable continuations of the K beams of each input. At most K of them end, so K can continue; no
    beam contributes more than its own 2K best tokens."""
    K = logp.shape[1]
    values, tokens = largest(logprobs, min(2 * K, logprobs.size(1)))  # (B·K,2K)
    per_beam, total = values.shape[1], K * values.shape[1]
    joint = (logp.reshape(-1, 1) + values).reshape(-1, total)  # (B,K·2K)
    best, where = topk(torch.from_numpy(joint), min(2 * K, total))
    return Candidates(best, where // per_beam, np.take_along_axis(tokens.reshape(-1, total), where, 1))


def finish(candidates: Candidates, beams: Beams, end: int) -> tuple[Bools, list[tuple[int, list[int], float]]]:
    """Which candidates cannot continue, (B,2K); and the hypotheses that end with </s> among the K best candidates:
    the number of the input, the tokens without </s>, the joint log-probability."""
    K = beams.logp.shape[1]
    ends = (candidates.tokens == end) | ~np.isfinite(candidates.logp)
    finished = []
    for b, rank in zip(*(ends & np.isfinite(candidates.logp))[:, :K].nonzero(), strict=True):
        tokens = beams.tokens[b * K + candidates.beams[b, rank]]
        finished.append((int(b), tokens, float(candidates.logp[b, rank])))
    return ends, finished


def prune(candidates: Candidates, beams: Beams, ends: Bools, is_done: Bools) -> tuple[Beams, Ints, Ints]:
    """Keep the K best candidates that continue, for inputs that are not `is_done` (B,) and have some. Returns the new
    beams, (B'·K) the old beam that each continues, and (B') the places of their inputs among the old ones."""
    every, K = np.arange(len(is_done))[:, None], beams.logp.shape[1]
    best = ends.argsort(1, kind="stable")[:, :K]  # (B,K)
    logp = np.where(ends[every, best], np.float32(-math.inf), candidates.logp[every, best])
    survivors = (~is_done & np.isfinite(logp).any(1)).nonzero()[0]
    parents = (every * K + candidates.beams[every, best])[survivors].ravel()
    newest = candidates.tokens[every, best][survivors].ravel().tolist()
    tokens = [[*beams.tokens[parent], token] for parent, token in zip(parents.tolist(), newest, strict=True)]
    return Beams(tokens, logp[survivors]), parents, survivors
