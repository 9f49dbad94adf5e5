"""The folder in onnxruntime: exported by PyTorch from transformers' model, as fp32 and in its dynamic int8."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.bench.backend import Asked, Rows, Runner, answer, installed
from regard.bench.peers.transformers import theirs
from regard.check.probes import ModelInputs
from regard.check.transformers_parity import has_hf_head
from regard.tasks.answer import Answering
from regard.tasks.match import Match
from regard.tasks.translate import Translate
from regard.tasks.write import Write


def onnx(asked: Asked) -> list[Runner] | str:
    task = asked.loaded.task
    if isinstance(task, Translate | Match):
        return "no export of models with two towers"
    if missing := installed("onnxruntime", "onnx", "onnxscript", "transformers"):
        return missing
    model = theirs(asked)
    if isinstance(model, str):
        return model
    file = asked.room / "model.onnx"
    with quietly():
        (export_writer if isinstance(task, Write) else export_reader)(model, asked, file)
        less = smaller(file)
    return [runner(asked, numbers, made) for numbers, made in (("fp32", file), ("int8", less))]


@contextmanager
def quietly() -> Iterator[None]:
    """What exporters warn of is not the user's business."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def smaller(file: Path) -> Path:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    out = file.with_name("int8.onnx")
    quantize_dynamic(file, out, weight_type=QuantType.QInt8, per_channel=True, extra_options={"MatMulConstBOnly": True})
    return out


class Reading(nn.Module):
    def __init__(self, model: nn.Module, head: bool, spans: bool):
        super().__init__()
        self.model, self.head, self.spans = model, head, spans

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        found = self.model(x) if mask is None else self.model(input_ids=x, attention_mask=mask)
        if self.spans and self.head:
            return torch.stack((found.start_logits, found.end_logits), -1)
        return found.logits if self.head else found.last_hidden_state


class Writing(nn.Module):
    """A step: new ids (B,T) and the keys and values so far (B,G,S,E) of each layer."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, past: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        from transformers import DynamicCache  # type: ignore[import-untyped,unused-ignore]

        cache = DynamicCache()
        for i in range(len(past) // 2):
            cache.update(past[2 * i], past[2 * i + 1], i)
        found = self.model(input_ids=x, past_key_values=cache, use_cache=True, logits_to_keep=1)
        layers = found.past_key_values.layers
        return found.logits[:, -1], [part for layer in layers for part in (layer.keys, layer.values)]


def export_reader(model: nn.Module, asked: Asked, file: Path) -> None:
    whole = Reading(model, has_hf_head(asked.loaded), isinstance(asked.loaded.task, Answering)).eval()
    if asked.loaded.tokenizer is None:
        pictures = asked.loaded.task.pictures  # type: ignore[attr-defined]
        inputs: tuple[Any, ...] = (torch.zeros(2, pictures.channels, pictures.side, pictures.side),)
        shapes: tuple[Any, ...] = ({0: "B"}, None)
    else:
        inputs = (torch.ones(2, 6, dtype=torch.long), torch.ones(2, 6, dtype=torch.long))
        shapes = ({0: "B", 1: "T"}, {0: "B", 1: "T"})
    export(whole, inputs, shapes[: len(inputs)], ["x", "mask"][: len(inputs)], ["y"], file)


def export_writer(model: nn.Module, asked: Asked, file: Path) -> None:
    config = asked.loaded.model.body.config
    heads, width = sizes(config)
    past = [torch.zeros(2, heads, 5, width) for _ in range(2 * config.layers)]
    names = [f"past{i}" for i in range(len(past))]
    shapes = ({0: "B", 1: "T"}, [{0: "B", 2: "S"}] * len(past))
    given = (torch.ones(2, 3, dtype=torch.long), past)
    export(Writing(model).eval(), given, shapes, ["x", *names], ["y", *(f"now{i}" for i in range(len(past)))], file)


def sizes(config: Any) -> tuple[int, int]:
    """Heads of keys, and the width of each."""
    return getattr(config, "kv_heads", config.heads), getattr(config, "head_dim", config.dim // config.heads)


def export(model: nn.Module, given: Any, shapes: Any, names: list[str], out: list[str], file: Path) -> None:
    torch.onnx.export(
        model, given, str(file), input_names=names, output_names=out, dynamic_shapes=shapes, dynamo=True, verbose=False
    )


def runner(asked: Asked, numbers: str, file: Path) -> Runner:
    import onnxruntime

    how = onnxruntime.SessionOptions()
    how.intra_op_num_threads, how.inter_op_num_threads = asked.threads, 1
    how.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(file), how, providers=["CPUExecutionProvider"])
    loaded = asked.loaded
    config = loaded.model.body.config

    def write(rows: Rows, tokens: int, beam: int) -> list[list[int]]:
        if beam > 1:
            raise ValueError("onnxruntime has no beam search")
        heads, width = sizes(config)
        past = [np.zeros((len(rows), heads, 0, width), np.float32)] * (2 * config.layers)
        x, found = np.array(rows), []
        for _ in range(tokens):
            logits, *past = session.run(None, {"x": x} | {f"past{i}": part for i, part in enumerate(past)})
            x = logits.argmax(-1)[:, None]
            found.append(x[:, 0])
        return np.stack(found, 1).tolist()

    @torch.inference_mode()
    def read(given: ModelInputs) -> Tensor:
        more = {} if given.mask is None else {"mask": given.mask[:, 0, 0].long().numpy()}
        if given.x.dim() == 2 and not more:
            more = {"mask": np.ones(given.x.shape, np.int64)}
        [found] = session.run(None, {"x": given.x.numpy()} | more)
        made = torch.from_numpy(found)
        return made if has_hf_head(loaded) else answer(loaded, made, given.mask)

    if isinstance(loaded.task, Write):
        return Runner("onnxruntime", numbers, write=write)
    return Runner("onnxruntime", numbers, read=read)
