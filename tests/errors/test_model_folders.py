"""A broken model folder is refused by file and field, or answers as the intact one: a sample of the cases of
benchmarks/errors.py."""

from pathlib import Path

import pytest
import wrong_runs
from run_command import sample_cases, skip_training
from wrong_folders import FAMILIES, HF_FAMILIES, FolderTrial, broken_cases, train_run


@pytest.mark.parametrize(("task", "model"), FAMILIES)
def test_a_broken_folder_is_refused_or_answers_as_the_intact_one(task: str, model: str, tmp_path: Path) -> None:
    run = train_run(task, model, tmp_path)
    for as_hf in [False, True] if (task, model) in HF_FAMILIES else [False]:
        trial = FolderTrial(task, model, run, tmp_path / f"hf {as_hf}", as_hf)
        cases = sample_cases(broken_cases(trial.folder), lambda case, as_hf=as_hf: (task, model, as_hf, case.file), 2)
        outcomes = [(case.file, case.field, case.defect, trial.try_case(case)[1]) for case in cases]
        assert [case for case in outcomes if case[-1]] == []


def test_a_broken_run_does_not_resume_differently(tmp_path: Path) -> None:
    run = train_run("classify", "pooled", tmp_path)
    with skip_training():
        trial = wrong_runs.ResumeTrial("classify", run, tmp_path / "copy")
        cases = sample_cases(wrong_runs.broken_cases(run), lambda case: case.file, 5)
        outcomes = [(case.file, case.field, case.defect, trial.try_case(case)[1]) for case in cases]
    assert [case for case in outcomes if case[-1]] == []
