"""The loss over a run, in training and in validation, from metrics.jsonl."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from regard.atomic import replace_file

SHARES = ("bleu", "f1", "accuracy", "recall_at_1")  # of 100; the first that there is goes beside the loss


def loss_curve(metrics: list[dict[str, Any]], file: Path) -> None:
    steps = [(m["step"], m["loss"]) for m in metrics if "loss" in m]
    checks = [(m["step"], m["valid"]) for m in metrics if "valid" in m]
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    loss = figure.subplots()
    if steps:
        number, value = np.array(steps).T
        loss.plot(number, value, color="tab:blue", alpha=0.25, linewidth=0.8)
        wide = max(1, len(value) // 50)
        smooth = np.convolve(value, np.ones(wide) / wide, "valid")
        loss.plot(number[wide - 1 :], smooth, color="tab:blue", label="training")
    if checks:
        at = [step for step, _ in checks]
        loss.plot(at, [v["loss"] for _, v in checks], "o-", color="tab:orange", label="validation")
        shares = [name for name in SHARES if name in checks[0][1]]
        if shares:
            share = loss.twinx()
            share.plot(at, [v[shares[0]] for _, v in checks], "s--", color="tab:green", label=f"validation {shares[0]}")
            share.set_ylabel(shares[0])
            share.set_ylim(0, 100)
    loss.set_xlabel("step")
    loss.set_ylabel("loss")
    loss.grid(alpha=0.3)
    if steps or checks:
        figure.legend(loc="outside lower center", ncols=3, frameon=False)
    replace_file(file, lambda hidden: figure.savefig(hidden, dpi=120))
