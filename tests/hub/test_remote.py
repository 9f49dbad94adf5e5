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

from regard.hub import lock, remote
from regard.hub.remote import find, named, needed, used

NAME = "maker/tiny"
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

    def push(self, files, repo=NAME, revision="main"):
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
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/(.+)", path):
            return self.tell(ask, *match.groups())
        repo, commit, name = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path).groups()
        content = self.commits[self.revisions[repo][commit]][name]
        headers = {"X-Repo-Commit": self.claims or self.revisions[repo][commit]}
        if name.endswith(".safetensors"):
            blob = hashlib.sha256(content).hexdigest()
            headers |= {"X-Linked-Etag": f'"{blob}"', "X-Linked-Size": str(len(content))}
            return send(ask, 302, headers | {"Location": f"{self.cdn}/cdn/{blob}"}, b"", body)
        etag = self.etags.pop(0) if self.etags else git_hash(content)
        return send(ask, 200, headers | {"ETag": f'"{etag}"'}, content, body)

    def tell(self, ask, repo, revision):
        if revision not in self.revisions.get(repo, {}):
            code = "RevisionNotFound" if repo in self.revisions else "RepoNotFound"
            return send(ask, 404, {"X-Error-Code": code}, b"", True)
        commit = self.revisions[repo][revision]
        siblings = [
            {"rfilename": name, "size": len(content), "blobId": git_hash(content)}
            for name, content in self.commits[commit].items()
        ]
        said = {"id": repo, "sha": commit, "siblings": siblings + [{"rfilename": n, "size": s} for n, s in self.adds]}
        return send(ask, 200, {"Content-Type": "application/json"}, json.dumps(said).encode(), True)


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
    monkeypatch.setattr(lock, "CACHE_DIR", str(tmp_path / "regard"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    monkeypatch.chdir(tmp_path)
    yield hub
    hub.hangs.set()
    hub.server.shutdown()
    hub.server.server_close()


def quiet(_):
    pass


def refusal(name=NAME, **how):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        find(name, told=quiet, **how)
    assert "\n" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return str(caught.value)


def content(folder):
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def locked(name=NAME):
    return json.loads(lock.lock_file().read_text())[name]


def test_folders_are_themselves(hub, tmp_path, monkeypatch):
    (tmp_path / "maker" / "tiny").mkdir(parents=True)
    for name in (NAME, "tiny", "./a/b", "/a/b", "a/b/c", "runs/demo/", "../x", str(tmp_path)):
        assert str(find(name)) == os.path.normpath(name) or name == "./a/b"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find("~/model") == tmp_path / "model"
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
def test_names_that_are_none_are_refused(hub, name):
    assert refusal(name, download=True).startswith(f"{name!r} is neither a folder nor a model's name")
    assert hub.requests == []


@given(st.from_regex(remote.NAME, fullmatch=True))
def test_a_name_never_leads_out_of_the_cache(name):
    try:
        wanted = named(name)
    except ValueError:
        return
    cache = wanted.cache.resolve()
    assert wanted.home.resolve().parent == cache
    assert (wanted.home / "refs" / wanted.revision).resolve().is_relative_to(cache / wanted.home.name / "refs")


def test_only_useful_files_are_fetched_and_the_sizes_told_before(hub):
    commit = hub.push(FILES | USELESS)
    lines = []
    folder = find(NAME, download=True, told=lambda line: lines.append((line, len(hub.requests))))
    assert content(folder) == FILES
    assert not [r for r in hub.requests for name in USELESS if r.endswith("/" + name)]
    first, requests = lines[0]
    size = sum(map(len, FILES.values())) / 1e6
    assert f"{len(FILES)} files, {size:.3f} MB" in first
    assert hub.url in first
    assert commit[:8] in first
    assert requests == 1, "the listing, and nothing else yet"
    assert [line.split(",")[0].strip() for line, _ in lines[1:]] == sorted(FILES)


def test_the_lock_names_repository_commit_and_sums(hub):
    commit = hub.push(FILES | USELESS)
    find(NAME, download=True, told=quiet)
    now = locked()
    assert (now["repository"], now["commit"]) == (NAME, commit)
    facts = {name: (f["bytes"], f["sha256"]) for name, f in now["files"].items()}
    assert facts == {name: (len(c), hashlib.sha256(c).hexdigest()) for name, c in FILES.items()}
    assert [f.name for f in lock.lock_file().parent.iterdir()] == [lock.LOCK], "nothing half-written stays"


def test_without_a_word_nothing_is_asked(hub, tmp_path):
    hub.push(FILES)
    message = refusal()
    assert all(word in message for word in (NAME, str(tmp_path / "hub"), "--download", hub.url))
    assert hub.requests == []


def test_the_user_is_asked_with_the_size(hub):
    hub.push(FILES)
    questions = []
    assert "not to be fetched" in refusal(ask=lambda question: questions.append(question))
    assert hub.requests == [f"GET /api/models/{NAME}/revision/main"]
    assert "6 files, 2.097 MB" in questions[0]
    assert not (remote.named(NAME).home / "snapshots").exists()
    assert content(find(NAME, ask=lambda _: True, told=quiet)) == FILES


def test_the_second_time_nothing_is_asked(hub):
    hub.push(FILES)
    folder = find(NAME, download=True, told=quiet)
    hub.requests.clear()
    before = lock.lock_file().stat().st_mtime_ns
    for how in ({}, {"download": True}, {"download": False}, {"verify": True}):
        assert find(NAME, told=quiet, **how) == folder
    assert hub.requests == []
    assert lock.lock_file().stat().st_mtime_ns == before


def test_what_others_have_left_in_the_cache_is_found_and_locked(hub):
    commit = hub.push(FILES)
    paths = [hf_hub_download(NAME, name) for name in FILES]
    hub.requests.clear()
    assert str(find(NAME) / "config.json") in paths
    assert locked()["commit"] == commit
    assert find(f"{NAME}@{commit}") == find(NAME)
    assert hub.requests == []


def test_others_find_what_we_have_fetched(hub):
    hub.push(FILES)
    folder = find(NAME, download=True, told=quiet)
    hub.requests.clear()
    assert folder.samefile(snapshot_download(NAME, local_files_only=True))
    assert hub.requests == []


def test_a_part_of_a_model_in_the_cache_is_not_a_model(hub):
    hub.push(FILES)
    hf_hub_download(NAME, "config.json")
    assert "lacks model.safetensors" in refusal()
    hub.requests.clear()
    assert content(find(NAME, download=True, told=quiet)) == FILES
    assert not [r for r in hub.requests if r.endswith("main/config.json")]


def test_shards_come_all_or_not_at_all(hub):
    shards = {f"model-{i:05}-of-00003.safetensors": b"%d" % i for i in (1, 2, 3)}
    files = {"config.json": b"{}", "model.safetensors.index.json": b"{}", **shards}
    hub.push(files)
    folder = find(NAME, download=True, told=quiet)
    assert content(folder) == files
    lock.lock_file().unlink()
    (folder / "model-00002-of-00003.safetensors").unlink()
    assert "lacks model-00002-of-00003.safetensors" in refusal()
    del files["model-00003-of-00003.safetensors"]
    hub.push(files, "maker/short")
    assert "has no model-00003-of-00003.safetensors" in refusal("maker/short", download=True)


def test_what_is_needed_and_what_is_used():
    assert needed([]) == ["config.json", "model.safetensors"]
    other = ["model.safetensors-00001-of-00001.safetensors", "consolidated-00001-of-00009.safetensors"]
    assert needed(other) == ["config.json", "model.safetensors.index.json", other[0]]
    assert used([*FILES, *USELESS]) == sorted(FILES)
    assert used([*FILES, *other]) == sorted(FILES), "one file of weights is enough"
    assert used(["a/config.json", "1_Pooling/x/config.json", "a/b.model", "sub/LICENSE"]) == []


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_changed_file_is_refused_by_name(hub, name):
    hub.push(FILES)
    folder = find(NAME, download=True, told=quiet)
    file = (folder / name).resolve()
    file.write_bytes(FILES[name][:-1] + bytes([FILES[name][-1] ^ 1]))
    for how in ({}, {"download": True}, {"update": True}):
        message = refusal(**how)
        assert str(folder / name) in message
        assert "fetch the model again" in message
    file.write_bytes(FILES[name])
    assert find(NAME) == folder


def test_sizes_are_checked_always_and_the_sum_of_weights_when_they_were_touched(hub):
    hub.push(FILES)
    folder = find(NAME, download=True, told=quiet)
    file = (folder / "model.safetensors").resolve()
    stat = file.stat()
    file.write_bytes(WEIGHTS[::-1])
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert find(NAME) == folder, "this is what the short way costs"
    assert "model.safetensors is not what was fetched" in refusal(verify=True)
    file.write_bytes(WEIGHTS + b"x")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert "model.safetensors is not what was fetched" in refusal()
    file.write_bytes(WEIGHTS)
    small = (folder / "config.json").resolve()
    stat = small.stat()
    small.write_bytes(FILES["config.json"].replace(b"gpt2", b"bert"))
    os.utime(small, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert "config.json is not what was fetched" in refusal()


def test_weights_are_summed_once(hub, monkeypatch):
    hub.push(FILES)
    folder = find(NAME, download=True, told=quiet)
    os.utime((folder / "model.safetensors").resolve(), ns=(1, 1))
    summed = []
    true = lock.checksum
    monkeypatch.setattr(lock, "checksum", lambda path: summed.append(path.name) or true(path))
    find(NAME)
    assert summed.count("model.safetensors") == 1
    find(NAME)
    assert summed.count("model.safetensors") == 1


def test_what_was_damaged_on_its_way_is_refused(hub):
    hub.push(FILES)
    sums = [hashlib.sha256(some).hexdigest() for some in (WEIGHTS, WEIGHTS[::-1])]
    hub.blobs[sums[1]], hub.swaps = WEIGHTS[::-1], dict([sums])
    assert "model.safetensors is not what was fetched" in refusal(download=True)
    assert not lock.lock_file().exists()


def test_a_deleted_file_is_fetched_again_from_the_locked_commit(hub):
    hub.push(FILES)
    folder = find(NAME, download=True, told=quiet)
    hub.push(FILES | {"tokenizer.json": b"new"})
    (folder / "tokenizer.json").unlink()
    assert "lacks tokenizer.json" in refusal()
    assert content(find(NAME, download=True, told=quiet)) == FILES
    assert not [r for r in hub.requests[-3:] if "main" in r]


def test_another_cache_gets_the_locked_commit_and_the_locked_content(hub, tmp_path, monkeypatch):
    old = hub.push(FILES)
    find(NAME, download=True, told=quiet)
    hub.push(FILES | {"config.json": b"{}"})
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "elsewhere"))
    assert find(NAME, download=True, told=quiet).name == old
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "third"))
    hub.commits[old] = FILES | {"config.json": b'{"model_type": "bad2"}'}
    assert "config.json is not what was fetched" in refusal(download=True)


