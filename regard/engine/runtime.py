"""The runtime: worker threads and buffers that run a program, for prefill, a decode step, or a packed batch of texts.

A CompiledStack replaces the blocks of a body, so that the body itself and the generation loop stay as they are.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Sequence
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, NoReturn
from weakref import WeakSet

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from regard.engine.bytecode import FRAME, RUN_ARGS
from regard.engine.compiler import EngineOptions, Program, compile_blocks, compile_cross_kv
from regard.engine.kernels import interpreter
from regard.engine.kernels.gemm_int8 import INPUT_BYTES
from regard.engine.kernels.linear_layer import PACK_MIN_ROWS, PANEL_WORKSPACE, TILE_WORKSPACE, packing_workspace
from regard.engine.kernels.prefill_attention import find_prefills
from regard.engine.paged_cache import (
    KernelArgs,
    PagedCache,
    SlotPool,
    append_args,
    attention_args,
    pack_documents,
    pack_tokens,
)
from regard.engine.quantize import GROUP
from regard.parts.attention import SelfAttention
from regard.parts.document_mask import DocumentMask, Mask
from regard.parts.positions import lookup_positions

MAX_ROWS = 1024  # of one run through all blocks; with fewer, threads synchronise more often
Job = tuple[npt.NDArray[np.void], npt.NDArray[np.void], npt.NDArray[np.void], int, npt.NDArray[np.int64]]


class WorkerPool:
    """Daemon threads that help to run a program. Results do not depend on which thread takes a work item, and no
    thread waits for one that starts late."""

    def __init__(self) -> None:
        self.queues: list[SimpleQueue[Job | None]] = []
        self.threads: list[Thread] = []
        self.lock = Lock()
        atexit.register(self.shutdown)

    def submit(self, count: int, job: Job) -> None:
        with self.lock:
            while len(self.queues) < count:
                queue: SimpleQueue[Job | None] = SimpleQueue()
                self.queues.append(queue)
                self.threads.append(Thread(target=self.worker_loop, args=(queue, len(self.queues)), daemon=True))
                self.threads[-1].start()
        for queue in self.queues[:count]:
            queue.put(job)

    def worker_loop(self, queue: SimpleQueue[Job | None], worker: int) -> None:
        while job := queue.get():
            stages, code, frames, state, _owner = job
            interpreter.help_run(stages, code, frames, state, worker)

    def shutdown(self) -> None:
        """Join all threads before the interpreter exits: a late one would read freed memory."""
        for queue in self.queues:
            queue.put(None)
        for thread in self.threads:
            thread.join()

    def reset_after_fork(self) -> None:
        """A forked child has none of these threads, and one of them may have held the lock."""
        self.queues, self.threads, self.lock = [], [], Lock()


WORKERS = WorkerPool()
RUNNERS: WeakSet[ProgramRunner] = WeakSet()
NO_ARGS = KernelArgs()


def reset_after_fork() -> None:
    """In a forked child only the forking thread exists: no other will release a lock or finish a program. It uses one
    thread from now on, as OpenMP would wait for threads that do not exist."""
    WORKERS.reset_after_fork()
    for runner in RUNNERS:
        runner.lock = Lock()
        runner.state[:] = 0
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=reset_after_fork)


class ProgramRunner:
    """Runs one program. Its buffers are reused, and grow."""

    def __init__(self, program: Program):
        self.program = program
        self.stages, self.code = program.assemble()
        self.state = np.zeros(interpreter.COUNTERS + 16 * len(self.stages), np.int64)
        self.counters = self.state[interpreter.COUNTERS :]
        self.frames = np.zeros(1, FRAME)
        self.args_view = self.frames.view(np.int64)[len(RUN_ARGS) :]
        self.job = (self.stages, self.code, self.frames, self.state.ctypes.data)
        self.size = (0, 0, 0)  # rows, workspace floats per thread, threads: what the buffers are sized for
        self.lock = Lock()
        self.scratch, self.workspace = torch.empty(0), torch.empty(0)
        RUNNERS.add(self)
        self.quantized, self.scales, self.zero_point_term = (
            torch.empty(0, dtype=dtype) for dtype in (torch.int8, torch.float, torch.int32)
        )

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            "an engine model cannot be copied or pickled, as its program holds memory addresses: copy or pickle what "
            "regard.load returned, or load it without speed"
        )

    def run(self, x: Tensor, args: KernelArgs = NO_ARGS, out: Tensor | None = None) -> Tensor:
        """(R,D) -> (R,D): the buffer of x after the program; or `out`, if the program writes its output there."""
        rows, width = x.shape
        with self.lock:
            self.resize(rows, args.workspace)
            self.frames["out_rows"] = rows
            scratch = self.scratch[: rows * width].view(rows, width)
            scratch.copy_(x.detach())
            self.launch(args, out)
            return scratch.clone() if out is None else out

    def step(self, ids: Tensor, args: KernelArgs, out: Tensor | None = None) -> None:
        """Token ids of all rows -> `out`, the logits of the first rows, if the program has an output."""
        with self.lock:
            self.resize(len(ids), args.workspace)
            self.frames["out_rows"] = 0 if out is None else len(out)
            self.frames["ids"] = ids.data_ptr()
            self.launch(args, out)

    def launch(self, args: KernelArgs, out: Tensor | None) -> None:
        if out is not None:
            self.frames["out"] = out.data_ptr()
        self.args_view[:] = args.fields.view(np.int64)
        self.counters[:] = 0  # but not HELPERS: a late thread may still be checking RUNNING
        helpers = self.size[2] - 1
        if helpers:
            WORKERS.submit(helpers, (*self.job, self.state))  # keeps the state alive for late threads
        interpreter.run_program(*self.job)

    def resize(self, rows: int, workspace: int) -> None:
        """Grow the buffers to `rows` rows and `workspace` floats per thread."""
        size = (rows, workspace, threads := torch.get_num_threads())
        if size == self.size:
            return
        if len(self.scratch) < rows * self.program.width:
            self.scratch = torch.empty(rows * self.program.width)
        groups = rows * -(-self.program.max_int8_inputs // GROUP)
        if len(self.zero_point_term) < groups:
            self.quantized = torch.empty(groups * GROUP * INPUT_BYTES, dtype=torch.int8)
            self.scales, self.zero_point_term = torch.empty(groups), torch.empty(groups, dtype=torch.int32)
        packing = packing_workspace(self.program.max_fp32_inputs) if rows >= PACK_MIN_ROWS else PANEL_WORKSPACE
        floats = max(TILE_WORKSPACE, workspace, packing) + 16
        if self.workspace.numel() < floats * threads:
            self.workspace = torch.empty(2 * floats * threads)
        frame = self.frames[0]
        for name in ("scratch", "quantized", "scales", "zero_point_term", "workspace"):
            frame[name] = getattr(self, name).data_ptr()
        frame["rows"], frame["workspace_size"], frame["threads"] = rows, 4 * floats, threads
        self.size = size


class CompiledStack(nn.Module):
    """All blocks of a body, compiled to one program, with the call of a single block."""

    def __init__(self, blocks: Sequence[nn.Module], width: int, options: EngineOptions):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        attention = blocks[0].get_submodule("mixer.inner")
        assert isinstance(attention, SelfAttention)
        self.width, self.causal, self.batch_invariant = width, attention.causal, options.batch_invariant
        self.runner = ProgramRunner(compile_blocks(blocks, width, options))
        self.heads, self.kv_heads = attention.heads, attention.kv_heads
        self.dtype = torch.float16 if options.kv_fp16 else torch.float32
        self.head_dim = attention.key.out_features // attention.kv_heads
        self.free_pools: list[SlotPool] = []  # reused by forward_packed: allocating memory costs more than using it
        self.rope_table: Tensor | None = getattr(attention.rotate, "table", None)
        self.cross_kv_runner = (
            ProgramRunner(compile_cross_kv(blocks, width, options)) if getattr(blocks[0], "cross", None) else None
        )

    def new_pool(self) -> SlotPool:
        return SlotPool(len(self.blocks), self.kv_heads, self.head_dim, self.dtype)

    def new_cache(self) -> PagedCache:
        if self.cross_kv_runner is None:
            return PagedCache(self.new_pool())
        return PagedCache(self.new_pool(), SlotPool(len(self.blocks), self.heads, self.width // self.heads, self.dtype))

    def check_context(self, tokens: int, start: int = 0) -> None:
        if self.rope_table is not None and start + tokens > len(self.rope_table):
            lookup_positions(self.rope_table, tokens, start)  # raises the error

    def source_cache(self, source: Tensor, mask: Tensor | None = None) -> PagedCache:
        """A cache with the cross-attention keys and values of encoded sources, (B,S,D)."""
        cache = self.new_cache()
        self.add_sources(cache, source, mask)
        return cache

    def add_sources(self, cache: PagedCache, source: Tensor, mask: Tensor | None = None) -> None:
        """Add a row for each of the encoded sources, (B,S,D)."""
        (B, S, _), runner, pool = source.shape, self.cross_kv_runner, cache.source_pool
        assert runner is not None
        assert pool is not None
        token_mask = torch.ones(B, S, dtype=torch.bool) if mask is None else mask[:, 0, 0].expand(B, S)
        slots, rows = cache.add_sources(token_mask.sum(1).numpy()), source[token_mask]
        for i in range(0, len(rows), MAX_ROWS):
            args = KernelArgs(kv1=pool.kv, num_slots1=pool.capacity, slot_mapping=slots[i : i + MAX_ROWS].copy())
            runner.run(rows[i : i + MAX_ROWS], args)

    def forward(
        self,
        x: Tensor,
        mask: Mask | None = None,
        cache: PagedCache | None = None,
        source: Tensor | None = None,
        source_mask: Tensor | None = None,
    ) -> Tensor:
        if cache is None:
            return self.forward_packed(x, mask, source, source_mask)
        if mask is not None:
            raise ValueError("the engine's KV cache does not support a mask: run one text at a time")
        parts = [self.append_tokens(part, cache) for part in x.split(max(1, MAX_ROWS // len(x)), 1)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def append_tokens(self, x: Tensor, cache: PagedCache) -> Tensor:
        """Run new tokens of every row, (B,T,D), against the cache."""
        B, T, D = x.shape
        self.check_context(T, cache.length)
        if not len(cache.seq_lens):
            cache.add_rows(B)
        args = append_args(cache, np.full(B, T), self.batch_invariant)
        return self.runner.run(x.reshape(B * T, D), args).view(B, T, D)

    def forward_packed(self, x: Tensor, mask: Mask | None, source: Tensor | None, source_mask: Tensor | None) -> Tensor:
        """Whole texts without a cache: padding is removed, and the real tokens of all texts become the rows."""
        B, T, D = x.shape
        self.check_context(T)
        batch = max(1, MAX_ROWS // T)
        if batch < B:
            parts = [
                self.forward_packed(*(batch_slice(t, i, batch) for t in (x, mask, source, source_mask)))
                for i in range(0, B, batch)
            ]
            return torch.cat(parts)
        cache = None if source is None else self.source_cache(source, source_mask)
        padding = mask if isinstance(mask, Tensor) and mask.size(-2) == 1 else None
        token_mask = torch.ones(B, T, dtype=torch.bool) if padding is None else padding[:, 0, 0].expand(B, T)
        slot_mapping, block_table, lengths = pack_tokens(token_mask)
        sequence, position = (index.int().numpy() for index in token_mask.nonzero(as_tuple=True))
        prefix_lens = token_mask.cumsum(1, dtype=torch.int32)[token_mask].numpy()
        if isinstance(mask, DocumentMask):  # each document is a sequence of its own
            sequence, block_table, lengths = pack_documents(mask)
            prefix_lens = mask.offsets.flatten().int().numpy() + 1
        if isinstance(mask, Tensor) and padding is None:
            visible = mask.expand(B, 1, T, T)[:, 0].flatten(0, 1)  # (B·T,S)
            visible = visible & torch.ones(T, T, dtype=torch.bool).tril().repeat(B, 1) if self.causal else visible
            order = (~visible).int().argsort(dim=1, stable=True).numpy()
            block_table = (order + sequence[:, None] * T).astype(np.int32)
            table_rows, seq_lens = np.arange(B * T, dtype=np.int32), visible.sum(1, dtype=torch.int32).numpy()
        else:
            table_rows, seq_lens = sequence, prefix_lens if self.causal else lengths[sequence]
        try:
            pool = self.free_pools.pop()
        except IndexError:  # empty, or another thread has just taken the last one
            pool = self.new_pool()
        if pool.capacity < len(slot_mapping):
            pool.grow(len(slot_mapping))
        prefills = (find_prefills(rows[:0] if self.batch_invariant else rows) for rows in (table_rows, sequence))
        args = attention_args(0, pool, block_table, table_rows, seq_lens, next(prefills))
        if cache is not None and cache.source_pool is not None:
            source_table, source_lens = cache.source_block_table, cache.source_lens[sequence]
            args |= attention_args(1, cache.source_pool, source_table, sequence, source_lens, next(prefills))
        y = self.runner.run(x[token_mask], KernelArgs(slot_mapping=slot_mapping, positions=position, **args))
        self.free_pools.append(pool)
        if padding is None:
            return y.view(B, T, D)
        return torch.zeros_like(x).masked_scatter_(token_mask[..., None], y)


def batch_slice(tensor: Mask | None, begin: int, count: int) -> Any:
    """`count` sequences of a tensor with a batch dimension; a tensor that the batch shares stays whole."""
    if isinstance(tensor, DocumentMask):
        return tensor[begin : begin + count]
    return tensor if tensor is None or tensor.dim() < 3 or len(tensor) == 1 else tensor[begin : begin + count]
