"""The folder in CTranslate2, by its own converter: fp32 and int8."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.bench.backend import Asked, Rows, Runner, answer, installed
from regard.check.probes import ModelInputs
from regard.tasks.match import Match
from regard.tasks.translate import Translate
from regard.tasks.write import Write

NUMBERS = {"fp32": "float32", "int8": "int8"}


def ctranslate2(asked: Asked) -> list[Runner] | str:
    if missing := installed("ctranslate2", "transformers"):
        return missing
    if asked.loaded.tokenizer is None or isinstance(asked.loaded.task, Match):
        return "cannot read this folder: it has no place for pictures"
    return [runner(asked, numbers, kind) for numbers, kind in NUMBERS.items()]


def runner(asked: Asked, numbers: str, kind: str) -> Runner:
    import ctranslate2
    from ctranslate2.converters import TransformersConverter
    from transformers.utils.logging import disable_progress_bar  # type: ignore[import-untyped,unused-ignore]

    disable_progress_bar()
    out = str(asked.room / f"ctranslate2-{numbers}")
    TransformersConverter(str(asked.folder)).convert(out, quantization=None if numbers == "fp32" else kind, force=True)
    task = asked.loaded.task
    classes = {Translate: ctranslate2.Translator, Write: ctranslate2.Generator}
    make: Any = classes.get(type(task), ctranslate2.Encoder)
    model = make(out, device="cpu", compute_type=kind, intra_threads=asked.threads, inter_threads=1)
    pieces, number = asked.loaded.tokenizer.pieces, asked.loaded.tokenizer.id_of

    def write(rows: Rows, tokens: int, beam: int) -> list[list[int]]:
        how = {"beam_size": beam, "min_length": tokens, "max_length": tokens, "include_prompt_in_result": False}
        found = model.generate_batch([pieces(row) for row in rows], **how)
        return [one.sequences_ids[0] for one in found]

    def translate(rows: Rows, tokens: int, beam: int) -> list[list[int]]:
        how = {"beam_size": beam, "min_decoding_length": tokens, "max_decoding_length": tokens}
        found = model.translate_batch([pieces(row) for row in rows], **how)
        return [[number(token) for token in one.hypotheses[0]] for one in found]

    def read(given: ModelInputs) -> Tensor:
        lengths = [given.x.size(1)] * len(given.x) if given.mask is None else given.mask.sum(-1).flatten().tolist()
        rows = [row[:length] for row, length in zip(given.x.tolist(), lengths, strict=True)]
        hidden = torch.from_numpy(np.array(model.forward_batch(rows).last_hidden_state))  # (B,T,D)
        return answer(asked.loaded, hidden, given.mask)

    if isinstance(task, Translate | Write):
        return Runner("CTranslate2", numbers, write=translate if isinstance(task, Translate) else write)
    return Runner("CTranslate2", numbers, read=torch.inference_mode()(read))
