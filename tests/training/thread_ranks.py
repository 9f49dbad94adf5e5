"""Ranks as threads of one process, and as forked processes that gloo connects."""

from __future__ import annotations

import os
import pickle
import socket
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from regard.training.ranks import Ranks, join_ranks


class Meeting:
    """Where threads exchange items. A thread that has ended fails those that wait for it, as a closed connection."""

    def __init__(self, size: int):
        self.posted: list[list[bytes]] = [[] for _ in range(size)]
        self.ended: set[int] = set()
        self.changed = threading.Condition()

    def exchange(self, rank: int, item: Any) -> list[Any]:
        number = len(self.posted[rank])
        with self.changed:
            self.posted[rank].append(pickle.dumps(item))
            self.changed.notify_all()
            assert self.changed.wait_for(lambda: self.missing(number) <= self.ended, 60)
        if self.missing(number):
            raise RuntimeError(f"rank {min(self.missing(number))} has ended")
        return [pickle.loads(items[number]) for items in self.posted]

    def missing(self, number: int) -> set[int]:
        return {rank for rank, items in enumerate(self.posted) if len(items) <= number}

    def end(self, rank: int) -> None:
        with self.changed:
            self.ended.add(rank)
            self.changed.notify_all()


@dataclass(frozen=True)
class ThreadRanks(Ranks):
    meeting: Meeting = field(default_factory=lambda: Meeting(1))

    def gather(self, item: Any) -> list[Any]:
        return self.meeting.exchange(self.rank, item)

    def broadcast(self, item: Any) -> Any:
        return self.gather(item)[0]

    def wait(self) -> None:
        self.gather(None)


def on_threads(size: int, action: Callable[[Ranks], Any]) -> list[Any]:
    """The result of `action` on each rank, or the exception that it raised there."""
    meeting, results = Meeting(size), [None] * size

    def run(rank: int) -> None:
        try:
            results[rank] = action(ThreadRanks(rank, size, size, meeting))
        except BaseException as error:
            results[rank] = error
        meeting.end(rank)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def on_forks(size: int, action: Callable[[Ranks], Any], folder: Path) -> list[Any]:
    """The result of `action` on each rank, the traceback that ended it, or None if the process was killed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = []
    for rank in range(size):
        process = os.fork()
        if not process:
            try:
                address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
                os.environ.update(address, RANK=str(rank), WORLD_SIZE=str(size))
                torch.set_num_threads(1)
                result = action(join_ranks(size))
            except BaseException:
                result = traceback.format_exc()
            (folder / f"result-{rank}").write_bytes(pickle.dumps(result))
            os._exit(0)
        processes.append(process)
    for process in processes:
        os.waitpid(process, 0)
    files = [folder / f"result-{rank}" for rank in range(size)]
    return [pickle.loads(file.read_bytes()) if file.exists() else None for file in files]
