"""A run of --minutes ends its schedule in time, whatever the speed of the machine. The clock is simulated."""

import json
import random
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.cli import main
from regard.training import file_job, loop, time_budget
from regard.training.file_job import FileJob
from regard.training.loop import TrainOptions
from regard.training.schedule import Revision, wsd
from regard.training.start import make_settings
from regard.training.time_budget import TimeBudget, format_duration
from regard.training.train import train

SIZES = {"dim": 8, "hidden": 8, "heads": 1, "encoder_layers": 1, "decoder_layers": 1, "context": 64}


class Clock:
    """A simulated clock; `speed` maps a share of the run to the factor by which work slows down."""

    def __init__(self, monkeypatch, seconds, speed):
        self.now, self.seconds, self.speed = 0.0, seconds, speed
        for module in (time_budget, file_job, loop):
            monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: self.now))

    def work(self, seconds):
        self.now += seconds * self.speed(self.now / self.seconds)


MACHINES = {
    "as planned": lambda share: 1.0,
    "half as fast after a fifth": lambda share: 1.0 if share < 0.2 else 2.0,
    "a fifth as fast after the half": lambda share: 1.0 if share < 0.5 else 5.0,
    "three times as fast": lambda share: 0.33,
    "a slow start": lambda share: 3.0 if share < 0.3 else 1.0,
    "fast at the end": lambda share: 1.0 if share < 0.8 else 0.3,
    "up and down": lambda share: 1.0 + 2 * (int(share * 20) % 2),
}


def training(monkeypatch, tmp_path, pairs_file, speed, name="run", minutes=4.0, stop=None, **options):
    """A run where, at speed 1, a step takes 1 s, an evaluation 2 s and a checkpoint 0.1 s."""
    clock = Clock(monkeypatch, minutes * 60, speed)
    rng = random.Random(1)
    common = {"data": [str(pairs_file)], "output_dir": str(tmp_path / name), "batch_tokens": 40, "threads": 1}
    common |= {"evals": 4, "eval_examples": 1, "minutes": minutes}
    job = FileJob.open(make_settings("translate", **common, **SIZES, **options))
    batch, score, save = job.task.collate, job.task.score, job.run.save

    def timed_batch(examples, rows, *more):
        if len(more) == 0:
            clock.work(rng.uniform(0.8, 1.2))
        return batch(examples, rows, *more)

    def timed(work, seconds):
        def call(*args, **named):
            clock.work(seconds)
            return work(*args, **named)

        return call

    object.__setattr__(job.task, "collate", timed_batch)
    object.__setattr__(job.task, "score", timed(score, 2.0))
    job.run.save = timed(save, 0.1)
    job.plan()
    for step in job.train():
        if stop is not None and step.number == stop:
            job.save()
            job.lock.release()
            break
    return job, clock


@pytest.mark.parametrize("machine", MACHINES)
def test_the_schedule_ends_in_time_at_any_speed(machine, monkeypatch, tmp_path, pairs_file):
    job, clock = training(monkeypatch, tmp_path, pairs_file, MACHINES[machine])
    lrs = [line["lr"] for line in job.run.metrics() if "lr" in line]
    train_options = job.settings.train_options
    assert len(lrs) == job.progress.step == job.steps
    assert lrs[-1] <= 0.02 * max(lrs), "the learning rate has decayed"
    after_warmup = lrs[train_options.warmup_steps - 1 :]
    assert after_warmup == sorted(after_warmup, reverse=True), "no revision raises it"
    assert 0.95 < clock.now / clock.seconds < 1.05
    card = (job.run.folder / "README.md").read_text()
    assert f"in {job.progress.step:,} steps" in card
    revised = [line["total_steps"] for line in job.run.metrics() if "total_steps" in line]
    assert [f":{steps}" in text for steps, text in zip(revised, train_options.revisions, strict=True)].count(False) == 0
    assert bool(revised) or machine == "as planned"


