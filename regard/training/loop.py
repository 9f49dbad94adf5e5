"""The training loop: a generator of steps. The caller prints, draws, saves or counts.

    for step in train_steps(Progress.new(model, train_options), task, examples, train_options):
        print(step.number, step.loss)

All randomness of a batch is a function of (seed, step, batch), and the position in the data is two integers: a run
that starts from a `Progress` continues the interrupted run bit for bit. Several ranks walk the same order of batches,
and each computes the gradients of its share.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from regard.data.batches import Examples, Ints, Position, iterate_batches, to_device
from regard.parts.heads import Model
from regard.seeds import derive_seed
from regard.tasks.task import Loss, Task
from regard.training import schedule
from regard.training.optimizer import EMA, build_optimizers, local, module_of, norms_by_module, scale_and_clip
from regard.training.passes import mixed_precision
from regard.training.ranks import SINGLE, Ranks
from regard.training.schedule import Revision
from regard.training.step_sums import sum_over_ranks
from regard.validate import check_fields, check_minimum

if TYPE_CHECKING:
    from regard.training.sharding import Replica

NORM_RECORDS = 500  # steps of a run, or slightly more, that record the gradient norm of each module
MAX_LENGTH = 10**9  # minutes or epochs: a longer run is a typing error


@dataclass(frozen=True)
class TrainOptions:
    """Length and optimisation of a training."""

    steps: int | None = None  # number of training steps; default: as many as fit into --minutes
    epochs: float | None = None  # instead of --steps: number of epochs
    minutes: float | None = None  # instead of --steps: minutes of the whole run; default: 3
    revisions: tuple[str, ...] = ()  # changes of --steps as STEP:STEPS, to repeat a run of --minutes bit for bit
    batch_tokens: int = 2048  # maximum tokens per batch with padding; of a pair, those of the longer side
    grad_accum: int = 1  # batches whose gradients are accumulated for one step, over all ranks
    optimizer: Literal["muon", "adamw", "sgd"] = "muon"  # muon = Muon for hidden matrices, AdamW for the rest
    lr: float | None = None  # peak learning rate; default: 0.64 / dim, with --from 0.2 / dim
    layer_decay: float = 1.0  # learning rate of a layer, relative to the layer above it
    schedule: Literal["wsd", "inverse-sqrt"] = "wsd"  # learning-rate schedule; wsd = warmup, stable, decay
    warmup_steps: int | None = None  # steps of linear warm-up; default: a tenth of the run, at most 2000
    decay_share: float = 0.6  # final share of the run in which wsd decays the learning rate to 1 % of its peak
    weight_decay: float = 0.01  # decoupled weight decay of the matrices
    grad_clip: float = 1.0  # maximum gradient norm; 0 = no clipping
    max_nonfinite: int = 0  # maximum number of steps to skip for a NaN or infinite loss or gradient
    ema: float = 0.998  # decay of the moving average of the weights, which is evaluated and saved; 0 = off
    dtype: Literal["fp32", "bf16"] | None = None  # of matrix products; default: bf16 on cuda, fp32 elsewhere
    seed: int = 1  # random seed

    def __post_init__(self) -> None:
        check_minimum(self, 1, "steps", "batch_tokens", "grad_accum")
        check_minimum(self, 0, "warmup_steps", "max_nonfinite")
        check_fields(
            self,
            epochs=(self.epochs is None or 0 < self.epochs <= MAX_LENGTH, f"above 0, and at most {MAX_LENGTH:,}"),
            minutes=(self.minutes is None or 0 < self.minutes <= MAX_LENGTH, f"above 0, and at most {MAX_LENGTH:,}"),
            revisions=(are_valid(self.revisions), "STEP:STEPS each, in order, with STEP at most STEPS"),
            lr=(self.lr is None or 0 < self.lr < math.inf, "above 0, and finite"),
            layer_decay=(0 < self.layer_decay <= 1, "above 0 and at most 1"),
            decay_share=(0 < self.decay_share <= 1, "above 0 and at most 1"),
            weight_decay=(0 <= self.weight_decay < math.inf, "0 or more, and finite"),
            grad_clip=(0 <= self.grad_clip < math.inf, "0 or more, and finite"),
            ema=(0 <= self.ema < 1, "at least 0 and below 1"),
            seed=(0 <= self.seed < 2**63, "0 or more, and below 2^63"),
        )

    def with_revision(self, revision: Revision) -> TrainOptions:
        return replace(self, revisions=(*self.revisions, f"{revision.step}:{revision.steps}"))

    def total_steps(self, step: int) -> int:
        """The number of steps of the run, by the last revision up to `step`."""
        assert self.steps, "the number of steps is not set"
        return next((r.steps for r in reversed(parse_revisions(self.revisions)) if r.step <= step), self.steps)

    def lr_at(self, step: int) -> float:
        assert self.steps, "the number of steps is not set"
        assert self.lr
        assert self.warmup_steps is not None
        if self.schedule == "wsd":
            revisions = parse_revisions(self.revisions)
            return self.lr * schedule.wsd(step, self.steps, self.warmup_steps, self.decay_share, revisions)
        return self.lr * schedule.inverse_sqrt(step, self.warmup_steps)


@cache
def parse_revisions(revisions: tuple[str, ...]) -> list[Revision]:
    return [Revision(*map(int, text.split(":"))) for text in revisions]


def are_valid(revisions: tuple[str, ...]) -> bool:
    if not all(re.fullmatch(r"[1-9]\d{0,17}:[1-9]\d{0,17}", text) for text in revisions):
        return False
    steps = [revision.step for revision in parse_revisions(revisions)]
    return steps == sorted({*steps}) and all(r.step <= r.steps for r in parse_revisions(revisions))


@dataclass(frozen=True)
class Step:
    number: int  # completed steps, this one included
    loss: float  # mean over the batch, with label smoothing; NaN if the step was skipped
    lr: float
    grad_norm: float  # before clipping
    count: int  # units of the batch, as the task counts them
    seconds: float
    position: Position  # of the next batch
    module_grad_norms: dict[str, float] = field(default_factory=dict)  # of each module, at steps that record them
    scores: dict[str, Any] = field(default_factory=dict)  # of the validation set, at steps that evaluate it


class NonFiniteError(FloatingPointError):
    """The loss or the gradient of a step is NaN or infinite; the step changed no weights."""

    def __init__(self, step: int, loss: float, grad_norm: float, rows: Ints):
        super().__init__(f"step {step}: the loss is {loss} and the gradient norm {grad_norm}")
        self.step, self.rows = step, rows


@dataclass
class Progress:
    """The state of a training: all that it needs to continue."""

    model: Model
    optimizers: list[torch.optim.Optimizer]
    ema: EMA | None
    step: int = 0
    position: Position = field(default_factory=Position)
    num_skipped: int = 0  # non-finite steps
    buffers: list[Tensor] | None = None  # during a step, those before it: batch norms update theirs in the forward
    lock: RLock = field(default_factory=RLock)  # held while weights change: another thread may save a complete step
    is_updating: bool = False  # from the first change of the weights in a step to the last, or to an error between them
    ranks: Ranks = SINGLE
    replica: Replica | None = None  # the model on several ranks
    stop: Callable[[], bool] = bool  # whether this process is to stop after the step
    is_stopping: bool = False  # whether any rank is, as all agreed in the last step
    clock: float = 0.0  # seconds: the time of the last step on all ranks

    @classmethod
    def new(cls, model: Model, train_options: TrainOptions, ranks: Ranks = SINGLE) -> Progress:
        o, replica = train_options, None
        if ranks.size > 1:
            from regard.training.sharding import Replica  # imports for half a second

            replica = Replica(model, ranks)  # before the optimizers: shards replace the weights
        orthogonalize = None if replica is None else replica.orthogonalize
        optimizers = build_optimizers(model, o.weight_decay, o.optimizer, o.layer_decay, orthogonalize)
        progress = cls(model, optimizers, None, ranks=ranks, replica=replica)
        progress.ema = EMA(model, o.ema, progress.lock) if o.ema else None
        return progress

    def loss(self, task: Task, batch: Any) -> Loss:
        """On several ranks through the module around which they communicate."""
        return task.loss(self.model, batch) if self.replica is None else self.replica.loss(task, batch)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Within the context the model holds the moving averages of its weights, if there are any."""
        with nullcontext() if self.ema is None or self.ema.swapped else self.ema.average_parameters():
            yield

    @contextmanager
    def unsharded(self) -> Iterator[Model]:
        """The model, or a whole copy of a sharded one, which takes memory only within the context."""
        if self.replica is None:
            yield self.model
        else:
            with self.replica.unsharded() as model:
                yield model


