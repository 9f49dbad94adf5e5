"""The threads that help the engine."""

import subprocess
import sys

import pytest

pytest.importorskip("regard.speed.lanes", exc_type=ImportError)  # Numba, and a processor that the engine knows

from regard.speed.engine import Crew, Runner
from regard.speed.program import Program

ALONE = """
import torch
from regard.speed.bodies import FastOutput

torch.set_num_threads(2)
output = FastOutput(torch.nn.Linear(64, 64))
with torch.inference_mode():
    for _ in range(50):
        output(torch.ones(1, 64))
"""


def test_who_is_dismissed_goes_home():
    crew = Crew()
    nothing = Runner(Program())
    crew.call(2, (*nothing.job, nothing.state))
    crew.dismiss()
    assert [thread.is_alive() for thread in crew.threads] == [False, False]


def test_python_ends_well_while_they_are_called():
    said = subprocess.run([sys.executable, "-W", "error", "-c", ALONE], capture_output=True, text=True)
    assert (said.returncode, said.stderr) == (0, "")
