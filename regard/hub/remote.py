"""A model name becomes a folder: a local one, one in Hugging Face's cache, or a download, with the user's consent.

owner/repo@revision > commit, as locked > files in the cache, or downloaded > size and SHA-256 of each, as locked
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from regard.hub.revision_lock import COMMIT, check_files, lock_file, read_lock, replace_text

REPO_NAME = re.compile(r"(\w(?:[\w.-]{0,94}\w)?/\w(?:[\w.-]{0,94}\w)?)(?:@(\w[\w.+-]*(?:/\w[\w.+-]*)*))?", re.ASCII)
SHARD = re.compile(r"(model(?:\.safetensors)?)-\d{5}-of-(\d{5})\.safetensors")
FILE_PATTERNS = (  # files beside the weights; never code, and no weights that could contain code
    *("config.json", "generation_config.json", "task.json", "preprocessor_config.json", "processor_config.json"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "vocab.json", "merges.txt", "*.model", "*.spm", "README.md", "LICENSE*"),
    *("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json", "[0-9]_*/config.json"),
)
ETAG = re.compile(r"[0-9a-f]{40,64}")  # git's SHA-1, or SHA-256: the name of the blob in the cache
DISK_REMEDY = "Free some space, or set HF_HOME to a folder on another disk"


def print_status(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


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
        commit = fetch(repo, revision, repo.missing_message(cached, missing), allowed, ask, report)
    folder = repo.snapshot(commit)
    locked = lock["files"] if commit == lock.get("commit") else {}
    entry = {"repository": repo.id, "commit": commit, "files": check_files(folder, list_files(folder), locked, verify)}
    if entry != lock:
        try:
            replace_text(lock_file(), json.dumps(read_lock() | {name: entry}, indent=2, sort_keys=True) + "\n")
        except OSError as error:
            report(f"{lock_file()} cannot be written ({error.strerror}): {name} stays unlocked")
    return folder


class Repo(NamedTuple):
    """A repository at a revision, and its place in Hugging Face's cache."""

    name: str  # owner/repo or owner/repo@revision
    id: str  # owner/repo
    revision: str
    cache: Path

    @property
    def cache_folder(self) -> Path:
        return self.cache / f"models--{self.id.replace('/', '--')}"

    def snapshot(self, commit: str) -> Path:
        return self.cache_folder / "snapshots" / commit

    def cached_commit(self) -> str:
        """The cached commit of the revision; empty if there is none."""
        ref = self.cache_folder / "refs" / self.revision
        commit = ref.read_text().strip() if ref.is_file() else self.revision
        return commit if COMMIT.fullmatch(commit) and self.snapshot(commit).is_dir() else ""

    def suggestions(self) -> str:
        cached = [folder.name.removeprefix("models--").replace("--", "/") for folder in self.cache.glob("models--*")]
        similar = [repo for repo in get_close_matches(self.id, cached, 4) if repo != self.id]
        return f" The cache has {', '.join(similar)}." if similar else ""

    def missing_message(self, cached: list[str], missing: list[str]) -> str:
        if not missing:
            return f"{self.name} cannot be updated."
        problem = f"{self.cache_folder} lacks {', '.join(missing[:3])}" if cached else f"no such model in {self.cache}"
        return f"{self.name}: no such folder, and {problem}.{self.suggestions()}"


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


def fetch(
    repo: Repo,
    revision: str,
    problem: str,
    allowed: bool | None,
    ask: Callable[[str], bool] | None,
    report: Callable[[str], None],
) -> str:
    """Download the missing files of a revision into the cache; returns its commit."""
    from huggingface_hub import HfApi, constants

    if allowed is False or constants.HF_HUB_OFFLINE:
        raise ValueError(f"{problem} Nothing was fetched, as --offline or HF_HUB_OFFLINE is set")
    if not (allowed or ask):
        raise ValueError(f"{problem} Add --download to fetch it from {constants.ENDPOINT} (in Python: download=True)")
    with explain_errors(repo, revision):
        info = HfApi().model_info(
            repo.id, revision=revision, files_metadata=True, timeout=constants.HF_HUB_ETAG_TIMEOUT
        )
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or []}
    commit = check_listing(repo, str(info.sha), sizes)
    files = [file for file in usable_files(sizes) if not (repo.snapshot(commit) / file).is_file()]
    total = sum(sizes[file] for file in files)
    summary = f"{repo.name}: {len(files)} files, {megabytes(total)}, from {constants.ENDPOINT} (commit {commit[:8]})"
    if not allowed and not (ask and ask(f"{summary}. Fetch them into {repo.cache}?")):
        raise ValueError(f"{repo.name} is not on this machine, and you declined the download")
    repo.cache.mkdir(parents=True, exist_ok=True)
    if total > (free := shutil.disk_usage(repo.cache).free):
        raise ValueError(f"{summary}, are too much for {repo.cache}: {megabytes(free)} are free. {DISK_REMEDY}")
    report(summary)
    for file in files:
        if not sys.stderr.isatty():  # huggingface_hub draws progress bars on terminals only
            report(f"  {file}, {megabytes(sizes[file])}")
        download_file(repo, file, commit)
    if revision != commit:
        replace_text(repo.cache_folder / "refs" / revision, commit)
    return commit


