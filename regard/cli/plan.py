"""regard plan TASK: what a run costs before it starts: parameters, FLOPs, memory, time and price.

It takes the options of `regard train TASK`, reads the data, and measures a few steps on this machine. With --gpus it
computes a run on GPUs from their data sheets. It trains nothing and writes nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from regard.cli.amounts import format_bytes, format_number, format_parameters, format_time, round_down
from regard.cli.help import show_help
from regard.cli.train import parse_task
from regard.options import make, options_of
from regard.tasks.predict import EnvOptions
from regard.training.gpu_plan import DEFAULT_MFU, Cluster, Layout, parse_gpus
from regard.training.run_plan import RunPlan, plan_run
from regard.training.scaling_laws import GOOD_EPOCHS, TOKENS_PER_PARAMETER
from regard.training.start import new_settings
from regard.training.time_budget import FEW_STEPS
from regard.validate import check_fields

SHORT_BATCH = 0.05  # seconds of a batch on a GPU


@dataclass
class PlanOptions:
    """Where the run is to take place. Without --gpus it is planned for this machine."""

    gpus: str | None = None  # number and kind of GPUs, as 8xH100; computed from data sheets, not measured
    mfu: float = DEFAULT_MFU  # share of the GPUs' peak FLOP/s that training reaches, recomputed FLOPs included
    price: float | None = None  # price of an hour of a GPU, or of this machine
    json: bool = False  # print the plan as one JSON object

    def __post_init__(self) -> None:
        check_fields(
            self,
            mfu=(0 < self.mfu <= 1, "above 0 and at most 1"),
            price=(self.price is None or self.price >= 0, "0 or more"),
        )

    @property
    def cluster(self) -> Cluster | None:
        return None if self.gpus is None else parse_gpus(self.gpus)


def main(args: list[str]) -> int:
    if not args:
        return show_help("plan")
    command = options_of(PlanOptions)
    values = parse_task("plan", args, command)
    options = make(PlanOptions, values)
    cluster = options.cluster
    settings = new_settings(args[0], **{name: value for name, value in values.items() if name not in command})
    if settings.run_options.resume:
        raise ValueError("plan is for a run that has not started: leave out --resume")
    if settings.input_options[EnvOptions].env:
        raise ValueError("plan is for a run on files, not in an environment: leave out --env")
    plan = plan_run(settings, cluster, options.mfu)
    print(json.dumps(to_json(plan, options)) if options.json else format_plan(plan, options))
    return 0


def to_json(plan: RunPlan, options: PlanOptions) -> dict[str, object]:
    """All numbers, in bytes, FLOPs and seconds."""
    memory = plan.cost.memory
    plain = {
        "task": plan.settings.task,
        "model": plan.settings.model,
        "parameters": plan.cost.parameters,
        "memory": {**memory._asdict(), "total": memory.total},
        "flops": {
            "batch": plan.cost.batch_flops,
            "update": plan.cost.update_flops,
            "step": plan.step_flops,
            "run": plan.flops,
        },
        "steps": plan.steps,
        "grad_accum": plan.grad_accum,
        "epochs": plan.epochs,
        "seconds": {"step": plan.step_seconds, "run": plan.seconds},
        "price": None if options.price is None else plan.price(options.price),
    }
    if plan.times:
        plain |= {"measured": "whole" if plan.is_whole else "blocks", "evaluation_seconds": plan.times.evaluation}
    if plan.cluster:
        layouts = [{**layout._asdict(), "seconds": layout.seconds} for layout in plan.layouts]
        best = plan.layouts.index(plan.layout) if plan.layout else None
        plain |= {"gpus": asdict_gpu(plan.cluster), "mfu": options.mfu, "layouts": layouts, "best_layout": best}
    return plain | ({"scaling": plan.advice._asdict()} if plan.advice else {})


def asdict_gpu(cluster: Cluster) -> dict[str, object]:
    return {"count": cluster.count, "name": cluster.name, **cluster.gpu._asdict()}


def format_plan(plan: RunPlan, options: PlanOptions) -> str:
    where = format_cluster(plan, options) if plan.cluster else format_times(plan)
    lines = [*format_model(plan), "", *where, "", *format_run(plan, options)]
    return "\n".join([*lines, *format_advice(plan)])


def format_model(plan: RunPlan) -> list[str]:
    settings, memory = plan.settings, plan.cost.memory
    size = "" if settings.run_options.from_ else f" {settings.size}"
    head = f"{'memory of a step':<20}" + "".join(f"{name:>12}" for name in (*memory._fields, "peak"))
    row = f"{'tensors':<20}" + "".join(f"{format_bytes(value):>12}" for value in (*memory, memory.total))
    shares = f"{plan.cost.update_flops / plan.step_flops:.0%} of them of the optimizer"
    return [
        f"{settings.task}, {settings.model}{size}: {plan.cost.parameters:,} parameters",
        f"a step: {format_number(plan.step_flops, 'FLOP')}, {shares}; {format_batches(plan)}",
        "",
        head,
        row,
    ]


def format_batches(plan: RunPlan) -> str:
    options = plan.settings.train_options
    batches = f"{plan.grad_accum:,} batches" if plan.grad_accum > 1 else "1 batch"
    return f"{batches} of at most {options.batch_tokens:,} tokens"


def format_times(plan: RunPlan) -> list[str]:
    times = plan.times
    if times is None:
        return ["this machine has no memory for the model, nor for two of its blocks: no time was measured"]
    how = "measured" if plan.is_whole else "from measurements of one and two blocks"
    speed = format_number(plan.step_flops / times.step, "FLOP/s")
    test = f"; the test {format_time(times.test)}" if times.test else ""
    return [
        f"on this machine, {how}: a step {format_time(times.step)} ({speed}), "
        f"an evaluation {format_time(times.evaluation)}{test}"
    ]


def format_cluster(plan: RunPlan, options: PlanOptions) -> list[str]:
    cluster = plan.cluster
    assert cluster
    gpu = cluster.gpu
    lines = [
        f"{cluster.count:,} x {cluster.name}, by the data sheet: {format_number(gpu.peak, 'FLOP/s')} in bf16, "
        f"{format_bytes(gpu.memory)} at {format_bytes(gpu.bandwidth)}/s, {gpu.node} in a node; a GPU sends "
        f"{format_bytes(gpu.link)}/s within its node, {format_bytes(gpu.network)}/s beyond",
        f"assumed: an MFU of {options.mfu:.1%}, bf16 arithmetic, fp32 weights and optimizer state",
        "",
        f"{'--shards':>10}{'--recompute':>13}{'memory':>10}{'largest --batch-tokens':>24}{'arithmetic':>12}"
        f"{'communication':>15}",
    ]
    shown = {1, gpu.node, cluster.count, plan.layout.shards if plan.layout else 1}
    lines += [
        format_layout(layout, layout == plan.layout)
        for layout in plan.layouts
        if len(plan.layouts) <= 8 or layout.shards in shown
    ]
    return [*lines, "", *layout_notes(plan)]


def format_layout(layout: Layout, best: bool) -> str:
    recompute, tokens = (
        ("yes" if layout.recompute else "no"),
        f"{round_down(layout.max_batch_tokens):,}" if layout.fits else "none",
    )
    return (
        f"{layout.shards:>10,}{recompute:>13}{format_bytes(layout.memory):>10}{tokens:>24}"
        f"{format_time(layout.arithmetic):>12}{format_time(layout.communication):>15}{'   <- best' if best else ''}"
    )


def layout_notes(plan: RunPlan) -> list[str]:
    """What to choose, and what stands against it."""
    options, layout, cluster = plan.settings.train_options, plan.layout, plan.cluster
    assert cluster
    notes = []
    if options.grad_accum != plan.grad_accum:
        notes.append(f"every GPU computes as many batches of a step: planned with --grad-accum {plan.grad_accum}")
    if layout is None:
        largest = max(item.max_batch_tokens for item in plan.layouts)
        remedy = f"at most --batch-tokens {round_down(largest):,} fit" if largest else "take more GPUs, or larger ones"
        return [*notes, f"no layout fits batches of {options.batch_tokens:,} tokens: {remedy}"]
    if layout.arithmetic < SHORT_BATCH * plan.grad_accum / cluster.count:
        notes.append("so short a step is bound by the start of kernels, not by arithmetic: assume a much smaller --mfu")
    flags = [f"--shards {layout.shards}"] * (layout.shards > 1) + ["--recompute"] * layout.recompute
    notes.append(f"choose {' '.join([*flags, f'--grad-accum {plan.grad_accum}'])}")
    if layout.communication > layout.arithmetic:
        tokens = round(options.batch_tokens * layout.communication / layout.arithmetic)
        if tokens <= layout.max_batch_tokens:
            remedy = f"--batch-tokens {tokens:,} hide it"
        else:
            remedy = "it needs tensor parallelism, which regard does not have; the time below is that of the arithmetic"
        notes.append(
            f"communication takes longer than arithmetic: the run would take "
            f"{format_time(plan.steps * layout.seconds)}; {remedy}"
        )
    return notes


def format_run(plan: RunPlan, options: PlanOptions) -> list[str]:
    epochs = f"{plan.epochs:,.2f} epochs of {plan.units_per_epoch:,} {plan.task.throughput_unit}"
    length = f"the run: {plan.steps:,} steps, {epochs}, {format_number(plan.flops, 'FLOP')}"
    if plan.seconds is None:
        return [length]
    length += f", {format_time(plan.seconds)}"
    if options.price is not None:
        length += f", price {plan.price(options.price):,.2f}"
    few = [f"warning: {plan.steps} steps are too few to train a model"] * (plan.steps < FEW_STEPS)
    return [length, *few]


def format_advice(plan: RunPlan) -> list[str]:
    advice = plan.advice
    if advice is None:
        return []
    ratio, many = f"{advice.tokens_per_parameter:,.3g} tokens per parameter", advice.epochs > GOOD_EPOCHS
    return [
        f"{ratio}; about {TOKENS_PER_PARAMETER} are optimal, which for these FLOPs is a model of "
        f"{format_parameters(advice.size_for_flops)} (Hoffmann et al. 2022)",
        f"{'more than' if many else 'at most'} {GOOD_EPOCHS} epochs: repeated so often, data are nearly as good as new "
        f"(Muennighoff et al. 2023), and these suit {format_parameters(advice.size_for_data)}",
    ]
