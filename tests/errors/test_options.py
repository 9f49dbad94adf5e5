"""Wrong values of options are refused by name: some of the thousands that benchmarks/errors.py tries."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from run_command import sample_cases, told
from wrong_folders import train_run
from wrong_options import Command, Wrong, lab_commands, others, skip_work, training, try_case, wrong

Asked = tuple[Command, Wrong]


def distinct(commands: Iterable[Command]) -> list[Asked]:
    """Each option once, whatever number of commands have it."""
    found = {(name, str(option)): (command, name) for command in commands for name, option in command.options.items()}
    return [(command, one) for command, name in found.values() for one in wrong(name, command.options[name])]


def faults(cases: list[Asked]) -> list[tuple[str, str, str, str]]:
    with skip_work():
        found = [(command.name, one.option, one.how, try_case(command, one)[1]) for command, one in cases]
    return [one for one in found if one[-1]]


def option_and_side(case: Asked) -> tuple[str, bool]:
    """Of what must be refused one suffices; the rest is more often wrong."""
    return case[1].option.removesuffix("x"), case[1].refused


def test_wrong_options_of_training_are_refused_by_name(tmp_path: Path) -> None:
    every = distinct(training(tmp_path))
    sides = [one for one in every if one[1].refused], [one for one in every if not one[1].refused]
    cases = sample_cases(sides[0], option_and_side, 1) + sample_cases(sides[1], option_and_side, 2)
    assert len(cases) > 120
    assert faults(cases) == []


def test_wrong_options_of_other_commands_are_refused_by_name(tmp_path: Path) -> None:
    run = train_run("translate", "transformer", tmp_path)
    asked = (str(run), "translate", "the red cat", [str(tmp_path / "data" / "a.tsv")], tmp_path)
    cases = sample_cases(distinct(others(*asked)), option_and_side, 1) + sample_cases(
        distinct(lab_commands(tmp_path)), option_and_side, 1
    )
    assert len(cases) > 60
    assert faults(cases) == []


@pytest.mark.parametrize("verb", ["models", "tasks"])
def test_commands_without_options_say_so(verb: str) -> None:
    said = told([verb, "--dim", "3"])
    assert (said.code, said.out) == (2, "")
    assert f"regard {verb} takes no options, and not '--dim'" in said.err
