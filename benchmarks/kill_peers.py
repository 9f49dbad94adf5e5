"""The blows of kill.py for others: the Hugging Face Trainer, and a plain loop that does torch.save over one file.

    python benchmarks/kill_peers.py [--kills 20] [--points 20] [--out runs/kill_peers]

All have a small GPT with dropout, batches in random order and 120 steps, and save every five. Each is taken up again in
its documented way: ours by the same command, the Trainer by resume_from_checkpoint=True if it finds a checkpoint, the
loop by torch.load of weights, optimiser, step and random state. Half of the blows are aimed at saves. Where a restart
fails, its newest checkpoint is removed by hand and it starts once more. Needs transformers and accelerate.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import io
import mmap
import os
import random
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from kill import PHASES, Moment, command, drawn, fork_child, life, reached, run_in_child, watched, write_data
from peers import EVERY, SEED, plain, step_done, trainer, watched_plain, watched_trainer

from regard.cli import main
from regard.training import train as training

STEPS = 120
AIMS = {"save": 0.5}
LIVES = 5  # it would take at least as many to the end if no step were done again


def ours(folder: Path, steps: int) -> None:
    learn = training.learn

    def counted(*args: Any) -> Any:
        for step in learn(*args):
            step_done(folder)
            yield step

    training.learn = counted
    words = [*command("write", write_data("write", folder), folder / "run"), "--steps", str(steps)]
    code = main([*words, "--checks", str(max(1, steps // EVERY))])
    training.learn = learn
    if code:
        raise OSError(f"it left with {code}")


def without_newest(folder: Path) -> None:
    """What somebody does by hand where a restart fails."""
    (folder / "checkpoint.pt").unlink(missing_ok=True)
    newest = sorted((folder / "run").glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))[-1:]
    for checkpoint in newest:
        shutil.rmtree(checkpoint)


@dataclass(frozen=True)
class Peer:
    name: str
    train: Callable[[Path, int], None]
    watch: Callable[[mmap.mmap], None]
    final: str  # the file with its last weights

    def work(self, folder: Path, steps: int = STEPS) -> Callable[[], int]:
        def carefully() -> int:
            folder.mkdir(parents=True, exist_ok=True)
            try:
                self.train(folder, steps)
            except Exception:
                (folder / "trouble").write_text(traceback.format_exc())
                return 1
            return 0

        return carefully

    def seconds(self, folder: Path) -> float:
        """How long its second save takes."""
        phase = mmap.mmap(-1, 1)
        child = fork_child(lambda: self.watch(phase) or self.work(folder)())
        assert reached(child, phase, Moment(0, "save", 2))
        began = time.monotonic()
        while PHASES[phase[0]] == "save":
            time.sleep(0.00005)
        seconds = time.monotonic() - began
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return seconds


PEERS = (
    Peer("regard: the same command", ours, watched, "run/model.safetensors"),
    Peer("Hugging Face Trainer: resume_from_checkpoint=True", trainer, watched_trainer, "final"),
    Peer("a plain loop: torch.save over one file", plain, watched_plain, "final"),
)


@dataclass
class Fate:
    """What became of a peer."""

    kills: int = 0
    in_save: int = 0
    failed: int = 0  # restarts
    ended: int = 0
    differ: int = 0
    again: int = 0  # steps that were done more than once


def kill_repeatedly(peer: Peer, kills: int, folder: Path, luck: random.Random) -> Fate:
    shutil.rmtree(folder, ignore_errors=True)
    began = time.monotonic()
    assert run_in_child(peer.work(folder / "whole")) == 0, (folder / "whole/trouble").read_text()
    longest = (time.monotonic() - began) / LIVES
    wanted, run, fate = (folder / "whole" / peer.final).read_bytes(), folder / "killed", Fate()
    reach = peer.seconds(folder / "timed")
    while fate.kills < kills:
        shutil.rmtree(run, ignore_errors=True)
        code: int | None = None
        while code != 0:
            moment = drawn(luck, longest, AIMS, reach) if fate.kills < kills else None
            code, phase = life(peer.work(run), moment, peer.watch)
            if code is None:
                fate.kills, fate.in_save = fate.kills + 1, fate.in_save + (PHASES[phase] == "save")
            elif code != 0:
                fate.failed += 1
                print(f"  {peer.name}: {(run / 'trouble').read_text().splitlines()[-1][:150]}", flush=True)
                without_newest(run)
        fate.ended += 1
        fate.differ += (run / peer.final).read_bytes() != wanted
        fate.again += (run / "steps").stat().st_size - STEPS
    return fate


def full_disk(peer: Peer, points: int, folder: Path) -> tuple[int, int]:
    """Of so many points at which no file may grow any more: how often the checkpoint that was there is as it was, and
    how often the same call goes on by itself when there is room again."""
    shutil.rmtree(folder, ignore_errors=True)
    half, copy = folder / "half", folder / "full"
    assert run_in_child(peer.work(half, STEPS // 2)) == 0
    saved = [file for file in half.rglob("*") if file.is_file() and file.name not in ("steps", "final")]
    before = {file.relative_to(half): file.read_bytes() for file in saved}
    largest, kept, went_on = max(map(len, before.values())), 0, 0
    for point in range(points):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(half, copy)

        def work(limit: int = largest * point // points) -> int:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            return peer.work(copy, STEPS // 2 + EVERY)()

        run_in_child(work)
        kept += all((copy / name).is_file() and (copy / name).read_bytes() == old for name, old in before.items())
        went_on += run_in_child(peer.work(copy, STEPS // 2 + EVERY)) == 0
    return kept, went_on


def cli() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="of each")
    parser.add_argument("--points", type=int, default=20, help="of a full disk")
    parser.add_argument("--out", type=Path, default=Path("runs/kill_peers"))
    given = parser.parse_args()
    if missing := [name for name in ("transformers", "accelerate") if not importlib.util.find_spec(name)]:
        print(f"skipped: {' and '.join(missing)} not installed (pip install -e '.[bench]')")
        return 0
    versions = (f"{name} {importlib.metadata.version(name)}" for name in ("torch", "transformers", "accelerate"))
    print(f"| versions | | {', '.join(versions)}, seed {SEED} |")
    torch.set_num_threads(1)
    for i, peer in enumerate(PEERS):
        with redirect_stdout(io.StringIO()):
            peer.work(given.out / f"warm{i}", 1)()  # so that children are born with all that it imports
        fate = kill_repeatedly(peer, given.kills, given.out / f"peer{i}", random.Random(SEED))
        lost = f"{fate.failed} restarts failed; {fate.ended} runs ended, {fate.ended - fate.differ} of them bit for bit"
        print(f"| {peer.name} | {fate.kills} kills, {fate.in_save} in a save | {lost}; {fate.again} steps done again |")
    for i, peer in enumerate(PEERS[1:], 1):
        kept, went_on = full_disk(peer, given.points, given.out / f"disk{i}")
        told = f"what was saved is as it was {kept}, went on by itself {went_on} of {given.points}"
        print(f"| {peer.name}; the disk is full in a save | {given.points} points | {told} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(cli())
