"""Hugging Face transformers: `generate` for generative tasks, a forward for the others."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.bench.backend import Backend, BackendArgs, TokenRows, apply_head, install_hint, model_type
from regard.check.probes import ModelInputs
from regard.check.transformers_parity import has_hf_head, load_transformers
from regard.data.batches import Ragged, padding_mask
from regard.hub.tables import HF_FAMILIES
from regard.tasks.answer import QuestionAnswering
from regard.tasks.match import Match
from regard.tasks.translate import Translate
from regard.tasks.write import Write


def open_transformers(args: BackendArgs) -> Any:
    """The model of transformers, or the reason why there is none."""
    if model_type(args.loaded) not in HF_FAMILIES:
        return "cannot read this folder: the family is our own"
    if missing := install_hint("transformers"):
        return missing
    config = args.loaded.origin.config if args.loaded.origin else {}
    model = load_transformers(args.folder, str((config.get("architectures") or [""])[0]))
    return f"cannot read this folder: {model}" if isinstance(model, str) else model


def transformers_backends(args: BackendArgs) -> list[Backend] | str:
    model = open_transformers(args)
    if isinstance(model, str):
        return model
    loaded, task = args.loaded, args.loaded.task

    @torch.inference_mode()
    def generate(rows: TokenRows, tokens: int, num_beams: int) -> list[list[int]]:
        table = Ragged(rows)
        ids = table.pad(torch.arange(len(rows)).numpy(), loaded.tokenizer.pad_token_id)
        mask = padding_mask(table.lengths, ids.size(1))[:, 0, 0].long()
        options = {"min_new_tokens": tokens, "max_new_tokens": tokens, "num_beams": num_beams, "do_sample": False}
        generated = model.generate(input_ids=ids, attention_mask=mask, max_length=None, **options)
        return generated[:, -tokens:].tolist()

    @torch.inference_mode()
    def forward(inputs: ModelInputs) -> Tensor:
        if inputs.x.dim() == 4:
            out = model.get_image_features(inputs.x) if isinstance(task, Match) else model(pixel_values=inputs.x)
        else:
            mask = None if inputs.mask is None else inputs.mask[:, 0, 0].long()
            out = model(input_ids=inputs.x, attention_mask=mask)
        if isinstance(task, Match):
            return F.normalize(getattr(out, "pooler_output", out), dim=-1)
        if not has_hf_head(loaded):
            return apply_head(loaded, out.last_hidden_state, inputs.mask)
        if isinstance(task, QuestionAnswering):
            return torch.stack((out.start_logits, out.end_logits), -1)
        return out.logits

    if isinstance(task, Translate | Write):
        return [Backend("transformers", "fp32", generate=generate)]
    return [Backend("transformers", "fp32", forward=forward)]
