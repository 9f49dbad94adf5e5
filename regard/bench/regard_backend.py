"""Our own model as a backend: ids in, ids or logits out, without tokenization."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.bench.backend import Backend, TokenRows
from regard.check.compare import model_outputs
from regard.check.probes import ModelInputs
from regard.data.batches import Ragged
from regard.engine.int8_folder import is_int8_folder
from regard.generate import GenerationOptions, generate
from regard.load import LoadedModel, load
from regard.tasks.translate import Translate
from regard.tasks.write import Write

SPEEDS = ("exact", "int8")


def available_speeds(folder: Path) -> tuple[str, ...]:
    """A folder of int8 weights has no exact model."""
    return ("int8",) if is_int8_folder(folder) else SPEEDS


def load_on_cpu(folder: Path, speed: str) -> LoadedModel:
    return load(folder, device="cpu", speed=speed)


def regard_backend(loaded: LoadedModel, speed: str) -> Backend:
    task: Any = loaded.task

    def generate_seq2seq(rows: TokenRows, tokens: int, num_beams: int) -> list[list[int]]:
        options = GenerationOptions(num_beams=num_beams, min_new_tokens=tokens, max_new_tokens=tokens)
        hypotheses = task.search(loaded.model, Ragged(rows), np.arange(len(rows)), options)
        return [best[0].ids for best in hypotheses]

    @torch.inference_mode()
    def generate_decoder(rows: TokenRows, tokens: int, num_beams: int) -> list[list[int]]:
        options = GenerationOptions(num_beams=num_beams, min_new_tokens=tokens, max_new_tokens=tokens)
        model, ids = loaded.model, torch.tensor(rows)
        caches = model.body.caches()
        if ids.size(1) > 1:
            model.body(ids[:, :-1], cache=caches)
        row_ids = torch.arange(len(rows))
        max_new = torch.full_like(row_ids, tokens)
        hypotheses = generate(
            task.step_fn(model), caches, ids[:, -1], task.tokenizer.eos_token_id, max_new, options, row_ids
        )
        return [best[0].ids for best in hypotheses]

    def forward(inputs: ModelInputs) -> Tensor:
        return model_outputs(loaded, inputs)

    if isinstance(task, Translate | Write):
        # After the last token, one more step generates the end token.
        generate_ids = generate_seq2seq if isinstance(task, Translate) else generate_decoder
        return Backend("regard", speed, generate_ids, extra_steps=1)
    return Backend("regard", speed, forward=forward)
