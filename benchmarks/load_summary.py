"""What a load test measured in its window: throughput, times to first token and between tokens, latencies, refusals."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from statistics import median
from typing import Any

COLUMNS = (
    "requests/s", "tokens/s", "first token ms, median", "p95", "between tokens ms, median", "p95",
    "request ms, median", "p95", "429",
)  # fmt: skip


@dataclass
class Cell:
    """One server, one number of clients, one round. Times in milliseconds."""

    requests: float  # finished per second
    tokens: float  # generated per second; 0 where answers do not stream
    first_p50: float
    first_p95: float
    gap_p50: float
    gap_p95: float
    latency_p50: float
    latency_p95: float
    refused: int = 0
    other_load: float = 0.0  # processors that other processes kept busy
    errors: list[str] = field(default_factory=list)

    @property
    def work(self) -> float:
        """Tokens per second, or requests per second where tokens are not counted."""
        return self.tokens or self.requests

    def columns(self) -> list[str]:
        times = (self.first_p50, self.first_p95, self.gap_p50, self.gap_p95, self.latency_p50, self.latency_p95)
        shown = [f"{self.requests:.2f}", f"{self.tokens:.0f}" if self.tokens else ""]
        return shown + [f"{time:.3g}" if time else "" for time in times] + [str(self.refused or "")]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        shown = f"{self.requests:6.2f} requests/s {self.tokens:7.1f} tokens/s  first {self.first_p50:6.0f} ms"
        shown += f"  between {self.gap_p50:5.1f} ms  p95 {self.latency_p95:6.0f} ms"
        shown += f"  others {self.other_load:.2f}" + f"  {self.refused} refused" * bool(self.refused)
        return shown + f"  ERRORS {self.errors[:2]}" * bool(self.errors)

    @classmethod
    def median_of(cls, cells: list[Cell]) -> Cell:
        names = [f.name for f in fields(cls) if f.name not in ("errors", "refused")]
        values = {name: median(getattr(cell, name) for cell in cells) for name in names}
        refused = round(median(cell.refused for cell in cells))
        return cls(**values, refused=refused, errors=[error for cell in cells for error in cell.errors])


def percentile(values: list[float], share: float) -> float:
    """In milliseconds; 0 of nothing."""
    ordered = sorted(values)
    return 1e3 * ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def summarize(result: dict[str, Any]) -> Cell:
    """Counts only what happened between the end of the ramp and the end of the time."""
    start, end = result["ramp"], result["ramp"] + result["seconds"]
    finished = [a for a in result["answers"] if a["status"] == 200 and not a["error"]]
    refused = [a for a in result["answers"] if a["status"] in (429, 503)]
    failed = [a for a in result["answers"] if a not in finished and a not in refused]
    in_window = [a for a in finished if start <= a["end"] < end]
    streams = [a for a in finished if len(a["chunks"]) > 1]
    tokens = sum(a["tokens"] * share_in(a["chunks"], start, end) for a in streams)
    firsts = [a["chunks"][0] - a["start"] for a in streams if start <= a["start"] < end]
    gaps = [
        later - earlier
        for a in streams
        for earlier, later in zip(a["chunks"], a["chunks"][1:], strict=False)
        if start <= later < end
    ]
    latencies = [a["end"] - a["start"] for a in finished if start <= a["start"] < end]
    return Cell(
        len(in_window) / result["seconds"], tokens / result["seconds"],
        percentile(firsts, 0.5), percentile(firsts, 0.95), percentile(gaps, 0.5), percentile(gaps, 0.95),
        percentile(latencies, 0.5), percentile(latencies, 0.95),
        sum(start <= a["start"] < end for a in refused),
        errors=[a["error"] or f"status {a['status']}: {a.get('body', '')}" for a in failed],
    )  # fmt: skip


def share_in(times: list[float], start: float, end: float) -> float:
    return sum(start <= time < end for time in times) / len(times)
