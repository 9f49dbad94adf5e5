"""Plans for GPUs: the published time of GPT-3, rules of memory and communication, and wrong input."""

import json
import re

import pytest

from regard.cli import main
from regard.training.estimate import StepCost, StepMemory
from regard.training.gpu_plan import (
    GPUS,
    Cluster,
    Layout,
    best_layout,
    candidate_shards,
    communication_seconds,
    parse_gpus,
    plan_layout,
)
from regard.training.scaling_laws import scaling_advice

SMALL = ["--model", "gpt", "--dim", "16", "--hidden", "32", "--heads", "2", "--layers", "2", "--context", "24"]
SMALL += ["--tokenizer", "characters", "--threads", "1"]
GPT3 = ["--model", "gpt", "--dim", "12288", "--hidden", "49152", "--heads", "96", "--layers", "96", "--context", "2048"]
GPT3 += ["--batch-tokens", "2048", "--grad-accum", "1024", "--steps", str(round(300e9 / (1024 * 2048)))]
GPT3 += ["--optimizer", "adamw", "--ema", "0", "--dropout", "0.1", "--tokenizer", "characters"]
GIB = 2**30


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    file = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    file.write_text("tea and water please. " * 400)
    return str(file)


def plan(capsys, corpus, *args):
    code = main(["plan", "write", "--data", corpus, "--valid", corpus, *args])
    out, err = capsys.readouterr()
    return code, out, err


def test_gpt_3_takes_34_days_on_1024_a100(capsys, corpus, tmp_path, monkeypatch):
    """300 B tokens at 140 of 312 TFLOP/s with recomputation: Narayanan et al. 2021, section 5.1."""
    monkeypatch.chdir(tmp_path)
    published = ["--gpus", "1024xA100", "--mfu", str(140 / 312), "--price", "2"]
    code, out, _ = plan(capsys, corpus, *GPT3, *published, "--json")
    result = json.loads(out)
    best = result["layouts"][result["best_layout"]]
    assert code == 0
    assert result["parameters"] == pytest.approx(174e9, rel=0.01)  # 175 B with the vocabulary of 50,257 tokens
    assert best["recompute"]
    assert result["seconds"]["run"] / 86400 == pytest.approx(34, abs=1)
    assert result["price"] == pytest.approx(2 * 1024 * result["seconds"]["run"] / 3600)
    assert best["communication"] > best["arithmetic"]  # of batches of one sequence, FSDP alone is bound by the network
    assert not any(tmp_path.iterdir())
    # 34 bytes per token, width and layer (Korthikanti et al. 2022, eq. 2), and more, as residuals are in fp32.
    stored = next(x for x in result["layouts"] if x["shards"] == 1024 and not x["recompute"])
    states_and_blocks = 16 * 174e9 / 1024 + 2 * 2 * 1.81e9
    assert 34 < (stored["memory"] - states_and_blocks) / (2048 * 12288 * 96) < 1.4 * 34


