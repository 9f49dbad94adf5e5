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
from regard.json_files import read_json
from regard.options import option_flag
from regard.training.checkpoint import checksum

FORMAT = 2  # of train.json
Provenance = dict[str, dict[str, object]]  # settings, files and versions
PATH_OPTIONS = ("data", "valid", "test", "cache", "from_", "vectors")  # paths may change: the rows have a fingerprint
RUNTIME_OPTIONS = {  # no effect on the result
    *("output_dir", "resume", "overwrite", "download", "device", "threads", "recompute", "shards", "log"),
    "allow_changed",
}


def collect_provenance(settings: Mapping[str, object], folder: Path, files: Iterable[str]) -> Provenance:
    """All that a checkpoint depends on besides its own tensors."""
    checksums = {name: checksum(folder / name) for name in files if (folder / name).is_file() and name != "train.json"}
    versions = {"regard": __version__, "PyTorch": str(torch.__version__)}
    compared = {name: value for name, value in comparable_settings(settings).items() if name not in PATH_OPTIONS}
    return {"settings": compared, "files": {**checksums}, "versions": {**versions}}


def comparable_settings(settings: Mapping[str, object]) -> dict[str, object]:
    """The settings as JSON stores them, without those that do not change the result."""
    stored: dict[str, object] = json.loads(json.dumps(settings))
    return {name: value for name, value in stored.items() if name not in RUNTIME_OPTIONS}


def check_provenance(checkpoint: Path, stored: Provenance, current: Provenance, allow_changed: bool) -> None:
    if (lines := list_changes(stored, current)) and not allow_changed:
        changes = "\n".join(f"  {line}" for line in lines)
        raise ValueError(
            f"{checkpoint} was saved under different conditions:\n{changes}\nrestore these, resume anyway with "
            "--allow-changed, or start again with --overwrite"
        )


def list_changes(stored: Provenance, current: Provenance) -> list[str]:
    """One line for each difference between two provenances."""
    differing = {part: differing_keys(stored[part], current[part]) for part in ("settings", "files", "versions")}

    def change(part: str, name: str) -> str:
        return f"was {format_value(stored[part].get(name))}, and is {format_value(current[part].get(name))}"

    lines = [f"{option_flag(n)} {change('settings', n)}" for n in differing["settings"] if n != "fingerprint"]
    if "fingerprint" in differing["settings"]:
        lines.append("the rows of the data have changed (--data, --valid, --test)")
    lines += [f"{name} has changed" for name in differing["files"]]
    return lines + [f"{name} {change('versions', name)}" for name in differing["versions"]]


def read_train_json(folder: Path) -> dict[str, Any]:
    """The settings of a run, as its train.json stores them."""
    values = read_json(folder / "train.json")
    if (version := values.pop("format", 1)) != FORMAT:
        raise ValueError(
            f"{folder / 'train.json'} has format {version!r:.80}, and this version of regard reads format {FORMAT}: "
            "train again with --overwrite, or choose another --output-dir"
        )
    return values


def differing_keys(stored: Mapping[str, object], current: Mapping[str, object]) -> list[str]:
    """A folder of an earlier version has no modality."""
    names = {*stored, *current} - ({"modality"} - {*stored})
    return sorted(name for name in names if stored.get(name) != current.get(name))


def format_value(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or "not set"
    return "not set" if value is None else str(value)