def test_repeated_revisions_give_the_same_bits(monkeypatch, tmp_path, pairs_file):
    job, _ = training(monkeypatch, tmp_path, pairs_file, MACHINES["half as fast after a fifth"], minutes=3.0)
    train_options = job.settings.train_options
    assert train_options.revisions
    newest = json.loads((tmp_path / "run" / f"step-{job.progress.step}" / "state.json").read_text())
    assert newest["revisions"] == list(train_options.revisions), "the checkpoint stores them"
    common = {"data": [str(pairs_file)], "output_dir": str(tmp_path / "repeated"), "batch_tokens": 40, "threads": 1}
    common |= {"evals": job.settings.run_options.evals, "eval_examples": 1}
    options = {"steps": train_options.steps, "revisions": train_options.revisions}
    repeated = list(train("translate", **common, **options, **SIZES))
    assert repeated[-1].number == job.progress.step
    folders = [tmp_path / name / f"step-{job.progress.step}" / "state.safetensors" for name in ("run", "repeated")]
    assert folders[0].read_bytes() == folders[1].read_bytes()


def test_a_resumed_run_has_the_minutes_that_are_left(monkeypatch, tmp_path, pairs_file):
    _, clock = training(monkeypatch, tmp_path, pairs_file, MACHINES["as planned"], stop=80)
    used = clock.now
    clock = Clock(monkeypatch, 240.0, MACHINES["as planned"])
    job = FileJob.open(make_settings("translate", output_dir=str(tmp_path / "run"), resume=True)).plan()
    batch = job.task.collate

    def slow(examples, rows, *more):
        clock.work(2.0 if not more else 0.0)
        return batch(examples, rows, *more)

    object.__setattr__(job.task, "collate", slow)
    lrs = [step.lr for step in job.train()]
    assert used > 80
    assert 0.95 * 240 < used + clock.now < 1.05 * 240, "a step takes twice as long, so half as many fit"
    assert lrs[-1] <= 0.02 * job.settings.train_options.lr


@given(
    st.integers(1, 400),
    st.integers(0, 100),
    st.floats(0.1, 1),
    st.lists(st.tuples(st.integers(1, 300), st.integers(2, 400))),
)
def test_no_revision_raises_the_learning_rate(steps, warmup_steps, decay_share, changes):
    completed, revisions = 0, []
    for after, more in changes:
        completed += after
        revisions.append(Revision(completed, completed + more))
    for number, revision in enumerate(revisions):
        before = wsd(revision.step, steps, warmup_steps, decay_share, revisions[:number])
        assert wsd(revision.step, steps, warmup_steps, decay_share, revisions[: number + 1]) <= before + 1e-12
        last = revision.steps - 1
        assert wsd(last, steps, warmup_steps, decay_share, revisions[: number + 1]) <= 0.02


def test_the_step_time_follows_the_machine():
    """The moving average adapts within a tenth of the time."""
    budget = TimeBudget(1000.0, 0.0, step_seconds=1.0)
    for _ in range(100):
        budget.observe(4.0)
    assert budget.step_seconds == pytest.approx(4.0, rel=0.05)


@pytest.mark.parametrize("text", ["5", "5:3", "x:9", "5:9 3:9", "5:9 5:12", "-1:4", "0:4"])
def test_an_invalid_revision_is_refused(text):
    with pytest.raises(ValueError, match="revisions must be STEP:STEPS"):
        TrainOptions(steps=10, revisions=tuple(text.split()))


def test_revisions_need_the_steps_planned_first(capsys):
    assert main(["train", "translate", "--revisions", "5:9", "--minutes", "1"]) == 2
    assert "--steps" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.26, "0.3 s"), (48.4, "48 s"), (59.6, "1 min"), (150, "2 min 30 s"), (3599.7, "60 min"), (11100, "3 h 5 min")],
)
def test_durations_are_readable(seconds, text):
    assert format_duration(seconds) == text


def test_too_few_steps_print_a_warning_with_advice(pairs_file, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("regard.training.time_budget.time_step", lambda *_: 0.2)
    options = ["--minutes", "0.02", "--output-dir", str(tmp_path / "run"), "--batch-tokens", "300", "--evals", "1"]
    sizes = [part for name, size in SIZES.items() for part in (f"--{name.replace('_', '-')}", str(size))]
    assert main(["train", "translate", "--data", str(pairs_file), *options, *sizes]) == 0
    out = capsys.readouterr().out
    assert "warning: only" in out
    assert "more --minutes" in out
    assert "ready after" in out
