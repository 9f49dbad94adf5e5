"""The kills of kill.py for peers: the Hugging Face Trainer, and a plain loop that overwrites one torch.save file.

    python benchmarks/kill_peers.py [--kills 20] [--points 20] [-o runs/kill_peers]

All train a small GPT with dropout on shuffled batches for 120 steps and save every five. Each resumes in its documented
way: regard by the same command, the Trainer by resume_from_checkpoint=True if there is a checkpoint, the loop by
torch.load of weights, optimizer, step and random state. Half of the kills are aimed at saves. Where a restart fails,
the newest checkpoint is deleted and the run starts once more. Needs transformers and accelerate.
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
from kill import (
    PHASES,
    Moment,
    command,
    draw_moment,
    fork_child,
    report_phases,
    run_in_child,
    run_until,
    wait_for,
    write_data,
)
from peers import (
    SAVE_EVERY,
    SEED,
    count_step,
    report_plain_phases,
    report_trainer_phases,
    train_plain,
    train_with_trainer,
)

from regard.cli import main
from regard.training import file_job as training

STEPS = 120
AIMS = {"save": 0.5}
MIN_RESTARTS = 5  # a kill comes after at most this fraction of a whole run


def train_regard(folder: Path, steps: int) -> None:
    original = training.train_steps

    def counted(*args: Any) -> Any:
        for step in original(*args):
            count_step(folder)
            yield step

    training.train_steps = counted
    words = [*command("write", write_data("write", folder), folder / "run"), "--steps", str(steps)]
    code = main([*words, "--evals", str(max(1, steps // SAVE_EVERY))])
    training.train_steps = original
    if code:
        raise OSError(f"it exited with {code}")


def delete_newest_checkpoint(folder: Path) -> None:
    """What a user does by hand when a restart fails."""
    (folder / "checkpoint.pt").unlink(missing_ok=True)
    newest = sorted((folder / "run").glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))[-1:]
    for checkpoint in newest:
        shutil.rmtree(checkpoint)


@dataclass(frozen=True)
class Peer:
    name: str
    train: Callable[[Path, int], None]
    report: Callable[[mmap.mmap], None]
    final: str  # file of the final weights

    def work(self, folder: Path, steps: int = STEPS) -> Callable[[], int]:
        def run() -> int:
            folder.mkdir(parents=True, exist_ok=True)
            try:
                self.train(folder, steps)
            except Exception:
                (folder / "traceback").write_text(traceback.format_exc())
                return 1
            return 0

        return run

    def save_seconds(self, folder: Path) -> float:
        """Duration of its second save."""
        phase = mmap.mmap(-1, 1)
        child = fork_child(lambda: self.report(phase) or self.work(folder)())
        assert wait_for(child, phase, Moment(0, "save", 2))
        start = time.monotonic()
        while PHASES[phase[0]] == "save":
            time.sleep(0.00005)
        seconds = time.monotonic() - start
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return seconds


PEERS = (
    Peer("regard: the same command", train_regard, report_phases, "run/model.safetensors"),
    Peer("Hugging Face Trainer: resume_from_checkpoint=True", train_with_trainer, report_trainer_phases, "final"),
    Peer("plain loop: torch.save over one file", train_plain, report_plain_phases, "final"),
)


@dataclass
class KillCounts:
    kills: int = 0
    in_save: int = 0
    failed_restarts: int = 0
    finished: int = 0
    differ: int = 0
    repeated_steps: int = 0


def kill_repeatedly(peer: Peer, kills: int, folder: Path, rng: random.Random) -> KillCounts:
    shutil.rmtree(folder, ignore_errors=True)
    start = time.monotonic()
    assert run_in_child(peer.work(folder / "whole")) == 0, (folder / "whole/traceback").read_text()
    max_seconds = (time.monotonic() - start) / MIN_RESTARTS
    expected, run, counts = (folder / "whole" / peer.final).read_bytes(), folder / "killed", KillCounts()
    window = peer.save_seconds(folder / "timed")
    while counts.kills < kills:
        shutil.rmtree(run, ignore_errors=True)
        code: int | None = None
        while code != 0:
            moment = draw_moment(rng, max_seconds, AIMS, window) if counts.kills < kills else None
            code, phase = run_until(peer.work(run), moment, peer.report)
            if code is None:
                counts.kills, counts.in_save = counts.kills + 1, counts.in_save + (PHASES[phase] == "save")
            elif code != 0:
                counts.failed_restarts += 1
                print(f"  {peer.name}: {(run / 'traceback').read_text().splitlines()[-1][:150]}", flush=True)
                delete_newest_checkpoint(run)
        counts.finished += 1
        counts.differ += (run / peer.final).read_bytes() != expected
        counts.repeated_steps += (run / "steps").stat().st_size - STEPS
    return counts


def full_disk(peer: Peer, points: int, folder: Path) -> tuple[int, int]:
    """Numbers of file size limits, of `points`, after which the existing checkpoint is unchanged, and after which the
    same call resumes once the limit is gone."""
    shutil.rmtree(folder, ignore_errors=True)
    half, copy = folder / "half", folder / "full"
    assert run_in_child(peer.work(half, STEPS // 2)) == 0
    saved = [file for file in half.rglob("*") if file.is_file() and file.name not in ("steps", "final")]
    before = {file.relative_to(half): file.read_bytes() for file in saved}
    largest, unchanged, resumed = max(map(len, before.values())), 0, 0
    for point in range(points):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(half, copy)

        def work(limit: int = largest * point // points) -> int:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            return peer.work(copy, STEPS // 2 + SAVE_EVERY)()

        run_in_child(work)
        unchanged += all((copy / name).is_file() and (copy / name).read_bytes() == old for name, old in before.items())
        resumed += run_in_child(peer.work(copy, STEPS // 2 + SAVE_EVERY)) == 0
    return unchanged, resumed


def cli() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="of each peer")
    parser.add_argument("--points", type=int, default=20, help="file size limits of the full disk")
    parser.add_argument("-o", "--output-dir", type=Path, default=Path("runs/kill_peers"))
    args = parser.parse_args()
    if missing := [name for name in ("transformers", "accelerate") if not importlib.util.find_spec(name)]:
        print(f"skipped: {' and '.join(missing)} not installed (pip install -e '.[bench]')")
        return 0
    versions = (f"{name} {importlib.metadata.version(name)}" for name in ("torch", "transformers", "accelerate"))
    print(f"| versions | | {', '.join(versions)}, seed {SEED} |")
    torch.set_num_threads(1)
    for i, peer in enumerate(PEERS):
        with redirect_stdout(io.StringIO()):
            peer.work(args.output_dir / f"warm{i}", 1)()  # children inherit all that it imports
        counts = kill_repeatedly(peer, args.kills, args.output_dir / f"peer{i}", random.Random(SEED))
        same = counts.finished - counts.differ
        outcome = f"{counts.failed_restarts} restarts failed; {counts.finished} runs finished, {same} bit-identical"
        kills = f"{counts.kills} kills, {counts.in_save} in a save"
        print(f"| {peer.name} | {kills} | {outcome}; {counts.repeated_steps} steps repeated |")
    for i, peer in enumerate(PEERS[1:], 1):
        unchanged, resumed = full_disk(peer, args.points, args.output_dir / f"disk{i}")
        outcome = f"previous checkpoint unchanged {unchanged}, resumed without help {resumed} of {args.points}"
        print(f"| {peer.name}; the disk is full during a save | {args.points} points | {outcome} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(cli())
