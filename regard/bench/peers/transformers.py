"""Hugging Face transformers: `generate` for generative tasks, a forward for the others."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.bench.backend import Backend, BackendArgs, TokenRows, apply_head, install_hint, model_type
from regard.check.transformers_parity import has_hf_head, has_two_towers, head_outputs, hf_arguments, load_transformers
from regard.data.batches import Ragged, padding_mask
from regard.hub.tables import HF_FAMILIES, architecture_of
from regard.tasks.task import Batch


def open_transformers(args: BackendArgs) -> Any:
    """The model of transformers, or the reason why there is none."""
    if model_type(args.loaded) not in HF_FAMILIES:
        return "cannot read this folder: the family is our own"
    if missing := install_hint("transformers"):
        return missing
    config = args.loaded.origin.config if args.loaded.origin else {}
    model = load_transformers(args.folder, architecture_of(config))
    return f"cannot read this folder: {model}" if isinstance(model, str) else model


def transformers_backends(args: BackendArgs) -> list[Backend] | str:
    model = open_transformers(args)
    if isinstance(model, str):
        return model
    loaded, task = args.loaded, args.loaded.task

    @torch.inference_mode()
    def generate(rows: TokenRows, tokens: int, num_beams: int) -> list[list[int]]:
        table = Ragged(rows)
        ids = table.pad(torch.arange(len(rows)).numpy(), loaded.task.tokenizer.pad_token_id)
        mask = padding_mask(table.lengths, ids.size(1))[:, 0, 0].long()
        options = {"min_new_tokens": tokens, "max_new_tokens": tokens, "num_beams": num_beams, "do_sample": False}
        generated = model.generate(input_ids=ids, attention_mask=mask, max_length=None, **options)
        return generated[:, -tokens:].tolist()

    @torch.inference_mode()
    def forward(batch: Batch) -> Tensor:
        out = model(**hf_arguments(task, batch))
        if has_two_towers(task):
            sides = (out[f"{side.modality}_embeds"] for side in (task.preprocessor, task.output) if side)
            return torch.cat([*sides], -1)
        if has_hf_head(loaded):
            return head_outputs(out, loaded)
        return apply_head(loaded, out.last_hidden_state, batch)

    if task.generates:
        return [Backend("transformers", "fp32", generate=generate)]
    return [Backend("transformers", "fp32", forward=forward)]
