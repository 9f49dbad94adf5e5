"""`--data hf:owner/name@revision/path`: files of a dataset repository on the hub, downloaded with the user's consent.

hf:owner/name@v1                   the files of the splits train, validation and test, by their usual names
hf:owner/name@v1/german            the same, of one folder (a configuration)
hf:owner/name@v1/data/*.parquet    exactly these files

A name is locked to the commit of its first use, with size and SHA-256 of every file, as the name of a model is. A
revision that contains a slash, except refs/pr/1 and refs/convert/parquet, is written with %2F.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from regard.data.fields import OBJECT_SUFFIXES, TABLE_SUFFIXES
from regard.data.splits import DataOptions
from regard.hub.repository import Repo, fetch, print_status
from regard.hub.revision_lock import check_files, lock_file, read_lock, replace_text

PREFIX = "hf:"
OWNER_NAME = r"\w(?:[\w.-]{0,94}\w)?"
DATASET = re.compile(
    rf"hf:({OWNER_NAME}/{OWNER_NAME})(?:@(refs/(?:pr|convert)/[\w.-]+|\w[\w.+%-]*))?(?:/(.+?))?/?", re.ASCII
)
SUFFIXES = (*OBJECT_SUFFIXES, *TABLE_SUFFIXES)  # of the files that are read
SPLITS = {"train": "train", "training": "train"}
SPLITS |= dict.fromkeys(("validation", "valid", "val", "dev"), "valid") | dict.fromkeys(("test", "testing"), "test")
ABOUT = {"readme", "license", "licence", "requirements", "notice", "changelog", "citation"}  # texts, but no data


class DatasetName(NamedTuple):
    repo: Repo
    path: str  # a file, a folder or a pattern; empty: the whole repository


def is_dataset_name(path: str) -> bool:
    return path.startswith(PREFIX)


def resolve_data(
    files: DataOptions, download: bool | None, report: Callable[[str], None] = print_status
) -> DataOptions:
    """The options with local files in place of names on the hub. Without --valid and --test, the splits of these names
    are used."""
    sets: dict[str, Any] = {name: tuple(getattr(files, name)) for name in ("data", "valid", "test")}
    if not any(is_dataset_name(path) for paths in sets.values() for path in paths):
        return files
    local = dict[str, tuple[str, ...]]()
    for option, paths in sets.items():
        for path in paths:
            splits = {option: [path]}
            if is_dataset_name(path):
                splits = find_splits(path, "train" if option == "data" else option, download, report)
            for split, names in splits.items():
                target = "data" if split == "train" else split
                if target == option or not sets[target]:
                    local[target] = (*local.get(target, ()), *names)
    return replace(files, **{**sets, **local})


def find_splits(name: str, split: str, download: bool | None, report: Callable[[str], None]) -> dict[str, list[str]]:
    """The local files of a name by split: of --data all splits, of --valid and --test their own."""
    dataset = parse_dataset(name)
    folder, files = find_files(name, dataset, download, report)
    splits = dict[str, list[str]]()
    if is_exact(dataset.path, files):
        splits[split] = files
    else:
        for file in files:
            splits.setdefault(split_of(file) or "train", []).append(file)
    if split not in splits:
        raise ValueError(f"{name} has no files of the split {split}; it has {', '.join(files[:5])}: name the files")
    chosen = splits if split == "train" else {split: splits[split]}
    return {key: [str(folder / file) for file in paths] for key, paths in chosen.items()}


def parse_dataset(name: str) -> DatasetName:
    from huggingface_hub import constants

    match = DATASET.fullmatch(name)
    if not match or "--" in match[1] or ".." in name or match[1].endswith(".git"):
        raise ValueError(f"{name!r} is no dataset on the hub: hf:owner/name@revision, and /path of its files")
    revision = (match[2] or "main").replace("%2F", "/").replace("%2f", "/")
    if "%" in revision or not re.fullmatch(r"[\w.+-]+(?:/[\w.+-]+)*", revision, re.ASCII):
        raise ValueError(f"{name!r}: {revision!r} is no revision")
    return DatasetName(Repo(name, match[1], revision, Path(constants.HF_HUB_CACHE), "dataset"), match[3] or "")


def find_files(
    name: str, dataset: DatasetName, download: bool | None, report: Callable[[str], None]
) -> tuple[Path, list[str]]:
    """The folder of the locked commit, and the files in it; they are downloaded if some are missing."""
    repo, lock = dataset.repo, read_lock().get(name, {})
    commit, files = lock.get("commit", ""), [*lock.get("files", ())]
    cached = [file for file in files if (repo.snapshot(commit) / file).is_file()]
    if not files or cached != files:
        missing = [file for file in files if file not in cached]
        problem = f"{name}: {repo.cache_folder} lacks {missing[0]}." if missing else repo.missing_message([], ["data"])
        choose = partial(choose_files, dataset)
        commit, files = fetch(repo, commit or repo.revision, problem, download, None, report, choose)
    folder = repo.snapshot(commit)
    entry = {"repository": f"datasets/{repo.id}", "commit": commit}
    entry["files"] = check_files(folder, files, lock.get("files", {}), False)
    if entry != lock:
        try:
            replace_text(lock_file(), json.dumps(read_lock() | {name: entry}, indent=2, sort_keys=True) + "\n")
        except OSError as error:
            report(f"{lock_file()} cannot be written ({error.strerror}): {name} stays unlocked")
    return folder, files


def choose_files(dataset: DatasetName, names: Collection[str]) -> list[str]:
    """The files of a name, from all that the repository has."""
    repo, path = dataset
    readable = sorted(name for name in names if is_readable(name))
    if path in names or is_pattern(path):
        files = [name for name in readable if name == path or fnmatchcase(name, path)]
    else:
        files = [name for name in readable if name.startswith(f"{path}/" if path else "")]
        files = [name for name in files if split_of(name)] or files
        folders = sorted({configuration(name) for name in files})
        if len(folders) > 1:
            example = f"{PREFIX}{repo.id}@{repo.revision.replace('/', '%2F')}/{next(filter(None, folders))}"
            problem = f"{repo.name} has several folders of data, {', '.join(map(repr, folders[:9]))}"
            raise ValueError(f"{problem}: name one of them, e.g. {example}. Nothing was fetched")
    kinds = sorted({suffix_of(name) for name in files})
    if len(kinds) > 1 and not is_pattern(path):
        raise ValueError(
            f"{repo.name} has {' and '.join(kinds)} files: name some, e.g. /*{kinds[0]}. Nothing was fetched"
        )
    if not files:
        shown = ", ".join(readable[:9]) or f"none of {', '.join(SUFFIXES)}"
        raise ValueError(f"{repo.name} matches no file; the repository has {shown}. Nothing was fetched")
    return files


def is_pattern(path: str) -> bool:
    return any(character in path for character in "*?[")


def is_exact(path: str, files: Sequence[str]) -> bool:
    """Whether a path names files, not a folder whose splits are recognised."""
    return is_pattern(path) or path in files


def suffix_of(name: str) -> str:
    return Path(name.lower().removesuffix(".gz")).suffix


def is_readable(name: str) -> bool:
    path = Path(name)
    hidden = any(part.startswith(".") for part in path.parts)
    return suffix_of(name) in SUFFIXES and path.name.split(".")[0].lower() not in ABOUT and not hidden


def split_of(name: str) -> str | None:
    """The split that a file belongs to: by a word of its name, or else of a folder."""
    for part in reversed(Path(name.lower()).parts):
        for word in re.split(r"[\W_]+", part):
            if word in SPLITS:
                return SPLITS[word]
    return None


def configuration(name: str) -> str:
    """The folder of a file, without folders that are named after splits."""
    parts = [part for part in Path(name).parts[:-1] if not split_of(part)]
    return "/".join(parts)
