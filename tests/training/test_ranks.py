"""Several ranks train what one process trains: with two, to the last bit; with shards, up to rounding."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from regard.data.batches import bucket_by_length
from regard.tasks.task import Loss
from regard.training.loop import Progress, TrainOptions, train_steps
from regard.training.optimizer import orthogonalize, orthogonalize_stacked
from regard.training.rank_checks import check_accumulation, check_alone, check_batch_norm
from regard.training.ranks import SINGLE, OtherRankError, Ranks, exit_code, join_ranks
from regard.training.sharding import MIN_SHARED
from regard.training.step_sums import sum_over_ranks

sys.path.insert(0, str(Path(__file__).parent))
from rank_processes import run_ranks  # noqa: E402

JOBS = Path(__file__).parent / "rank_jobs.py"
TASKS = ("translate", "write", "classify", "embed")


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


@pytest.mark.parametrize("change", ["fewer ranks", "shards to replicas"])
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


def counts_of_schedule(seed):
    """How often each row was used, and should have been, whenever the number of ranks changes."""
    rng = random.Random(seed)
    examples = Rows([rng.randint(1, 9) for _ in range(rng.randint(20, 60))])
    options = TrainOptions(steps=10**6, grad_accum=12, batch_tokens=12, lr=0.1, warmup_steps=0, ema=0.0, seed=seed)
    task, progress = RecordingTask(), Progress.new(Line(), options)
    while progress.position.epoch < 3:
        size, steps = rng.choice([1, 2, 3, 4, 6, 12]), rng.randint(1, 3)
        start = progress.step, progress.position
        for rank in range(size):
            progress.step, progress.position, progress.ranks = *start, VirtualRank(rank, size)
            for step in train_steps(progress, task, examples, options):
                if step.number == start[0] + steps:
                    break
        epoch, batch = progress.position
        begun = np.concatenate([[], *examples.epoch(options.batch_tokens, seed, epoch)[:batch]])
        yield Counter(task.rows), Counter([*range(examples.units)] * epoch + begun.tolist())


@pytest.mark.parametrize("seed", range(12))
def test_every_example_is_used_once_an_epoch_while_the_ranks_change(seed):
    for counts, expected in counts_of_schedule(seed):
        assert counts == expected


def test_ranks_that_overlap_use_examples_twice(monkeypatch):
    monkeypatch.setattr(Ranks, "own", lambda self, number: number % self.size <= self.rank)
    assert any(counts != expected for counts, expected in counts_of_schedule(seed=3))


@pytest.mark.parametrize("shape", [(MIN_SHARED, MIN_SHARED), (MIN_SHARED + 1, 97), (150, 67), (70, 11, 7)])
def test_each_rank_orthogonalizes_its_share_to_the_same_bits(shape):
    """Ranks divide stacked matrices into consecutive parts."""
    torch.manual_seed(0)
    stacked = torch.randn(6, *shape)
    whole = orthogonalize_stacked(stacked)
    for size in (1, 2, 3):
        assert torch.equal(torch.cat([orthogonalize_stacked(part) for part in stacked.split(size)]), whole)
    assert torch.equal(torch.stack([orthogonalize(m) for m in stacked.flatten(2)]).view_as(whole), whole)


def test_one_process_sums_nothing():
    sums = sum_over_ranks(SINGLE, 1.5, 3, False, 7.0, None)
    assert (sums.loss, sums.count, sums.stop, sums.clock, sums.norms) == (1.5, 3, False, 7.0, None)


def test_sums_hold_the_norms_of_shards():
    ranks = VirtualRank(0, 4, shards=2)
    sums = sum_over_ranks(ranks, 1.0, 2, True, 5.0, [torch.tensor([3.0, 4.0]), torch.zeros(0)])
    torch.testing.assert_close(sums.norms, torch.tensor([12.5**0.5, 0.0]))  # of two replicas, each adds half
    assert sums.stop


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: Ranks(0, 3, shards=2), "--shards 2 does not divide 3 ranks"),
        (lambda: join_ranks(shards=2), "--shards 2 does not divide 1 process: start a multiple of 2"),
        (lambda: check_accumulation(3, Ranks(0, 2)), "2 ranks divide the batches of a step.*add --grad-accum 4"),
        (lambda: check_batch_norm("resnet", nn.Sequential(nn.BatchNorm2d(3)), Ranks(0, 2)), "resnet has batch norms"),
        (lambda: check_alone(Ranks(0, 2)), "--env trains in one process, not in 2 ranks"),
    ],
)
def test_what_ranks_cannot_train_is_refused(check, message, monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(ValueError, match=message):
        check()


def test_one_process_may_have_batch_norms_and_any_accumulation():
    check_accumulation(3, SINGLE)
    check_batch_norm("resnet", nn.BatchNorm1d(3), SINGLE)
    check_alone(SINGLE)


class Meeting(Ranks):
    """Ranks whose messages are known: `entries` are what all of them gather."""

    entries: tuple = ()

    def gather(self, item):
        return [item if entry is Ellipsis else entry for entry in self.entries]


def meeting(rank, *entries):
    ranks = Meeting(rank, len(entries))
    object.__setattr__(ranks, "entries", entries)
    return ranks


def test_one_rank_reports_an_error_and_the_others_raise_it():
    def fail():
        raise ValueError("train.tsv:3: no tab")

    with pytest.raises(ValueError, match=r"^train.tsv:3: no tab"):
        meeting(0, ..., ("train.tsv:3: no tab", 2)).agree(fail)
    for rank, function in ((1, fail), (1, int)):
        with pytest.raises(OtherRankError, match="rank 0: train.tsv:3: no tab") as caught:
            meeting(rank, ("train.tsv:3: no tab", 2), ...).agree(function)
        assert caught.value.exit_code == 2
    assert meeting(1, None, ...).agree(lambda: 5) == 5
    assert [exit_code(error) for error in (ValueError(), FloatingPointError(), RuntimeError())] == [2, 3, 1]
