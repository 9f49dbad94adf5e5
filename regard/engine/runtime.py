"""The engine: runs the program of a stack of blocks, for a prompt, a step of a beam, or a whole packed batch of texts.

It stands in a body where the blocks stood, so that the body itself, and all that generates, are what they were.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Sequence
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any
from weakref import WeakSet

import numpy as np
import torch
from torch import Tensor, nn

from regard.engine.bytecode import FRAME, RUN
from regard.engine.compiler import Program, outputs_of, program_of, program_of_answers
from regard.engine.kernels import interpreter
from regard.engine.kernels.gemm_int8 import INPUT
from regard.engine.kernels.linear_layer import MANY, ROOM, room_for_weights
from regard.engine.paged_cache import Memory, Slots, Told, longer, seeing
from regard.engine.quantize import GROUP
from regard.parts.positions import look_up

TOGETHER = 1024  # rows that go through all blocks at once: with fewer, cores wait for each other more often


class Crew:
    """Threads that help. They take nothing from each other's rows, and whoever comes late is not waited for."""

    def __init__(self) -> None:
        self.queues: list[SimpleQueue[tuple[Any, ...] | None]] = []
        self.threads: list[Thread] = []
        self.lock = Lock()
        atexit.register(self.dismiss)

    def call(self, count: int, job: tuple[Any, ...]) -> None:
        with self.lock:
            while len(self.queues) < count:
                queue: SimpleQueue[tuple[Any, ...] | None] = SimpleQueue()
                self.queues.append(queue)
                self.threads.append(Thread(target=self.serve, args=(queue, len(self.queues)), daemon=True))
                self.threads[-1].start()
        for queue in self.queues[:count]:
            queue.put(job)

    def serve(self, queue: SimpleQueue[tuple[Any, ...] | None], me: int) -> None:
        while job := queue.get():
            stages, code, frames, state, _held = job
            interpreter.help_out(stages, code, frames, state, me)

    def dismiss(self) -> None:
        """Before Python takes itself apart: a thread that comes late would look at what is no longer there."""
        for queue in self.queues:
            queue.put(None)
        for thread in self.threads:
            thread.join()

    def start_over(self) -> None:
        """In a forked child, which has none of these threads, and where a lock may be that of one of them."""
        self.queues, self.threads, self.lock = [], [], Lock()


CREW = Crew()
RUNNERS: WeakSet[Runner] = WeakSet()
NOTHING = Told()


def start_over() -> None:
    """In a forked child, only the thread that forked goes on: nobody else will open a lock or finish a program. It
    works on one core from now on, as OpenMP would wait for threads that are not there."""
    CREW.start_over()
    for runner in RUNNERS:
        runner.lock = Lock()
        runner.state[:] = 0
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=start_over)


