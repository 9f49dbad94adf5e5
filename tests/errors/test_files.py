"""Broken files are refused by file and line: a sample of the cases of benchmarks/errors.py."""

from pathlib import Path

import pytest
from run_command import sample_cases, skip_training
from valid_files import FORMS
from wrong_files import FileTrial, broken_cases


@pytest.mark.parametrize("form", FORMS)
def test_broken_files_are_refused_by_line_and_harmless_changes_are_read(form: str, tmp_path: Path) -> None:
    with skip_training():
        trial = FileTrial(form, tmp_path)
        cases = sample_cases(broken_cases(form), lambda case: (case.file, case.refused, case.same_as_intact), 2)
        outcomes = [(case.file, case.field, case.defect, trial.try_case(case)[1]) for case in cases]
    assert [case for case in outcomes if case[-1]] == []
