"""One model on several ranks: replicas, shards, or replicas of shards. Only a run with several ranks imports this file.

--shards 1          DDP: every rank holds all weights, and gradients are summed during the backward pass
--shards N of N     FSDP2: every rank holds 1/N of each weight, and a block's weights are gathered while it computes
--shards S of N     HSDP: N/S replicas, each of S shards           Zhao et al. 2023, arxiv.org/abs/2304.11277

Muon needs whole matrices. Those of one shape are stacked, (N,R,C); each rank gets some of the N, orthogonalises them,
and gives them back. So the ranks share this work, whether they hold replicas or shards.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_tensor
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from regard.parts.heads import Model
from regard.tasks.task import Loss, Task
from regard.training.optimizer import orthogonalize_stacked
from regard.training.ranks import Ranks

logging.getLogger("torch.distributed.tensor._collective_utils").setLevel(logging.ERROR)  # gloo has no all-to-all
MIN_SHARED = 64  # rows and columns of matrices that replicas divide: the bits of smaller products depend on addresses


class LossModule(nn.Module):
    """The loss of a task as a forward, around which DDP and FSDP2 communicate. It returns a tuple, which both know."""

    def __init__(self, model: Model):
        super().__init__()
        self.model = model

    def forward(self, task: Task, batch: Any) -> tuple[Tensor, int]:
        loss = task.loss(self.model, batch)
        return loss.total, loss.count


class Replica:
    """The model of this rank, whole or in shards. Sharding replaces its weights by `DTensor`s, whose names stay."""

    def __init__(self, model: Model, ranks: Ranks):
        self.model, self.ranks = model, ranks
        self.mesh = device_mesh(ranks.size, ranks.shards, next(model.parameters()).device.type)
        self.whole = without_weights(model) if ranks.is_sharded else None
        self.module = distribute(LossModule(model), self.mesh, ranks.is_sharded)

    def loss(self, task: Task, batch: Any) -> Loss:
        return Loss(*self.module(task, batch))

    def synchronized(self, is_last: bool) -> AbstractContextManager[None]:
        """Within the context the gradients of a batch are accumulated; those of the last one are summed over the ranks.
        Shards are summed after every batch, because a rank has no memory for whole gradients; replicas of them once."""
        if isinstance(self.module, DistributedDataParallel):
            return nullcontext() if is_last else self.module.no_sync()
        if isinstance(self.module, FSDPModule):
            self.module.set_requires_all_reduce(is_last)
        return nullcontext()

    def gather(self, tensor: Tensor) -> Tensor:
        """The whole of a tensor that is sharded, or is not. All ranks must call it."""
        return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor

    def divide(self, tensor: Tensor, weight: Tensor) -> Tensor:
        """The shard of a whole tensor, divided as `weight` is, if that is sharded and of the same shape."""
        if not isinstance(weight, DTensor) or tensor.shape != weight.shape:
            return tensor
        return distribute_tensor(tensor, weight.device_mesh, weight.placements, src_data_rank=None)

    @contextmanager
    def unsharded(self) -> Iterator[Model]:
        """The model, or a whole copy of it, which takes memory only within the context. All ranks enter it together."""
        if self.whole is None:
            yield self.model
            return
        for weight, part in zip(self.whole.parameters(), self.model.parameters(), strict=True):
            weight.data = self.gather(part.detach())
        try:
            yield self.whole
        finally:
            remove_weights(self.whole)

    def orthogonalize(self, stacked: Tensor, weight: Tensor) -> Tensor:
        """The steps of matrices like `weight`, stacked as (N,R,...), or of this rank's shards of them: each matrix is
        orthogonalised on one rank."""
        if not isinstance(weight, DTensor) and min(stacked.flatten(2).shape[1:]) < MIN_SHARED:
            return orthogonalize_stacked(stacked)
        placements = tuple(map(stacked_placement, weight.placements)) if isinstance(weight, DTensor) else (Replicate(),)
        shape = torch.Size((len(stacked), *weight.shape))
        shares = from_local(stacked, self.mesh, placements, shape).redistribute(placements=[Shard(0)] * self.mesh.ndim)
        own = shares.to_local()
        steps = orthogonalize_stacked(own) if len(own) else own
        return from_local(steps, self.mesh, shares.placements, shape).redistribute(placements=placements).to_local()


@cache
def device_mesh(size: int, shards: int, device_type: str) -> DeviceMesh:
    """The ranks in one dimension or, for replicas of shards, in two."""
    if 1 < shards < size:
        return init_device_mesh(device_type, (size // shards, shards), mesh_dim_names=("replicate", "shard"))
    return init_device_mesh(device_type, (size,))


def distribute(module: LossModule, mesh: DeviceMesh, is_sharded: bool) -> nn.Module:
    if not is_sharded:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # the new name of broadcast_buffers is too new
            replica = DistributedDataParallel(module, broadcast_buffers=False, static_graph=True)
        replica.register_comm_hook(None, lambda _, bucket: sum_gradients(bucket))
        return replica
    blocks = [block for parent in module.modules() if isinstance(parent, nn.ModuleList) for block in parent]
    for unit in (*reversed(blocks), module):
        sharded: FSDPModule = fully_shard(unit, mesh=mesh)
        sharded.set_force_sum_reduction_for_comms(True)  # gloo has no mean
        sharded.set_gradient_divide_factor(1.0)
    return module


def sum_gradients(bucket: GradBucket) -> Future[Tensor]:
    """DDP's own hook takes the mean; a loss is a sum, which is divided by the count of all ranks."""
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    future: Future[list[Tensor]] = work.get_future()
    return future.then(lambda finished: finished.value()[0])


def without_weights(model: Model) -> Model:
    """A copy whose weights are empty."""
    copy = deepcopy(model)
    remove_weights(copy)
    return copy


def remove_weights(model: Model) -> None:
    for weight in model.parameters():
        weight.data = weight.data.new_empty(0)


def stacked_placement(placement: Placement) -> Placement:
    """Of stacked tensors, whose dimensions follow that of the stack."""
    return Shard(placement.dim + 1) if isinstance(placement, Shard) else placement


def from_local(part: Tensor, mesh: DeviceMesh, placements: tuple[Placement, ...], shape: torch.Size) -> DTensor:
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(part.contiguous(), mesh, placements, run_check=False, shape=shape, stride=stride)
