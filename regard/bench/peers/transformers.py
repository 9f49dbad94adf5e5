"""The folder in Hugging Face transformers: `generate` for what writes, a forward for what reads."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.bench.backend import Asked, Rows, Runner, answer, family_of, installed
from regard.check.probes import ModelInputs
from regard.check.transformers_parity import has_hf_head, load_transformers
from regard.data.batches import Ragged, padding_mask
from regard.hub.tables import KNOWN
from regard.tasks.answer import Answering
from regard.tasks.match import Match
from regard.tasks.translate import Translate
from regard.tasks.write import Write


def theirs(asked: Asked) -> Any:
    """Their model, or why there is none."""
    if family_of(asked.loaded) not in KNOWN:
        return "cannot read this folder: the family is our own"
    if missing := installed("transformers"):
        return missing
    config = asked.loaded.origin.config if asked.loaded.origin else {}
    model = load_transformers(asked.folder, str((config.get("architectures") or [""])[0]))
    return f"cannot read this folder: {model}" if isinstance(model, str) else model


def transformers(asked: Asked) -> list[Runner] | str:
    model = theirs(asked)
    if isinstance(model, str):
        return model
    loaded, task = asked.loaded, asked.loaded.task

    @torch.inference_mode()
    def write(rows: Rows, tokens: int, beam: int) -> list[list[int]]:
        table = Ragged(rows)
        ids = table.padded(torch.arange(len(rows)).numpy(), loaded.tokenizer.pad)
        mask = padding_mask(table.lengths, ids.size(1))[:, 0, 0].long()
        how = {"min_new_tokens": tokens, "max_new_tokens": tokens, "num_beams": beam, "do_sample": False}
        found = model.generate(input_ids=ids, attention_mask=mask, max_length=None, **how)
        return found[:, -tokens:].tolist()

    @torch.inference_mode()
    def read(given: ModelInputs) -> Tensor:
        if given.x.dim() == 4:
            found = model.get_image_features(given.x) if isinstance(task, Match) else model(pixel_values=given.x)
        else:
            mask = None if given.mask is None else given.mask[:, 0, 0].long()
            found = model(input_ids=given.x, attention_mask=mask)
        if isinstance(task, Match):
            return F.normalize(getattr(found, "pooler_output", found), dim=-1)
        if not has_hf_head(loaded):
            return answer(loaded, found.last_hidden_state, given.mask)
        if isinstance(task, Answering):
            return torch.stack((found.start_logits, found.end_logits), -1)
        return found.logits

    if isinstance(task, Translate | Write):
        return [Runner("transformers", "fp32", write=write)]
    return [Runner("transformers", "fp32", read=read)]
