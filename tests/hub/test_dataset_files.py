"""Data sets of the hub, against a hub of our own on this machine."""

import importlib.util
import io
import json
import re
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

import regard
from regard.cli import main
from regard.data.splits import DataOptions
from regard.hub import revision_lock
from regard.hub.dataset_files import choose_files, parse_dataset, resolve_data, split_of

SPEC = importlib.util.spec_from_file_location("hub_server", Path(__file__).with_name("test_remote.py"))
assert SPEC
assert SPEC.loader
server = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(server)
hub = server.hub  # the fixture
NAME = "hf:maker/words@v1"


def table(count, first=0):
    kinds = ("bad", "good")
    rows = [{"text": f"{kinds[i % 2]} text {i}", "label": kinds[i % 2]} for i in range(first, first + count)]
    stream = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(rows), stream)
    return stream.getvalue()


FILES = {
    "README.md": b"# words",
    "LICENSE.txt": b"free",
    "words.py": b"raise SystemExit('code was run')",
    "data/train-00000-of-00002.parquet": table(40),
    "data/train-00001-of-00002.parquet": table(40, 40),
    "data/validation-00000-of-00001.parquet": table(20, 80),
    "data/test-00000-of-00001.parquet": table(10, 100),
    ".cache/train.parquet": b"hidden",
}


@pytest.fixture
def data_hub(hub):
    hub.commit = hub.push(FILES, "maker/words", "v1")
    return hub


def resolve(data=(), valid=(), test=(), download=True):
    files = resolve_data(DataOptions(tuple(data), tuple(valid), tuple(test)), download, server.quiet)
    return {name: [Path(path).name for path in getattr(files, name)] for name in ("data", "valid", "test")}


def refusal(name=NAME, download=None):
    with pytest.raises(ValueError, match=".") as error:
        resolve([name], download=download)
    assert "\n" not in str(error.value)
    return str(error.value)


def names(*numbers):
    return [Path(sorted(FILES)[i]).name for i in numbers]


TEST, TRAIN, VALID = names(3), names(4, 5), names(6)


def test_the_splits_of_a_repository(data_hub):
    assert resolve([NAME]) == {"data": TRAIN, "valid": VALID, "test": TEST}
    assert resolve([NAME], ["mine.tsv"]) == {"data": TRAIN, "valid": ["mine.tsv"], "test": TEST}
    assert resolve(["mine.tsv"], [NAME], [NAME]) == {"data": ["mine.tsv"], "valid": VALID, "test": TEST}
    assert resolve([f"{NAME}/data"]) == {"data": TRAIN, "valid": VALID, "test": TEST}
    assert resolve([f"{NAME}/data/test*", "mine.parquet"]) == {"data": [*TEST, "mine.parquet"], "valid": [], "test": []}
    assert resolve([f"{NAME}/data/{TRAIN[1]}"]) == {"data": TRAIN[1:], "valid": [], "test": []}
    assert resolve([f"{NAME}/data/t*.parquet"])["data"] == [*TEST, *TRAIN]
    assert resolve(["mine.tsv"]) == {"data": ["mine.tsv"], "valid": [], "test": []}


def test_nothing_is_fetched_without_consent(data_hub, monkeypatch):
    message = refusal()
    assert message.startswith(f"{NAME}: no such dataset in ")
    assert f"Add --download to fetch it from {data_hub.url}" in message
    assert "Nothing was fetched" in refusal(download=False)
    monkeypatch.setattr(server.constants, "HF_HUB_OFFLINE", True)
    assert "Nothing was fetched" in refusal(download=True)
    assert data_hub.requests == []


def test_fetched_files_need_no_request_and_are_locked(data_hub):
    first = resolve([NAME])
    data_hub.requests.clear()
    moved = dict(FILES, **{"data/train-00000-of-00002.parquet": table(3)})
    data_hub.push(moved, "maker/words", "v1")
    assert resolve([NAME], download=None) == resolve([NAME], download=True) == first
    assert data_hub.requests == []
    lock = json.loads(revision_lock.lock_file().read_text())[NAME]
    assert lock["commit"] == data_hub.commit
    assert {Path(file).name for file in lock["files"]} == {*TRAIN, *VALID, *TEST}
    assert not [request for request in data_hub.requests if "words.py" in request]


def test_only_the_files_of_a_name_are_fetched(data_hub):
    resolve([f"{NAME}/data/test*"])
    fetched = [request for request in data_hub.requests if request.startswith("GET /datasets")]
    assert len({request.split("/")[-1] for request in fetched}) <= 1
    assert not [request for request in data_hub.requests if "train" in request]


