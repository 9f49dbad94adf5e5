"""Every family passes all checks for every task that it fits; checks change nothing and are deterministic."""

import hashlib
import json

import pytest
import torch
from tokenizers import normalizers

from regard.check.check_result import within_bound
from regard.check.run_checks import check_folder, check_model
from regard.cli import main
from regard.models import MODELS
from regard.tasks import TASKS
from regard.tasks.compatibility import fitting_modalities

FITTING_PAIRS = [(task, model) for task, kind in TASKS.items() for model in MODELS if fitting_modalities(kind, model)]
COMMON_CHECKS = {
    "finite weights", "batch independence", "gradient accumulation", "gradient flow", "zero weights", "weight norms",
}  # fmt: skip


def failures(results):
    return [result for result in results if result.status == "FAILS"]


@pytest.mark.parametrize(("task", "model"), FITTING_PAIRS)
def test_healthy_model_passes(task, model, make_model):
    results = list(check_model(make_model(task, model)))
    assert failures(results) == []
    checks = {result.check for result in results}
    assert checks >= COMMON_CHECKS
    assert ("causality" in checks) == ("cache" in checks) == (task in ("write", "translate", "predict", "decide"))
    assert ("padding" in checks) == (model not in ("vit", "resnet", "graphormer"))


@pytest.mark.parametrize(
    ("task", "model", "task_options", "config"),
    [
        ("translate", "transformer", {}, {"post_norm": True}),
        ("translate", "transformer", {"both_ways": False, "label_smoothing": 0.0}, {}),
        ("translate", "recurrent", {}, {"attention": False}),
        ("write", "nanochat", {}, {"softcap": 15.0, "kv_heads": 3}),
        ("write", "recurrent", {}, {"cell": "gru"}),
        ("tag", "bert", {}, {"positions_after_pad": True}),
        ("fill", "bert", {"whole_words": True}, {}),
        ("classify", "bert", {"pooling": "attention", "multi_label": True}, {}),
        ("classify", "modernbert", {"pooling": "first"}, {"global_every": 2, "window": 32}),
        ("classify", "vit", {}, {"conv_stem": True}),
        ("classify", "gpt", {"pooling": "last"}, {}),
        ("regress", "bert", {"pooling": "pooler"}, {}),
    ],
    ids=str,
)
def test_healthy_model_passes_with_other_options(task, model, task_options, config, make_model):
    assert failures(check_model(make_model(task, model, task_options, **config))) == []


@pytest.mark.parametrize("segments", [1, 2])
def test_single_segment_embedding_may_be_zero(segments, make_model):
    """RoBERTa does not use segments: its table has one row, and published ones are all 0."""
    loaded = make_model("fill", "bert", positions_after_pad=True, segments=segments)
    with torch.no_grad():
        loaded.model.body.segments.weight.zero_()
    assert [result.check for result in failures(check_model(loaded))] == ["zero weights"] * (segments == 2)


def test_checks_leave_the_model_unchanged_and_are_deterministic(make_model):
    loaded = make_model("translate", "transformer")
    before = {name: tensor.clone() for name, tensor in loaded.model.state_dict().items()}
    rng_state = torch.get_rng_state()
    results = list(check_model(loaded))
    assert torch.equal(torch.get_rng_state(), rng_state)
    assert all(torch.equal(tensor, before[name]) for name, tensor in loaded.model.state_dict().items())
    assert all(weight.grad is None for weight in loaded.model.parameters())
    assert not loaded.model.training
    assert list(check_model(loaded)) == results


def test_rounding_error_is_a_note(make_model, monkeypatch):
    loaded = make_model("translate", "transformer")
    before = {name: tensor.clone() for name, tensor in loaded.model.state_dict().items()}
    monkeypatch.setattr("regard.check.batch_independence.TOLERANCE", 1e-12)
    [result] = [result for result in check_model(loaded) if result.check == "padding"]
    assert result.value > 1e-12
    assert result.status == "note"
    assert all(torch.equal(tensor, before[name]) for name, tensor in loaded.model.state_dict().items())
    assert loaded.model.head.weight is loaded.model.body.tokens.weight


