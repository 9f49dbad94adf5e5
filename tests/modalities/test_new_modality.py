"""A kind of input that the package does not know: one folder, beads/, and one line that registers it."""

import json
import sys
from pathlib import Path

import pytest

from regard.cli import main
from regard.load import load
from regard.modalities import MODALITIES, register

sys.path.append(str(Path(__file__).parent))
from beads.modality import BeadModality, warmth  # noqa: E402

SMALL = "--dim 16 --layers 1 --heads 2 --hidden 32 --dropout 0 --device cpu --batch-tokens 512 --evals 2"


@pytest.fixture(scope="module", autouse=True)
def beads():
    register(BeadModality())
    yield
    del MODALITIES["beads"]


@pytest.fixture(scope="module")
def run(tmp_path_factory, beads):
    """A classifier, trained by the command on the synthetic strings."""
    folder = tmp_path_factory.mktemp("beads") / "run"
    command = [
        "train",
        "classify",
        "--modality",
        "beads",
        "--steps",
        "60",
        "--lr",
        "0.01",
        "-o",
        str(folder),
        *SMALL.split(),
    ]
    assert main(command) == 0
    return folder


def write_strings(file, count=60):
    rows = MODALITIES["beads"].synthetic(None)["test"]
    file.write_text("".join(f"{row.target.names[0]}: {' '.join(row.input)}\n" for row in rows[:count]))
    return str(file)


def test_a_new_modality_is_learnt(run, capsys, tmp_path):
    assert main(["score", str(run), write_strings(tmp_path / "test.beads"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] >= 90


def test_a_new_modality_runs(run, capsys):
    strings = ["red red orange red red red", "blue green blue blue blue", "red blue red orange red red red red red"]
    assert main(["run", str(run), *strings]) == 0
    assert capsys.readouterr().out.split() == ["warm", "cold", "warm"]
    assert main(["run", str(run), "red pink"]) == 2
    assert "give beads of the colours blue, green, orange, red" in capsys.readouterr().err


def test_a_new_modality_is_checked(run, capsys):
    assert main(["check", str(run), "--json", "--no-peers"]) == 0
    checks = {check["check"]: check["status"] for check in json.loads(capsys.readouterr().out)["checks"]}
    assert {"batch independence", "gradient flow"} & {*checks}
    assert "FAILS" not in checks.values()


def test_a_new_modality_is_measured(run, capsys):
    assert main(["bench", str(run), "--json", "--min-time", "0", "--no-peers"]) == 0
    assert json.loads(capsys.readouterr().out)["results"]


def test_a_new_modality_is_saved_and_loaded(run, tmp_path):
    loaded = load(run)
    strings = ["red red orange blue blue red red red red", "green"]
    loaded.save_pretrained(tmp_path / "copy")
    assert [load(tmp_path / "copy")(text) for text in strings] == [loaded(text) for text in strings]
    assert loaded(strings[0]) == warmth(tuple(strings[0].split()))


def test_files_of_a_new_modality_are_recognised(capsys, tmp_path):
    """By their names, so that --modality may be left out; a bad line is named."""
    file = Path(write_strings(tmp_path / "train.beads"))
    assert (
        main(["train", "classify", "--data", str(file), "--steps", "2", "-o", str(tmp_path / "run"), *SMALL.split()])
        == 0
    )
    assert json.loads((tmp_path / "run" / "task.json").read_text())["modality"] == "beads"
    file.write_text(file.read_text() + "warm\n")
    assert (
        main(["train", "classify", "--data", str(file), "--steps", "2", "-o", str(tmp_path / "other"), *SMALL.split()])
        == 2
    )
    assert f"{file}:41" in capsys.readouterr().err


def test_other_tasks_and_models_are_refused(capsys, tmp_path):
    assert main(["train", "tag", "--modality", "beads", "-o", str(tmp_path / "run")]) == 2
    assert "tag reads texts, proteins, not strings of beads" in capsys.readouterr().err
    assert main(["train", "classify", "--modality", "beads", "--model", "vit", "-o", str(tmp_path / "run")]) == 2
    assert "classify of strings of beads needs a model with" in capsys.readouterr().err
