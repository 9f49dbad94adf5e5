"""The passes of training: memory that a forward pass of a mini LLaMA keeps, and the time of a step, by pass.

    python benchmarks/passes.py [--compile]

A step is a forward and a backward pass of 2,048 tokens in rows of 256. Times are medians of interleaved rounds;
compiling with inductor needs a C++ compiler and about a minute.
"""

from __future__ import annotations

import sys
import time
from copy import deepcopy
from statistics import median

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from regard.models.llama import SIZES, Llama, LlamaConfig
from regard.parts.heads import Model
from regard.training.passes import Dtype, compile_blocks, mixed_precision, recompute_blocks

VOCAB, T, ROWS, ROUNDS = 4096, 256, 8, 5
IDS = torch.randint(VOCAB, (ROWS, T), generator=torch.Generator().manual_seed(0))


def mini_llama() -> Model:
    torch.manual_seed(0)
    body = Llama(LlamaConfig(vocab=VOCAB, context=T, dropout=0.1, **SIZES["mini"]))
    return Model(body, body.lm_head()).train()


def body_output(model: Model, dtype: Dtype) -> Tensor:
    with mixed_precision(torch.device("cpu"), dtype):
        y: Tensor = model.body(IDS)
    return y


def saved_megabytes(model: Model, dtype: Dtype) -> float:
    """Memory of the tensors that the backward pass of the body needs, without the weights."""
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    storages: dict[int, int] = {}

    def pack(x: Tensor) -> Tensor:
        if x.untyped_storage().data_ptr() not in weights:
            storages[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with saved_tensors_hooks(pack, lambda x: x):
        y = body_output(model, dtype)
    assert y.requires_grad
    return sum(storages.values()) / 1e6


def main() -> None:
    torch.set_num_threads(1)
    plain = mini_llama()
    cases: dict[str, tuple[Model, Dtype]] = {
        "fp32": (plain, "fp32"),
        "--recompute": (recompute_blocks(deepcopy(plain)), "fp32"),
        "--dtype bf16": (plain, "bf16"),
        "--dtype bf16 --recompute": (recompute_blocks(deepcopy(plain)), "bf16"),
    }
    if "--compile" in sys.argv:
        cases["--compile"] = compile_blocks(deepcopy(plain)), "fp32"
        cases["--compile --recompute"] = compile_blocks(recompute_blocks(deepcopy(plain))), "fp32"
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    first: dict[str, float] = {}
    for number in range(ROUNDS + 1):
        for name, (model, dtype) in cases.items():
            start = time.perf_counter()
            body_output(model, dtype).float().square().mean().backward()
            passed = time.perf_counter() - start
            if number:
                seconds[name].append(passed)
            else:
                first[name] = passed
    base = median(seconds["fp32"])
    print(f"{'':26}{'saved MB':>10}{'step ms':>10}{'of fp32':>9}{'first step s':>14}")
    for name, (model, dtype) in cases.items():
        step = median(seconds[name])
        saved = saved_megabytes(model, dtype)
        print(f"{name:26}{saved:>10.1f}{1000 * step:>10.0f}{step / base:>9.2f}{first[name]:>14.1f}")


if __name__ == "__main__":
    main()
