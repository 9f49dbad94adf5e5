"""Make a finished model fast for inference, behind the same calls.

exact    fp32 in the engine: the same tokens, sooner
int8     quantized weights in the engine; PyTorch's dynamic quantization for models that the engine does not support
"""

from __future__ import annotations

import sys
import warnings

import torch
from torch import nn

from regard.engine.quantize import Int8Linear, is_quantized, quantize_model, replace_children
from regard.parts.heads import Model
from regard.validate import check_choice

SPEEDS = {"exact": "fp32, the same tokens", "int8": "int8 weights and activations"}


def accelerate(model: Model, speed: str) -> tuple[Model, Model]:
    """Returns the fast model, and the same weights as plain modules, which can be saved."""
    check_choice("speed", speed, SPEEDS)
    if not next(model.parameters()).is_cpu:
        if speed == "exact":
            return model, model
        raise ValueError("int8 runs on the CPU only: add --device cpu, or use --speed exact")
    try:
        from regard.engine.engine_model import check_supported, to_engine

        check_supported(model)
        plain = quantize_model(model) if speed == "int8" and not is_quantized(model) else model
        return to_engine(plain), plain
    except (ImportError, NotImplementedError) as reason:
        if speed == "exact":
            return model, model
        print(f"regard: {reason}, so PyTorch's dynamic int8 quantization is used", file=sys.stderr)
        return quantize_dynamic(model), model


def quantize_dynamic(model: Model) -> Model:
    """PyTorch's dynamic int8 linear layers, one scale per layer. They would turn NaN into finite numbers, so weights
    that are not finite are refused here."""
    if name := next((name for name, weight in model.named_parameters() if not bool(weight.isfinite().all())), None):
        raise FloatingPointError(f"{name} of the weights is not finite (NaN or infinite): it cannot be quantized")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch has deprecated this API
        return torch.ao.quantization.quantize_dynamic(dequantize_linears(model), {nn.Linear}, torch.qint8)


def dequantize_linears(module: nn.Module) -> nn.Module:
    """Int8Linear back to nn.Linear in fp32."""
    if isinstance(module, Int8Linear):
        layer = nn.Linear(module.in_features, module.out_features, module.bias is not None, device="meta")
        layer.weight = nn.Parameter(module.dequantize(), requires_grad=False)
        if module.bias is not None:
            layer.bias = nn.Parameter(module.bias, requires_grad=False)
        return layer
    return replace_children(module, {name: dequantize_linears(child) for name, child in module.named_children()})