def test_a_branch_that_others_have_moved_changes_nothing_either(hub):
    old = hub.push(FILES)
    find(NAME, download=True, told=quiet)
    new = hub.push(FILES | {"config.json": b"{}"})
    for name in FILES:
        hf_hub_download(NAME, name)
    assert (named(NAME).home / "refs" / "main").read_text() == new
    assert find(NAME).name == old


def test_a_branch_that_moves_changes_nothing_until_an_update(hub):
    old = hub.push(FILES)
    find(NAME, download=True, told=quiet)
    new = hub.push(FILES | {"config.json": b'{"model_type": "bert"}'})
    hub.requests.clear()
    assert find(NAME, download=True, told=quiet).name == old
    assert hub.requests == []
    assert "cannot be updated" in refusal(update=True, download=False)
    assert hub.requests == []
    assert find(NAME, update=True, told=quiet).name == new
    assert locked()["commit"] == new
    assert not [r for r in hub.requests if r.endswith("safetensors") and r.startswith("GET")], "it has not changed"
    hub.requests.clear()
    assert find(NAME).name == new
    assert find(f"{NAME}@{old}").name == old
    assert hub.requests == []


@pytest.mark.parametrize("revision", ["main", "v1.0", "refs/pr/1", "my-branch/two", "short7"])
def test_revisions(hub, revision):
    hub.push(FILES | {"README.md": b"another"})
    commit = hub.push(FILES, revision=revision)
    assert find(f"{NAME}@{revision}", download=True, told=quiet).name == commit
    hub.requests.clear()
    assert find(f"{NAME}@{commit}").name == commit
    lock.lock_file().unlink()
    assert find(f"{NAME}@{revision}").name == commit
    assert hub.requests == []


