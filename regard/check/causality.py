"""Causality and KV cache: later tokens change no earlier output, and decoding with a cache equals the full forward.

causality   outputs before t stay the same, whatever the tokens from t on are
cache       head(body(x_t, cache)) = head(body(x))_t, for chunks of one or several tokens, and with reordered rows
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import Any

import torch
from torch import Tensor

from regard.check.check_result import CheckResult, within_bound
from regard.check.compare import TOLERANCE, first_divergent_module, model_outputs, relative_difference
from regard.check.probes import ModelInputs, Probes
from regard.load import LoadedModel
from regard.parts.cache import select
from regard.tasks.translate import Translate
from regard.tasks.write import Write

GENERATIVE_TASKS = (Write, Translate)
MAX_STEPS = 12  # tokens that are decoded with a cache


def causality(loaded: LoadedModel, probes: Probes) -> list[CheckResult]:
    """Replace all tokens from t on, for several t in two rows."""
    if not isinstance(loaded.task, GENERATIVE_TASKS):
        return []
    largest, module = 0.0, ""
    for row in (0, len(probes.ids) - 1):
        base = probes.inputs([row])
        ids, full = decoder_ids(base), model_outputs(loaded, base)
        T = ids.size(1)
        for t in sorted({1, 2, T // 2, T - 1} & {*range(1, T)}):
            altered = with_decoder_ids(base, replace_from(ids, t, probes.regular_tokens))
            difference = relative_difference(full[0, :t], model_outputs(loaded, altered)[0, :t])
            if not difference <= largest:
                largest = difference
                module = "" if difference <= TOLERANCE else first_divergent_module(loaded, base, altered, upto=t)
    message = f"Later tokens change earlier outputs by at most {largest:.1e}"
    advice = f"The model sees future tokens, first in {module}: without a causal mask its loss means nothing."
    return [within_bound("causality", largest, TOLERANCE, message, advice)]


def decoder_ids(inputs: ModelInputs) -> Tensor:
    """(B,T): the tokens that the model predicts autoregressively."""
    return inputs.x if inputs.target is None else inputs.target


def with_decoder_ids(inputs: ModelInputs, ids: Tensor) -> ModelInputs:
    return inputs._replace(x=ids) if inputs.target is None else inputs._replace(target=ids)


def replace_from(ids: Tensor, t: int, regular_tokens: list[int]) -> Tensor:
    """Other tokens at position t and at all later ones."""
    altered = ids.clone()
    replacements = [regular_tokens[(i + int(ids[0, i])) % len(regular_tokens)] for i in range(t, ids.size(1))]
    altered[0, t:] = torch.tensor(replacements)
    altered[0, t] = next(token for token in regular_tokens if token != ids[0, t])
    return altered


def cache(loaded: LoadedModel, probes: Probes) -> list[CheckResult]:
    if not isinstance(loaded.task, GENERATIVE_TASKS):
        return []
    rows = range(len(probes.ids)) if probes.targets else range(2)
    texts = probes.targets or probes.ids
    length = min(MAX_STEPS, *(len(texts[i]) for i in rows))
    inputs = probes.inputs(rows) if probes.targets else probes.inputs(rows, length)
    inputs = with_decoder_ids(inputs, decoder_ids(inputs)[:, :length])
    full = model_outputs(loaded, inputs)
    chunkings = {
        "Token by token": ([1] * length, False),
        "In chunks": ([size for size in (length // 2, 1, length - length // 2 - 1) if size], False),
        "With reordered rows": ([1] * length, True),
    }
    differences = {
        name: relative_difference(full, decode_in_chunks(loaded, inputs, sizes, reorder_rows))
        for name, (sizes, reorder_rows) in chunkings.items()
    }
    largest = max(differences, key=lambda name: float("inf") if isnan(differences[name]) else differences[name])
    message = f"{largest}, decoding differs from the full forward by {differences[largest]:.1e}"
    advice = "Decoding differs from training: check the position offset, and what the cache stores."
    return [within_bound("cache", differences[largest], TOLERANCE, message, advice)]


@torch.inference_mode()
def decode_in_chunks(
    loaded: LoadedModel, inputs: ModelInputs, sizes: Sequence[int], reorder_rows: bool = False
) -> Tensor:
    """The outputs of decoding with a cache, in chunks of these sizes. `reorder_rows` reverses the rows halfway, as a
    beam search reorders its beams."""
    model: Any = loaded.model
    device = next(model.parameters()).device
    ids = decoder_ids(inputs).to(device)
    mask = None if inputs.mask is None else inputs.mask.to(device)
    is_seq2seq = inputs.target is not None
    caches = model.body.decoder_caches(inputs.x.to(device), mask) if is_seq2seq else model.body.caches()
    body = model.body.decode if is_seq2seq else model.body
    reversed_rows = torch.arange(len(ids), device=device).flip(0)
    chunks: list[Tensor] = []
    for number, part in enumerate(ids.split(list(sizes), 1)):
        if reorder_rows and number == len(sizes) // 2:
            select(caches, reversed_rows, reversed_rows)
        reordered = reorder_rows and number >= len(sizes) // 2
        out = model.head(body(part[reversed_rows] if reordered else part, cache=caches))
        chunks.append(out[reversed_rows] if reordered else out)
    return torch.cat(chunks, 1).cpu()