def download_file(repo: Repo, file: str, commit: str) -> None:
    """Download one file into the cache, in Hugging Face's layout: snapshots/COMMIT/FILE links to blobs/ETAG.

    huggingface_hub's own function builds paths from the commit and the ETag of the response without checking them.
    """
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    url = hf_hub_url(repo.id, file, revision=commit)
    with explain_errors(repo, commit):
        metadata = get_hf_file_metadata(url, timeout=constants.HF_HUB_ETAG_TIMEOUT)
    problem = f"{repo.name} cannot be fetched: {constants.ENDPOINT} sent {file}"
    if metadata.commit_hash != commit:
        raise ValueError(f"{problem} of another commit")
    if not ETAG.fullmatch(metadata.etag or ""):
        raise ValueError(f"{problem} with the ETag {metadata.etag!r:.99}, which is not 40 to 64 hex digits")
    blob, link = repo.cache_folder / "blobs" / str(metadata.etag), repo.snapshot(commit) / file
    partial = blob.with_name(f"{blob.name}.{os.getpid()}.incomplete")
    with explain_errors(repo, commit):
        for folder in blob.parent, link.parent:
            folder.mkdir(parents=True, exist_ok=True)
        try:
            if not blob.exists():
                with partial.open("wb") as stream:
                    headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
                    http_get(url, stream, headers=headers, expected_size=metadata.size, displayed_filename=file)
                partial.replace(blob)
            link.unlink(missing_ok=True)  # a broken link
            link.symlink_to(os.path.relpath(blob, link.parent))
        finally:
            partial.unlink(missing_ok=True)


def check_listing(repo: Repo, commit: str, files: Collection[str]) -> str:
    """Refuse a listing with paths outside of the folder, or without safetensors; returns the commit."""
    unsafe = [file for file in files if file.startswith("/") or ".." in file.split("/")]
    unsafe += [file for file in usable_files(files) if re.search(r"[\\:\0-\x1f]", file)]
    if unsafe or not COMMIT.fullmatch(commit):
        raise ValueError(f"{repo.name} names {(*unsafe, commit)[0]!r:.99}, outside of its folder. Nothing was fetched")
    if missing := [file for file in required_files(files) if file not in files]:
        pickles = [file for file in files if file.endswith((".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack"))]
        only = f"; it has {pickles[0]}, a format that can contain code, which regard does not read" if pickles else ""
        raise ValueError(
            f"{repo.name} has no {missing[0]}{only}. A conversion may wait for its owner: try {repo.id}@refs/pr/1; "
            "or, if you trust it, open it with transformers and save_pretrained it. Nothing was fetched"
        )
    return commit


def megabytes(size: int) -> str:
    return f"{size / 1e6:,.3f} MB"


@contextmanager
def explain_errors(repo: Repo, revision: str) -> Iterator[None]:
    """Turn any error of huggingface_hub or its network layer into one sentence."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"{repo.name} cannot be fetched: {error_message(repo, revision, error)}") from None


def error_message(repo: Repo, revision: str, error: BaseException) -> str:
    from huggingface_hub import constants, errors

    while isinstance(error, errors.LocalEntryNotFoundError) and error.__cause__:
        error = error.__cause__
    hub, page = constants.ENDPOINT, f"{constants.ENDPOINT}/{repo.id}"
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, errors.GatedRepoError):
        return f"it is gated. Accept its terms at {page}, then log in with `hf auth login`"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{page} has no revision {revision}. If it is a locked commit, --update fetches the newest one"
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"{page} does not exist, or it is private: then log in with `hf auth login`.{repo.suggestions()}"
    if status in (401, 403):
        return f"{hub} refuses access ({status}). Log in with `hf auth login`"
    if status:
        return f"{hub} answers {status}. Try again later"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full. {DISK_REMEDY}"
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    if "Timeout" in type(error).__name__:
        return f"{hub} does not answer. Try again later, or raise the timeout: HF_HUB_ETAG_TIMEOUT=60"
    return f"{hub} cannot be reached ({error}). Check the network, and HF_ENDPOINT if you have set it"
