"""CTranslate2, by its own converter: fp32 and int8."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.bench.backend import Backend, BackendArgs, TokenRows, apply_head, install_hint
from regard.check.probes import ModelInputs
from regard.tasks.match import Match
from regard.tasks.translate import Translate
from regard.tasks.write import Write

COMPUTE_TYPES = {"fp32": "float32", "int8": "int8"}


def ctranslate2_backends(args: BackendArgs) -> list[Backend] | str:
    if missing := install_hint("ctranslate2", "transformers"):
        return missing
    if args.loaded.tokenizer is None or isinstance(args.loaded.task, Match):
        return "cannot read this folder: CTranslate2 has no image models"
    return [build_backend(args, precision, kind) for precision, kind in COMPUTE_TYPES.items()]


def build_backend(args: BackendArgs, precision: str, kind: str) -> Backend:
    import ctranslate2
    from ctranslate2.converters import TransformersConverter
    from transformers.utils.logging import disable_progress_bar  # type: ignore[import-untyped,unused-ignore]

    disable_progress_bar()
    out = str(args.workdir / f"ctranslate2-{precision}")
    TransformersConverter(str(args.folder)).convert(out, quantization=None if precision == "fp32" else kind, force=True)
    task = args.loaded.task
    classes = {Translate: ctranslate2.Translator, Write: ctranslate2.Generator}
    model_class: Any = classes.get(type(task), ctranslate2.Encoder)
    model = model_class(out, device="cpu", compute_type=kind, intra_threads=args.threads, inter_threads=1)
    to_tokens, to_id = args.loaded.tokenizer.convert_ids_to_tokens, args.loaded.tokenizer.token_id

    def generate(rows: TokenRows, tokens: int, num_beams: int) -> list[list[int]]:
        options = {
            "beam_size": num_beams,
            "min_length": tokens,
            "max_length": tokens,
            "include_prompt_in_result": False,
        }
        results = model.generate_batch([to_tokens(row) for row in rows], **options)
        return [result.sequences_ids[0] for result in results]

    def translate(rows: TokenRows, tokens: int, num_beams: int) -> list[list[int]]:
        options = {"beam_size": num_beams, "min_decoding_length": tokens, "max_decoding_length": tokens}
        results = model.translate_batch([to_tokens(row) for row in rows], **options)
        return [[to_id(token) for token in result.hypotheses[0]] for result in results]

    def forward(inputs: ModelInputs) -> Tensor:
        lengths = [inputs.x.size(1)] * len(inputs.x) if inputs.mask is None else inputs.mask.sum(-1).flatten().tolist()
        rows = [row[:length] for row, length in zip(inputs.x.tolist(), lengths, strict=True)]
        hidden = torch.from_numpy(np.array(model.forward_batch(rows).last_hidden_state))  # (B,T,D)
        return apply_head(args.loaded, hidden, inputs.mask)

    if isinstance(task, Translate | Write):
        return Backend("CTranslate2", precision, generate=translate if isinstance(task, Translate) else generate)
    return Backend("CTranslate2", precision, forward=torch.inference_mode()(forward))
