"""`regard plan` beside real runs: peak memory of the tensors, peak memory of the process, and seconds of a step.

    python benchmarks/plan.py [--steps 40] [--rounds 3] [--fits translate/transformer write/gpt ...]

Each run has a process of its own. Memory: bytes that PyTorch's allocator holds at the peak, and the resident memory of
the process (RSS) above that before the model was built, as a multiple of them. Time: the median step of `regard.train`,
without the first three. Plans and runs alternate, and the fastest of each counts: other processes only slow them down.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from itertools import accumulate
from pathlib import Path

FITS = (
    "translate/transformer", "write/gpt", "write/llama", "classify/vit", "fill/modernbert", "translate/speech2text",
    "predict/world_model",
)  # fmt: skip


THREADS = 1  # of planned and real runs: several ones are much slower beside another busy process


def planned(task: str, model: str) -> None:
    from regard.cli import main

    main(["plan", task, "--model", model, "--threads", str(THREADS), "--json"])


def timed(task: str, model: str, steps: int) -> None:
    """Times and resident memory of a run."""
    import regard.training.file_job as file_job
    from regard.bench.peak_rss import PROC_CLEAR_REFS, status_bytes
    from regard.training.start import make_settings

    make_model, before = file_job.make_model, []

    def noted(*args: object) -> object:
        PROC_CLEAR_REFS.write_text("5")  # resets the peak
        before.append(status_bytes("VmRSS"))
        return make_model(*args)

    file_job.make_model = noted
    with tempfile.TemporaryDirectory() as parent:
        folder = f"{parent}/run"
        options = {"steps": steps, "evals": 1, "eval_examples": 20, "output_dir": folder, "threads": THREADS}
        job = file_job.FileJob.open(make_settings(task, model=model, **options)).plan()
        times, peak = [], 0
        for step in job.train():
            if not step.scores:
                times.append(step.seconds)
                peak = status_bytes("VmHWM")
    print(json.dumps({"step": statistics.median(times[3:]), "rss": peak - before[0]}))


def profiled(task: str, model: str) -> None:
    """The allocator's peak in three steps on the largest batch of an epoch."""
    from dataclasses import replace

    from torch.profiler import ProfilerActivity, profile

    from regard.training.estimate import StepEstimator, random_model
    from regard.training.loop import Progress, train_steps
    from regard.training.run_plan import prepare_run
    from regard.training.start import new_settings

    run = prepare_run(new_settings(task, model=model, threads=THREADS))
    rows = StepEstimator(run.settings, run.task, run.examples).largest
    run.examples.epoch = lambda *_: [rows]
    options = replace(run.settings.train_options, steps=3, lr=1e-3, warmup_steps=1)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        progress = Progress.new(random_model(run.settings, run.task, run.config), options)
        for _ in train_steps(progress, run.task, run.examples, options):
            pass
    events = profiler.profiler.kineto_results.events()
    sizes = [e.nbytes() for e in sorted(events, key=lambda e: e.start_ns()) if e.name() == "[memory]"]
    print(
        json.dumps({"parameters": sum(w.numel() for w in progress.model.parameters()), "peak": max(accumulate(sizes))})
    )


def in_process(kind: str, fit: str, steps: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--kind", kind, "--fits", fit, "--steps", str(steps)]
    out = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1]).stdout
    result: dict[str, float] = json.loads(out.strip().splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fits", nargs="+", default=FITS)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3, help="plans and runs, alternating; the fastest of each counts")
    parser.add_argument("--kind", choices=("planned", "timed", "profiled"))
    arguments = parser.parse_args()
    if arguments.kind:
        task, model = arguments.fits[0].split("/")
        kinds = {"planned": planned, "profiled": profiled}
        timed(task, model, arguments.steps) if arguments.kind == "timed" else kinds[arguments.kind](task, model)
        return
    columns = (
        f"{'parameters':>12}{'MB plan':>9}{'MB run':>9}{'ratio':>7}{'RSS':>7}{'s plan':>9}{'s run':>9}{'ratio':>7}"
    )
    print(f"{'':<24}{columns}")
    for fit in arguments.fits:
        rounds = [
            [in_process(kind, fit, arguments.steps) for kind in ("planned", "timed")] for _ in range(arguments.rounds)
        ]
        plan, run = rounds[0]
        profiled_run = in_process("profiled", fit, arguments.steps)
        assert plan["parameters"] == profiled_run["parameters"]
        memory, peak, seconds = (
            plan["memory"]["total"] / 1e6,
            profiled_run["peak"] / 1e6,
            min(p["seconds"]["step"] for p, _ in rounds),
        )
        step = min(r["step"] for _, r in rounds)
        print(
            f"{fit:<24}{plan['parameters']:>12,}{memory:>9.1f}{peak:>9.1f}{memory / peak:>7.2f}"
            f"{run['rss'] / peak / 1e6:>6.2f}x{seconds:>9.3f}{step:>9.3f}{seconds / step:>7.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
