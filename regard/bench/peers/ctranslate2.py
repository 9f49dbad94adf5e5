"""CTranslate2, by its own converter: fp32 and int8."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.bench.backend import Backend, BackendArgs, TokenRows, apply_head, install_hint
from regard.check.causality import is_seq2seq
from regard.tasks.task import Batch

COMPUTE_TYPES = {"fp32": "float32", "int8": "int8"}


def ctranslate2_backends(args: BackendArgs) -> list[Backend] | str:
    if missing := install_hint("ctranslate2", "transformers"):
        return missing
    modality = args.loaded.task.preprocessor.modality
    if args.loaded.task.preprocessor.tokenizer is None:
        return f"cannot read this folder: CTranslate2 has no {modality} models"
    return [build_backend(args, precision, kind) for precision, kind in COMPUTE_TYPES.items()]


def build_backend(args: BackendArgs, precision: str, kind: str) -> Backend:
    import ctranslate2
    from ctranslate2.converters import TransformersConverter
    from transformers.utils.logging import disable_progress_bar  # type: ignore[import-untyped,unused-ignore]

    disable_progress_bar()
    out = str(args.workdir / f"ctranslate2-{precision}")
    TransformersConverter(str(args.folder)).convert(out, quantization=None if precision == "fp32" else kind, force=True)
    task = args.loaded.task
    generator = ctranslate2.Translator if is_seq2seq(task) else ctranslate2.Generator
    model_class: Any = generator if task.generates else ctranslate2.Encoder
    model = model_class(out, device="cpu", compute_type=kind, intra_threads=args.threads, inter_threads=1)
    to_tokens, to_id = args.loaded.task.tokenizer.convert_ids_to_tokens, args.loaded.task.tokenizer.token_id

    def generate(rows: TokenRows, tokens: int, num_beams: int) -> list[list[int]]:
        options = {"beam_size": num_beams, "min_length": tokens, "max_length": tokens}
        prompts = [to_tokens(row) for row in rows]
        results = model.generate_batch(prompts, include_prompt_in_result=False, **options)
        return [result.sequences_ids[0] for result in results]

    def translate(rows: TokenRows, tokens: int, num_beams: int) -> list[list[int]]:
        options = {"beam_size": num_beams, "min_decoding_length": tokens, "max_decoding_length": tokens}
        results = model.translate_batch([to_tokens(row) for row in rows], **options)
        return [[to_id(token) for token in result.hypotheses[0]] for result in results]

    def forward(batch: Batch) -> Tensor:
        inputs = batch.inputs
        lengths = [inputs.x.size(1)] * len(inputs.x) if inputs.mask is None else inputs.mask.sum(-1).flatten().tolist()
        rows = [row[:length] for row, length in zip(inputs.x.tolist(), lengths, strict=True)]
        hidden = torch.from_numpy(np.array(model.forward_batch(rows).last_hidden_state))  # (B,T,D)
        return apply_head(args.loaded, hidden, batch)

    if task.generates:
        return Backend("CTranslate2", precision, generate=translate if is_seq2seq(task) else generate)
    return Backend("CTranslate2", precision, forward=torch.inference_mode()(forward))
