"""Peak resident memory (RSS) of a model at work: of a process of its own, above that of Python with PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

PROC_STATUS, PROC_CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def measure_peak_rss(folder: Path, speed: str, texts: Sequence[str] | None, threads: int) -> float | None:
    """Bytes; None where /proc does not report it."""
    if not (PROC_STATUS.exists() and PROC_CLEAR_REFS.exists()):
        return None
    receiver, sender = get_context("spawn").Pipe(duplex=False)
    process = get_context("spawn").Process(target=send_peak_rss, args=(sender, folder, speed, texts, threads))
    process.start()
    sender.close()
    try:
        return float(receiver.recv())
    except EOFError:
        return None
    finally:
        process.join()


def send_peak_rss(connection: Connection, folder: Path, speed: str, texts: Sequence[str] | None, threads: int) -> None:
    import torch

    from regard.bench.regard_backend import load_on_cpu, regard_backend
    from regard.bench.workload import build_workload, run_once

    torch.set_num_threads(threads)
    PROC_CLEAR_REFS.write_text("5")  # resets VmHWM
    before = status_bytes("VmRSS")
    loaded = load_on_cpu(folder, speed)
    workload = build_workload(loaded, texts)
    run_once(regard_backend(loaded, speed, getattr(workload, "sources", None)), workload)
    connection.send(status_bytes("VmHWM") - before)


def status_bytes(name: str) -> int:
    """Bytes of a line such as `VmHWM:   1234 kB`."""
    line = next(line for line in PROC_STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return 1024 * int(line.split()[1])
