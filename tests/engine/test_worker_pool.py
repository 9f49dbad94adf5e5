"""The threads that help the engine, and those that share it."""

import subprocess
import sys
from threading import Thread

import pytest
import torch

pytest.importorskip("regard.engine.kernels.llvm", exc_type=ImportError)  # Numba, and a processor that the engine knows

from regard.engine.arena import _Room
from regard.engine.compiler import Program
from regard.engine.engine_model import FastBody
from regard.engine.runtime import Crew, Runner
from regard.models.bert import Bert, BertConfig

ALONE = """
import torch
from regard.engine.engine_model import FastOutput

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
    told = [line for line in said.stderr.splitlines() if not line.startswith("regard: compiling")]
    assert (said.returncode, told) == (0, [])


def bert():
    config = BertConfig(vocab=53, context=40, dim=24, layers=2, heads=2, hidden=44, dropout=0.0)
    return FastBody(Bert(config).eval(), half=False)


class Contended(list):
    """Another thread takes the last one, just after this one has seen that it is there."""

    def __bool__(self):
        return True

    def pop(self, *place):
        raise IndexError("pop from empty list")


@torch.inference_mode()
def test_memory_that_another_thread_has_just_taken_is_made_anew():
    body, text = bert(), torch.arange(12).view(2, 6)
    wanted = body(text)
    body.fast.blocks[0].spare = Contended()
    torch.testing.assert_close(body(text), wanted, rtol=0, atol=0)


class Interrupted(_Room):
    """While the main thread looks from where on the room is free, another thread takes of it as well."""

    looks = 0

    @property
    def used(self):
        seen = self._used
        self.looks += hasattr(self, "taken")
        if self.looks == 2:  # the first tells whether there is enough
            self.looks += 1
            self.other = Thread(target=lambda: self.taken.append(self.take((64,), torch.float32)))
            self.other.start()
            self.other.join(0.2)  # unless it has to wait for its turn
        return seen

    @used.setter
    def used(self, value):
        self._used = value


def test_no_weights_of_two_models_that_are_loaded_at_once_share_memory():
    room = Interrupted()
    room.take((64,), torch.float32)
    room.taken = []
    mine = room.take((64,), torch.float32)
    room.other.join()
    assert room.taken[0].data_ptr() != mine.data_ptr()
