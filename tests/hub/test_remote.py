"""Models by name, against a hub of our own on this machine that answers as the real one does."""

import errno
import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import pytest
from huggingface_hub import constants, hf_hub_download, snapshot_download
from huggingface_hub.errors import LocalEntryNotFoundError
from hypothesis import given
from hypothesis import strategies as st

from regard.hub import remote, revision_lock
from regard.hub.remote import find_model, parse_repo, required_files, usable_files

REPO_NAME = "maker/tiny"
WEIGHTS = bytes(range(256)) * (1 << 13)  # 2 MB: more than what is summed every time
FILES = {
    "config.json": b'{"model_type": "gpt2"}',
    "model.safetensors": WEIGHTS,
    "tokenizer.json": b"{}",
    "1_Pooling/config.json": b'{"pooling_mode_mean_tokens": true}',
    "README.md": b"# tiny",
    "LICENSE.txt": b"free",
}
USELESS = {
    "modeling_tiny.py": b"raise SystemExit('code was run')",
    "pytorch_model.bin": b"\x80\x04pickle",
    "tf_model.h5": b"h5",
    "weights.gguf": b"gguf",
    "onnx/model.onnx": b"onnx",
    "onnx/config.json": b"{}",
    "consolidated.safetensors": b"twice",
    "model.fp16.safetensors": b"half",
    ".gitattributes": b"*.bin filter=lfs",
}


