"""What a program is written in: instructions, the stages that hold them, and the frame they work in.

Places are offsets into a row's scratch numbers. Weights, scales and biases are addresses, 0 for none.
"""

from __future__ import annotations

import numpy as np

ROWS, OUTPUTS, HEADS = range(3)  # how a stage is cut into pieces that any core may take
EMBED, NORM, QUANTISE, TURN, KEEP, GATE, LINEAR, ATTEND = range(8)  # what an instruction does
NOTHING, RELU, GELU, GELU_TANH, SILU, QUICK_GELU, RELU_SQUARED, CAP = range(8)  # to each output

INSTRUCTION = np.dtype(
    [(name, np.int64) for name in (
        "op", "source", "source_width", "target", "target_width", "other", "weight", "scales", "bias", "inputs",
        "outputs", "activation", "adds", "heads", "kv_heads", "head_dim", "memory", "layer", "half",
    )] + [("number", np.float64)]
)  # fmt: skip
STAGE = np.dtype([("cut", np.int64), ("first", np.int64), ("count", np.int64)])
SEEN = ("memory", "slots", "table", "longest", "lines", "seen", "crowds", "crowded")
RUN = ("rows", "threads", "scratch", "bytes", "scales", "less", "room", "room_size", "ids", "out")
TOLD = ("slot", "length", "own", "places", *(f"{name}{i}" for i in (0, 1) for name in SEEN))  # of a memory
FRAME = np.dtype([(name, np.int64) for name in RUN + TOLD])
