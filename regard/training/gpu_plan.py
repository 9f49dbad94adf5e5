"""A training step on GPUs, on paper: which layouts fit, and what they take.

    arithmetic = FLOPs / (GPUs · peak · MFU)                        recomputed FLOPs count as well
    memory = states / shards + bf16 weights + activations           of each GPU; FSDP has those of few blocks
    communication = bytes that a GPU sends / bandwidth              FSDP: weights twice and gradients once per batch

Nothing is measured: peak, memory and bandwidths are those of data sheets, the MFU is an assumption. FSDP: Zhao et al.
2023. Check value: Narayanan et al. 2021 trained 175 B parameters on 1,024 A100 at 45 % of their peak.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from regard.training.estimate import StepCost
from regard.validate import check_choice


class GPU(NamedTuple):
    peak: float  # FLOP/s in bf16, without sparsity
    memory: float  # bytes
    bandwidth: float  # bytes/s of its memory
    link: float  # bytes/s that it sends to the others of its node
    network: float  # bytes/s that it sends to other nodes
    node: int = 8  # GPUs of a node


GPUS = {  # data sheets; network: one adapter of 200 or 400 Gbit/s per GPU of a data centre, else one for the node
    "L4": GPU(121e12, 24e9, 300e9, 32e9, 1.5e9),
    "A10G": GPU(70e12, 24e9, 600e9, 32e9, 1.5e9),
    "L40S": GPU(362e12, 48e9, 864e9, 32e9, 12.5e9),
    "RTX3090": GPU(71e12, 24e9, 936e9, 32e9, 1.25e9),
    "RTX4090": GPU(165e12, 24e9, 1008e9, 32e9, 1.25e9),
    "RTX5090": GPU(209e12, 32e9, 1792e9, 64e9, 1.25e9),
    "A100-40GB": GPU(312e12, 40e9, 1555e9, 300e9, 25e9),
    "A100": GPU(312e12, 80e9, 2039e9, 300e9, 25e9),
    "H100": GPU(989e12, 80e9, 3350e9, 450e9, 50e9),
    "H200": GPU(989e12, 141e9, 4800e9, 450e9, 50e9),
    "B200": GPU(2250e12, 180e9, 8000e9, 900e9, 50e9),
    "MI300X": GPU(1307e12, 192e9, 5300e9, 448e9, 50e9),
}
DEFAULT_MFU = 0.4  # a common share of the peak for large models in bf16
USABLE_MEMORY = 0.9  # share of a GPU's memory; the rest is for CUDA, NCCL and fragmentation
BF16 = 2  # bytes of a weight in the forward and backward pass
GATHERED_BLOCKS = 2  # whole blocks that FSDP holds: the one that computes, and the next
FSDP_BYTES = 6  # per parameter and batch: bf16 weights gathered forward and backward, bf16 gradients summed
DDP_BYTES = 8  # per parameter and step: fp32 gradients, summed and given back


@dataclass(frozen=True)
class Cluster:
    """`count` GPUs of one kind."""

    count: int
    name: str

    @property
    def gpu(self) -> GPU:
        return GPUS[self.name]

    def bandwidth(self, ranks: int) -> float:
        """Of a GPU to the others of a group of consecutive ranks."""
        return self.gpu.link if ranks <= self.gpu.node else self.gpu.network


def parse_gpus(text: str) -> Cluster:
    """8xH100, or H100 for one."""
    match = re.fullmatch(r"(?:(\d{1,7})\s*[x*])?\s*([A-Za-z][\w-]*)", text.strip())
    if match is None or match[1] is not None and int(match[1]) < 1:
        raise ValueError(f"gpus must be a number of GPUs and their name, as 8xH100, not {text!r}")
    name = next((known for known in GPUS if known.lower() == match[2].lower()), match[2])
    check_choice("GPU", name, GPUS)
    return Cluster(int(match[1] or 1), name)


class Layout(NamedTuple):
    """A way to divide a run among GPUs."""

    shards: int  # parts of weights, gradients and optimizer state
    recompute: bool  # activations are computed again in the backward pass
    memory: float  # bytes of each GPU
    max_batch_tokens: int  # that fit
    arithmetic: float  # seconds of a step
    communication: float  # seconds of a step, most of them during the arithmetic

    @property
    def fits(self) -> bool:
        return self.max_batch_tokens > 0

    @property
    def seconds(self) -> float:
        """Of a step, if all communication is hidden behind arithmetic."""
        return max(self.arithmetic, self.communication)


def plan_layout(
    cluster: Cluster,
    cost: StepCost,
    recompute: bool,
    shards: int,
    batches: int,
    batch_tokens: int,
    block: float,
    mfu: float,
) -> Layout:
    """`batches` of a step over all GPUs, at most `batch_tokens` each; `block` is the parameters of the largest block,
    `cost` that of one GPU with all weights."""
    gpu, memory = cluster.gpu, cost.memory
    weights = BF16 * (GATHERED_BLOCKS * block if shards > 1 else cost.parameters)
    fixed = memory.states / shards + weights
    room = USABLE_MEMORY * gpu.memory - fixed
    fits = memory.states / shards + memory.update / cluster.count <= USABLE_MEMORY * gpu.memory
    return Layout(
        shards,
        recompute,
        max(fixed + memory.activations, memory.states / shards + memory.update / cluster.count),
        max(0, int(room * batch_tokens / memory.activations)) if fits else 0,
        cost.flops(batches) / (cluster.count * gpu.peak * mfu),
        communication_seconds(cluster, cost.parameters, shards, math.ceil(batches / cluster.count)),
    )


def communication_seconds(cluster: Cluster, parameters: int, shards: int, batches: int) -> float:
    """Of a step with `batches` on each GPU: of the shards for every batch, of the replicas once."""
    sharded = FSDP_BYTES * parameters * batches * (shards - 1) / shards / cluster.bandwidth(shards)
    replicas = cluster.count // shards
    return sharded + DDP_BYTES * parameters / shards * (replicas - 1) / replicas / cluster.bandwidth(cluster.count)


def candidate_shards(cluster: Cluster, shards: int = 1) -> list[int]:
    """`shards` if more than one are set, else none, those of a node, all, and the powers of two between."""
    if cluster.count % shards:
        raise ValueError(f"--shards {shards} does not divide {cluster.count} GPUs")
    if shards > 1:
        return [shards]
    powers = [2**i for i in range(cluster.count.bit_length())]
    return [n for n in sorted({*powers, cluster.gpu.node, cluster.count}) if cluster.count % n == 0]


def best_layout(layouts: Iterable[Layout], batch_tokens: int) -> Layout | None:
    """The fastest that fits; of equal ones that with the fewest shards, and without recomputation."""
    fitting = [layout for layout in layouts if layout.max_batch_tokens >= batch_tokens]
    return min(fitting, key=lambda layout: (layout.seconds, layout.recompute, layout.shards), default=None)
