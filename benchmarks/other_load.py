"""The processor time that other processes took while something was measured: a busy machine spoils every figure."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")


def busy_seconds() -> float:
    """Of all processors, since the start of the machine."""
    user, nice, system, _, _, irq, softirq, *_ = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:])
    return (user + nice + system + irq + softirq) / TICK


def process_seconds(pid: int) -> float:
    """Of a process with all its threads and its finished children; 0 if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / TICK


def own_seconds() -> float:
    """Of this process and its finished children."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


class OtherLoad:
    """Processors that others keep busy between the construction and the call of `share`: 0 to their number."""

    def __init__(self, pid: int):
        self.pid = pid
        self.start, self.before = time.monotonic(), self._others()

    def _others(self) -> float:
        own = own_seconds() + (process_seconds(self.pid) if self.pid != os.getpid() else 0.0)
        return busy_seconds() - own

    def share(self) -> float:
        return max(0.0, self._others() - self.before) / max(time.monotonic() - self.start, 1e-9)


def wait_until_quiet(limit: float, patience: float) -> None:
    """Return when other processes keep at most `limit` processors busy for two seconds, or after `patience` seconds."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        others = OtherLoad(os.getpid())
        time.sleep(2)
        if others.share() <= limit:
            return