class Runner:
    """Runs one program. Its arrays are made once, and grow."""

    def __init__(self, program: Program):
        self.program = program
        self.stages, self.code = program.finished()
        self.state = np.zeros(interpreter.COUNTERS + 16 * len(self.stages), np.int64)
        self.counters = self.state[interpreter.COUNTERS :]
        self.frames = np.zeros(1, FRAME)
        self.told = self.frames.view(np.int64)[len(RUN) :]
        self.job = (self.stages, self.code, self.frames, self.state.ctypes.data)
        self.size = (0, 0, 0)  # rows, numbers that a core needs, and cores: what all arrays fit
        self.lock = Lock()
        self.scratch, self.room = torch.empty(0), torch.empty(0)
        RUNNERS.add(self)
        self.bytes, self.scales, self.less = (torch.empty(0, dtype=d) for d in (torch.int8, torch.float, torch.int32))

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            "a model that was made fast cannot be copied or pickled, as its program holds addresses in memory: copy or "
            "pickle what regard.load returned, or load it without speed"
        )

    def run(self, x: Tensor, told: Told = NOTHING, out: Tensor | None = None) -> Tensor:
        """(R,D) in, and what has become of it out; or what is put out, if there is somewhere to put it."""
        rows, width = x.shape
        with self.lock:
            self.fit(rows, told.room)
            mine = self.scratch[: rows * width].view(rows, width)
            mine.copy_(x.detach())
            self.go(told, out)
            return mine.clone() if out is None else out

    def step(self, ids: Tensor, told: Told, out: Tensor) -> Tensor:
        """(B,1) in, and what is put out."""
        with self.lock:
            self.fit(len(ids), told.room)
            self.frames["ids"] = ids.data_ptr()
            self.go(told, out)
            return out

    def go(self, told: Told, out: Tensor | None) -> None:
        if out is not None:
            self.frames["out"] = out.data_ptr()
        self.told[:] = told.fields
        self.counters[:] = 0  # not who is helping: someone may just be looking in
        helpers = self.size[2] - 1
        if helpers:
            CREW.call(helpers, (*self.job, self.state))  # held: who comes late looks at it
        interpreter.lead(*self.job)

    def fit(self, rows: int, room: int) -> None:
        """Arrays for so many rows on all cores."""
        size = (rows, room, threads := torch.get_num_threads())
        if size == self.size:
            return
        if len(self.scratch) < rows * self.program.width:
            self.scratch = torch.empty(rows * self.program.width)
        groups = rows * -(-self.program.widest // GROUP)
        if len(self.less) < groups:
            self.bytes = torch.empty(groups * GROUP * INPUT, dtype=torch.int8)
            self.scales, self.less = torch.empty(groups), torch.empty(groups, dtype=torch.int32)
        turned = room_for_weights(self.program.turned) if rows >= MANY else 0
        numbers = max(ROOM, room, turned) + 16
        if self.room.numel() < numbers * threads:
            self.room = torch.empty(2 * numbers * threads)
        frame = self.frames[0]
        for name in ("scratch", "bytes", "scales", "less", "room"):
            frame[name] = getattr(self, name).data_ptr()
        frame["rows"], frame["room_size"], frame["threads"] = rows, 4 * numbers, threads
        self.size = size


class Stack(nn.Module):
    """All blocks of a body, as one module with the call of a block. With `half`, keys and values are remembered in half
    precision."""

    def __init__(self, blocks: Sequence[Any], width: int, half: bool):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        first: Any = blocks[0]
        attention = first.mixer.inner
        self.width, self.causal = width, attention.causal
        program = program_of(blocks, width, half)
        self.heads, self.kv_heads = attention.heads, attention.kv_heads
        self.dtype = torch.float16 if half else torch.float32
        self.head_dim = outputs_of(attention.key) // attention.kv_heads
        self.spare: list[Slots] = []  # of whole texts, which are forgotten at once: new memory costs more than its use
        self.turns: Tensor | None = getattr(attention.rotate, "table", None)
        self.runner = Runner(program)
        self.answering = Runner(program_of_answers(blocks, width, half)) if first.cross is not None else None

    def slots(self) -> Slots:
        return Slots(len(self.blocks), self.kv_heads, self.head_dim, self.dtype)

    def memory(self) -> Memory:
        across = self.width // self.heads
        return Memory(self.slots(), Slots(len(self.blocks), self.heads, across, self.dtype) if self.answering else None)

    def must_fit(self, tokens: int, start: int = 0) -> None:
        if self.turns is not None and start + tokens > len(self.turns):
            look_up(self.turns, tokens, start)  # which refuses it

    def read(self, source: Tensor, mask: Tensor | None = None) -> Memory:
        """A memory that holds the keys and values of encoded sources, (B,S,D)."""
        assert self.answering is not None
        memory, (B, S, _) = self.memory(), source.shape
        assert memory.sources is not None
        real = torch.ones(B, S, dtype=torch.bool) if mask is None else mask[:, 0, 0]
        own, memory.source_table, memory.source_lengths = numbered(real)
        memory.sources.take(len(own))
        rows = source[real]
        for i in range(0, len(rows), TOGETHER):
            some = rows[i : i + TOGETHER]
            told = Told(memory1=memory.sources.store, slots1=memory.sources.count, own=own[i:])
            self.answering.run(some, told)
        return memory

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        cache: Memory | None = None,
        source: Tensor | None = None,
        source_mask: Tensor | None = None,
    ) -> Tensor:
        if cache is None:
            return self.all_at_once(x, mask, source, source_mask)
        if mask is not None:
            raise ValueError("the engine's memory goes without a mask: ask for one text at a time")
        parts = [self.go_on(part, cache) for part in x.split(max(1, TOGETHER // len(x)), 1)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def go_on(self, x: Tensor, memory: Memory) -> Tensor:
        """New tokens of every row."""
        B, T, D = x.shape
        self.must_fit(T, memory.length)
        return self.runner.run(x.reshape(B * T, D), longer(memory, B, T)).view(B, T, D)

    def all_at_once(self, x: Tensor, mask: Tensor | None, source: Tensor | None, source_mask: Tensor | None) -> Tensor:
        """Whole texts, without what is only padding."""
        B, T, D = x.shape
        self.must_fit(T)
        many = max(1, TOGETHER // T)
        if many < B:
            parts = [
                self.all_at_once(x[i : i + many], *(part_of(t, i, many) for t in (mask, source, source_mask)))
                for i in range(0, B, many)
            ]
            return torch.cat(parts)
        memory = None if source is None else self.read(source, source_mask)
        padded = mask is not None and mask.size(-2) == 1
        real = mask[:, 0, 0].expand(B, T) if mask is not None and padded else torch.ones(B, T, dtype=torch.bool)
        own, table, lengths = numbered(real)
        sentence, place = (index.int() for index in real.nonzero(as_tuple=True))
        if mask is not None and not padded:
            may = mask.expand(B, 1, T, T)[:, 0].flatten(0, 1)  # (B·T,S)
            may = may & torch.ones(T, T, dtype=torch.bool).tril().repeat(B, 1) if self.causal else may
            table = ((~may).int().argsort(dim=1, stable=True) + sentence[:, None] * T).int()
            lines, seen = torch.arange(B * T, dtype=torch.int32), may.sum(1, dtype=torch.int32)
        else:
            before = real.cumsum(1, dtype=torch.int32)[real]
            lines, seen = sentence, before if self.causal else lengths[sentence]
        try:
            slots = self.spare.pop()
        except IndexError:  # none is left, or another thread has just taken the last one
            slots = self.slots()
        slots.used = 0
        slots.take(len(own))
        told = seeing(0, slots, table, lines, seen, True)
        if memory is not None and memory.sources is not None:
            told |= seeing(1, memory.sources, memory.source_table, sentence, memory.source_lengths[sentence], True)
        found = self.runner.run(x[real], Told(own=own, places=place.contiguous(), **told))
        self.spare.append(slots)
        if not padded:
            return found.view(B, T, D)
        return torch.zeros_like(x).masked_scatter_(real[..., None], found)


def part_of(tensor: Tensor | None, begin: int, count: int) -> Tensor | None:
    """Some sentences of it, unless all share it."""
    return tensor if tensor is None or tensor.dim() < 3 or len(tensor) == 1 else tensor[begin : begin + count]


def numbered(real: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of (B,S) that tells what is a token: slots of all tokens in order, those of each text (B,S), and its length."""
    lengths = real.sum(1, dtype=torch.int32)
    first = lengths.cumsum(0, dtype=torch.int32) - lengths
    table = first[:, None] + torch.arange(real.size(1), dtype=torch.int32)
    return torch.arange(int(lengths.sum()), dtype=torch.int32), table, lengths
