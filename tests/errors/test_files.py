"""Broken files are refused by file and line: some of the thousands that benchmarks/errors.py tries."""

from pathlib import Path

import pytest
from telling import few, no_training
from valid import FORMS
from wrong_files import Reading, broken


@pytest.mark.parametrize("form", FORMS)
def test_broken_files_are_refused_by_line_and_others_are_read(form: str, tmp_path: Path) -> None:
    with no_training():
        reading = Reading(form, tmp_path)
        cases = few(broken(form), lambda one: (one.file, one.refused, one.alike), 2)
        found = [(one.file, one.place, one.how, reading.tried(one)[1]) for one in cases]
    assert [one for one in found if one[-1]] == []
