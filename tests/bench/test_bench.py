"""regard bench: every task gets its figures, whoever is missing is told, and the clock is read in turns."""

import json
import math

import pytest
import torch

from regard.bench import benchmark as bench_module
from regard.bench.peak_rss import peak_of
from regard.bench.roofline import limits
from regard.bench.timing import a_step, rounds
from regard.bench.workload import Read, cost, work_for
from regard.cli import main
from regard.load import load


@pytest.fixture
def quick(monkeypatch):
    """Small limits, few rows, and no process beside this one."""
    monkeypatch.setattr(bench_module, "limits", lambda threads: limits(threads, 2**16, 32))
    monkeypatch.setattr(bench_module, "BATCHES", (1, 3))
    monkeypatch.setattr(bench_module, "peak_of", lambda *asked: 1e6)


@pytest.mark.parametrize("model", ["gpt", "gru", "transformer", "vectors", "tags", "pictures"])
def test_every_task_has_figures(model, folder_of, quick, capsys):
    before = torch.get_num_threads()
    threads = "2" if model == "gru" else "1"  # the engine's threads take a core while they wait
    assert main(["bench", str(folder_of(model)), "--min-time", "0", "--threads", threads, "--alone", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    writes = model in ("gpt", "gru", "transformer")
    assert torch.get_num_threads() == before
    assert report["writes"] is writes
    assert [(speed["name"], speed["numbers"]) for speed in report["speeds"]] == [
        ("regard", "exact"),
        ("regard", "int8"),
    ]
    for speed in report["speeds"]:
        known = ["single", "best", "peak", *(["prompt", "bandwidth"] if writes else [])]
        assert all(math.isfinite(speed[name]) and speed[name] > 0 for name in known)
        assert speed["rows"] in (1, 3)
    assert report["speeds"][0]["agrees"] == (1 if writes else 0)


def test_the_table_tells_who_is_absent(folder_of, quick, monkeypatch, tmp_path, capsys):
    asked = []

    def absent(name, given):
        asked.append(name)
        return f"not installed: pip install {name}"

    monkeypatch.setattr(bench_module, "invited", absent)
    text = tmp_path / "mine.txt"
    text.write_text("you are in a small room\n")
    assert main(["bench", str(folder_of("gpt")), "--min-time", "0", "--text", str(text)]) == 0
    out = capsys.readouterr().out
    assert asked == [*bench_module.PEERS]
    assert "regard exact" in out
    assert "llama.cpp: not installed" in out


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["--threads", "0"], "threads must be at least 1"),
        (["--min-time", "-1"], "min-time must be 0 or more"),
        (["--text", "nowhere.txt"], "nowhere.txt"),
    ],
)
def test_bad_wishes_are_refused(args, word, folder_of, capsys):
    assert main(["bench", str(folder_of("gpt")), *args]) == 2
    assert word in capsys.readouterr().err


def test_an_empty_file_is_refused(folder_of, tmp_path, capsys):
    (tmp_path / "empty.txt").write_text("\n\n")
    assert main(["bench", str(folder_of("gpt")), "--text", str(tmp_path / "empty.txt")]) == 2
    assert "no text to measure with" in capsys.readouterr().err


def test_all_take_turns_and_the_first_round_does_not_count():
    done, now = [], [0.0]

    def act(name, seconds):
        def go():
            done.append(name)
            now[0] += seconds

        return go

    took = rounds({"a": act("a", 1.0), "b": act("b", 2.0)}, min_time=10.0, least=2, clock=lambda: now[0])
    assert done == ["a", "b"] * 5
    assert took == {"a": [1.0] * 4, "b": [2.0] * 4}


def test_a_step_is_what_more_tokens_take():
    assert a_step([5.0, 9.0, 6.0], [1.0, 1.0, 2.0], 4) == 1.0
    assert a_step([1.0], [2.0], 4) > 0


def test_a_step_multiplies_by_every_weight_once(folder_of):
    """All matrices but the embeddings, which are looked up; the output layer of this one is the embedding."""
    loaded = load(folder_of("gpt"), "cpu")
    weights = {name: weight.numel() for name, weight in loaded.model.named_parameters() if weight.dim() == 2}
    wanted = sum(count for name, count in weights.items() if "positions" not in name)
    assert cost(loaded, work_for(loaded, None)).step == 2 * wanted


def test_texts_of_a_batch_are_alike_in_length_and_none_is_lost(folder_of):
    loaded = load(folder_of("vectors"), "cpu")
    work = work_for(loaded, ["one", "two words here", "", "two of them " * 3])
    assert isinstance(work, Read)
    assert [given.mask.sum(-1).flatten().tolist() for given in work.batches(3)] == [
        [len(row) for row in work.rows[:3]],
        [len(row) for row in work.rows[3:]],
    ]
    assert sorted(map(len, work.rows)) == [len(row) for row in work.rows]


@pytest.mark.parametrize("model", ["gpt", "transformer"])
def test_a_short_text_is_read_again_until_there_are_rows_for_every_batch(model, folder_of):
    work = work_for(load(folder_of(model), "cpu"), ["a short one"])
    assert len(work.rows) >= max(bench_module.BATCHES)
    assert work.new >= 2


def test_the_limits_are_numbers_that_make_sense():
    found = limits(1, 2**16, 32)
    assert found.bandwidth > 0
    assert found.peak > 0


def test_the_peak_of_memory_is_that_of_another_process(folder_of):
    found = peak_of(folder_of("gpt"), "exact", None, 1)
    assert found is None or 0 < found < 2**30


def test_three_rounds_are_made_however_long_they_take(capsys):
    """So no option promises a time at most; the one there is says that it is the least."""
    now, done = [0.0], []

    def act():
        done.append(now[0])
        now[0] += 100.0

    assert len(rounds({"a": act}, min_time=5.0, clock=lambda: now[0])["a"]) == 3
    assert main(["bench", "--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "--min-time" in told
    assert "seconds to measure at least" in told
    assert "--seconds" not in told