def test_a_commit_by_its_hash(hub):
    commit = hub.push(FILES)
    hub.push(FILES | {"README.md": b"another"})
    assert content(find(f"{NAME}@{commit}", download=True, told=quiet)) == FILES
    assert "no such model" in refusal(), "it says nothing about the main branch"
    gone = "0" * 40
    assert f"no revision {gone}" in refusal(f"{NAME}@{gone}", download=True)
    assert "no revision nowhere" in refusal(f"{NAME}@nowhere", download=True)


@pytest.mark.parametrize("how", ["download", "environment"])
def test_offline_means_offline(hub, monkeypatch, how):
    hub.push(FILES)
    if how == "environment":
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    ways = [{"download": False}] if how == "download" else [{}, {"download": True}]
    for way in ways:
        for more in ({}, {"ask": lambda _: True}, {"update": True}):
            assert "We are offline" in refusal(**way, **more)
    assert hub.requests == []


@pytest.mark.parametrize(
    "name", ["../config.json", "/etc/passwd", "a/../../config.json", "..", "..\\x.model", "C:x.spm"]
)
def test_names_that_lead_outside_are_refused(hub, name):
    hub.push(FILES)
    hub.adds = [(name, 1)]
    assert f"names {name!r}, outside of its folder. Nothing was fetched" in refusal(download=True)
    assert len(hub.requests) == 1


