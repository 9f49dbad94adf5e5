"""exp, erf and activation functions without library calls, so that LLVM vectorises loops over them.

exp    2^n · p(r),   x = n ln 2 + r          Moshier's Cephes: error below 2e-7
erf    1 - p(t) exp(-x²),   t = 1 / (1 + 0.3275911 x)          Abramowitz & Stegun 7.1.26: error below 2e-7
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from regard.engine.bytecode import GELU, GELU_TANH, QUICK_GELU, RELU, RELU_SQUARED, SILU, SOFTCAP
from regard.engine.kernels.llvm import F32, I32, call, jit, llvm_intrinsic


@llvm_intrinsic
def floor(typing: Any, x: Any) -> Any:
    return types.float32(types.float32), lambda context, b, signature, args: call(b, "llvm.floor.f32", F32, args[0])


@llvm_intrinsic
def exp2_int(typing: Any, power: Any) -> Any:
    """2 to an integer power, written into the exponent bits."""

    def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
        exponent = b.add(b.fptosi(args[0], I32), ir.Constant(I32, 127))
        return b.bitcast(b.shl(exponent, ir.Constant(I32, 23)), F32)

    return types.float32(types.float32), emit


@jit
def exp(x: Any) -> Any:
    x = np.float32(min(max(x, np.float32(-87.0)), np.float32(88.0)))
    power = floor(x * np.float32(1.4426950408889634) + np.float32(0.5))
    r = x - power * np.float32(0.693359375) + power * np.float32(2.12194440e-4)
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    p = p * r * r + r + np.float32(1.0)
    return p * exp2_int(power)


@jit
def erf(x: Any) -> Any:
    a = abs(x)
    t = np.float32(1.0) / (np.float32(1.0) + np.float32(0.3275911) * a)
    p = np.float32(1.061405429)
    p = p * t - np.float32(1.453152027)
    p = p * t + np.float32(1.421413741)
    p = p * t - np.float32(0.284496736)
    p = p * t + np.float32(0.254829592)
    result = np.float32(1.0) - p * t * exp(-a * a)
    return result if x >= 0 else -result


@jit
def sigmoid(x: Any) -> Any:
    return np.float32(1.0) / (np.float32(1.0) + exp(-x))


@jit
def activate(y: Any, width: int, activation: int, cap: float) -> None:
    if activation == RELU:
        for i in range(width):
            y[i] = max(y[i], np.float32(0.0))
    elif activation == RELU_SQUARED:
        for i in range(width):
            y[i] = max(y[i], np.float32(0.0)) * max(y[i], np.float32(0.0))
    elif activation == GELU:
        for i in range(width):
            y[i] = np.float32(0.5) * y[i] * (np.float32(1.0) + erf(y[i] * np.float32(0.7071067811865476)))
    elif activation == GELU_TANH:
        for i in range(width):
            inner = np.float32(1.5957691216057308) * (y[i] + np.float32(0.044715) * y[i] * y[i] * y[i])
            y[i] = y[i] * sigmoid(inner)
    elif activation == SILU:
        for i in range(width):
            y[i] = y[i] * sigmoid(y[i])
    elif activation == QUICK_GELU:
        for i in range(width):
            y[i] = y[i] * sigmoid(np.float32(1.702) * y[i])
    elif activation == SOFTCAP:
        for i in range(width):
            y[i] = np.float32(cap) * (np.float32(2.0) * sigmoid(np.float32(2.0 / cap) * y[i]) - np.float32(1.0))
