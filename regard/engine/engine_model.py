"""Bodies and output layers that run in the engine, and answer to the calls of those they stand for.

A body keeps its own embedding and norms, and its blocks become one `Stack`. Weights are shared with the model given.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.engine import bytecode as do
from regard.engine.compiler import (
    Place,
    Program,
    Unknown,
    go_through,
    inputs_of,
    outputs_of,
    program_of_output,
    put_out,
    span,
)
from regard.engine.kernels import interpreter
from regard.engine.paged_cache import Memory, one_longer
from regard.engine.quantize import Int8, Int8Embedding, RoundedOutput, is_rounded, with_children
from regard.engine.runtime import Runner, Stack
from regard.models.bert import Bert
from regard.models.gpt import GPT
from regard.models.llama import Llama
from regard.models.nano import Nano
from regard.models.transformer import Transformer
from regard.parts.cache import Cache
from regard.parts.heads import Model, Output, Unembed
from regard.parts.positions import Learned, Sinusoidal

KNOWN = (GPT, Llama, Nano, Transformer, Bert)  # bodies whose blocks all see the same
STACKS = ("blocks", "encoder", "decoder")  # what they call them
LOGITS = 2**22  # held at once while a loss is counted


class FastBody(nn.Module):
    """What goes without a memory is left to `plain`, if there is one: whole texts suit PyTorch's kernels as well."""

    def __init__(self, body: nn.Module, half: bool, plain: Any = None):
        super().__init__()
        fast: Any = with_stacks(body, half)
        self.config = fast.config
        self.fast, self.plain = fast, plain or fast

    def forward(self, *inputs: Tensor, cache: list[Cache] | None = None, **context: Any) -> Tensor:
        return self.fast(*inputs, cache=cache, **context) if cache else self.plain(*inputs, **context)

    def caches(self) -> list[Memory]:
        return [self.fast.blocks[0].memory()]


