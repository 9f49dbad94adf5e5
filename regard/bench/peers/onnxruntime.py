"""onnxruntime: PyTorch's export of the transformers model, in fp32 and in dynamic int8."""

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

from regard.bench.backend import Backend, BackendArgs, TokenRows, apply_head, install_hint
from regard.bench.peers.transformers import open_transformers
from regard.check.probes import ModelInputs
from regard.check.transformers_parity import has_hf_head
from regard.tasks.answer import QuestionAnswering
from regard.tasks.match import Match
from regard.tasks.translate import Translate
from regard.tasks.write import Write


def onnxruntime_backends(args: BackendArgs) -> list[Backend] | str:
    task = args.loaded.task
    if isinstance(task, Translate | Match):
        return "no export of encoder-decoders and two-tower models"
    if missing := install_hint("onnxruntime", "onnx", "onnxscript", "transformers"):
        return missing
    model = open_transformers(args)
    if isinstance(model, str):
        return model
    file = args.workdir / "model.onnx"
    with suppress_warnings():
        (export_decode if isinstance(task, Write) else export_forward)(model, args, file)
        files = {"fp32": file, "int8": quantize_int8(file)}
    return [build_backend(args, precision, exported) for precision, exported in files.items()]


@contextmanager
def suppress_warnings() -> Iterator[None]:
    """Hide the exporters' warnings, which a user cannot act on."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def quantize_int8(file: Path) -> Path:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    out = file.with_name("int8.onnx")
    quantize_dynamic(file, out, weight_type=QuantType.QInt8, per_channel=True, extra_options={"MatMulConstBOnly": True})
    return out


class ForwardExport(nn.Module):
    def __init__(self, model: nn.Module, head: bool, spans: bool):
        super().__init__()
        self.model, self.head, self.spans = model, head, spans

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        out = self.model(x) if mask is None else self.model(input_ids=x, attention_mask=mask)
        if self.spans and self.head:
            return torch.stack((out.start_logits, out.end_logits), -1)
        return out.logits if self.head else out.last_hidden_state


class DecodeExport(nn.Module):
    """One decoding step: new ids (B,T), and keys and values (B,G,S,E) of each layer."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, past: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        from transformers import DynamicCache  # type: ignore[import-untyped,unused-ignore]

        cache = DynamicCache()
        for i in range(len(past) // 2):
            cache.update(past[2 * i], past[2 * i + 1], i)
        out = self.model(input_ids=x, past_key_values=cache, use_cache=True, logits_to_keep=1)
        layers = out.past_key_values.layers
        return out.logits[:, -1], [part for layer in layers for part in (layer.keys, layer.values)]


def export_forward(model: nn.Module, args: BackendArgs, file: Path) -> None:
    module = ForwardExport(model, has_hf_head(args.loaded), isinstance(args.loaded.task, QuestionAnswering)).eval()
    if args.loaded.tokenizer is None:
        pictures = args.loaded.task.image_processor  # type: ignore[attr-defined]
        inputs: tuple[Any, ...] = (torch.zeros(2, pictures.channels, pictures.image_size, pictures.image_size),)
        shapes: tuple[Any, ...] = ({0: "B"}, None)
    else:
        inputs = (torch.ones(2, 6, dtype=torch.long), torch.ones(2, 6, dtype=torch.long))
        shapes = ({0: "B", 1: "T"}, {0: "B", 1: "T"})
    export(module, inputs, shapes[: len(inputs)], ["x", "mask"][: len(inputs)], ["y"], file)


def export_decode(model: nn.Module, args: BackendArgs, file: Path) -> None:
    config = args.loaded.model.body.config
    heads, width = kv_shape(config)
    past = [torch.zeros(2, heads, 5, width) for _ in range(2 * config.layers)]
    names = [f"past{i}" for i in range(len(past))]
    shapes = ({0: "B", 1: "T"}, [{0: "B", 2: "S"}] * len(past))
    inputs = (torch.ones(2, 3, dtype=torch.long), past)
    export(
        DecodeExport(model).eval(), inputs, shapes, ["x", *names], ["y", *(f"now{i}" for i in range(len(past)))], file
    )


def kv_shape(config: Any) -> tuple[int, int]:
    """(G, E): key/value heads and their width."""
    return getattr(config, "kv_heads", config.heads), getattr(config, "head_dim", config.dim // config.heads)


def export(model: nn.Module, inputs: Any, shapes: Any, names: list[str], out: list[str], file: Path) -> None:
    torch.onnx.export(
        model, inputs, str(file), input_names=names, output_names=out, dynamic_shapes=shapes, dynamo=True, verbose=False
    )


def build_backend(args: BackendArgs, precision: str, file: Path) -> Backend:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = args.threads, 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    loaded, config = args.loaded, args.loaded.model.body.config

    def generate(rows: TokenRows, tokens: int, num_beams: int) -> list[list[int]]:
        if num_beams > 1:
            raise ValueError("onnxruntime has no beam search")
        heads, width = kv_shape(config)
        past = [np.zeros((len(rows), heads, 0, width), np.float32)] * (2 * config.layers)
        x, generated = np.array(rows), []
        for _ in range(tokens):
            logits, *past = session.run(None, {"x": x} | {f"past{i}": part for i, part in enumerate(past)})
            x = logits.argmax(-1)[:, None]
            generated.append(x[:, 0])
        return np.stack(generated, 1).tolist()

    @torch.inference_mode()
    def forward(inputs: ModelInputs) -> Tensor:
        feed = {"x": inputs.x.numpy()}
        if inputs.mask is not None:
            feed["mask"] = inputs.mask[:, 0, 0].long().numpy()
        elif inputs.x.dim() == 2:
            feed["mask"] = np.ones(inputs.x.shape, np.int64)
        out = torch.from_numpy(session.run(None, feed)[0])
        return out if has_hf_head(loaded) else apply_head(loaded, out, inputs.mask)

    if isinstance(loaded.task, Write):
        return Backend("onnxruntime", precision, generate=generate)
    return Backend("onnxruntime", precision, forward=forward)
