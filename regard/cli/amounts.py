"""Large and small amounts as text: FLOPs, bytes, parameters, times."""

from __future__ import annotations

from regard.training.time_budget import format_duration

PREFIXES = ((1e24, "Y"), (1e21, "Z"), (1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
DAY = 86400


def round_down(count: int) -> int:
    """To two digits."""
    unit = 10 ** max(0, len(str(count)) - 2)
    return count // unit * unit


def format_number(value: float, unit: str) -> str:
    """12.4 GFLOP"""
    factor, prefix = next((pair for pair in PREFIXES if value >= pair[0]), (1.0, ""))
    digits = f"{value / factor:.3g}" if value / factor < 999.5 else f"{value / factor:,.0f}"
    return f"{digits} {prefix}{unit}"


def format_parameters(count: float) -> str:
    return f"{count / 1e9:.3g} B parameters" if count >= 1e9 else f"{count / 1e6:.3g} M parameters"


def format_bytes(value: float) -> str:
    return format_number(value, "B")


def format_time(seconds: float) -> str:
    """1.2 ms, 48 s, 3 h 5 min, 34.8 days"""
    if seconds < 0.995:
        return f"{1000 * seconds:.3g} ms"
    return format_duration(seconds) if seconds < 2 * DAY else f"{seconds / DAY:.1f} days"
