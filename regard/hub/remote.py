"""A model by its name becomes a folder: one that is here, one in Hugging Face's cache, or a download, with your word.

owner/repo@revision > commit, as locked > files in the cache, or fetched > size and SHA-256 of each, as locked
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
from typing import Any, NamedTuple

from regard.hub.revision_lock import COMMIT, checked, lock_file, put, read_lock

REPO_NAME = re.compile(r"(\w(?:[\w.-]{0,94}\w)?/\w(?:[\w.-]{0,94}\w)?)(?:@(\w[\w.+-]*(?:/\w[\w.+-]*)*))?", re.ASCII)
SHARD = re.compile(r"(model(?:\.safetensors)?)-\d{5}-of-(\d{5})\.safetensors")
USED = (  # beside the weights; never code, and no weights that could be
    *("config.json", "generation_config.json", "task.json", "preprocessor_config.json", "processor_config.json"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "vocab.json", "merges.txt", "*.model", "*.spm", "README.md", "LICENSE*"),
    *("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json", "[0-9]_*/config.json"),
)
ETAG = re.compile(r"[0-9a-f]{40,64}")  # of git's SHA-1, or SHA-256; the cache keeps a file under it
ROOM = "Make room, or let HF_HOME name a folder on another disk"


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def find_model(
    name: str,
    download: bool | None = None,
    ask: Callable[[str], bool] | None = None,
    told: Callable[[str], None] = say,
    update: bool = False,
    verify: bool = False,
) -> Path:
    """`download` True fetches what is not here, False stays offline, None asks. Only `update` moves a locked name."""
    path = Path(os.path.expanduser(name))
    if path.exists() or name.startswith((".", "/", "~")) or name.partition("@")[0].count("/") != 1:
        return path
    wanted, locked = named(name), read_lock().get(name, {})
    commit = locked.get("commit") or wanted.cached_commit()
    here = files_in(wanted.folder(commit)) if commit else []
    lacks = [file for file in locked.get("files") or needed(here) if file not in here]
    if update or lacks:
        allowed = download if download is False else update or download
        revision = wanted.revision if update else locked.get("commit", wanted.revision)
        commit = fetch(wanted, revision, wanted.complaint(here, lacks), allowed, ask, told)
    folder = wanted.folder(commit)
    before = locked["files"] if commit == locked.get("commit") else {}
    now = {"repository": wanted.repo, "commit": commit, "files": checked(folder, files_in(folder), before, verify)}
    if now != locked:
        try:
            put(lock_file(), json.dumps(read_lock() | {name: now}, indent=2, sort_keys=True) + "\n")
        except OSError as error:
            told(f"{lock_file()} cannot be written ({error.strerror}): {name} stays unlocked")
    return folder


class Named(NamedTuple):
    name: str
    repo: str
    revision: str
    cache: Path

    @property
    def home(self) -> Path:
        return self.cache / f"models--{self.repo.replace('/', '--')}"

    def folder(self, commit: str) -> Path:
        return self.home / "snapshots" / commit

    def cached_commit(self) -> str:
        """What the cache has of the revision; empty if nothing."""
        ref = self.home / "refs" / self.revision
        commit = ref.read_text().strip() if ref.is_file() else self.revision
        return commit if COMMIT.fullmatch(commit) and self.folder(commit).is_dir() else ""

    def near(self) -> str:
        cached = [folder.name.removeprefix("models--").replace("--", "/") for folder in self.cache.glob("models--*")]
        near = [repo for repo in get_close_matches(self.repo, cached, 4) if repo != self.repo]
        return f" The cache has {', '.join(near)}." if near else ""

    def complaint(self, here: list[str], lacks: list[str]) -> str:
        if not lacks:
            return f"{self.name} cannot be updated."
        there = f"{self.home} lacks {', '.join(lacks[:3])}" if here else f"no such model in {self.cache}"
        return f"{self.name}: no such folder, and {there}.{self.near()}"


def named(name: str) -> Named:
    from huggingface_hub import constants

    match = REPO_NAME.fullmatch(name)
    if not match or "--" in match[1] or ".." in name or match[1].endswith(".git"):
        raise ValueError(f"{name!r} is neither a folder nor a model's name, which is owner/repo or owner/repo@revision")
    return Named(name, match[1], match[2] or "main", Path(constants.HF_HUB_CACHE))


def needed(names: Collection[str]) -> list[str]:
    """What must be there: all shards of the weights, if they come in shards."""
    shards = [match for name in sorted(names) if (match := SHARD.fullmatch(name))]
    if "model.safetensors" in names or not shards:
        return ["config.json", "model.safetensors"]
    stem, count = shards[0].groups()
    weights = [f"{stem}-{i:05}-of-{count}.safetensors" for i in range(1, int(count) + 1)]
    return ["config.json", "model.safetensors.index.json", *weights]


def used(names: Collection[str]) -> list[str]:
    beside = [n for n in names for like in USED if fnmatchcase(n, like) and n.count("/") == like.count("/")]
    return sorted({*beside, *needed(names)} & {*names})


def files_in(folder: Path) -> list[str]:
    return used([file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()])


def fetch(
    wanted: Named,
    revision: str,
    complaint: str,
    allowed: bool | None,
    ask: Callable[[str], bool] | None,
    told: Callable[[str], None],
) -> str:
    """The commit of the files, when all of them are in the cache."""
    from huggingface_hub import HfApi, constants

    if allowed is False or constants.HF_HUB_OFFLINE:
        raise ValueError(f"{complaint} We are offline: nothing is fetched with --offline or under HF_HUB_OFFLINE")
    if not (allowed or ask):
        raise ValueError(f"{complaint} Add --download to fetch it from {constants.ENDPOINT} (in Python: download=True)")
    with plainly(wanted, revision):
        info = HfApi().model_info(
            wanted.repo, revision=revision, files_metadata=True, timeout=constants.HF_HUB_ETAG_TIMEOUT
        )
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or []}
    commit = must_be_safe(wanted, str(info.sha), sizes)
    files = [file for file in used(sizes) if not (wanted.folder(commit) / file).is_file()]
    total = sum(sizes[file] for file in files)
    what = f"{wanted.name}: {len(files)} files, {megabytes(total)}, from {constants.ENDPOINT} (commit {commit[:8]})"
    if not allowed and not (ask and ask(f"{what}. Fetch them into {wanted.cache}?")):
        raise ValueError(f"{wanted.name} is not here, and was not to be fetched")
    wanted.cache.mkdir(parents=True, exist_ok=True)
    if total > (free := shutil.disk_usage(wanted.cache).free):
        raise ValueError(f"{what}, are too much for {wanted.cache}: {megabytes(free)} are free. {ROOM}")
    told(what)
    for file in files:
        if not sys.stderr.isatty():  # where the library draws no bars
            told(f"  {file}, {megabytes(sizes[file])}")
        download_file(wanted, file, commit)
    if revision != commit:
        put(wanted.home / "refs" / revision, commit)
    return commit


def download_file(wanted: Named, file: str, commit: str) -> None:
    """Fetch one file into the cache, laid out as Hugging Face does it: snapshots/COMMIT/FILE links to blobs/ETAG.

    huggingface_hub's own function makes paths of the commit and the ETag in the answer without a look at them.
    """
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    url = hf_hub_url(wanted.repo, file, revision=commit)
    with plainly(wanted, commit):
        answer = get_hf_file_metadata(url, timeout=constants.HF_HUB_ETAG_TIMEOUT)
    sent = f"{wanted.name} cannot be fetched: {constants.ENDPOINT} sent {file}"
    if answer.commit_hash != commit:
        raise ValueError(f"{sent} of another commit")
    if not ETAG.fullmatch(answer.etag or ""):
        raise ValueError(f"{sent} with the ETag {answer.etag!r:.99}, which is not 40 to 64 hex digits")
    blob, link = wanted.home / "blobs" / str(answer.etag), wanted.folder(commit) / file
    partial = blob.with_name(f"{blob.name}.{os.getpid()}.incomplete")
    with plainly(wanted, commit):
        for folder in blob.parent, link.parent:
            folder.mkdir(parents=True, exist_ok=True)
        try:
            if not blob.exists():
                with partial.open("wb") as stream:
                    headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
                    http_get(url, stream, headers=headers, expected_size=answer.size, displayed_filename=file)
                partial.replace(blob)
            link.unlink(missing_ok=True)  # one that leads nowhere
            link.symlink_to(os.path.relpath(blob, link.parent))
        finally:
            partial.unlink(missing_ok=True)


def must_be_safe(wanted: Named, commit: str, listed: Collection[str]) -> str:
    odd = [file for file in listed if file.startswith("/") or ".." in file.split("/")]
    odd += [file for file in used(listed) if re.search(r"[\\:\0-\x1f]", file)]
    if odd or not COMMIT.fullmatch(commit):
        raise ValueError(f"{wanted.name} names {(*odd, commit)[0]!r:.99}, outside of its folder. Nothing was fetched")
    if lacks := [file for file in needed(listed) if file not in listed]:
        pickles = [file for file in listed if file.endswith((".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack"))]
        only = f"; it has {pickles[0]}, of a kind that can hold code and is not read here" if pickles else ""
        raise ValueError(
            f"{wanted.name} has no {lacks[0]}{only}. A conversion may wait for its owner: try {wanted.repo}@refs/pr/1; "
            "or, if you trust it, open it with transformers and save_pretrained it. Nothing was fetched"
        )
    return commit


def megabytes(size: int) -> str:
    return f"{size / 1e6:,.3f} MB"


@contextmanager
def plainly(wanted: Named, revision: str) -> Iterator[None]:
    """All that can happen out there, in one sentence. The library's errors are those of its network layer."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"{wanted.name} cannot be fetched: {reason(wanted, revision, error)}") from None


def reason(wanted: Named, revision: str, error: Any) -> str:
    from huggingface_hub import constants, errors

    while isinstance(error, errors.LocalEntryNotFoundError) and error.__cause__:
        error = error.__cause__
    hub, page = constants.ENDPOINT, f"{constants.ENDPOINT}/{wanted.repo}"
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, errors.GatedRepoError):
        return f"it is gated. Accept its terms at {page}, then log in with `hf auth login`"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{page} has no revision {revision}. If it is a locked commit, --update takes what there is now"
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"there is no {page}, or it is private: then log in with `hf auth login`.{wanted.near()}"
    if status in (401, 403):
        return f"{hub} refuses you ({status}). Log in with `hf auth login`"
    if status:
        return f"{hub} answers {status}. Try again later"
    if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full. {ROOM}"
    if getattr(error, "filename", None):
        return f"{error.filename}: {error.strerror}"
    if "Timeout" in type(error).__name__:
        return f"{hub} does not answer. Try again later, or give it more seconds: HF_HUB_ETAG_TIMEOUT=60"
    return f"{hub} cannot be reached ({error}). Check the network, and HF_ENDPOINT if you have set it"
