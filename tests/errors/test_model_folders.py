"""A broken model folder is refused by file and field, or answers as the whole one: some of the thousands of cases of
benchmarks/errors.py."""

from pathlib import Path

import pytest
import wrong_runs
from run_command import sample_cases, skip_training
from wrong_folders import FAMILIES, HF_FAMILIES, FolderTrial, broken, train_run


@pytest.mark.parametrize(("task", "model"), FAMILIES)
def test_a_broken_folder_is_refused_or_answers_as_the_whole_one(task: str, model: str, tmp_path: Path) -> None:
    run = train_run(task, model, tmp_path)
    for theirs in [False, True] if (task, model) in HF_FAMILIES else [False]:
        answering = FolderTrial(task, model, run, tmp_path / f"theirs {theirs}", theirs)
        cases = sample_cases(broken(answering.folder), lambda one, theirs=theirs: (task, model, theirs, one.file), 2)
        found = [(one.file, one.place, one.how, answering.try_case(one)[1]) for one in cases]
        assert [one for one in found if one[-1]] == []


def test_a_broken_run_does_not_go_on_as_another(tmp_path: Path) -> None:
    run = train_run("classify", "pooled", tmp_path)
    with skip_training():
        resuming = wrong_runs.ResumeTrial("classify", run, tmp_path / "copy")
        cases = sample_cases(wrong_runs.broken_cases(run), lambda one: one.file, 5)
        found = [(one.file, one.place, one.how, resuming.try_case(one)[1]) for one in cases]
    assert [one for one in found if one[-1]] == []
