"""A finished model becomes a fast one, which answers to the same calls and is for use only.

exact    the same numbers in the engine: the same tokens, sooner
int8     weights rounded to bytes; of a model that the engine does not know, by PyTorch
"""

from __future__ import annotations

import sys
import warnings

import torch
from torch import nn

from regard.choose import choose
from regard.engine.quantize import Int8, is_rounded, rounded, with_children
from regard.parts.heads import Model

SPEEDS = {"exact": "the same tokens, in fp32", "int8": "weights of 8 bits"}


def fast(model: Model, speed: str) -> tuple[Model, Model]:
    """A model that answers, and the same as plain modules, to be saved."""
    choose("speed", speed, SPEEDS)
    if not next(model.parameters()).is_cpu:
        if speed == "exact":
            return model, model
        raise ValueError("int8 is for the processor: add --device cpu, or take --speed exact")
    try:
        from regard.engine.engine_model import in_engine, must_run

        must_run(model)
        plain = rounded(model) if speed == "int8" and not is_rounded(model) else model
        return in_engine(plain), plain
    except (ImportError, NotImplementedError) as why:
        if speed == "exact":
            return model, model
        print(f"regard: {why}, so PyTorch's own int8 is used", file=sys.stderr)
        return by_pytorch(model), model


def by_pytorch(model: Model) -> Model:
    """Linear layers whose weights have a scale for each layer; all else stays as it is. Such layers would make numbers
    of NaN, so that weights which are not finite are refused here."""
    if odd := next((name for name, weight in model.named_parameters() if not bool(weight.isfinite().all())), None):
        raise FloatingPointError(f"{odd} of the weights is not finite (NaN or infinite): it cannot be rounded to int8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch will take this away, and says so
        return torch.ao.quantization.quantize_dynamic(widened(model), {nn.Linear}, torch.qint8)


def widened(module: nn.Module) -> nn.Module:
    """What was read as int8, as numbers again."""
    if isinstance(module, Int8):
        layer = nn.Linear(module.inputs, module.outputs, module.bias is not None, device="meta")
        layer.weight = nn.Parameter(module.matrix(), requires_grad=False)
        if module.bias is not None:
            layer.bias = nn.Parameter(module.bias, requires_grad=False)
        return layer
    return with_children(module, {name: widened(child) for name, child in module.named_children()})
