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
from regard.check.causality import is_seq2seq
from regard.check.probes import InputBatch
from regard.check.transformers_parity import has_hf_head, has_two_towers, head_outputs, hf_arguments
from regard.loaded_model import LoadedModel
from regard.modalities.protocols import Target
from regard.tasks.inference import context_of
from regard.tasks.task import Batch

Parts = tuple[object, ...]  # one for each argument of the exported model


def onnxruntime_backends(args: BackendArgs) -> list[Backend] | str:
    task = args.loaded.task
    if is_seq2seq(task) or has_two_towers(task):
        return "no export of encoder-decoders and two-tower models"
    if missing := install_hint("onnxruntime", "onnx", "onnxscript", "transformers"):
        return missing
    model = open_transformers(args)
    if isinstance(model, str):
        return model
    file = args.workdir / "model.onnx"
    with suppress_warnings():
        (export_decode if task.generates else export_forward)(model, args, file)
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
    """Inputs and their mask, if there is one, in the order of the names."""

    def __init__(self, model: nn.Module, loaded: LoadedModel, names: list[str]):
        super().__init__()
        self.model, self.loaded, self.names, self.has_head = model, loaded, names, has_hf_head(loaded)

    def forward(self, *inputs: Tensor) -> Tensor:
        out = self.model(**dict(zip(self.names, inputs, strict=True)))
        return head_outputs(out, self.loaded) if self.has_head else out.last_hidden_state


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
    """For two probes of any size: the first dimension is that of the batch, the second that of the tokens."""
    task = args.loaded.task
    rows = task.preprocessor.probes(2, Target.MASKED)
    encoded = task.preprocessor.encode(rows, context_of(args.loaded.model))
    inputs = hf_arguments(task, InputBatch(task.preprocessor.collate(encoded, np.arange(2), training=False)))
    shape = {0: "B", 1: "T"} if len(inputs) > 1 else {0: "B"}
    module = ForwardExport(model, args.loaded, [*inputs]).eval()
    export(module, tuple(inputs.values()), ((shape,) * len(inputs),), [*inputs], ["y"], file)


def export_decode(model: nn.Module, args: BackendArgs, file: Path) -> None:
    config = args.loaded.model.body.config
    heads, width = kv_shape(config)
    past = [torch.zeros(2, heads, 5, width) for _ in range(2 * config.layers)]
    names = [f"past{i}" for i in range(len(past))]
    shapes = ({0: "B", 1: "T"}, [{0: "B", 2: "S"}] * len(past))
    inputs, outputs = (torch.ones(2, 3, dtype=torch.long), past), [f"now{i}" for i in range(len(past))]
    export(DecodeExport(model).eval(), inputs, shapes, ["x", *names], ["y", *outputs], file)


def kv_shape(config: Any) -> tuple[int, int]:
    """(G, E): key/value heads and their width."""
    return getattr(config, "kv_heads", config.heads), getattr(config, "head_dim", config.dim // config.heads)


def export(model: nn.Module, inputs: Parts, shapes: Parts, names: list[str], out: list[str], file: Path) -> None:
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
    def forward(batch: Batch) -> Tensor:
        feed = {name: value.numpy() for name, value in hf_arguments(loaded.task, batch).items()}
        out = torch.from_numpy(session.run(None, feed)[0])
        return out if has_hf_head(loaded) else apply_head(loaded, out, batch)

    if loaded.task.generates:
        return Backend("onnxruntime", precision, generate=generate)
    return Backend("onnxruntime", precision, forward=forward)
