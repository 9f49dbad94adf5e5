"""Where a model runs: the best device there is, unless one is named; and what the processor is called."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

import torch

from regard.validate import check_choice

CPUS = Path("/proc/cpuinfo")  # Linux has it


DEVICES = ("auto", "cpu", "cuda", "mps")


def resolve_device(name: str = "auto") -> torch.device:
    if name == "auto":
        cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
        return torch.device("cuda" if cuda else "mps" if mps else "cpu")
    try:
        return torch.zeros(1, device=name).device
    except (RuntimeError, AssertionError) as error:
        check_choice("device", name.partition(":")[0], DEVICES)
        raise ValueError(f"--device {name} cannot be used here: {str(error).splitlines()[0]}") from None


def set_num_threads(count: int) -> None:
    """More of them than a few for each processor only wait, and very many take the machine down."""
    cores = os.cpu_count() or 1
    if not 1 <= count <= 64 * cores:
        raise ValueError(f"threads must be from 1 to {64 * cores}, 64 for each processor here, not {count}")
    torch.set_num_threads(count)


def processor() -> str:
    """Its name, as far as the system tells it."""
    told = re.search(r"^model name\s*: (.+)$", CPUS.read_text(), re.MULTILINE) if CPUS.exists() else None
    return told[1] if told else platform.processor() or platform.machine()