def train_steps(progress: Progress, task: Task, examples: Examples, train_options: TrainOptions) -> Iterator[Step]:
    model, ranks = progress.model, progress.ranks
    weights = list(model.parameters())
    modules = [module_of(name) for name, _ in model.named_parameters()]
    device = weights[0].device
    autocast = mixed_precision(device, train_options.dtype)
    batches = iterate_batches(examples, train_options.batch_tokens, train_options.seed, progress.position)
    assert train_options.steps
    while progress.step < train_options.total_steps(progress.step):
        start = time.perf_counter()
        lr = train_options.lr_at(progress.step)
        for group in (group for optimizer in progress.optimizers for group in optimizer.param_groups):
            group["lr"] = lr * group.get("lr_scale", 1.0)
        total, count, batch_rows, position = 0.0, 0, list[Ints](), progress.position
        progress.buffers = [buffer.clone() for buffer in model.buffers()]
        model.train()
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):  # keeps the caller's generator
            for number in range(train_options.grad_accum):
                position, rows = next(batches)
                batch_rows.append(rows)
                if not ranks.own(number):
                    continue
                torch.manual_seed(derive_seed(train_options.seed, progress.step, number))
                batch = to_device(task.collate(examples, rows), device)
                is_last = number + ranks.size >= train_options.grad_accum
                with progress.replica.synchronized(is_last) if progress.replica else nullcontext():
                    with autocast:
                        loss = progress.loss(task, batch)
                    loss.total.backward()
                total, count = total + loss.total.item(), count + loss.count
        shards = local(w.grad for w in weights if w.grad is not None) if ranks.is_sharded else None
        sums = sum_over_ranks(ranks, total, count, progress.stop(), time.perf_counter(), shards)
        total, count, progress.is_stopping = sums.loss, sums.count, sums.stop
        total_norm, weight_norms = scale_and_clip(weights, count, train_options.grad_clip, sums.norms)
        grad_norm = total_norm.item()
        if not math.isfinite(grad_norm) or not math.isfinite(total):
            model.zero_grad()
            with progress.lock:
                with torch.no_grad():
                    for buffer, before in zip(model.buffers(), progress.buffers, strict=True):
                        buffer.copy_(before)
                progress.buffers = None
                if progress.num_skipped == train_options.max_nonfinite:
                    raise NonFiniteError(progress.step + 1, total / count, grad_norm, np.concatenate(batch_rows))
                progress.step, progress.num_skipped = progress.step + 1, progress.num_skipped + 1
                progress.position = position
            progress.clock = sums.clock if ranks.size > 1 else time.perf_counter()
            yield Step(progress.step, math.nan, lr, math.nan, count, time.perf_counter() - start, position)
            continue
        module_grad_norms: dict[str, float] = {}
        if progress.step % max(1, train_options.steps // NORM_RECORDS) == 0:
            with_grad = (module for module, weight in zip(modules, weights, strict=True) if weight.grad is not None)
            module_grad_norms = norms_by_module(with_grad, weight_norms.tolist())
        with progress.lock:
            progress.is_updating = True
            for optimizer in progress.optimizers:
                optimizer.step()
            if progress.ema is not None:
                progress.ema.update(progress.step)
            progress.step, progress.position, progress.buffers = progress.step + 1, position, None
            progress.is_updating = False
        model.zero_grad()
        now = time.perf_counter()
        seconds, progress.clock = now - start, sums.clock if ranks.size > 1 else now
        yield Step(progress.step, total / count, lr, grad_norm, count, seconds, position, module_grad_norms)


def num_parameters(model: nn.Module) -> int:
    return sum(w.numel() for w in model.parameters())
