"""The loop: a generator of steps. Whoever runs it prints, draws, saves or counts; it only learns.

    for step in learn(Progress.new(model, plan), task, examples, plan):
        print(step.number, step.loss)

Everything random in a step follows from (seed, step), and the position in the data is two integers, so a run that
starts from a `Progress` is the run that was interrupted.
"""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from threading import RLock
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from regard.data.batches import Examples, Ints, Position, forever, to_device
from regard.parts.heads import Model
from regard.tasks.task import Task
from regard.training import schedule
from regard.training.optimizer import Average, by_parts, optimizers, part_of, scale_and_clip
from regard.training.schedule import Revision
from regard.validate import check_fields

MEASURED = 500  # times in a run, or somewhat more, that the gradient of each part is measured
MOST = 10**9  # minutes or epochs: a longer run is a mistake in typing


@dataclass(frozen=True)
class Plan:
    """How long and how fast to learn."""

    steps: int | None = None  # train for this many steps
    epochs: float | None = None  # or for so many passes over the data
    minutes: float | None = None  # or for so long, by timing the steps as they go; 3 if no length is given
    revisions: tuple[str, ...] = ()  # changes of the number of steps, as STEP:STEPS, to repeat a run of --minutes
    batch_tokens: int = 2048  # most tokens of a batch, counted on its longer side with padding
    accumulate: int = 1  # batches whose gradients make one step
    optimizer: Literal["muon", "adamw", "sgd"] = "muon"  # muon leaves embeddings, output, gains and biases to adamw
    rate: float | None = None  # highest learning rate; 0.64 / dim unless given, 0.2 / dim with --from
    layer_decay: float = 1.0  # each layer learns at this share of the rate of the one above it
    schedule: Literal["decay", "inverse-square-root"] = "decay"  # how the rate goes over the run
    warmup: int | None = None  # steps until the rate is highest; a tenth of the run, at most 2000, unless given
    decay: float = 0.6  # share of the run over which the rate falls to 1 % of its peak
    weight_decay: float = 0.01  # pull of the matrices towards 0
    clip: float = 1.0  # longest gradient; 0 for no limit
    skip_nonfinite: int = 0  # most steps that are passed over because a number in them is none
    average: float = 0.998  # moving average of the weights, used for validation and saved; 0 for none
    seed: int = 1  # of everything random

    def __post_init__(self) -> None:
        check_fields(
            self,
            steps=(self.steps is None or self.steps >= 1, "at least 1"),
            epochs=(self.epochs is None or 0 < self.epochs <= MOST, f"above 0, and at most {MOST:,}"),
            minutes=(self.minutes is None or 0 < self.minutes <= MOST, f"above 0, and at most {MOST:,}"),
            revisions=(in_order(self.revisions), "STEP:STEPS each, in order, with no more steps done than there are"),
            batch_tokens=(self.batch_tokens >= 1, "at least 1"),
            accumulate=(self.accumulate >= 1, "at least 1"),
            rate=(self.rate is None or 0 < self.rate < math.inf, "above 0, and finite"),
            layer_decay=(0 < self.layer_decay <= 1, "above 0 and at most 1"),
            warmup=(self.warmup is None or self.warmup >= 0, "0 or more"),
            decay=(0 < self.decay <= 1, "above 0 and at most 1"),
            weight_decay=(0 <= self.weight_decay < math.inf, "0 or more, and finite"),
            clip=(0 <= self.clip < math.inf, "0 or more, and finite"),
            skip_nonfinite=(self.skip_nonfinite >= 0, "0 or more"),
            average=(0 <= self.average < 1, "at least 0 and below 1"),
            seed=(0 <= self.seed < 2**63, "0 or more, and below 2^63"),
        )

    def revised(self, revision: Revision) -> Plan:
        return replace(self, revisions=(*self.revisions, f"{revision.step}:{revision.steps}"))

    def length(self, step: int) -> int:
        """The number of steps in all, as it is known after so many."""
        assert self.steps, "the plan is not settled yet"
        return next((r.steps for r in reversed(parsed(self.revisions)) if r.step <= step), self.steps)

    def rate_at(self, step: int) -> float:
        assert self.steps, "the plan is not settled yet"
        assert self.rate
        assert self.warmup is not None
        if self.schedule == "decay":
            revisions = parsed(self.revisions)
            return self.rate * schedule.decay(step, self.steps, self.warmup, self.decay, revisions)
        return self.rate * schedule.inverse_square_root(step, self.warmup)


@cache
def parsed(revisions: tuple[str, ...]) -> list[Revision]:
    return [Revision(*map(int, text.split(":"))) for text in revisions]


