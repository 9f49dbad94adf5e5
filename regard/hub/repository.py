"""Repositories of the Hugging Face hub: their place in its cache, and the download of single files into it.

What a server sends is checked before it becomes a path: names of files, commits and ETags.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from regard.hub.revision_lock import COMMIT, replace_text

ETAG = re.compile(r"[0-9a-f]{40,64}")  # git's SHA-1, or SHA-256: the name of the blob in the cache
DISK_REMEDY = "Free some space, or set HF_HOME to a folder on another disk"


def print_status(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Repo(NamedTuple):
    """A repository at a revision, and its place in Hugging Face's cache."""

    name: str  # owner/repo or owner/repo@revision
    id: str  # owner/repo
    revision: str
    cache: Path
    kind: str = "model"  # or dataset

    @property
    def prefix(self) -> str:
        return f"{self.kind}s--"

    @property
    def page(self) -> str:
        from huggingface_hub import constants

        return f"{constants.ENDPOINT}/{'datasets/' if self.kind == 'dataset' else ''}{self.id}"

    @property
    def cache_folder(self) -> Path:
        return self.cache / f"{self.prefix}{self.id.replace('/', '--')}"

    def snapshot(self, commit: str) -> Path:
        return self.cache_folder / "snapshots" / commit

    def cached_commit(self) -> str:
        """The cached commit of the revision; empty if there is none."""
        ref = self.cache_folder / "refs" / self.revision
        commit = ref.read_text().strip() if ref.is_file() else self.revision
        return commit if COMMIT.fullmatch(commit) and self.snapshot(commit).is_dir() else ""

    def suggestions(self) -> str:
        folders = self.cache.glob(f"{self.prefix}*")
        cached = [folder.name.removeprefix(self.prefix).replace("--", "/") for folder in folders]
        similar = [repo for repo in get_close_matches(self.id, cached, 4) if repo != self.id]
        return f" The cache has {', '.join(similar)}." if similar else ""

    def missing_message(self, cached: list[str], missing: list[str]) -> str:
        if not missing:
            return f"{self.name} cannot be updated."
        absent = f"no such {self.kind} in {self.cache}"
        problem = f"{self.cache_folder} lacks {', '.join(missing[:3])}" if cached else absent
        folder = "no such folder, and " if self.kind == "model" else ""
        return f"{self.name}: {folder}{problem}.{self.suggestions()}"


def fetch(
    repo: Repo,
    revision: str,
    problem: str,
    allowed: bool | None,
    ask: Callable[[str], bool] | None,
    report: Callable[[str], None],
    choose: Callable[[Collection[str]], list[str]],
) -> tuple[str, list[str]]:
    """Download the missing files of a revision into the cache; returns its commit and the files that `choose` needs of
    all that the repository has."""
    from huggingface_hub import HfApi, constants

    if allowed is False or constants.HF_HUB_OFFLINE:
        raise ValueError(f"{problem} Nothing was fetched, as --offline or HF_HUB_OFFLINE is set")
    if not (allowed or ask):
        raise ValueError(f"{problem} Add --download to fetch it from {constants.ENDPOINT} (in Python: download=True)")
    with explain_errors(repo, revision):
        info = HfApi().repo_info(
            repo.id,
            revision=revision,
            repo_type=repo.kind,
            files_metadata=True,
            timeout=constants.HF_HUB_ETAG_TIMEOUT,
        )
    sizes = {file.rfilename: file.size or 0 for file in getattr(info, "siblings", None) or []}
    commit = str(info.sha)
    needed = choose_safely(repo, commit, sizes, choose)
    files = [file for file in needed if not (repo.snapshot(commit) / file).is_file()]
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
    return commit, needed


def choose_safely(
    repo: Repo, commit: str, names: Collection[str], choose: Callable[[Collection[str]], list[str]]
) -> list[str]:
    """The files to fetch; a listing with paths outside of the folder is refused."""
    unsafe = [name for name in names if name.startswith("/") or ".." in name.split("/")]
    files = [] if unsafe else choose(names)
    unsafe += [name for name in files if re.search(r"[\\:\0-\x1f]", name)]
    if unsafe or not COMMIT.fullmatch(commit):
        raise ValueError(f"{repo.name} names {(*unsafe, commit)[0]!r:.99}, outside of its folder. Nothing was fetched")
    return files


def download_file(repo: Repo, file: str, commit: str) -> None:
    """Download one file into the cache, in Hugging Face's layout: snapshots/COMMIT/FILE links to blobs/ETAG.

    huggingface_hub's own function builds paths from the commit and the ETag of the response without checking them.
    """
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    url = hf_hub_url(repo.id, file, revision=commit, repo_type=repo.kind)
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
    hub, page = constants.ENDPOINT, repo.page
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
