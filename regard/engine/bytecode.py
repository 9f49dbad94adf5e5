"""The bytecode of the engine: instructions, the stages that hold them, and the frame of arguments of a run.

`source` and `target` are offsets into a row's scratch buffers. Weights, scales and biases are addresses, 0 for none.
"""

from __future__ import annotations

import numpy as np

SPLIT_ROWS, SPLIT_OUTPUTS, SPLIT_HEADS = range(3)  # how a stage is split into work items that any thread may take
EMBED, NORM, QUANTIZE, ROPE, STORE_KV, GATE, LINEAR, ATTENTION = range(8)  # opcodes
IDENTITY, RELU, GELU, GELU_TANH, SILU, QUICK_GELU, RELU_SQUARED, SOFTCAP = range(8)  # activations

INSTRUCTION = np.dtype(
    [(name, np.int64) for name in (
        "op", "source", "source_width", "target", "target_width", "source2", "weight", "scales", "bias", "inputs",
        "outputs", "activation", "accumulate", "center", "heads", "kv_heads", "head_dim", "cache", "layer", "kv_fp16",
        "panels",
    )] + [("scalar", np.float64)]
)  # fmt: skip
STAGE = np.dtype([("split", np.int64), ("first", np.int64), ("count", np.int64)])
# Of each KV cache, 0 = self-attention, 1 = cross-attention to the source
CACHE_ARGS = (
    "kv", "num_slots", "block_table", "table_width", "table_rows", "seq_lens", "decode_rows", "prefills",
    "num_prefills",
)  # fmt: skip
RUN_ARGS = (
    "rows", "threads", "scratch", "quantized", "scales", "zero_point_term", "workspace", "workspace_size", "ids", "out",
    "out_rows",
)  # fmt: skip
STEP_ARGS = ("slot_mapping", "positions", *(f"{name}{i}" for i in (0, 1) for name in CACHE_ARGS))
KERNEL_ARGS = np.dtype([(name, np.int64) for name in STEP_ARGS])
FRAME = np.dtype([(name, np.int64) for name in RUN_ARGS + STEP_ARGS])
