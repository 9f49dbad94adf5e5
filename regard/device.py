"""Devices: which one a model runs on, the number of threads, the name of the CPU."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

import torch

from regard.validate import check_choice

CPUINFO = Path("/proc/cpuinfo")  # on Linux


DEVICES = ("auto", "cpu", "cuda", "mps")


def resolve_device(name: str = "auto") -> torch.device:
    """The device of that name, such as "cuda:1"; "auto" takes cuda, else mps, else cpu. Raises ValueError if PyTorch
    cannot use it."""
    if name == "auto":
        cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
        return torch.device("cuda" if cuda else "mps" if mps else "cpu")
    try:
        return torch.zeros(1, device=name).device
    except (RuntimeError, AssertionError) as error:
        check_choice("device", name.partition(":")[0], DEVICES)
        raise ValueError(f"--device {name} cannot be used on this machine: {str(error).splitlines()[0]}") from None


def set_num_threads(count: int) -> None:
    """`torch.set_num_threads` for at most 64 threads a core: very many take the machine down."""
    cores = os.cpu_count() or 1
    if not 1 <= count <= 64 * cores:
        raise ValueError(f"threads must be from 1 to {64 * cores} (64 for each core of this machine), not {count}")
    torch.set_num_threads(count)


def cpu_name() -> str:
    """The model name of the CPU as the operating system reports it."""
    match = re.search(r"^model name\s*: (.+)$", CPUINFO.read_text(), re.MULTILINE) if CPUINFO.exists() else None
    return match[1] if match else platform.processor() or platform.machine()
