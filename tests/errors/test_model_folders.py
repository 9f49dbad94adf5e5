"""A broken model folder is refused by file and field, or answers as the whole one: some of the thousands of cases of
benchmarks/errors.py."""

from pathlib import Path

import pytest
import wrong_runs
from telling import few, no_training
from wrong_folders import FAMILIES, OTHERS, Answering, broken, trained


@pytest.mark.parametrize(("task", "model"), FAMILIES)
def test_a_broken_folder_is_refused_or_answers_as_the_whole_one(task: str, model: str, tmp_path: Path) -> None:
    run = trained(task, model, tmp_path)
    for theirs in [False, True] if (task, model) in OTHERS else [False]:
        answering = Answering(task, model, run, tmp_path / f"theirs {theirs}", theirs)
        cases = few(broken(answering.folder), lambda one, theirs=theirs: (task, model, theirs, one.file), 2)
        found = [(one.file, one.place, one.how, answering.tried(one)[1]) for one in cases]
        assert [one for one in found if one[-1]] == []


def test_a_broken_run_does_not_go_on_as_another(tmp_path: Path) -> None:
    run = trained("classify", "pooled", tmp_path)
    with no_training():
        resuming = wrong_runs.Resuming("classify", run, tmp_path / "copy")
        cases = few(wrong_runs.broken(run), lambda one: one.file, 5)
        found = [(one.file, one.place, one.how, resuming.tried(one)[1]) for one in cases]
    assert [one for one in found if one[-1]] == []
