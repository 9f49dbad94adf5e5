"""The ranks of a distributed run: one process each, started by torchrun or any launcher that sets its variables.

    torchrun --nproc-per-node 4 -m regard train write --data corpus.txt --shards 2

`--grad-accum` is the number of batches of a step over all ranks: rank r takes the batches i with i % size == r. Like
threads, ranks change where a run computes, not what: settings, run folder and position in the data stay the same.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")
VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # set by the launcher
TIMEOUT = timedelta(hours=2)  # of a rank that hangs, while others wait; one that ends is noticed at once


class OtherRankError(ValueError):
    """An error that another rank raised and reports."""

    def __init__(self, message: str, exit_code: int = 2):
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True)
class Ranks:
    """This process among the others of its run; alone by default, when no method communicates."""

    rank: int = 0
    size: int = 1
    shards: int = 1  # parts into which weights and optimizer state are divided: size / shards replicas

    def __post_init__(self) -> None:
        if self.size % self.shards:
            processes = "1 process" if self.size == 1 else f"{self.size} ranks"
            remedy = f"start a multiple of {self.shards}, as by torchrun --nproc-per-node {self.shards}"
            raise ValueError(f"--shards {self.shards} does not divide {processes}: {remedy}, or choose other --shards")

    @property
    def is_first(self) -> bool:
        """Whether this rank writes files and prints."""
        return self.rank == 0

    @property
    def is_sharded(self) -> bool:
        return self.shards > 1

    def own(self, number: int) -> bool:
        """Whether the item of this number, of those that the ranks divide among them, is the share of this one."""
        return number % self.size == self.rank

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all ranks, in place."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def gather(self, item: T) -> list[T]:
        """The items of all ranks, in their order, on every rank."""
        if self.size == 1:
            return [item]
        items: list[T] = [item] * self.size
        dist.all_gather_object(items, item)
        return items

    def broadcast(self, item: T) -> T:
        """The item of the first rank, on every rank."""
        items = [item]
        if self.size > 1:
            dist.broadcast_object_list(items)
        return items[0]

    def wait(self) -> None:
        """Wait until all ranks are here."""
        if self.size > 1:
            dist.barrier()

    def agree(self, function: Callable[[], T]) -> T:
        """The result of `function`, which must not communicate, on this rank. If it fails on any rank, all ranks raise:
        the first of those that failed its own error, the others one that no rank reports twice."""
        if self.size == 1:
            return function()
        result: list[T] = []
        failure: Exception | None = None
        try:
            result.append(function())
        except Exception as error:
            failure = error
        failures = self.gather(None if failure is None else (str(failure), exit_code(failure)))
        failed = next((rank for rank, entry in enumerate(failures) if entry), None)
        if failed is None:
            return result[0]
        if failure is not None and failed == self.rank:
            raise failure
        message, code = failures[failed] or ("", 1)
        raise OtherRankError(f"rank {failed}: {message}", code) from failure

    def first(self, function: Callable[[], T]) -> T:
        """The result of `function` on the first rank, on every rank. If it fails there, all ranks raise."""
        result = self.agree(lambda: [function()] if self.is_first else [])
        return self.broadcast(result)[0]


SINGLE = Ranks()


def exit_code(error: Exception) -> int:
    """Of a command that ends with this error."""
    return 3 if isinstance(error, FloatingPointError) else 2 if isinstance(error, ValueError | OSError) else 1


def join_ranks(shards: int = 1) -> Ranks:
    """Join the process group that the variables of the launcher describe, once; without them this process is alone."""
    if not all(os.environ.get(name) for name in VARIABLES):
        return Ranks(shards=shards)
    if not dist.is_initialized():
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", os.environ["RANK"])) % torch.cuda.device_count())
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=TIMEOUT)
        atexit.register(leave_ranks)
    return Ranks(dist.get_rank(), dist.get_world_size(), shards)


def leave_ranks() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
