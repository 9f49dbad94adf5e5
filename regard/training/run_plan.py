"""What a run costs before it starts: its data, one step, its length, and its time; nothing is written or trained.

plan = plan_run(settings)                            on this machine: times are measured
plan = plan_run(settings, parse_gpus("8xH100"))      on GPUs: times are computed (training/gpu_plan.py)
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any

import torch

from regard.data.batches import Examples
from regard.data.documents import RowSet, first_rows
from regard.data.splits import Data
from regard.data.token_corpus import TokenWindows
from regard.device import set_num_threads
from regard.parts.heads import Model
from regard.tasks.task import Task
from regard.training.build import any_config_for, check_sizes, encode_examples, fit_task, read_data
from regard.training.estimate import StepCost, StepEstimator, random_model
from regard.training.file_job import DEFAULT_MINUTES
from regard.training.gpu_plan import DEFAULT_MFU, Cluster, Layout, best_layout, candidate_shards, plan_layout
from regard.training.loop import num_parameters
from regard.training.passes import find_blocks
from regard.training.scaling_laws import ScalingAdvice, scaling_advice
from regard.training.settings import Settings
from regard.training.step_times import StepTimes, measure_times
from regard.training.time_budget import MAX_EVAL_SHARE, PLANNED_SHARE, steps_per_epoch


@dataclass(frozen=True)
class RunPlan:
    settings: Settings  # with the options that the data determine
    task: Task
    cost: StepCost
    steps: int
    evals: int
    grad_accum: int  # batches of a step
    epochs: float
    units_per_epoch: int  # tokens, rows ...: what the task counts
    startup_seconds: float  # reading and encoding the data
    advice: ScalingAdvice | None  # for language models
    step_seconds: float | None  # None if this machine has no memory to measure it
    times: StepTimes | None = None  # measured on this machine
    is_whole: bool = True  # the whole model was measured, not one and two of its blocks
    cluster: Cluster | None = None
    layouts: tuple[Layout, ...] = ()
    layout: Layout | None = None  # the fastest of those that fit

    @property
    def step_flops(self) -> float:
        return self.cost.flops(self.grad_accum)

    @property
    def flops(self) -> float:
        """Of all steps."""
        return self.steps * self.step_flops

    @property
    def seconds(self) -> float | None:
        """Of the run; on GPUs without reading data and evaluation, whose share is small."""
        if self.step_seconds is None:
            return None
        if self.times is None:
            return self.steps * self.step_seconds
        return self.startup_seconds + self.steps * self.step_seconds + evaluation_seconds(self.times, self.evals)

    def price(self, per_hour: float) -> float | None:
        """Of the run, by that of a GPU, or of this machine, per hour."""
        return (
            None
            if self.seconds is None
            else per_hour * self.seconds / 3600 * (self.cluster.count if self.cluster else 1)
        )


@dataclass(frozen=True)
class PreparedRun:
    """The data of a run as the model reads them, and the config of the model, which was not built."""

    settings: Settings
    task: Task
    config: Any
    data: Data
    examples: Examples
    seconds: float  # that this took

    @property
    def valid_rows(self) -> RowSet:
        return first_rows(self.data.sets["valid"], self.settings.run_options.eval_examples or self.task.eval_limit)


def prepare_run(settings: Settings) -> PreparedRun:
    start = time.perf_counter()
    if settings.run_options.threads:
        set_num_threads(settings.run_options.threads)
    data = read_data(settings)
    settings, task = fit_task(settings, data.sets["train"])
    config = any_config_for(settings, task)
    check_sizes(config, settings.fit.body)
    settings, examples = encode_examples(settings, task, getattr(config, "context", 0), data.sets["train"])
    return PreparedRun(settings, task, config, data, examples, time.perf_counter() - start)


def plan_run(settings: Settings, cluster: Cluster | None = None, mfu: float = DEFAULT_MFU) -> RunPlan:
    """On this machine, or on GPUs that reach the share `mfu` of their peak."""
    run = prepare_run(settings)
    return plan_on_gpus(run, cluster, mfu) if cluster else plan_here(run)


def plan_here(run: PreparedRun) -> RunPlan:
    estimator = StepEstimator(run.settings, run.task, run.examples)
    cost = estimator.cost(run.config)
    times, is_whole = measure_times(estimator, run.config, cost, run.valid_rows, run.data.sets.get("test"))
    steps, evals = run_length(run, run.settings.train_options.grad_accum, times and times.step, times)
    return make_plan(run, cost, steps, evals, times=times, is_whole=is_whole, step_seconds=times and times.step)


def plan_on_gpus(run: PreparedRun, cluster: Cluster, mfu: float) -> RunPlan:
    """Every rank computes at least one batch of a step, and all the same number."""
    options, estimator = run.settings.train_options, StepEstimator(run.settings, run.task, run.examples)
    grad_accum = math.ceil(options.grad_accum / cluster.count) * cluster.count
    block, choices = largest_block(run), recompute_choices(run)
    costs = {recompute: estimator.cost(run.config, "bf16", recompute) for recompute in choices}
    layouts = [
        plan_layout(cluster, cost, recompute, shards, grad_accum, options.batch_tokens, block, mfu)
        for shards in candidate_shards(cluster, run.settings.run_options.shards)
        for recompute, cost in costs.items()
    ]
    layout = best_layout(layouts, options.batch_tokens)
    cost = costs[layout.recompute if layout else choices[-1]]
    step_seconds = cost.flops(grad_accum) / (cluster.count * cluster.gpu.peak * mfu)
    steps, evals = run_length(run, grad_accum, step_seconds, None)
    return make_plan(
        run,
        cost,
        steps,
        evals,
        grad_accum,
        step_seconds=step_seconds,
        cluster=cluster,
        layouts=(*layouts,),
        layout=layout,
    )


def make_plan(
    run: PreparedRun, cost: StepCost, steps: int, evals: int, grad_accum: int | None = None, **fields: Any
) -> RunPlan:
    options, examples = run.settings.train_options, run.examples
    grad_accum = grad_accum or options.grad_accum
    epochs = steps / epoch_steps(run, grad_accum)
    advice = None
    if isinstance(examples, TokenWindows):
        flops = steps * cost.flops(grad_accum)
        advice = scaling_advice(cost.parameters, flops, epochs * len(examples.corpus), len(examples.corpus))
    return RunPlan(
        run.settings, run.task, cost, steps, evals, grad_accum, epochs, examples.units, run.seconds, advice, **fields
    )


def run_length(run: PreparedRun, grad_accum: int, step: float | None, times: StepTimes | None) -> tuple[int, int]:
    """The steps and evaluations of the run: as many as fit into --minutes, unless steps or epochs are set."""
    options, evals = run.settings.train_options, run.settings.run_options.evals
    if options.steps is not None:
        return options.steps, evals
    if options.epochs is not None:
        return max(1, round(options.epochs * epoch_steps(run, grad_accum))), evals
    seconds = 60 * (DEFAULT_MINUTES if options.minutes is None else options.minutes)
    if times is not None:
        evals = min(evals, max(1, int(MAX_EVAL_SHARE * seconds / times.evaluation)))
        seconds -= run.seconds + evaluation_seconds(times, evals)
    return (max(1, int(PLANNED_SHARE * seconds / step)) if step else 0), evals


def epoch_steps(run: PreparedRun, grad_accum: int) -> float:
    return steps_per_epoch(run.examples, replace(run.settings.train_options, grad_accum=grad_accum))


def evaluation_seconds(times: StepTimes, evals: int) -> float:
    """Of all evaluations and the test."""
    return evals * times.evaluation + times.test


def recompute_choices(run: PreparedRun) -> tuple[bool, ...]:
    """Whether to recompute: as the run does if it does, and not where a model has no blocks."""
    if run.settings.run_options.recompute:
        return (True,)
    return (False, True) if any(find_blocks(unbuilt_model(run).body)) else (False,)


def largest_block(run: PreparedRun) -> int:
    """The parameters of the largest block, which FSDP gathers; of the whole model if it has no blocks."""
    model = unbuilt_model(run)
    return max(map(num_parameters, find_blocks(model.body)), default=num_parameters(model))


def unbuilt_model(run: PreparedRun) -> Model:
    """With weights that have a shape and no storage."""
    with torch.device("meta"):
        return random_model(run.settings, run.task, run.config)