class FastTranslator(FastBody):
    def encode(self, source: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.plain.encode(source, mask)

    def read(self, source: Tensor, mask: Tensor | None = None) -> list[Memory]:
        return [self.fast.decoder[0].read(self.encode(source, mask), mask)]

    def decode(self, *inputs: Tensor, cache: list[Cache] | None = None, **context: Any) -> Tensor:
        return (self.fast if cache else self.plain).decode(*inputs, cache=cache, **context)


class FastEmbedding(Int8Embedding):
    """Rows of the output layer's own table."""

    def forward(self, ids: Tensor) -> Tensor:  # (B,T) -> (B,T,D)
        table, which = self.table, ids.long().contiguous()
        if ids.numel() and not 0 <= (known := which.numpy()).min() <= known.max() < table.outputs:
            raise IndexError(f"there are {table.outputs} tokens, and none with the number {known.max()}")
        found = torch.empty(*ids.shape, table.inputs)
        bytes_, scales, asked, out = (t.data_ptr() for t in (table.bytes, table.scales, which, found))
        interpreter.rows_of_table(bytes_, scales, asked, out, ids.numel(), table.inputs, self.scale)
        return found


class FastOutput(nn.Module):
    """Scores of every token of the vocabulary."""

    def __init__(self, layer: Int8 | nn.Linear, cap: float = 0.0):
        super().__init__()
        self.layer, self.cap = layer, cap
        self.vocab, self.runner = outputs_of(layer), Runner(program_of_output(layer, cap))

    def forward(self, x: Tensor) -> Tensor:  # (...,D) -> (...,V)
        out = torch.empty(*x.shape[:-1], self.vocab)
        return self.runner.run(x.flatten(0, -2), out=out)

    def loss(self, x: Tensor, wanted: Tensor, smoothing: float = 0.0) -> Tensor:
        """Summed, as that of Output."""
        if smoothing:
            raise ValueError("a model that was made fast is for use only: load it without speed to train it")
        rows = max(1, LOGITS // self.vocab)
        parts = zip(x.split(rows), wanted.split(rows), strict=True)
        return torch.stack([F.cross_entropy(self(some), ids, reduction="sum") for some, ids in parts]).sum()


def program_of_step(body: Any, layer: Int8 | nn.Linear, cap: float, half: bool) -> Program:
    """From the newest token of every row to what is said of the next."""
    blocks, last = (body.decoder, body.decoder_norm) if hasattr(body, "decoder") else (body.blocks, body.norm)
    p = Program(half)
    x = p.place("x", inputs_of(layer))
    embed(p, body.tokens, body.positions, x)
    p.norm(getattr(body, "embed_norm", nn.Identity()), x, x)
    go_through(p, blocks, x)
    put_out(p, layer, cap, p.norm(last, x, p.place("normed", x.width)))
    return p


def embed(p: Program, tokens: Any, positions: Any, x: Place) -> None:
    told = {"op": do.EMBED, "number": getattr(tokens, "scale", 1.0)} | span(x, x)
    if isinstance(tokens, Int8Embedding):
        table, scales = tokens.table.bytes, tokens.table.scales
        told |= {"weight": p.hold(table, torch.uint8), "scales": p.hold(scales, torch.float16)}
    else:
        told |= {"weight": p.hold(tokens.weight)}
    if isinstance(positions, (Learned, Sinusoidal)):  # others turn queries and keys
        told |= {"other": p.hold(positions.weight if isinstance(positions, Learned) else positions.table)}
    p.stage(do.ROWS, told)


class FastModel(Model):
    """One token more for every row is one program, from the embedding to the output layer."""

    def __init__(self, body: FastBody, head: FastOutput, like: Any, half: bool):
        super().__init__(body, head)
        program = program_of_step(like, head.layer, head.cap, half)
        self.runner, self.vocab, self.context = Runner(program), head.vocab, like.config.context

    def next(self, ids: Tensor, caches: list[Any]) -> Tensor:
        [memory] = caches
        one = ids.size(1) == 1 and ids.dtype == torch.int64
        if not one or memory.length == self.context or not all(0 <= i < self.vocab for [i] in ids.tolist()):
            return super().next(ids, caches)  # which takes more than that, or refuses it
        return self.runner.step(ids.contiguous(), one_longer(memory, len(ids)), torch.empty(len(ids), self.vocab))


def with_stacks(body: Any, half: bool) -> nn.Module:
    stacks: dict[str, nn.Module] = {}
    if isinstance(body.tokens, Int8Embedding):
        stacks["tokens"] = FastEmbedding(body.tokens.table, body.tokens.scale)
    for name in STACKS:
        if hasattr(body, name):
            stacks[name] = nn.ModuleList([Stack(list(getattr(body, name)), body.config.dim, half)])
    return with_children(body, stacks)


def must_run(model: Model) -> None:
    """Refuse what the engine does not know, and a machine on which it does not run."""
    if not isinstance(model.body, KNOWN):
        raise Unknown(f"the engine has no {type(model.body).__name__}")
    nothing = Runner(Program())
    try:
        interpreter.lead(*nothing.job)
    except Exception as error:  # of a compiler, on a machine that nobody has seen
        raise NotImplementedError(f"the kernels do not run here ({error!r:.100})") from error


def in_engine(model: Model, half: bool = True) -> Model:
    """Everything runs there; but of a model in fp32 that writes, whole texts are left to the plain modules.

    Who rounds weights may round what is remembered: `half` says so of int8 models.
    """
    body, head = model.body, model.head
    kind = FastTranslator if hasattr(body, "decode") else FastBody
    if isinstance(head, RoundedOutput):
        return FastModel(kind(body, half), FastOutput(head.layer, head.cap), body, half).eval()
    if isinstance(head, (Unembed, Output)):
        return FastModel(kind(body, False, body), ExactOutput(head), body, False).eval()
    return Model(FastBody(body, half and is_rounded(body)), head).eval()


class ExactOutput(FastOutput):
    """Whole texts are left to the layer it stands for."""

    def __init__(self, head: Any):
        layer = nn.Linear(head.weight.size(1), len(head.weight), bias=False, device="meta")
        layer.weight = head.weight
        if isinstance(head, Unembed):
            layer.bias = nn.Parameter(head.bias[0], requires_grad=False)
        super().__init__(layer, getattr(head, "cap", 0.0))
        self.plain = head

    def loss(self, x: Tensor, wanted: Tensor, smoothing: float = 0.0) -> Tensor:
        return self.plain.loss(x, wanted, smoothing)
