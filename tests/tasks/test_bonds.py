"""Molecules in tasks: gaps say nothing, unknown atoms are told, some seconds beat the mean and the commonest label."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.cli import main
from regard.data.bundled import paths
from regard.data.files import Files
from regard.data.lint import BadLines
from regard.data.molecules import Molecules, asked_for
from regard.data.text import hold_out
from regard.load import load
from regard.models.graph import Graph, GraphConfig
from regard.tasks.classify import Classify
from regard.tasks.regress import Regress
from regard.training.train import train

LABELS = ["A", "B", "C"]


def labelled(smiles: str, labels: tuple[str, ...], gaps: tuple[str, ...] = ()) -> Any:
    return asked_for(smiles)._replace(labels=labels, gaps=gaps)


def test_a_gap_has_no_loss_and_no_gradient() -> None:
    rows = [labelled("CCO", ("A",), ("B",)), labelled("CC", ("B",), ("A", "C")), labelled("C", (), tuple(LABELS))]
    task = Classify(many=True, labels=LABELS, molecules=Molecules.fit(rows), pooling="sum", smoothing=0.1)
    logits = torch.randn(3, 3, requires_grad=True)
    wanted = torch.from_numpy(task.prepare(rows, 0).wanted)
    loss = task.cost(logits, wanted, 0.0)
    loss.backward()
    known = torch.tensor([[True, False, True], [False, True, False], [False, False, False]])
    assert torch.equal(logits.grad != 0, known)
    sure = logits.sigmoid()
    by_hand = -(sure[0, 0].log() + (1 - sure[0, 2]).log() + sure[1, 1].log())
    torch.testing.assert_close(loss, by_hand)
    assert task.cost(logits, wanted, 0.1).isfinite()


def test_what_is_said_of_a_gap_is_not_scored() -> None:
    """A model that says A and B of all is right where it is known, and no worse for the gaps."""
    rows = [labelled("CCO", ("A", "B")), labelled("CC", ("A",), ("B",)), labelled("CN", (), ("A", "B"))]
    task = Classify(many=True, labels=["A", "B"], molecules=Molecules.fit(rows), pooling="sum")
    model = task.head(Graph(GraphConfig(**task.sizes(), dim=8, layers=1, heads=2, hidden=8)))
    torch.nn.init.zeros_(model.head.out.weight)
    torch.nn.init.ones_(model.head.out.bias)
    scores = task.score(model.eval(), rows)
    assert (scores["accuracy"], scores["f1"]) == (100.0, 100.0)
    assert scores["answers"] == ["A, B", "A", ""]
    assert "roc_auc" not in scores, "all who are known have the label"
    wrong = task.score(model, [labelled("CC", ()), rows[-1]])
    assert wrong["accuracy"] == 0.0, "who has only gaps is neither right nor wrong"
    with pytest.raises(ValueError, match="nothing to score"):
        task.score(model, rows[-1:])


def table(file: Path, rows: list[str]) -> str:
    file.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return str(file)


def small(at: Path, **more: Any) -> dict[str, Any]:
    sizes = {"dim": 8, "layers": 1, "heads": 2, "hidden": 8, "device": "cpu"}
    return {"model": "graph", "out": str(at / "run"), "steps": 1, "checks": 1} | sizes | more


def test_an_atom_that_was_never_seen_is_told_by_line_and_can_be_skipped(tmp_path: Path, capsys: Any) -> None:
    data = table(tmp_path / "a.csv", ["smiles,value", *(f"{'C' * n}O,{n}" for n in range(1, 20))])
    valid = table(tmp_path / "b.csv", ["smiles,value", "CO,1", "CCBr,2", "CCI,3"])
    with pytest.raises(BadLines, match=r"2 unknown atom \(first .*b\.csv:3: the atom Br is in no .*--skip-bad"):
        list(train("regress", data=data, valid=valid, **small(tmp_path)))
    assert not (tmp_path / "run").exists()
    report = Regress.read(Files(data=(data,), valid=(valid,), skip_bad=True), "bonds", {}).report
    assert report is not None
    assert (report.counts["valid"]["unknown atom"], report.counts["valid"]["usable"]) == (2, 1)
    list(train("regress", data=data, valid=valid, skip_bad=True, **small(tmp_path)))
    loaded = load(tmp_path / "run")
    with pytest.raises(BadLines, match=r"b\.csv:3"):
        loaded.rows([valid])
    assert [row.text for row in loaded.rows([valid], skip_bad=True)] == ["CO"]
    with pytest.raises(ValueError, match="'CBr': the atom Br is in no molecule that was trained on"):
        loaded("CBr")
    with pytest.raises(ValueError, match="is no molecule"):
        loaded("C(")
    assert np.isfinite(float(loaded("CCO")))
    asked = table(tmp_path / "asked.txt", ["CCO", "CO", "C(", "CCCO"])
    capsys.readouterr()
    assert main(["run", str(tmp_path / "run"), "--file", asked]) == 2
    told = capsys.readouterr()
    assert f"{asked}:3: 'C(' is no molecule" in told.err
    assert len(told.out.splitlines()) == 2, "those before it are answered"
    assert main(["run", str(tmp_path / "run"), "--embed", "--file", asked]) == 2
    assert "regard: a model of the task regress gives no single vector" in capsys.readouterr().err
    assert main(["run", str(tmp_path / "run"), "CO", "C("]) == 2
    assert "regard: 'C(' is no molecule" in capsys.readouterr().err


def test_the_only_molecule_of_an_element_is_learnt_from_and_not_held_out(tmp_path: Path) -> None:
    """Whoever gives one file has not chosen what is held out of it."""
    rows = [f"{'C' * n}{end},{n}" for n in range(1, 20) for end in "ON"]
    odd = next(one for one in elements() if held(one, rows))
    data = table(tmp_path / "a.csv", ["smiles,value", *rows, f"{odd},3"])
    list(train("regress", data=data, held_out=0.2, **small(tmp_path)))
    loaded = load(tmp_path / "run")
    assert np.isfinite(float(loaded(odd)))


def elements() -> list[str]:
    return [f"{'C' * n}{end}" for end in ("F", "Cl", "Br", "I", "S", "P") for n in range(1, 9)]


def held(smiles: str, rows: list[str]) -> bool:
    made = [asked_for(row.partition(",")[0]) for row in rows]
    return any(row.text == smiles for row in hold_out([*made, asked_for(smiles)], 0.2)[1])


def test_many_columns_with_gaps_are_trained_scored_and_answered(tmp_path: Path, capsys: Any) -> None:
    rows = [f"{'C' * n}{end},{int(n > 9)},{'' if n % 3 else int(end == 'O')}" for n in range(1, 20) for end in "ON"]
    data = table(tmp_path / "a.csv", ["smiles,big,acid", *rows])
    fields = ("smiles", "big", "acid")
    steps = list(train("classify", data=data, valid=data, fields=fields, many=True, **small(tmp_path)))
    assert 0 <= steps[-1].scores["roc_auc"] <= 100
    capsys.readouterr()
    loaded = load(tmp_path / "run")
    assert loaded.task.labels == ["acid", "big"]
    again = loaded.task.score(loaded.model, loaded.rows([data], fields))
    assert again["roc_auc"] == pytest.approx(steps[-1].scores["roc_auc"])
    assert loaded.task.rank(again)[0] == round(again["roc_auc"], 3)
    assert {answer.text for answer in list(loaded.generate("CCO", num_return=2))} == {"acid", "big"}
    asked = table(tmp_path / "asked.txt", ["CCO", "C("])
    assert main(["run", str(tmp_path / "run"), "--embed", "--file", asked]) == 2
    told = capsys.readouterr()
    assert (f"{asked}:2: 'C(' is" in told.err, len(told.out.splitlines())) == (True, 1)
    half = loaded.rows([data], fields[:2])
    assert all(row.gaps == ("acid",) for row in half), "of a label without a column nobody knows"
    assert loaded.rows([data], ("smiles", "acid", "big"))[0].gaps == loaded.rows([data], fields)[0].gaps


def test_a_label_with_gaps_only_is_refused(tmp_path: Path) -> None:
    """A name that is nowhere in JSON lines is a gap in all."""
    rows = [f'{{"smiles": "{"C" * n}", "big": {int(n > 9)}}}' for n in range(1, 20)]
    data = table(tmp_path / "a.jsonl", rows)
    with pytest.raises(ValueError, match=r"a\.jsonl: there is nothing to learn of the label 'bigg': it has only gaps"):
        list(train("classify", data=data, fields=("smiles", "big", "bigg"), many=True, **small(tmp_path)))


def test_a_run_starts_from_another_with_its_atoms(tmp_path: Path) -> None:
    data = table(tmp_path / "a.csv", ["smiles,value", *(f"{'C' * n}O,{n}" for n in range(1, 20))])
    list(train("regress", data=data, valid=data, pooling="mean", **small(tmp_path)))
    more = {"data": data, "valid": data, "steps": 1, "out": str(tmp_path / "more")}
    list(train("regress", from_=str(tmp_path / "run"), **more))
    assert load(tmp_path / "more").task.molecules == load(tmp_path / "run").task.molecules
    assert load(tmp_path / "more").task.pooling == "mean"


def test_some_seconds_beat_the_mean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a part of what ships; the mean has an R² of 0."""
    some = list(paths.paths(2000))
    monkeypatch.setattr(paths, "paths", lambda: iter(some))
    how = {"steps": 120, "checks": 1, "dim": 32, "layers": 2, "hidden": 64, "heads": 2}
    *_, last = train("regress", model="graph", device="cpu", out=str(tmp_path / "run"), **how)
    assert last.scores["r2"] > 0.15


def test_some_seconds_beat_the_commonest_label(tmp_path: Path) -> None:
    """Three families of the same elements and of as many molecules: always the same is right for a third."""
    made = {"alcohol": "{}C({})O", "ether": "{}C({})OC", "ketone": "{}C({})=O"}
    sizes = [("C" * a, "C" * b) for a in range(1, 8) for b in range(1, a + 1)]
    rows = [f"{form.format(*size)},{label}" for label, form in made.items() for size in sizes]
    data = table(tmp_path / "a.csv", ["smiles,label", *rows])
    how = {"steps": 60, "checks": 1, "held_out": 0.3, "dim": 32, "layers": 2, "hidden": 64}
    *_, last = train("classify", model="graph", data=data, device="cpu", out=str(tmp_path / "run"), **how)
    assert last.scores["accuracy"] > 80
