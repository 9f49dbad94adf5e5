"""Wrong values of options are refused by name: a sample of the cases of benchmarks/errors.py."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from run_command import run_command, sample_cases
from wrong_folders import train_run
from wrong_options import (
    Command,
    WrongValue,
    lab_commands,
    model_commands,
    skip_work,
    train_commands,
    try_case,
    wrong_values,
)

OptionCase = tuple[Command, WrongValue]


def distinct(commands: Iterable[Command]) -> list[OptionCase]:
    """The cases of each option once, even if several commands have it."""
    options = {(name, str(option)): (command, name) for command in commands for name, option in command.options.items()}
    return [(command, case) for command, name in options.values() for case in wrong_values(name, command.options[name])]


def faults(cases: list[OptionCase]) -> list[tuple[str, str, str, str]]:
    with skip_work():
        outcomes = [(command.name, case.option, case.defect, try_case(command, case)[1]) for command, case in cases]
    return [case for case in outcomes if case[-1]]


def option_and_side(case: OptionCase) -> tuple[str, bool]:
    """The group of a case: its option, and whether it must be refused."""
    return case[1].option.removesuffix("x"), case[1].refused


def test_wrong_options_of_training_are_refused_by_name(tmp_path: Path) -> None:
    all_cases = distinct(train_commands(tmp_path))
    sides = [case for case in all_cases if case[1].refused], [case for case in all_cases if not case[1].refused]
    cases = sample_cases(sides[0], option_and_side, 1) + sample_cases(sides[1], option_and_side, 2)
    assert len(cases) > 120
    assert faults(cases) == []


def test_wrong_options_of_other_commands_are_refused_by_name(tmp_path: Path) -> None:
    run = train_run("translate", "transformer", tmp_path)
    arguments = (str(run), "translate", "the red cat", [str(tmp_path / "data" / "a.tsv")], tmp_path)
    cases = sample_cases(distinct(model_commands(*arguments)), option_and_side, 1) + sample_cases(
        distinct(lab_commands(tmp_path)), option_and_side, 1
    )
    assert len(cases) > 60
    assert faults(cases) == []


@pytest.mark.parametrize("verb", ["models", "tasks"])
def test_commands_without_options_refuse_options(verb: str) -> None:
    result = run_command([verb, "--dim", "3"])
    assert (result.code, result.out) == (2, "")
    assert f"regard {verb} takes no arguments, not '--dim'" in result.err