def test_a_plan_for_gpus_names_the_flags_to_choose(capsys, corpus):
    code, out, _ = plan(capsys, corpus, *SMALL, "--gpus", "8xH100", "--epochs", "2")
    assert code == 0
    assert re.search(r"8 x H100, by the data sheet: 989 TFLOP/s in bf16, 80 GB", out)
    assert "assumed: an MFU of 40.0%" in out
    assert "choose --grad-accum 8" in out
    assert re.search(r" 1 +no .*<- best", out)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--gpus", "8xH10"], "unknown GPU 'H10': did you mean H100?"),
        (["--gpus", "0xH100"], "gpus must be a number of GPUs and their name, as 8xH100, not '0xH100'"),
        (["--gpus", "eight"], "unknown GPU 'eight': choose one of"),
        (["--gpus", "8x"], "as 8xH100, not '8x'"),
        (["--mfu", "-0.4"], "mfu must be above 0 and at most 1, not -0.4"),
        (["--mfu", "40"], "mfu must be above 0 and at most 1, not 40"),
        (["--price", "-1"], "price must be 0 or more, not -1"),
        (["--gpus", "8xH100", "--shards", "3"], "--shards 3 does not divide 8 GPUs"),
        (["--resume"], "leave out --resume"),
        (["--layers", "0"], "layers must be at least 1"),
        (["--gpu", "H100"], "--gpus"),
    ],
)
def test_wrong_input_is_refused(args, message, capsys, corpus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if args == ["--resume"]:
        main(["plan", "write", *args])
        assert "runs/write" in capsys.readouterr().err
        return
    code, out, err = plan(capsys, corpus, *SMALL, *args)
    assert (code, out) == (2, "")
    assert message in err


def test_the_count_and_the_name_of_gpus():
    assert parse_gpus("8xh100") == parse_gpus("8 x H100") == Cluster(8, "H100")
    assert parse_gpus("a100-40gb") == Cluster(1, "A100-40GB")


def cost(states=16e9, activations=1e9, update=0.0, parameters=10**9):
    parts = (states / 4,) * 4
    return StepCost(parameters, 6e15, 0.0, StepMemory(*parts, activations, update))


def layout(cluster, shards, **sizes):
    return plan_layout(cluster, cost(**sizes), False, shards, cluster.count, 2048, 10**8, 0.5)


def test_states_are_divided_by_shards_and_activations_are_not():
    cluster = Cluster(8, "H100")
    whole, sharded = layout(cluster, 1), layout(cluster, 8)
    assert whole.memory == 16e9 + 2e9 + 1e9  # with the bf16 weights of one billion parameters
    assert sharded.memory == 2e9 + 2 * 2 * 1e8 + 1e9  # of two blocks
    assert layout(cluster, 8, activations=2e9).memory == sharded.memory + 1e9


def test_the_largest_batch_fills_the_memory():
    cluster = Cluster(1, "H100")
    tokens = layout(cluster, 1).max_batch_tokens
    grown = layout(cluster, 1, activations=1e9 * tokens / 2048)
    assert grown.memory == pytest.approx(0.9 * 80e9, rel=0.001)
    assert not layout(cluster, 1, states=80e9).fits


def test_arithmetic_takes_flops_by_peak_and_mfu():
    assert layout(Cluster(1, "A100"), 1).arithmetic == pytest.approx(6e15 / (312e12 * 0.5))
    assert layout(Cluster(8, "A100"), 1).arithmetic == pytest.approx(6e15 / (312e12 * 0.5))  # 8 batches on 8 GPUs


def test_one_gpu_does_not_communicate():
    assert communication_seconds(Cluster(1, "H100"), 10**9, 1, 4) == 0


def test_shards_communicate_for_every_batch_and_replicas_for_every_step():
    cluster = Cluster(16, "H100")
    assert communication_seconds(cluster, 10**9, 1, 4) == communication_seconds(cluster, 10**9, 1, 1)
    assert communication_seconds(cluster, 10**9, 16, 4) == pytest.approx(
        4 * communication_seconds(cluster, 10**9, 16, 1)
    )
    assert communication_seconds(cluster, 10**9, 16, 1) == pytest.approx(6e9 * 15 / 16 / 50e9)  # beyond a node
    assert communication_seconds(Cluster(8, "H100"), 10**9, 8, 1) == pytest.approx(6e9 * 7 / 8 / 450e9)  # within


def test_shards_divide_the_gpus():
    assert candidate_shards(Cluster(12, "H100")) == [1, 2, 4, 12]
    assert candidate_shards(Cluster(12, "H100"), 6) == [6]
    assert all(1024 % shards == 0 for shards in candidate_shards(Cluster(1024, "A100")))


def test_the_best_layout_is_the_fastest_that_fits():
    slow, fast = Layout(8, True, 1e9, 4096, 2.0, 1.0), Layout(1, False, 1e9, 1024, 1.0, 0.1)
    assert best_layout([slow, fast], 1024) == fast
    assert best_layout([slow, fast], 2048) == slow
    assert best_layout([slow, fast], 8192) is None
    simple = slow._replace(shards=2)
    assert best_layout([slow, simple], 2048) == simple


@pytest.mark.parametrize("name", GPUS)
def test_the_data_sheets_are_in_their_units(name):
    gpu = GPUS[name]
    assert 10e12 < gpu.peak < 1e16
    assert 8e9 <= gpu.memory < 1e12
    assert gpu.network <= gpu.link < gpu.bandwidth


def test_scaling_advice_is_that_of_chinchilla():
    """70 B parameters and 1.4 T tokens are optimal for 5.9e23 FLOPs."""
    advice = scaling_advice(70 * 10**9, 6 * 70e9 * 1.4e12, 1.4e12, 350 * 10**9)
    assert advice.tokens_per_parameter == 20
    assert advice.size_for_flops == pytest.approx(70e9)
    assert advice.epochs == 4
    assert advice.size_for_data == 70e9
