"""regard bench: figures for every task, reasons for missing peers, interleaved timing."""

import json
import math

import pytest
import torch

from regard.bench import benchmark as bench_module
from regard.bench.peak_rss import measure_peak_rss
from regard.bench.regard_backend import regard_backend
from regard.bench.roofline import measure_roofline
from regard.bench.timing import step_time, time_rounds
from regard.bench.workload import ForwardWorkload, build_workload, count_flops, run_once
from regard.cli import main
from regard.load import load

OTHER_MODALITIES = ["speech", "pairs", "episodes"]


@pytest.fixture
def small_benchmark(monkeypatch):
    """A small roofline, small batches, and no second process."""
    monkeypatch.setattr(bench_module, "measure_roofline", lambda threads: measure_roofline(threads, 2**16, 32))
    monkeypatch.setattr(bench_module, "BATCH_SIZES", (1, 3))
    monkeypatch.setattr(bench_module, "measure_peak_rss", lambda *args: 1e6)


@pytest.mark.parametrize("model", ["gpt", "gru", "transformer", "embeddings", "tags", "images", *OTHER_MODALITIES])
def test_every_task_has_figures(model, folder_of, small_benchmark, capsys):
    before = torch.get_num_threads()
    threads = "2" if model == "gru" else "1"  # the engine's threads spin on a core while they wait
    assert main(["bench", str(folder_of(model)), "--min-time", "0", "--threads", threads, "--no-peers", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    generative = model in ("gpt", "gru", "transformer", "speech")
    assert torch.get_num_threads() == before
    assert report["generative"] is generative
    assert [(result["name"], result["precision"]) for result in report["results"]] == [
        ("regard", "exact"),
        ("regard", "int8"),
    ]
    for result in report["results"]:
        fields = ["single", "best", "peak_share", *(["prefill", "bandwidth_share"] if generative else [])]
        assert all(math.isfinite(result[name]) and result[name] > 0 for name in fields)
        assert result["batch_size"] in (1, 3)
    assert report["results"][0]["agreement"] == (1 if generative else 0)


def test_table_lists_unavailable_peers(folder_of, small_benchmark, monkeypatch, tmp_path, capsys):
    opened = []

    def refuse(name, args):
        opened.append(name)
        return f"not installed: pip install {name}"

    monkeypatch.setattr(bench_module, "open_peer", refuse)
    text = tmp_path / "mine.txt"
    text.write_text("you are in a small room\n")
    assert main(["bench", str(folder_of("gpt")), "--min-time", "0", "--text", str(text)]) == 0
    out = capsys.readouterr().out
    assert opened == [*bench_module.PEERS]
    assert "regard exact" in out
    assert "llama.cpp: not installed" in out


@pytest.mark.parametrize(
    ("args", "fragment"),
    [
        (["--threads", "0"], "threads must be at least 1"),
        (["--min-time", "-1"], "min-time must be 0 or more"),
        (["--text", "nowhere.txt"], "nowhere.txt"),
    ],
)
def test_bad_options_are_refused(args, fragment, folder_of, capsys):
    assert main(["bench", str(folder_of("gpt")), *args]) == 2
    assert fragment in capsys.readouterr().err


def test_empty_text_file_is_refused(folder_of, tmp_path, capsys):
    (tmp_path / "empty.txt").write_text("\n\n")
    assert main(["bench", str(folder_of("gpt")), "--text", str(tmp_path / "empty.txt")]) == 2
    assert "no text to measure with" in capsys.readouterr().err


def test_rounds_are_interleaved_and_the_first_is_warm_up():
    order, now = [], [0.0]

    def make_call(name, seconds):
        def call():
            order.append(name)
            now[0] += seconds

        return call

    times = time_rounds(
        {"a": make_call("a", 1.0), "b": make_call("b", 2.0)}, min_time=10.0, min_rounds=2, clock=lambda: now[0]
    )
    assert order == ["a", "b"] * 5
    assert times == {"a": [1.0] * 4, "b": [2.0] * 4}


def test_step_time_is_the_time_of_further_tokens():
    assert step_time([5.0, 9.0, 6.0], [1.0, 1.0, 2.0], 4) == 1.0
    assert step_time([1.0], [2.0], 4) > 0


def test_step_flops_count_every_weight_once(folder_of):
    """All matrices but the position embedding, which is a lookup; the token embedding is the output layer."""
    loaded = load(folder_of("gpt"), "cpu")
    weights = {name: weight.numel() for name, weight in loaded.model.named_parameters() if weight.dim() == 2}
    expected = sum(count for name, count in weights.items() if "positions" not in name)
    assert count_flops(loaded, build_workload(loaded, None)).step == 2 * expected


def test_batches_are_sorted_by_length_and_complete(folder_of):
    loaded = load(folder_of("embeddings"), "cpu")
    texts = ["one", "two words here", "  ", "two of them " * 3, "and one"]
    workload = build_workload(loaded, texts)
    assert isinstance(workload, ForwardWorkload)
    lengths = sorted(map(len, loaded.tokenizer.encode([text.strip() for text in texts if text.strip()])))
    assert [batch.inputs.mask.sum(-1).flatten().tolist() for batch in workload.batches(3)] == [lengths[:3], lengths[3:]]


@pytest.mark.parametrize("model", OTHER_MODALITIES)
def test_workload_of_any_modality_runs(model, folder_of):
    loaded = load(folder_of(model), "cpu")
    workload = build_workload(loaded, None)
    flops = count_flops(loaded, workload)
    assert flops.prompt > 0
    sources = getattr(workload, "sources", None)
    run_once(regard_backend(loaded, "exact", sources), workload)
    assert (sources is not None) == (model == "speech")


@pytest.mark.parametrize("model", ["gpt", "transformer"])
def test_short_text_repeats_to_fill_every_batch(model, folder_of):
    workload = build_workload(load(folder_of(model), "cpu"), ["a short one"])
    assert len(workload.rows) >= max(bench_module.BATCH_SIZES)
    assert workload.new_tokens >= 2


def test_roofline_is_positive():
    roofline = measure_roofline(1, 2**16, 32)
    assert roofline.bandwidth > 0
    assert roofline.peak > 0


def test_peak_rss_is_measured_in_another_process(folder_of):
    peak = measure_peak_rss(folder_of("gpt"), "exact", None, 1)
    assert peak is None or 0 < peak < 2**30


def test_at_least_three_rounds_run(capsys):
    """So there is no option for a maximal time; --min-time says that it is a minimum."""
    now, order = [0.0], []

    def make_call():
        order.append(now[0])
        now[0] += 100.0

    assert len(time_rounds({"a": make_call}, min_time=5.0, clock=lambda: now[0])["a"]) == 3
    assert main(["bench", "--help"]) == 0
    help_text = " ".join(capsys.readouterr().out.split())
    assert "--min-time" in help_text
    assert "minimum seconds of measurement; a warm-up and three rounds always run" in help_text
    assert "--seconds" not in help_text