def test_odd_names_of_files_that_are_not_wanted_are_left_alone(hub):
    hub.push(FILES)
    hub.adds = [("logs/12:30:00/events", 1), ("a b/ü.py", 1)]
    assert content(find(NAME, download=True, told=quiet)) == FILES


@pytest.mark.parametrize("commit", ["main", "../../x", "", "0" * 39])
def test_a_commit_that_is_none_is_refused(hub, commit):
    hub.push(FILES)
    hub.revisions[NAME]["main"], hub.commits[commit] = commit, FILES
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
    [("../../../../evil", 0), ("{here}/evil", 0), ("{here}/evil", 1), ("a/../../../../evil", 1), ("evil", 0)]
    + [("a" * 39, 1), ("a" * 65, 0)],
)
def test_an_etag_that_is_no_hash_is_never_a_path(hub, tmp_path, bad, honest):
    """Also where the first answer was honest: what is checked is the answer that is used."""
    hub.push(FILES)
    bad = bad.format(here=tmp_path)
    hub.etags = [git_hash(FILES["1_Pooling/config.json"])] * honest + [bad] * 9
    message = refusal(download=True)
    assert f"with the ETag {bad!r:.99}" in message
    assert "not 40 to 64 hex digits" in message
    assert not [path for path in paths_below(tmp_path) if "evil" in path or path.endswith((".incomplete", ".lock"))]


