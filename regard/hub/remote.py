"""A model name becomes a folder: a local one, one in Hugging Face's cache, or a download, with the user's consent.

owner/repo@revision > commit, as locked > files in the cache, or downloaded > size and SHA-256 of each, as locked
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from regard.hub.repository import Repo, fetch, print_status
from regard.hub.revision_lock import check_files, lock_file, read_lock, replace_text

REPO_NAME = re.compile(r"(\w(?:[\w.-]{0,94}\w)?/\w(?:[\w.-]{0,94}\w)?)(?:@(\w[\w.+-]*(?:/\w[\w.+-]*)*))?", re.ASCII)
SHARD = re.compile(r"(model(?:\.safetensors)?)-\d{5}-of-(\d{5})\.safetensors")
FILE_PATTERNS = (  # files beside the weights; never code, and no weights that could contain code
    *("config.json", "generation_config.json", "task.json", "preprocessor_config.json", "processor_config.json"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "vocab.json", "merges.txt", "*.model", "*.spm", "README.md", "LICENSE*"),
    *("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json", "[0-9]_*/config.json"),
)


def find_model(
    name: str,
    download: bool | None = None,
    ask: Callable[[str], bool] | None = None,
    report: Callable[[str], None] = print_status,
    update: bool = False,
    verify: bool = False,
) -> Path:
    """The folder of a model. `download` True fetches missing files, False stays offline, None calls `ask`. `update`
    moves a locked name to the newest commit, `verify` hashes large files too."""
    path = Path(os.path.expanduser(name))
    if path.exists() or name.startswith((".", "/", "~")) or name.partition("@")[0].count("/") != 1:
        return path
    repo, lock = parse_repo(name), read_lock().get(name, {})
    commit = lock.get("commit") or repo.cached_commit()
    cached = list_files(repo.snapshot(commit)) if commit else []
    missing = [file for file in lock.get("files") or required_files(cached) if file not in cached]
    if update or missing:
        allowed = download if download is False else update or download
        revision = repo.revision if update else lock.get("commit", repo.revision)
        choose = partial(choose_files, repo)
        commit, _ = fetch(repo, revision, repo.missing_message(cached, missing), allowed, ask, report, choose)
    folder = repo.snapshot(commit)
    locked = lock["files"] if commit == lock.get("commit") else {}
    entry = {"repository": repo.id, "commit": commit, "files": check_files(folder, list_files(folder), locked, verify)}
    if entry != lock:
        try:
            replace_text(lock_file(), json.dumps(read_lock() | {name: entry}, indent=2, sort_keys=True) + "\n")
        except OSError as error:
            report(f"{lock_file()} cannot be written ({error.strerror}): {name} stays unlocked")
    return folder


def parse_repo(name: str) -> Repo:
    from huggingface_hub import constants

    match = REPO_NAME.fullmatch(name)
    if not match or "--" in match[1] or ".." in name or match[1].endswith(".git"):
        raise ValueError(f"{name!r} is neither a folder nor a model on the hub: owner/repo or owner/repo@revision")
    return Repo(name, match[1], match[2] or "main", Path(constants.HF_HUB_CACHE))


def required_files(names: Collection[str]) -> list[str]:
    """config.json and the weights: one file, or the index and all shards."""
    shards = [match for name in sorted(names) if (match := SHARD.fullmatch(name))]
    if "model.safetensors" in names or not shards:
        return ["config.json", "model.safetensors"]
    stem, count = shards[0].groups()
    weights = [f"{stem}-{i:05}-of-{count}.safetensors" for i in range(1, int(count) + 1)]
    return ["config.json", "model.safetensors.index.json", *weights]


def usable_files(names: Collection[str]) -> list[str]:
    matches = [n for n in names for glob in FILE_PATTERNS if fnmatchcase(n, glob) and n.count("/") == glob.count("/")]
    return sorted({*matches, *required_files(names)} & {*names})


def list_files(folder: Path) -> list[str]:
    return usable_files([file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()])


def choose_files(repo: Repo, names: Collection[str]) -> list[str]:
    """The files of a model; a repository without safetensors is refused."""
    if missing := [file for file in required_files(names) if file not in names]:
        pickles = [file for file in names if file.endswith((".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack"))]
        only = f"; it has {pickles[0]}, a format that can contain code, which regard does not read" if pickles else ""
        raise ValueError(
            f"{repo.name} has no {missing[0]}{only}. A conversion may wait for its owner: try {repo.id}@refs/pr/1; "
            "or, if you trust it, open it with transformers and save_pretrained it. Nothing was fetched"
        )
    return usable_files(names)