def test_a_changed_file_is_refused_and_a_deleted_one_fetched_again(data_hub):
    options = resolve_data(DataOptions((NAME,)), True, server.quiet)
    file = Path(options.data[0]).resolve()
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    assert "differs from its checksum" in refusal()
    file.unlink()
    Path(options.data[0]).unlink()
    assert f"lacks data/{TRAIN[0]}" in refusal()
    assert resolve([NAME]) == {"data": TRAIN, "valid": VALID, "test": TEST}


@pytest.mark.parametrize("revision", ["main", "v1.0", "refs/convert/parquet", "refs/pr/1", "a%2Fb"])
def test_revisions(data_hub, revision):
    data_hub.push(FILES, "maker/words", revision.replace("%2F", "/"))
    assert resolve([f"hf:maker/words@{revision}/data"])["data"] == TRAIN
    if revision == "main":
        assert resolve(["hf:maker/words"])["data"] == resolve(["hf:maker/words/data"])["data"] == TRAIN


@pytest.mark.parametrize(
    "name",
    [
        "hf:words",
        "hf:a/b@",
        "hf:a/b@../c",
        "hf:a/b@x/../../y",
        "hf:a--b/c",
        "hf:a/b@%2F",
        "hf:a/b@x%00",
        "hf:/etc/x",
        "hf:",
    ],
)
def test_invalid_names_are_refused_without_a_request(data_hub, name):
    assert re.search("is no dataset on the hub|is no revision", refusal(name, True))
    assert data_hub.requests == []


@pytest.mark.parametrize(
    "name", ["data/../../train.parquet", "/etc/train.txt", "data/train\\x.txt", "data/train\n.csv"]
)
def test_paths_outside_of_the_folder_are_refused(data_hub, name):
    data_hub.adds = [(name, 1)]
    assert "outside of its folder. Nothing was fetched" in refusal(f"{NAME}/data/*", True)
    assert len(data_hub.requests) == 1


def test_an_invalid_etag_never_becomes_a_path(data_hub, tmp_path):
    data_hub.push({"train.csv": b"text,label\na,b\n"}, "maker/csv")
    data_hub.etags = [str(tmp_path / "evil")] * 9
    assert "not 40 to 64 hex digits" in refusal("hf:maker/csv", True)
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    ("files", "path", "message"),
    [
        (
            ["de/train.csv", "fr/train.csv"],
            "",
            "several folders of data, 'de', 'fr': name one of them, e.g. hf:a/b@main/de",
        ),
        (["train.csv", "train.parquet"], "", ".csv and .parquet files: name some, e.g. /*.csv"),
        (["model.bin", "README.md"], "", "matches no file; the repository has none of .jsonl"),
        (["train.csv"], "x/*.csv", "matches no file; the repository has train.csv"),
    ],
)
def test_what_cannot_be_chosen_is_named(files, path, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        choose_files(parse_dataset(f"hf:a/b@main/{path}"), files)


def test_files_are_chosen_by_folder_pattern_and_suffix():
    files = ["de/train/0.csv.gz", "de/dev/0.csv.gz", "fr/train/0.csv.gz", "notes.csv", "de/readme.txt"]
    assert choose_files(parse_dataset("hf:a/b/de"), files) == ["de/dev/0.csv.gz", "de/train/0.csv.gz"]
    assert choose_files(parse_dataset("hf:a/b/*/train/*"), files) == ["de/train/0.csv.gz", "fr/train/0.csv.gz"]
    assert choose_files(parse_dataset("hf:a/b"), ["a.txt", "b.txt", "LICENSE.txt"]) == ["a.txt", "b.txt"]


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train-00000-of-00001.parquet", "train"),
        ("en/validation/part.csv", "valid"),
        ("corpus.val.txt", "valid"),
        ("test/train_part.csv", "train"),
        ("contest.csv", None),
        ("Dev.tsv", "valid"),
    ],
)
def test_the_usual_names_of_splits(name, split):
    assert split_of(name) == split


def test_training_resuming_and_scoring(data_hub, tmp_path, capsys):
    """The same command continues offline; what it reads are the files of the locked commit."""
    options = ["--dim", "16", "--layers", "1", "--heads", "2", "--steps", "4", "--batch-tokens", "64", "--evals", "2"]
    command = ["train", "classify", "--data", NAME, "--output-dir", "run", *options]
    assert main(command) == 2
    assert "Add --download" in capsys.readouterr().err
    assert main([*command, "--download"]) == 0
    assert "80 texts for training, 20 texts for validation" in capsys.readouterr().out
    data_hub.requests.clear()
    assert main(command) == 0
    assert main(["score", "run", NAME]) == 0
    assert "10 texts" in capsys.readouterr().out
    assert data_hub.requests == []
    steps = [*regard.train("classify", data=NAME, output_dir="again", steps=1, dim=16, layers=1, heads=2)]
    assert len(steps) == 1
