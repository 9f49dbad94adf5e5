"""How much memory a model takes while it works: the peak of a process of its own, above what PyTorch takes alone."""

from __future__ import annotations

from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_of(folder: Path, speed: str, texts: Sequence[str] | None, threads: int) -> float | None:
    """Bytes; None where the system does not tell."""
    if not (STATUS.exists() and RESET.exists()):
        return None
    mine, theirs = get_context("spawn").Pipe(duplex=False)
    process = get_context("spawn").Process(target=watched, args=(theirs, folder, speed, texts, threads))
    process.start()
    theirs.close()
    try:
        return float(mine.recv())
    except EOFError:
        return None
    finally:
        process.join()


def watched(answer: Connection, folder: Path, speed: str, texts: Sequence[str] | None, threads: int) -> None:
    import torch

    from regard.bench.regard_backend import open_ours, ours
    from regard.bench.workload import once, work_for

    torch.set_num_threads(threads)
    RESET.write_text("5")  # the peak begins anew
    before = told("VmRSS")
    loaded = open_ours(folder, speed)
    once(ours(loaded, speed), work_for(loaded, texts))
    answer.send(told("VmHWM") - before)


def told(name: str) -> int:
    """Bytes, of a line as `VmHWM:   1234 kB`."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return 1024 * int(line.split()[1])