def git_hash(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Hub:
    """Repositories as {name: {revision: commit}} and {commit: files}."""

    def __init__(self):
        self.revisions, self.commits, self.blobs, self.requests = {}, {}, {}, []
        self.refuses = None  # (beginning of the path, status, headers): what the hub answers there instead
        self.adds = []  # names that it lists and has not
        self.swaps = {}  # blobs that it sends in place of those asked for
        self.claims = ""  # the commit that it says its files are of, if not the true one
        self.etags = []  # what it sends in place of ETags, one after the other
        self.hangs = threading.Event()
        self.hangs.set()
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                hub.answer(self, True)

            def do_HEAD(self):
                hub.answer(self, False)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.cdn = f"http://localhost:{self.server.server_port}"  # large files live on another host
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def push(self, files, repo=REPO_NAME, revision="main"):
        commit = hashlib.sha1(repr((repo, sorted(files.items()))).encode()).hexdigest()
        self.commits[commit] = files
        self.blobs |= {hashlib.sha256(content).hexdigest(): content for content in files.values()}
        self.revisions.setdefault(repo, {}).update({revision: commit, commit: commit})
        return commit

    def answer(self, ask, body):
        path = unquote(urlsplit(ask.path).path)
        if path == "/api/agent-harnesses":  # a habit of the library, once a day
            return send(ask, 404, {}, b"", body)
        self.requests.append(f"{ask.command} {path}")
        self.hangs.wait(10)
        if self.refuses and path.startswith(self.refuses[0]):
            return send(ask, self.refuses[1], self.refuses[2], b"", body)
        if path.startswith("/cdn/"):
            blob = path.removeprefix("/cdn/")
            return send(ask, 200, {}, self.blobs[self.swaps.get(blob, blob)], body)
        if match := re.fullmatch(r"/api/(?:models|datasets)/([^/]+/[^/]+)/revision/(.+)", path):
            return self.send_listing(ask, *match.groups())
        repo, commit, name = re.fullmatch(r"(?:/datasets)?/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path).groups()
        content = self.commits[self.revisions[repo][commit]][name]
        headers = {"X-Repo-Commit": self.claims or self.revisions[repo][commit]}
        if name.endswith((".safetensors", ".parquet")):
            blob = hashlib.sha256(content).hexdigest()
            headers |= {"X-Linked-Etag": f'"{blob}"', "X-Linked-Size": str(len(content))}
            return send(ask, 302, headers | {"Location": f"{self.cdn}/cdn/{blob}"}, b"", body)
        etag = self.etags.pop(0) if self.etags else git_hash(content)
        return send(ask, 200, headers | {"ETag": f'"{etag}"'}, content, body)

    def send_listing(self, ask, repo, revision):
        if revision not in self.revisions.get(repo, {}):
            code = "RevisionNotFound" if repo in self.revisions else "RepoNotFound"
            return send(ask, 404, {"X-Error-Code": code}, b"", True)
        commit = self.revisions[repo][revision]
        siblings = [
            {"rfilename": name, "size": len(content), "blobId": git_hash(content)}
            for name, content in self.commits[commit].items()
        ]
        listing = {
            "id": repo,
            "sha": commit,
            "siblings": siblings + [{"rfilename": n, "size": s} for n, s in self.adds],
        }
        return send(ask, 200, {"Content-Type": "application/json"}, json.dumps(listing).encode(), True)


def send(ask, status, headers, content, body):
    ask.send_response(status)
    for name, value in ({"Content-Length": str(len(content))} | headers).items():
        ask.send_header(name, value)
    ask.end_headers()
    if body:
        ask.wfile.write(content)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    hub = Hub()
    for name, value in {
        "ENDPOINT": hub.url,
        "HUGGINGFACE_CO_URL_TEMPLATE": hub.url + "/{repo_id}/resolve/{revision}/{filename}",
        "HF_HUB_CACHE": str(tmp_path / "hub"),
        "HF_HUB_OFFLINE": False,
        "HF_HUB_ETAG_TIMEOUT": 5,
        "HF_HUB_DISABLE_XET": True,
        "HF_HUB_DISABLE_IMPLICIT_TOKEN": True,
    }.items():
        monkeypatch.setattr(constants, name, value)
    monkeypatch.setattr(revision_lock, "CACHE_DIR", str(tmp_path / "regard"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    monkeypatch.chdir(tmp_path)
    yield hub
    hub.hangs.set()
    hub.server.shutdown()
    hub.server.server_close()


def quiet(_):
    pass


def refusal(name=REPO_NAME, **how):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        find_model(name, report=quiet, **how)
    assert "\n" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return str(caught.value)


def content(folder):
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def locked(name=REPO_NAME):
    return json.loads(revision_lock.lock_file().read_text())[name]


def test_local_folders_need_no_request(hub, tmp_path, monkeypatch):
    (tmp_path / "maker" / "tiny").mkdir(parents=True)
    for name in (REPO_NAME, "tiny", "./a/b", "/a/b", "a/b/c", "runs/demo/", "../x", str(tmp_path)):
        assert str(find_model(name)) == os.path.normpath(name) or name == "./a/b"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_model("~/model") == tmp_path / "model"
    assert hub.requests == []


@pytest.mark.parametrize(
    "name",
    [
        "a/b@",
        "a/-b",
        "a/b--c",
        "a/b.git",
        "a/b@../c",
        "a/b@c/../d",
        "ä/b",
        "a/b c",
        "a/b@/x",
        "a/b@x\n",
        "a/b%2e",
        "a/b\\c",
    ]
    + ["a/b@-x", f"a/{'b' * 97}", "a/b@c@d", "a/..", "a/b..c", "a/b@c..d"],
)
def test_invalid_repo_names_are_refused(hub, name):
    assert refusal(name, download=True).startswith(f"{name!r} is neither a folder nor a model on the hub")
    assert hub.requests == []


@given(st.from_regex(remote.REPO_NAME, fullmatch=True))
def test_a_repo_name_stays_inside_the_cache(name):
    try:
        repo = parse_repo(name)
    except ValueError:
        return
    cache = repo.cache.resolve()
    assert repo.cache_folder.resolve().parent == cache
    assert (
        (repo.cache_folder / "refs" / repo.revision).resolve().is_relative_to(cache / repo.cache_folder.name / "refs")
    )


def test_only_usable_files_are_downloaded_after_their_sizes_are_reported(hub):
    commit = hub.push(FILES | USELESS)
    lines = []
    folder = find_model(REPO_NAME, download=True, report=lambda line: lines.append((line, len(hub.requests))))
    assert content(folder) == FILES
    assert not [r for r in hub.requests for name in USELESS if r.endswith("/" + name)]
    first, requests = lines[0]
    size = sum(map(len, FILES.values())) / 1e6
    assert f"{len(FILES)} files, {size:.3f} MB" in first
    assert hub.url in first
    assert commit[:8] in first
    assert requests == 1, "the listing, and nothing else yet"
    assert [line.split(",")[0].strip() for line, _ in lines[1:]] == sorted(FILES)


def test_the_lock_holds_repository_commit_and_hashes(hub):
    commit = hub.push(FILES | USELESS)
    find_model(REPO_NAME, download=True, report=quiet)
    now = locked()
    assert (now["repository"], now["commit"]) == (REPO_NAME, commit)
    facts = {name: (f["bytes"], f["sha256"]) for name, f in now["files"].items()}
    assert facts == {name: (len(c), hashlib.sha256(c).hexdigest()) for name, c in FILES.items()}
    assert [f.name for f in revision_lock.lock_file().parent.iterdir()] == [revision_lock.LOCK], (
        "nothing half-written stays"
    )


def test_without_consent_no_request_is_sent(hub, tmp_path):
    hub.push(FILES)
    message = refusal()
    assert all(word in message for word in (REPO_NAME, str(tmp_path / "hub"), "--download", hub.url))
    assert hub.requests == []


def test_the_question_to_the_user_states_the_size(hub):
    hub.push(FILES)
    questions = []
    assert "you declined the download" in refusal(ask=lambda question: questions.append(question))
    assert hub.requests == [f"GET /api/models/{REPO_NAME}/revision/main"]
    assert "6 files, 2.097 MB" in questions[0]
    assert not (remote.parse_repo(REPO_NAME).cache_folder / "snapshots").exists()
    assert content(find_model(REPO_NAME, ask=lambda _: True, report=quiet)) == FILES


def test_a_cached_model_needs_no_request(hub):
    hub.push(FILES)
    folder = find_model(REPO_NAME, download=True, report=quiet)
    hub.requests.clear()
    before = revision_lock.lock_file().stat().st_mtime_ns
    for how in ({}, {"download": True}, {"download": False}, {"verify": True}):
        assert find_model(REPO_NAME, report=quiet, **how) == folder
    assert hub.requests == []
    assert revision_lock.lock_file().stat().st_mtime_ns == before


def test_models_cached_by_huggingface_hub_are_used_and_locked(hub):
    commit = hub.push(FILES)
    paths = [hf_hub_download(REPO_NAME, name) for name in FILES]
    hub.requests.clear()
    assert str(find_model(REPO_NAME) / "config.json") in paths
    assert locked()["commit"] == commit
    assert find_model(f"{REPO_NAME}@{commit}") == find_model(REPO_NAME)
    assert hub.requests == []


def test_huggingface_hub_finds_our_downloads(hub):
    hub.push(FILES)
    folder = find_model(REPO_NAME, download=True, report=quiet)
    hub.requests.clear()
    assert folder.samefile(snapshot_download(REPO_NAME, local_files_only=True))
    assert hub.requests == []


def test_an_incomplete_cached_model_is_completed(hub):
    hub.push(FILES)
    hf_hub_download(REPO_NAME, "config.json")
    assert "lacks model.safetensors" in refusal()
    hub.requests.clear()
    assert content(find_model(REPO_NAME, download=True, report=quiet)) == FILES
    assert not [r for r in hub.requests if r.endswith("main/config.json")]


def test_all_shards_are_required(hub):
    shards = {f"model-{i:05}-of-00003.safetensors": b"%d" % i for i in (1, 2, 3)}
    files = {"config.json": b"{}", "model.safetensors.index.json": b"{}", **shards}
    hub.push(files)
    folder = find_model(REPO_NAME, download=True, report=quiet)
    assert content(folder) == files
    revision_lock.lock_file().unlink()
    (folder / "model-00002-of-00003.safetensors").unlink()
    assert "lacks model-00002-of-00003.safetensors" in refusal()
    del files["model-00003-of-00003.safetensors"]
    hub.push(files, "maker/short")
    assert "has no model-00003-of-00003.safetensors" in refusal("maker/short", download=True)


def test_required_and_usable_files():
    assert required_files([]) == ["config.json", "model.safetensors"]
    sharded = ["model.safetensors-00001-of-00001.safetensors", "consolidated-00001-of-00009.safetensors"]
    assert required_files(sharded) == ["config.json", "model.safetensors.index.json", sharded[0]]
    assert usable_files([*FILES, *USELESS]) == sorted(FILES)
    assert usable_files([*FILES, *sharded]) == sorted(FILES), "one file of weights is enough"
    assert usable_files(["a/config.json", "1_Pooling/x/config.json", "a/b.model", "sub/LICENSE"]) == []


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_changed_file_is_refused_by_name(hub, name):
    hub.push(FILES)
    folder = find_model(REPO_NAME, download=True, report=quiet)
    file = (folder / name).resolve()
    file.write_bytes(FILES[name][:-1] + bytes([FILES[name][-1] ^ 1]))
    for how in ({}, {"download": True}, {"update": True}):
        message = refusal(**how)
        assert str(folder / name) in message
        assert "fetch the model again" in message
    file.write_bytes(FILES[name])
    assert find_model(REPO_NAME) == folder


def test_sizes_are_always_checked_and_large_files_hashed_when_their_mtime_changes(hub):
    hub.push(FILES)
    folder = find_model(REPO_NAME, download=True, report=quiet)
    file = (folder / "model.safetensors").resolve()
    stat = file.stat()
    file.write_bytes(WEIGHTS[::-1])
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert find_model(REPO_NAME) == folder, "the hash is taken only when the mtime changes"
    assert "model.safetensors differs from its checksum" in refusal(verify=True)
    file.write_bytes(WEIGHTS + b"x")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert "model.safetensors differs from its checksum" in refusal()
    file.write_bytes(WEIGHTS)
    small = (folder / "config.json").resolve()
    stat = small.stat()
    small.write_bytes(FILES["config.json"].replace(b"gpt2", b"bert"))
    os.utime(small, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert "config.json differs from its checksum" in refusal()


def test_weights_are_hashed_once(hub, monkeypatch):
    hub.push(FILES)
    folder = find_model(REPO_NAME, download=True, report=quiet)
    os.utime((folder / "model.safetensors").resolve(), ns=(1, 1))
    hashed = []
    original_sha256 = revision_lock.sha256
    monkeypatch.setattr(revision_lock, "sha256", lambda path: hashed.append(path.name) or original_sha256(path))
    find_model(REPO_NAME)
    assert hashed.count("model.safetensors") == 1
    find_model(REPO_NAME)
    assert hashed.count("model.safetensors") == 1


def test_a_corrupted_download_is_refused(hub):
    hub.push(FILES)
    sums = [hashlib.sha256(data).hexdigest() for data in (WEIGHTS, WEIGHTS[::-1])]
    hub.blobs[sums[1]], hub.swaps = WEIGHTS[::-1], dict([sums])
    assert "model.safetensors differs from its checksum" in refusal(download=True)
    assert not revision_lock.lock_file().exists()


def test_a_deleted_file_is_downloaded_again_from_the_locked_commit(hub):
    hub.push(FILES)
    folder = find_model(REPO_NAME, download=True, report=quiet)
    hub.push(FILES | {"tokenizer.json": b"new"})
    (folder / "tokenizer.json").unlink()
    assert "lacks tokenizer.json" in refusal()
    assert content(find_model(REPO_NAME, download=True, report=quiet)) == FILES
    assert not [r for r in hub.requests[-3:] if "main" in r]


def test_a_second_cache_gets_the_locked_commit_and_content(hub, tmp_path, monkeypatch):
    old = hub.push(FILES)
    find_model(REPO_NAME, download=True, report=quiet)
    hub.push(FILES | {"config.json": b"{}"})
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "elsewhere"))
    assert find_model(REPO_NAME, download=True, report=quiet).name == old
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "third"))
    hub.commits[old] = FILES | {"config.json": b'{"model_type": "bad2"}'}
    assert "config.json differs from its checksum" in refusal(download=True)


def test_a_ref_moved_by_huggingface_hub_changes_nothing(hub):
    old = hub.push(FILES)
    find_model(REPO_NAME, download=True, report=quiet)
    new = hub.push(FILES | {"config.json": b"{}"})
    for name in FILES:
        hf_hub_download(REPO_NAME, name)
    assert (parse_repo(REPO_NAME).cache_folder / "refs" / "main").read_text() == new
    assert find_model(REPO_NAME).name == old


def test_a_moved_branch_changes_nothing_until_an_update(hub):
    old = hub.push(FILES)
    find_model(REPO_NAME, download=True, report=quiet)
    new = hub.push(FILES | {"config.json": b'{"model_type": "bert"}'})
    hub.requests.clear()
    assert find_model(REPO_NAME, download=True, report=quiet).name == old
    assert hub.requests == []
    assert "cannot be updated" in refusal(update=True, download=False)
    assert hub.requests == []
    assert find_model(REPO_NAME, update=True, report=quiet).name == new
    assert locked()["commit"] == new
    assert not [r for r in hub.requests if r.endswith("safetensors") and r.startswith("GET")], "it has not changed"
    hub.requests.clear()
    assert find_model(REPO_NAME).name == new
    assert find_model(f"{REPO_NAME}@{old}").name == old
    assert hub.requests == []


@pytest.mark.parametrize("revision", ["main", "v1.0", "refs/pr/1", "my-branch/two", "short7"])
def test_revisions(hub, revision):
    hub.push(FILES | {"README.md": b"another"})
    commit = hub.push(FILES, revision=revision)
    assert find_model(f"{REPO_NAME}@{revision}", download=True, report=quiet).name == commit
    hub.requests.clear()
    assert find_model(f"{REPO_NAME}@{commit}").name == commit
    revision_lock.lock_file().unlink()
    assert find_model(f"{REPO_NAME}@{revision}").name == commit
    assert hub.requests == []


def test_a_commit_hash_as_revision(hub):
    commit = hub.push(FILES)
    hub.push(FILES | {"README.md": b"another"})
    assert content(find_model(f"{REPO_NAME}@{commit}", download=True, report=quiet)) == FILES
    assert "no such model" in refusal(), "it says nothing about the main branch"
    gone = "0" * 40
    assert f"no revision {gone}" in refusal(f"{REPO_NAME}@{gone}", download=True)
    assert "no revision nowhere" in refusal(f"{REPO_NAME}@nowhere", download=True)


@pytest.mark.parametrize("how", ["download", "environment"])
def test_offline_sends_no_request(hub, monkeypatch, how):
    hub.push(FILES)
    if how == "environment":
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    ways = [{"download": False}] if how == "download" else [{}, {"download": True}]
    for way in ways:
        for more in ({}, {"ask": lambda _: True}, {"update": True}):
            assert "--offline or HF_HUB_OFFLINE is set" in refusal(**way, **more)
    assert hub.requests == []


@pytest.mark.parametrize(
    "name", ["../config.json", "/etc/passwd", "a/../../config.json", "..", "..\\x.model", "C:x.spm"]
)
def test_file_names_outside_of_the_folder_are_refused(hub, name):
    hub.push(FILES)
    hub.adds = [(name, 1)]
    assert f"names {name!r}, outside of its folder. Nothing was fetched" in refusal(download=True)
    assert len(hub.requests) == 1


def test_odd_names_of_unused_files_are_ignored(hub):
    hub.push(FILES)
    hub.adds = [("logs/12:30:00/events", 1), ("a b/ü.py", 1)]
    assert content(find_model(REPO_NAME, download=True, report=quiet)) == FILES


@pytest.mark.parametrize("commit", ["main", "../../x", "", "0" * 39])
def test_an_invalid_commit_is_refused(hub, commit):
    hub.push(FILES)
    hub.revisions[REPO_NAME]["main"], hub.commits[commit] = commit, FILES
    assert "Nothing was fetched" in refusal(download=True)
    assert len(hub.requests) == 1


def test_files_of_another_commit_are_refused(hub):
    hub.push(FILES)
    hub.claims = "1" * 40
    assert "sent 1_Pooling/config.json of another commit" in refusal(download=True)


def paths_below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize(
    ("bad", "honest"),
    [("../../../../evil", 0), ("{tmp}/evil", 0), ("{tmp}/evil", 1), ("a/../../../../evil", 1), ("evil", 0)]
    + [("a" * 39, 1), ("a" * 65, 0)],
)
def test_an_invalid_etag_never_becomes_a_path(hub, tmp_path, bad, honest):
    """Also where the first response was valid: the response that is used is checked."""
    hub.push(FILES)
    bad = bad.format(tmp=tmp_path)
    hub.etags = [git_hash(FILES["1_Pooling/config.json"])] * honest + [bad] * 9
    message = refusal(download=True)
    assert f"with the ETag {bad!r:.99}" in message
    assert "not 40 to 64 hex digits" in message
    assert not [path for path in paths_below(tmp_path) if "evil" in path or path.endswith((".incomplete", ".lock"))]


def test_a_commit_header_never_becomes_a_path(hub, tmp_path):
    """huggingface_hub records missing files under the commit that the response names."""
    hub.push(FILES)
    hub.refuses = ("/maker", 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": str(tmp_path / "evil")})
    assert "answers 404" in refusal(download=True)
    assert not (tmp_path / "evil").exists()


def test_a_repository_without_safetensors_is_refused_before_the_download(hub):
    hub.push({"config.json": b"{}", "pytorch_model.bin": b"pickle"})
    message = refusal(download=True)
    assert "has no model.safetensors; it has pytorch_model.bin" in message
    assert "save_pretrained" in message
    hub.push({"model.safetensors": b""}, "maker/bare")
    assert "has no config.json" in refusal("maker/bare", download=True)
    assert len(hub.requests) == 2


def test_a_model_too_large_for_the_disk_is_refused_before_the_download(hub):
    hub.push(FILES)
    hub.adds = [("huge.model", 10**18)]
    assert "MB are free. Free some space" in refusal(download=True)
    assert len(hub.requests) == 1


@pytest.mark.parametrize(
    ("where", "status", "headers", "message"),
    [
        ("/api", 404, {"X-Error-Code": "RepoNotFound"}, "does not exist"),
        ("/api", 401, {"X-Error-Code": "RepoNotFound"}, "hf auth login"),
        ("/api", 401, {"X-Error-Message": "Invalid credentials in Authorization header"}, "refuses access (401)"),
        ("/api", 403, {}, "hf auth login"),
        ("/api", 403, {"X-Error-Code": "GatedRepo"}, "it is gated. Accept its terms"),
        ("/maker", 403, {"X-Error-Code": "GatedRepo"}, "it is gated. Accept its terms"),
        ("/maker", 404, {"X-Error-Code": "EntryNotFound"}, "answers 404"),
        ("/api", 429, {}, "answers 429. Try again later"),
        ("/api", 500, {}, "answers 500. Try again later"),
        ("/api", 200, {}, "cannot be reached"),
    ],
)
def test_http_errors_become_one_sentence(hub, where, status, headers, message):
    hub.push(FILES)
    hub.refuses = (where, status, headers)
    error = refusal(download=True)
    assert error.startswith(f"{REPO_NAME} cannot be fetched: ")
    assert message in error
    assert not revision_lock.lock_file().exists()


def test_an_unknown_name_gets_suggestions(hub):
    hub.push(FILES)
    find_model(REPO_NAME, download=True, report=quiet)
    for how in ({}, {"download": True}, {"download": False}):
        assert f"The cache has {REPO_NAME}." in refusal("maker/tinny", **how)


def test_a_hub_that_hangs_or_is_unreachable(hub, monkeypatch):
    hub.push(FILES)
    monkeypatch.setattr(constants, "HF_HUB_ETAG_TIMEOUT", 0.2)
    hub.hangs.clear()
    assert "does not answer" in refusal(download=True)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")
    assert "cannot be reached" in refusal(download=True)


def wrapped_in_cache_miss(cause):
    """As huggingface_hub raises it: the error is the cause of a cache miss."""
    error = LocalEntryNotFoundError("not in the cache")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full. Free some space"),
        (wrapped_in_cache_miss(TimeoutError()), "does not answer"),
        (PermissionError(errno.EACCES, "Permission denied", "/some/file"), "/some/file: Permission denied"),
    ],
)
def test_disk_and_network_errors_become_one_sentence(hub, monkeypatch, error, message):
    def fails(*_, **__):
        raise error

    hub.push(FILES)
    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", fails)
    assert message in refusal(download=True)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"a/b": 1}', '{"a/b": {"commit": "../x", "files": {}}}', '{"a/b": {"commit": 1}}', "\xff"]
)
def test_a_damaged_lock_is_refused(hub, text):
    revision_lock.replace_text(revision_lock.lock_file(), text)
    assert "models.lock.json is damaged" in refusal()
    assert hub.requests == []