def test_round_trip_allows_declared_lowercase_and_accent_stripping(make_model):
    loaded = make_model("classify", "bert")
    engine = loaded.tokenizer.backend_tokenizer
    engine.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()])
    [result] = [
        result for result in check_model(loaded, ["The Cat is Sehr spät"]) if result.check == "tokenizer round trip"
    ]
    assert result.status == "ok"


def test_user_texts_are_used(make_model):
    loaded = make_model("classify", "bert")
    [result] = [result for result in check_model(loaded, ["日 \u2603 本 日"]) if result.check == "tokenizer fit"]
    assert result.status == "note"
    assert result.value >= 0.5
    with pytest.raises(ValueError, match="no text to check"):
        list(check_model(loaded, ["", "  "]))


def test_nan_weights_fail():
    assert within_bound("x", float("nan"), 1.0, "", "").status == "FAILS"
    assert within_bound("x", 1.0, 1.0, "", "").status == "ok"


# The command `regard check`.


def file_hashes(folder):
    return {file: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.rglob("*") if file.is_file()}


def test_trained_run_passes_and_stays_unchanged(small_run, pairs_file, capsys):
    before = file_hashes(small_run)
    assert main(["check", str(small_run), "--text", str(pairs_file), "--no-peers"]) == 0
    out = capsys.readouterr().out
    assert file_hashes(small_run) == before
    for check in (
        "loading",
        "generation settings",
        "tokenizer round trip",
        "tied weights",
        "causality",
        "padding",
        "cache",
        "attention heads",
        "loss baseline",
        "golden answers",
    ):
        assert any(line.split("  ")[0] == check and " ok " in line for line in out.splitlines()), check
    assert "0 failed" in out


def test_json_equals_the_python_results(small_run, pairs_file, capsys, tmp_path):
    assert main(["check", str(small_run), "--text", str(pairs_file), "--json", "--no-peers"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["failures"] == 0
    expected = [
        result._asdict() for result in check_folder(small_run, pairs_file.read_text().splitlines(), no_peers=True)
    ]
    assert report["checks"] == expected


def test_failure_is_printed_with_advice(save_model, capsys, tmp_path):
    folder = save_model("write", "gpt")
    file = folder / "generation_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"top_p": 0.5}))
    assert main(["check", str(folder), "--no-peers"]) == 1
    lines = capsys.readouterr().out.splitlines()
    at = next(i for i, line in enumerate(lines) if "FAILS" in line)
    assert lines[at].startswith("generation settings")
    assert "do_sample" in lines[at + 1]
    assert "1 failed" in lines[-1]


@pytest.mark.parametrize(
    ("args", "fragment"),
    [
        (["nowhere/at-all/there"], "nowhere"),
        (["{run}", "--text", "{tmp}/none.txt"], "none.txt"),
        (["{run}", "--text", "{tmp}/bad.txt"], "bad.txt:2"),
        (["{tmp}"], "config.json"),
    ],
)
def test_bad_input_is_refused_in_one_line(args, fragment, small_run, tmp_path, capsys):
    (tmp_path / "bad.txt").write_bytes(b"good\n\xfd bad\n")
    assert main(["check", *(arg.format(run=small_run, tmp=tmp_path) for arg in args)]) == 2
    err = capsys.readouterr().err
    assert fragment in err
    assert err.count("\n") == 1


FOLDER_PAIRS = [
    ("write", "recurrent"), ("translate", "recurrent"), ("write", "nanochat"), ("fill", "bert"),
    ("answer", "modernbert"), ("tag", "llama"), ("classify", "vit"), ("match", "clip"),
]  # fmt: skip


@pytest.mark.parametrize(("task", "model"), FOLDER_PAIRS)
def test_folder_has_transformers_parity_where_the_family_exists(task, model, save_model):
    pytest.importorskip("transformers", reason="compares with transformers")
    results = list(check_folder(save_model(task, model)))
    assert failures(results) == []
    assert results[-1].check == "transformers parity"
    assert results[-1].message == "No counterpart in transformers" if model == "recurrent" else results[-1].value < 1e-5


def test_run_has_transformers_parity(small_run, pairs_file):
    pytest.importorskip("transformers", reason="compares with transformers")
    [result] = [
        result
        for result in check_folder(small_run, pairs_file.read_text().splitlines())
        if result.check == "transformers parity"
    ]
    assert result.status == "ok"
    assert result.value < 1e-5
