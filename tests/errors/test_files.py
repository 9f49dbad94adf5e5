"""Broken files are refused by file and line: some of the thousands that benchmarks/errors.py tries."""

from pathlib import Path

import pytest
from run_command import sample_cases, skip_training
from valid_files import FORMS
from wrong_files import FileTrial, broken


@pytest.mark.parametrize("form", FORMS)
def test_broken_files_are_refused_by_line_and_others_are_read(form: str, tmp_path: Path) -> None:
    with skip_training():
        reading = FileTrial(form, tmp_path)
        cases = sample_cases(broken(form), lambda one: (one.file, one.refused, one.alike), 2)
        found = [(one.file, one.place, one.how, reading.try_case(one)[1]) for one in cases]
    assert [one for one in found if one[-1]] == []