def test_a_commit_in_an_answer_is_never_a_path(hub, tmp_path):
    """huggingface_hub notes what is missing under the commit that the answer names."""
    hub.push(FILES)
    hub.refuses = ("/maker", 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": str(tmp_path / "evil")})
    assert "answers 404" in refusal(download=True)
    assert not (tmp_path / "evil").exists()


def test_a_repository_without_safetensors_is_refused_before_anything_is_fetched(hub):
    hub.push({"config.json": b"{}", "pytorch_model.bin": b"pickle"})
    message = refusal(download=True)
    assert "has no model.safetensors; it has pytorch_model.bin" in message
    assert "save_pretrained" in message
    hub.push({"model.safetensors": b""}, "maker/bare")
    assert "has no config.json" in refusal("maker/bare", download=True)
    assert len(hub.requests) == 2


def test_a_model_too_large_for_the_disk_is_refused_before_anything_is_fetched(hub):
    hub.push(FILES)
    hub.adds = [("huge.model", 10**18)]
    assert "MB are free. Make room" in refusal(download=True)
    assert len(hub.requests) == 1


@pytest.mark.parametrize(
    ("where", "status", "headers", "told"),
    [
        ("/api", 404, {"X-Error-Code": "RepoNotFound"}, "there is no"),
        ("/api", 401, {"X-Error-Code": "RepoNotFound"}, "hf auth login"),
        ("/api", 401, {"X-Error-Message": "Invalid credentials in Authorization header"}, "refuses you (401)"),
        ("/api", 403, {}, "hf auth login"),
        ("/api", 403, {"X-Error-Code": "GatedRepo"}, "it is gated. Accept its terms"),
        ("/maker", 403, {"X-Error-Code": "GatedRepo"}, "it is gated. Accept its terms"),
        ("/maker", 404, {"X-Error-Code": "EntryNotFound"}, "answers 404"),
        ("/api", 429, {}, "answers 429. Try again later"),
        ("/api", 500, {}, "answers 500. Try again later"),
        ("/api", 200, {}, "cannot be reached"),
    ],
)
def test_what_the_hub_refuses(hub, where, status, headers, told):
    hub.push(FILES)
    hub.refuses = (where, status, headers)
    message = refusal(download=True)
    assert message.startswith(f"{NAME} cannot be fetched: ")
    assert told in message
    assert not lock.lock_file().exists()


def test_a_name_that_is_not_there_gets_the_near_ones(hub):
    hub.push(FILES)
    find(NAME, download=True, told=quiet)
    for how in ({}, {"download": True}, {"download": False}):
        assert f"The cache has {NAME}." in refusal("maker/tinny", **how)


def test_a_hub_that_hangs_or_is_away(hub, monkeypatch):
    hub.push(FILES)
    monkeypatch.setattr(constants, "HF_HUB_ETAG_TIMEOUT", 0.2)
    hub.hangs.clear()
    assert "does not answer" in refusal(download=True)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")
    assert "cannot be reached" in refusal(download=True)


def behind(cause):
    """As the library has it: what went wrong stands behind the remark that the cache does not help either."""
    error = LocalEntryNotFoundError("not in the cache")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full. Make room"),
        (behind(TimeoutError()), "does not answer"),
        (PermissionError(errno.EACCES, "Permission denied", "/some/file"), "/some/file: Permission denied"),
    ],
)
def test_what_the_disk_or_the_net_refuses(hub, monkeypatch, error, told):
    def fails(*_, **__):
        raise error

    hub.push(FILES)
    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", fails)
    assert told in refusal(download=True)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"a/b": 1}', '{"a/b": {"commit": "../x", "files": {}}}', '{"a/b": {"commit": 1}}', "\xff"]
)
def test_a_damaged_lock_is_refused(hub, text):
    lock.put(lock.lock_file(), text)
    assert "models.lock.json is damaged" in refusal()
    assert hub.requests == []


def test_a_lock_that_cannot_be_written_does_not_stop_the_work(hub, tmp_path):
    hub.push(FILES)
    (tmp_path / "regard").write_text("a file where the folder should be")
    lines = []
    folder = find(NAME, download=True, told=lines.append)
    assert content(folder) == FILES
    assert "stays unlocked" in lines[-1]


def test_two_names_share_the_lock(hub):
    hub.push(FILES)
    hub.push(FILES, "maker/other")
    find(NAME, download=True, told=quiet)
    find("maker/other", download=True, told=quiet)
    assert locked()["repository"] == NAME
    assert locked("maker/other")["repository"] == "maker/other"


def test_the_environment_says_where_and_nothing_is_imported_early(hub, tmp_path):
    """As users have it: a fresh process, with the variables that Hugging Face's tools know."""
    hub.push(FILES)
    code = (
        "import sys; from regard.hub.remote import find; early = [m for m in ('huggingface_hub', 'httpx', 'requests')"
        " if m in sys.modules]; assert not early, early; print(find(sys.argv[1], download=True))"
    )
    env = os.environ | {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf"), "HOME": str(tmp_path)}
    env = {name: value for name, value in env.items() if name not in ("HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_TOKEN")}
    run = [sys.executable, "-c", code, NAME]
    done = subprocess.run(run, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(str(tmp_path / "hf" / "hub" / "models--maker--tiny" / "snapshots"))
    assert done.stderr.count("\n") == 1 + len(FILES), "plain lines, where nobody watches"
    assert (tmp_path / ".cache" / "regard" / lock.LOCK).is_file()
    hub.requests.clear()
    subprocess.run(run, env=env | {"HF_HUB_OFFLINE": "1"}, capture_output=True, check=True)
    assert hub.requests == []
