"""The engine's worker threads, and threads that share a model."""

import subprocess
import sys
from threading import Thread

import pytest
import torch

pytest.importorskip("regard.engine.kernels.llvm", exc_type=ImportError)  # Numba, and a CPU that the engine supports

from regard.engine.arena import Arena
from regard.engine.compiler import Program
from regard.engine.engine_body import EngineBody
from regard.engine.runtime import ProgramRunner, WorkerPool
from regard.models.bert import Bert, BertConfig

SCRIPT = """
import torch
from regard.engine.engine_model import EngineLMHead

torch.set_num_threads(2)
head = EngineLMHead(torch.nn.Linear(64, 64))
with torch.inference_mode():
    for _ in range(50):
        head(torch.ones(1, 64))
"""


def test_shutdown_joins_all_threads():
    pool = WorkerPool()
    runner = ProgramRunner(Program())
    pool.submit(2, (*runner.job, runner.state))
    pool.shutdown()
    assert [thread.is_alive() for thread in pool.threads] == [False, False]


def test_python_exits_cleanly_while_workers_run():
    process = subprocess.run([sys.executable, "-W", "error", "-c", SCRIPT], capture_output=True, text=True)
    errors = [line for line in process.stderr.splitlines() if not line.startswith("regard: compiling")]
    assert (process.returncode, errors) == (0, [])


def bert():
    config = BertConfig(vocab=53, context=40, dim=24, layers=2, heads=2, hidden=44, dropout=0.0)
    return EngineBody(Bert(config).eval())


class ContendedList(list):
    """Another thread pops the last item just after this one has seen it."""

    def __bool__(self):
        return True

    def pop(self, *index):
        raise IndexError("pop from empty list")


@torch.inference_mode()
def test_a_pool_taken_by_another_thread_is_replaced():
    body, text = bert(), torch.arange(12).view(2, 6)
    expected = body(text)
    body.engine.blocks[0].free_pools = ContendedList()
    torch.testing.assert_close(body(text), expected, rtol=0, atol=0)


class InterruptedArena(Arena):
    """While the main thread reads the free offset, another thread allocates."""

    reads = 0

    @property
    def used(self):
        value = self._used
        self.reads += hasattr(self, "allocated")
        if self.reads == 2:  # the first read checks the free space
            self.reads += 1
            self.thread = Thread(target=lambda: self.allocated.append(self.empty((64,), torch.float32)))
            self.thread.start()
            self.thread.join(0.2)  # times out if the lock makes it wait
        return value

    @used.setter
    def used(self, value):
        self._used = value


def test_concurrent_allocations_do_not_overlap():
    arena = InterruptedArena()
    arena.empty((64,), torch.float32)
    arena.allocated = []
    own = arena.empty((64,), torch.float32)
    arena.thread.join()
    assert arena.allocated[0].data_ptr() != own.data_ptr()
