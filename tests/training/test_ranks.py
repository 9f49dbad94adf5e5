"""Several ranks train what one process trains: with two, to the last bit; with shards, up to rounding."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from rank_processes import run_ranks
from torch import nn

from regard.data.batches import bucket_by_length
from regard.tasks.task import Loss
from regard.training.loop import Progress, TrainOptions, train_steps
from regard.training.optimizer import orthogonalize, orthogonalize_stacked
from regard.training.rank_checks import check_accumulation, check_alone, check_batch_norm
from regard.training.ranks import SINGLE, OtherRankError, Ranks, exit_code, join_ranks
from regard.training.step_sums import sum_over_ranks

JOBS = Path(__file__).parent / "rank_jobs.py"
TASKS = ("translate", "write", "fill", "classify", "embed")


def run_jobs(kind, size, folder):
    output = run_ranks(size, JOBS.read_text(), kind, folder)[0]
    return json.loads(output.split("RESULT")[1])


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return run_jobs("pair", 2, tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="module")
def square(tmp_path_factory):
    return run_jobs("square", 4, tmp_path_factory.mktemp("square"))


def difference(losses, others):
    return np.abs(np.array(losses) / np.array(others) - 1).max()


@pytest.mark.parametrize("task", TASKS)
def test_two_replicas_write_the_bits_of_one_process(task, pair):
    single, ranks = pair[task]
    assert ranks == single


@pytest.mark.parametrize("mutant", ["seed without batch", "mean"])
def test_a_mutant_writes_other_bits(mutant, pair):
    assert pair[f"mutant: {mutant}"]["digest"] != pair["translate"][0]["digest"]


def test_shards_train_like_one_process(pair, square):
    assert difference(pair["shards"], pair["long"]) < 1e-5
    for layout in ("4", "2x2", "shards 4"):
        assert difference(square[layout], square["1"]) < 1e-5
    assert square["1"] != pair["long"], "another accumulation is another run"


def test_a_stopped_run_continues_on_the_same_ranks_bit_for_bit(pair):
    assert pair["same ranks"] == pair["whole"]


@pytest.mark.parametrize("change", ["fewer ranks", "replicas to shards", "shards to replicas"])
def test_a_stopped_run_continues_on_other_ranks(change, pair):
    assert difference(pair[change], pair["whole"]) < 1e-5


def test_nan_on_one_rank_stops_all(pair):
    assert pair["one rank's loss is NaN"] == ["FloatingPointError before step 1", "OtherRankError before step 1"]


class VirtualRank(Ranks):
    """A rank whose sums are its own: it trains without the others."""

    def sum(self, values):
        return values


class Rows:
    """Examples of some lengths."""

    def __init__(self, lengths):
        self.lengths, self.units = np.array(lengths)[:, None], len(lengths)

    def epoch(self, budget, seed, epoch):
        return bucket_by_length(self.lengths, budget, seed, epoch)


class RecordingTask:
    """Records the rows of every batch that is computed."""

    def __init__(self):
        self.rows = []

    def collate(self, examples, rows):
        self.rows += rows.tolist()
        return rows

    def loss(self, model, rows):
        return Loss(model.body.weight.sum() * 0.0 + len(rows), len(rows))


class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(1, 1)


def rows_of_schedule(seed, own=None):
    """(epochs, rows of each) that all ranks compute together while their number changes; `own` replaces the division."""
    rng = random.Random(seed)
    examples = Rows([rng.randint(1, 9) for _ in range(rng.randint(20, 60))])
    options = TrainOptions(steps=10**6, grad_accum=12, batch_tokens=12, lr=0.1, warmup_steps=0, ema=0.0, seed=seed)
    task, epochs, progress = RecordingTask(), [Counter()], Progress.new(Line(), options)
    while len(epochs) < 4:
        size, steps = rng.choice([1, 2, 3, 4, 6, 12]), rng.randint(1, 3)
        start = progress.step, progress.position
        for rank in range(size):
            progress.step, progress.position, progress.ranks = *start, VirtualRank(rank, size)
            for count, step in enumerate(train_steps(progress, task, examples, options), 1):
                if count == steps:
                    break
        assert step.position == progress.position
        for row in task.rows:
            epochs[-1][row] += 1
        task.rows = []
        while len(epochs) <= progress.position.epoch:
            epochs.append(Counter())
    return epochs, examples


