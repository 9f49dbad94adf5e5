"""Molecules: missing labels do not count, unknown atoms are named, seconds of training beat the baselines."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.cli import main
from regard.data.lint import BadRowsError
from regard.data.rows import Labels, train_valid_split
from regard.data.splits import DataOptions
from regard.load import load
from regard.modalities.molecule.modality import MoleculeModality
from regard.modalities.molecule.molecules import MoleculeFeaturizer, parse_molecule
from regard.modalities.molecule.preprocessor import MoleculePreprocessor
from regard.modalities.protocols import ReadOptions, Target
from regard.modalities.synthetic import paths
from regard.models.graphormer import Graphormer, GraphormerConfig
from regard.tasks.classify import Classify
from regard.training.train import train

LABELS = ["A", "B", "C"]


def molecule(smiles: str, labels: tuple[str, ...], unknown: tuple[str, ...] = ()) -> Any:
    return parse_molecule(smiles)._replace(target=Labels(labels, unknown))


def multi_label_task(rows: list[Any], labels: list[str], **options: Any) -> Classify:
    preprocessor = MoleculePreprocessor(MoleculeFeaturizer.fit(rows))
    return Classify(multi_label=True, labels=labels, preprocessor=preprocessor, pooling="sum", **options)


def test_a_missing_label_has_no_loss_and_no_gradient() -> None:
    rows = [molecule("CCO", ("A",), ("B",)), molecule("CC", ("B",), ("A", "C")), molecule("C", (), tuple(LABELS))]
    task = multi_label_task(rows, LABELS, label_smoothing=0.1)
    logits = torch.randn(3, 3, requires_grad=True)
    targets = torch.from_numpy(task.encode(rows, 0).targets)
    loss = task.sum_loss(logits, targets, 0.0)
    loss.backward()
    labelled_mask = torch.tensor([[True, False, True], [False, True, False], [False, False, False]])
    assert torch.equal(logits.grad != 0, labelled_mask)
    sure = logits.sigmoid()
    by_hand = -(sure[0, 0].log() + (1 - sure[0, 2]).log() + sure[1, 1].log())
    torch.testing.assert_close(loss, by_hand)
    assert task.sum_loss(logits, targets, 0.1).isfinite()


def test_predictions_for_missing_labels_are_not_scored() -> None:
    """A model that predicts A and B for all rows is correct where labels are known."""
    rows = [molecule("CCO", ("A", "B")), molecule("CC", ("A",), ("B",)), molecule("CN", (), ("A", "B"))]
    task = multi_label_task(rows, ["A", "B"])
    model = task.head(Graphormer(GraphormerConfig(**task.sizes(), dim=8, layers=1, heads=2, hidden=8)))
    torch.nn.init.zeros_(model.head.out.weight)
    torch.nn.init.ones_(model.head.out.bias)
    scores = task.score(model.eval(), rows)
    assert (scores["accuracy"], scores["f1"]) == (100.0, 100.0)
    assert scores["predictions"] == ["A, B", "A", ""]
    assert "roc_auc" not in scores, "all known rows have the label"
    wrong = task.score(model, [molecule("CC", ()), rows[-1]])
    assert wrong["accuracy"] == 0.0, "a row without known labels does not count"
    with pytest.raises(ValueError, match="nothing to score"):
        task.score(model, rows[-1:])


def table(file: Path, rows: list[str]) -> str:
    file.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return str(file)


def run_options(at: Path, **more: Any) -> dict[str, Any]:
    sizes = {"dim": 8, "layers": 1, "heads": 2, "hidden": 8, "device": "cpu"}
    return {"model": "graphormer", "output_dir": str(at / "run"), "steps": 1, "evals": 1} | sizes | more


def test_an_unknown_atom_is_named_by_line_and_can_be_skipped(tmp_path: Path, capsys: Any) -> None:
    data = table(tmp_path / "a.csv", ["smiles,value", *(f"{'C' * n}O,{n}" for n in range(1, 20))])
    valid = table(tmp_path / "b.csv", ["smiles,value", "CO,1", "CCBr,2", "CCI,3"])
    with pytest.raises(BadRowsError, match=r"2 unknown atom \(first .*b\.csv:3: the atom Br occurs in no .*--skip-bad"):
        list(train("regress", data=data, valid=valid, **run_options(tmp_path)))
    assert not (tmp_path / "run").exists()
    files = DataOptions(data=(data,), valid=(valid,), skip_bad=True)
    report = MoleculeModality().read_sets(files, ReadOptions(Target.NUMBER)).report
    assert report is not None
    assert (report.counts["valid"]["unknown atom"], report.counts["valid"]["usable"]) == (2, 1)
    list(train("regress", data=data, valid=valid, skip_bad=True, **run_options(tmp_path)))
    loaded = load(tmp_path / "run")
    with pytest.raises(BadRowsError, match=r"b\.csv:3"):
        loaded.rows([valid])
    assert [row.input.text for row in loaded.rows([valid], skip_bad=True)] == ["CO"]
    with pytest.raises(ValueError, match="'CBr': the atom Br occurs in no training molecule"):
        loaded("CBr")
    with pytest.raises(ValueError, match="is no molecule"):
        loaded("C(")
    assert np.isfinite(float(loaded("CCO")))
    input_file = table(tmp_path / "asked.txt", ["CCO", "CO", "C(", "CCCO"])
    capsys.readouterr()
    assert main(["run", str(tmp_path / "run"), "--file", input_file]) == 2
    output = capsys.readouterr()
    assert f"{input_file}:3: 'C(' is no molecule" in output.err
    assert len(output.out.splitlines()) == 2, "the rows before it are predicted"
    assert main(["run", str(tmp_path / "run"), "--embed", "--file", input_file]) == 2
    output = capsys.readouterr()
    assert (f"{input_file}:3: 'C(' is no molecule" in output.err, len(output.out.splitlines())) == (True, 2)
    assert main(["run", str(tmp_path / "run"), "CO", "C("]) == 2
    assert "regard: 'C(' is no molecule" in capsys.readouterr().err


def test_the_only_molecule_of_an_element_is_not_held_out(tmp_path: Path) -> None:
    """Of an automatic validation split."""
    rows = [f"{'C' * n}{end},{n}" for n in range(1, 20) for end in "ON"]
    odd = next(smiles for smiles in elements() if is_held_out(smiles, rows))
    data = table(tmp_path / "a.csv", ["smiles,value", *rows, f"{odd},3"])
    list(train("regress", data=data, valid_share=0.2, **run_options(tmp_path)))
    loaded = load(tmp_path / "run")
    assert np.isfinite(float(loaded(odd)))


def elements() -> list[str]:
    return [f"{'C' * n}{end}" for end in ("F", "Cl", "Br", "I", "S", "P") for n in range(1, 9)]


def is_held_out(smiles: str, rows: list[str]) -> bool:
    rows_of_smiles = [parse_molecule(row.partition(",")[0]) for row in rows]
    return any(row.input.text == smiles for row in train_valid_split([*rows_of_smiles, parse_molecule(smiles)], 0.2)[1])


def test_multi_label_columns_with_missing_labels(tmp_path: Path, capsys: Any) -> None:
    rows = [f"{'C' * n}{end},{int(n > 9)},{'' if n % 3 else int(end == 'O')}" for n in range(1, 20) for end in "ON"]
    data = table(tmp_path / "a.csv", ["smiles,big,acid", *rows])
    fields = ("smiles", "big", "acid")
    steps = list(train("classify", data=data, valid=data, fields=fields, multi_label=True, **run_options(tmp_path)))
    assert 0 <= steps[-1].scores["roc_auc"] <= 100
    capsys.readouterr()
    loaded = load(tmp_path / "run")
    assert loaded.task.labels == ["acid", "big"]
    scores = loaded.task.score(loaded.model, loaded.rows([data], fields))
    assert scores["roc_auc"] == pytest.approx(steps[-1].scores["roc_auc"])
    assert loaded.task.rank(scores)[0] == round(scores["roc_auc"], 3)
    assert {answer.text for answer in list(loaded.generate("CCO", num_return=2))} == {"acid", "big"}
    input_file = table(tmp_path / "asked.txt", ["CCO", "C("])
    assert main(["run", str(tmp_path / "run"), "--embed", "--file", input_file]) == 2
    output = capsys.readouterr()
    assert (f"{input_file}:2: 'C(' is" in output.err, len(output.out.splitlines())) == (True, 1)
    half = loaded.rows([data], fields[:2])
    assert all(row.target.unknown == ("acid",) for row in half), "a label without a column is missing"
    swapped, rows_again = (loaded.rows([data], names) for names in (("smiles", "acid", "big"), fields))
    assert swapped[0].target.unknown == rows_again[0].target.unknown


def test_a_label_that_is_always_missing_is_refused(tmp_path: Path) -> None:
    """A field that no JSON line has."""
    rows = [f'{{"smiles": "{"C" * n}", "big": {int(n > 9)}}}' for n in range(1, 20)]
    data = table(tmp_path / "a.jsonl", rows)
    with pytest.raises(ValueError, match=r"a\.jsonl: the label 'bigg' has only missing values"):
        list(train("classify", data=data, fields=("smiles", "big", "bigg"), multi_label=True, **run_options(tmp_path)))


def test_a_run_from_another_keeps_its_atoms(tmp_path: Path) -> None:
    data = table(tmp_path / "a.csv", ["smiles,value", *(f"{'C' * n}O,{n}" for n in range(1, 20))])
    list(train("regress", data=data, valid=data, pooling="mean", **run_options(tmp_path)))
    more = {"data": data, "valid": data, "steps": 1, "output_dir": str(tmp_path / "more")}
    list(train("regress", from_=str(tmp_path / "run"), **more))
    assert load(tmp_path / "more").task.preprocessor == load(tmp_path / "run").task.preprocessor
    assert load(tmp_path / "more").task.pooling == "mean"


def test_seconds_of_training_beat_the_mean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a part of the bundled data; the mean has an R² of 0."""
    part = list(paths.paths(2000))
    monkeypatch.setattr(paths, "paths", lambda: part)
    options = {"steps": 120, "evals": 1, "dim": 32, "layers": 2, "hidden": 64, "heads": 2}
    *_, last = train("regress", model="graphormer", device="cpu", output_dir=str(tmp_path / "run"), **options)
    assert last.scores["r2"] > 0.15


def test_seconds_of_training_beat_the_majority_label(tmp_path: Path) -> None:
    """Three classes of the same elements and size: the majority label has an accuracy of a third."""
    templates = {"alcohol": "{}C({})O", "ether": "{}C({})OC", "ketone": "{}C({})=O"}
    sizes = [("C" * a, "C" * b) for a in range(1, 8) for b in range(1, a + 1)]
    rows = [f"{form.format(*size)},{label}" for label, form in templates.items() for size in sizes]
    data = table(tmp_path / "a.csv", ["smiles,label", *rows])
    options = {"steps": 60, "evals": 1, "valid_share": 0.3, "dim": 32, "layers": 2, "hidden": 64}
    *_, last = train(
        "classify", model="graphormer", data=data, device="cpu", output_dir=str(tmp_path / "run"), **options
    )
    assert last.scores["accuracy"] > 80
