"""What has changed since a save was made: a run that goes on must be the run that began.

settings, rows of the data, files that describe the model, versions of the code          each by name, then and now
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from regard import __version__
from regard.training.checkpoint import checksum

PLACES = ("data", "valid", "test", "cache", "from_", "vectors")  # where files lie; the rows in them have a fingerprint
ELSEWHERE = (
    "output_dir",
    "resume",
    "overwrite",
    "download",
    "device",
    "threads",
    "allow_changed",
)  # where and how it is run


def collect_provenance(settings: Mapping[str, Any], folder: Path, files: Iterable[str]) -> dict[str, Any]:
    """All that a save depends on besides its own numbers."""
    there = {name: checksum(folder / name) for name in files if (folder / name).is_file() and name != "train.json"}
    versions = {"regard": __version__, "PyTorch": torch.__version__}
    kept = {name: value for name, value in comparable_settings(settings).items() if name not in PLACES}
    return {"settings": kept, "files": there, "versions": versions}


def comparable_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON has them, but for what changes nothing of the result."""
    said: dict[str, Any] = json.loads(json.dumps(settings))
    return {name: value for name, value in said.items() if name not in ELSEWHERE}


def check_provenance(save: Path, then: dict[str, Any], now: dict[str, Any], allowed: bool) -> None:
    if (lines := changes(then, now)) and not allowed:
        told = "\n".join(f"  {line}" for line in lines)
        raise ValueError(
            f"this is not what {save} was made with:\n{told}\nput it back, go on all the same with --allow-changed, or "
            "start again with --overwrite"
        )


def changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """A line for each difference between what was made with one and with the other."""
    lines = [
        f"{option_flag(name)} was {shown(then['settings'].get(name))}, and is {shown(now['settings'].get(name))}"
        for name in differing(then["settings"], now["settings"])
        if name != "fingerprint"
    ]
    if then["settings"].get("fingerprint") != now["settings"].get("fingerprint"):
        lines.append("the rows of the data are others")
    lines += [f"{name} is another file" for name in differing(then["files"], now["files"])]
    versions = differing(then["versions"], now["versions"])
    return lines + [f"{name} was {then['versions'].get(name)}, and is {now['versions'].get(name)}" for name in versions]


def differing(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    return sorted(name for name in {*then, *now} if then.get(name) != now.get(name))


def option_flag(name: str) -> str:
    return f"--{name.rstrip('_').replace('_', '-')}"


def shown(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or "nothing"
    return "nothing" if value is None else str(value)
