"""Our own model as a backend: ids in, ids or logits out, without tokenization."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.bench.backend import Backend, TokenRows
from regard.check.causality import is_seq2seq
from regard.check.compare import model_outputs
from regard.engine.int8_folder import is_int8_folder
from regard.generate import generate
from regard.generation_config import GenerationOptions
from regard.load import load
from regard.loaded_model import LoadedModel
from regard.modalities.protocols import EncodedInputs
from regard.modalities.token_preprocessor import TokenIds

SPEEDS = ("exact", "int8")


def available_speeds(folder: Path) -> tuple[str, ...]:
    """A folder of int8 weights has no exact model."""
    return ("int8",) if is_int8_folder(folder) else SPEEDS


def load_on_cpu(folder: Path, speed: str) -> LoadedModel:
    return load(folder, device="cpu", speed=speed)


def regard_backend(loaded: LoadedModel, speed: str, sources: EncodedInputs | None = None) -> Backend:
    """`sources` are the inputs of an encoder that does not read tokens; their rows are numbers."""
    task: Any = loaded.task

    def generate_seq2seq(rows: TokenRows, tokens: int, num_beams: int) -> list[list[int]]:
        options = GenerationOptions(num_beams=num_beams, min_new_tokens=tokens, max_new_tokens=tokens)
        chosen = np.arange(len(rows)) if sources is None else np.array(rows)[:, 0]
        hypotheses = task.search(loaded.model, sources or TokenIds(rows), chosen, options)
        return [best[0].ids for best in hypotheses]

    @torch.inference_mode()
    def generate_decoder(rows: TokenRows, tokens: int, num_beams: int) -> list[list[int]]:
        options = GenerationOptions(num_beams=num_beams, min_new_tokens=tokens, max_new_tokens=tokens)
        model, ids = loaded.model, torch.tensor(rows)
        caches = model.body.caches()
        if ids.size(1) > 1:
            model.body(ids[:, :-1], cache=caches)
        row_ids, end = torch.arange(len(rows)), task.tokenizer.eos_token_id
        max_new = torch.full_like(row_ids, tokens)
        hypotheses = generate(task.step_fn(model), caches, ids[:, -1], end, max_new, options, row_ids)
        return [best[0].ids for best in hypotheses]

    if task.generates:
        # After the last token, one more step generates the end token.
        return Backend("regard", speed, generate_seq2seq if is_seq2seq(task) else generate_decoder, extra_steps=1)
    return Backend("regard", speed, forward=partial(model_outputs, loaded))