def in_order(revisions: tuple[str, ...]) -> bool:
    if not all(re.fullmatch(r"[1-9]\d{0,17}:[1-9]\d{0,17}", text) for text in revisions):
        return False
    steps = [revision.step for revision in parsed(revisions)]
    return steps == sorted({*steps}) and all(r.step <= r.steps for r in parsed(revisions))


@dataclass(frozen=True)
class Step:
    number: int  # steps done, this one included
    loss: float  # mean of the batch, with label smoothing; NaN if nothing was learnt from it
    rate: float
    norm: float  # length of the gradient before clipping
    count: int  # units learnt from, as the task counts them
    seconds: float
    position: Position  # of the next batch
    norms: dict[str, float] = field(default_factory=dict)  # the same of each part, where it was measured
    scores: dict[str, Any] = field(default_factory=dict)  # of the validation set, where it was looked at


class NotFinite(FloatingPointError):
    """A step whose loss or gradient is no number: nothing was learnt from it."""

    def __init__(self, step: int, loss: float, norm: float, rows: Ints):
        super().__init__(f"step {step}: the loss is {loss} and the gradient's length {norm}")
        self.step, self.rows = step, rows


@dataclass
class Progress:
    """Where a run stands, and what it needs to go on."""

    model: Model
    optimizers: list[torch.optim.Optimizer]
    average: Average | None
    step: int = 0
    position: Position = field(default_factory=Position)
    skipped: int = 0  # steps that were passed over
    buffers: list[Tensor] | None = None  # while a step lasts, those from before it: batch norms count while they look
    lock: RLock = field(default_factory=RLock)  # held while weights change: another thread may save a whole step

    @classmethod
    def new(cls, model: Model, plan: Plan) -> Progress:
        made = optimizers(model, plan.weight_decay, plan.optimizer, plan.layer_decay)
        progress = cls(model, made, None)
        progress.average = Average(model, plan.average, progress.lock) if plan.average else None
        return progress


def learn(progress: Progress, task: Task, examples: Examples, plan: Plan) -> Iterator[Step]:
    model = progress.model
    weights = list(model.parameters())
    parts = [part_of(name) for name, _ in model.named_parameters()]
    device = weights[0].device
    half = torch.autocast("cuda", torch.bfloat16) if device.type == "cuda" else nullcontext()
    batches = forever(examples, plan.batch_tokens, plan.seed, progress.position)
    assert plan.steps
    while progress.step < plan.length(progress.step):
        began = time.perf_counter()
        rate = plan.rate_at(progress.step)
        for group in (group for optimizer in progress.optimizers for group in optimizer.param_groups):
            group["lr"] = rate * group.get("times", 1.0)
        total, count, learnt, position = 0.0, 0, list[Ints](), progress.position
        progress.buffers = [buffer.clone() for buffer in model.buffers()]
        model.train()
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):  # the caller's stay its own
            torch.manual_seed(number_from(plan.seed, progress.step))
            for _ in range(plan.accumulate):
                position, rows = next(batches)
                learnt.append(rows)
                batch = to_device(task.batch(examples, rows), device)
                with half:
                    loss = task.loss(model, batch)
                loss.total.backward()
                total, count = total + loss.total.item(), count + loss.count
        whole, each = scale_and_clip(weights, count, plan.clip)
        norm = whole.item()
        if not math.isfinite(norm) or not math.isfinite(total):
            model.zero_grad()
            with progress.lock:
                put_back(model, progress.buffers)
                progress.buffers = None
                if progress.skipped == plan.skip_nonfinite:
                    raise NotFinite(progress.step + 1, total / count, norm, np.concatenate(learnt))
                progress.step, progress.skipped = progress.step + 1, progress.skipped + 1
                progress.position = position
            yield Step(progress.step, math.nan, rate, math.nan, count, time.perf_counter() - began, position)
            continue
        norms: dict[str, float] = {}
        if progress.step % max(1, plan.steps // MEASURED) == 0:
            learning = (part for part, weight in zip(parts, weights, strict=True) if weight.grad is not None)
            norms = by_parts(learning, each.tolist())
        with progress.lock:
            for optimizer in progress.optimizers:
                optimizer.step()
            if progress.average is not None:
                progress.average.update(progress.step)
            progress.step, progress.position, progress.buffers = progress.step + 1, position, None
        model.zero_grad()
        seconds = time.perf_counter() - began
        yield Step(progress.step, total / count, rate, norm, count, seconds, position, norms)


@torch.no_grad()
def put_back(model: Model, buffers: list[Tensor]) -> None:
    for buffer, before in zip(model.buffers(), buffers, strict=True):
        buffer.copy_(before)


def number_from(seed: int, step: int) -> int:
    """A seed for this step that no other step or seed shares."""
    return int.from_bytes(hashlib.blake2b(f"{seed}/{step}".encode(), digest_size=7).digest())


def parameters(model: nn.Module) -> int:
    return sum(w.numel() for w in model.parameters())