def test_a_lock_that_cannot_be_written_is_reported(hub, tmp_path):
    hub.push(FILES)
    (tmp_path / "regard").write_text("a file where the folder should be")
    lines = []
    folder = find_model(REPO_NAME, download=True, report=lines.append)
    assert content(folder) == FILES
    assert "stays unlocked" in lines[-1]


def test_two_names_share_the_lock(hub):
    hub.push(FILES)
    hub.push(FILES, "maker/other")
    find_model(REPO_NAME, download=True, report=quiet)
    find_model("maker/other", download=True, report=quiet)
    assert locked()["repository"] == REPO_NAME
    assert locked("maker/other")["repository"] == "maker/other"


def test_environment_variables_are_honoured_and_imports_are_lazy(hub, tmp_path):
    """In a fresh process, with the variables that Hugging Face's tools read."""
    hub.push(FILES)
    code = (
        "import sys; from regard.hub.remote import find_model; "
        "early = [m for m in ('huggingface_hub', 'httpx', 'requests') if m in sys.modules]; "
        "assert not early, early; print(find_model(sys.argv[1], download=True))"
    )
    env = os.environ | {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf"), "HOME": str(tmp_path)}
    env = {name: value for name, value in env.items() if name not in ("HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_TOKEN")}
    run = [sys.executable, "-c", code, REPO_NAME]
    result = subprocess.run(run, env=env, capture_output=True, text=True, check=True)
    assert result.stdout.startswith(str(tmp_path / "hf" / "hub" / "models--maker--tiny" / "snapshots"))
    assert result.stderr.count("\n") == 1 + len(FILES), "plain lines without a terminal"
    assert (tmp_path / ".cache" / "regard" / revision_lock.LOCK).is_file()
    hub.requests.clear()
    subprocess.run(run, env=env | {"HF_HUB_OFFLINE": "1"}, capture_output=True, check=True)
    assert hub.requests == []
