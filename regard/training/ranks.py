"""The ranks of a distributed run: one process each, started by torchrun or any launcher that sets its variables.

    torchrun --nproc-per-node 4 -m regard train write --data corpus.txt --shards 2

`--grad-accum` is the number of batches of a step over all ranks: rank r takes the batches i with i % size == r. Like
threads, ranks change where a run computes, not what: settings, run folder and position in the data stay the same.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")
VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # set by the launcher


@dataclass(frozen=True)
class Ranks:
    """This process among the others of its run; alone by default, when no method communicates."""

    rank: int = 0
    size: int = 1
    shards: int = 1  # parts into which weights and optimizer state are divided: size / shards replicas

    @property
    def is_first(self) -> bool:
        """Whether this rank writes files and prints."""
        return self.rank == 0

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


SINGLE = Ranks()


def join_ranks(shards: int = 1) -> Ranks:
    """Join the process group that the variables of the launcher describe, once; without them this process is alone."""
    if not all(os.environ.get(name) for name in VARIABLES):
        return SINGLE
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    return Ranks(dist.get_rank(), dist.get_world_size(), shards)
