"""Provenance of a checkpoint: a resumed run must be the run that started.

compared by name: settings, fingerprint of the data, files that describe the model, versions of regard and PyTorch
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from regard import __version__
from regard.hub.folder import read_json
from regard.training.checkpoint import checksum

FORMAT = 2  # of train.json
PATH_OPTIONS = ("data", "valid", "test", "cache", "from_", "vectors")  # paths may change: the rows have a fingerprint
RUNTIME_OPTIONS = (  # do not change the result
    *("output_dir", "resume", "overwrite", "download", "device", "threads", "allow_changed"),
)


def collect_provenance(settings: Mapping[str, Any], folder: Path, files: Iterable[str]) -> dict[str, Any]:
    """All that a checkpoint depends on besides its own tensors."""
    checksums = {name: checksum(folder / name) for name in files if (folder / name).is_file() and name != "train.json"}
    versions = {"regard": __version__, "PyTorch": torch.__version__}
    compared = {name: value for name, value in comparable_settings(settings).items() if name not in PATH_OPTIONS}
    return {"settings": compared, "files": checksums, "versions": versions}


def comparable_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as JSON stores them, without those that do not change the result."""
    stored: dict[str, Any] = json.loads(json.dumps(settings))
    return {name: value for name, value in stored.items() if name not in RUNTIME_OPTIONS}


def check_provenance(checkpoint: Path, stored: dict[str, Any], current: dict[str, Any], allow_changed: bool) -> None:
    if (lines := list_changes(stored, current)) and not allow_changed:
        changes = "\n".join(f"  {line}" for line in lines)
        raise ValueError(
            f"{checkpoint} was saved under different conditions:\n{changes}\nrestore these, resume anyway with "
            "--allow-changed, or start again with --overwrite"
        )


def list_changes(stored: Mapping[str, Any], current: Mapping[str, Any]) -> list[str]:
    """One line for each difference between two provenances."""
    lines = [
        f"{option_flag(name)} was {format_value(stored['settings'].get(name))}, and is "
        f"{format_value(current['settings'].get(name))}"
        for name in differing_keys(stored["settings"], current["settings"])
        if name != "fingerprint"
    ]
    if stored["settings"].get("fingerprint") != current["settings"].get("fingerprint"):
        lines.append("the rows of the data have changed")
    lines += [f"{name} has changed" for name in differing_keys(stored["files"], current["files"])]
    versions = differing_keys(stored["versions"], current["versions"])
    return lines + [
        f"{name} was {stored['versions'].get(name)}, and is {current['versions'].get(name)}" for name in versions
    ]


def read_train_json(folder: Path) -> dict[str, Any]:
    """The settings of a run, as its train.json stores them."""
    values = read_json(folder / "train.json")
    if (version := values.pop("format", 1)) != FORMAT:
        raise ValueError(
            f"{folder / 'train.json'} has format {version!r:.80}, and this version of regard reads format {FORMAT}: "
            "train again with --overwrite, or choose another --output-dir"
        )
    return values


def differing_keys(stored: Mapping[str, Any], current: Mapping[str, Any]) -> list[str]:
    return sorted(name for name in {*stored, *current} if stored.get(name) != current.get(name))


def option_flag(name: str) -> str:
    """An option as it is typed: --batch-tokens for batch_tokens."""
    return f"--{name.rstrip('_').replace('_', '-')}"


def format_value(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or "not set"
    return "not set" if value is None else str(value)
