"""Every healthy family passes, for every task that it fits; nothing is changed, and the same is found again."""

import hashlib
import json

import pytest
import torch
from tokenizers import normalizers

from regard.check.check_result import within
from regard.check.run_checks import examine, examine_loaded
from regard.cli import main
from regard.models import MODELS
from regard.tasks import TASKS

FIT = [
    (task, model)
    for task, kind in TASKS.items()
    for model, f in MODELS.items()
    if {*kind.asks} & {*f.bodies} - {"foresees"}  # which is asked nothing; see tests/tasks/test_predict.py
]
SHARED = {"finite", "batch", "accumulation", "gradients", "zeros", "norms"}


def not_ok(verdicts):
    return [verdict for verdict in verdicts if verdict.status == "FAILS"]


@pytest.mark.parametrize(("task", "model"), FIT)
def test_a_healthy_model_passes(task, model, made):
    found = list(examine_loaded(made(task, model)))
    assert not_ok(found) == []
    checks = {verdict.check for verdict in found}
    assert checks >= SHARED
    assert ("causality" in checks) == ("cache" in checks) == (task in ("write", "translate"))
    assert ("padding" in checks) == (model not in ("vit", "convolution", "graph", "listener"))


@pytest.mark.parametrize(
    ("task", "model", "aim", "config"),
    [
        ("translate", "transformer", {}, {"norm_last": True}),
        ("translate", "transformer", {"both_ways": False, "smoothing": 0.0}, {}),
        ("translate", "recurrent", {}, {"attention": False}),
        ("write", "nano", {}, {"softcap": 15.0, "kv_heads": 3}),
        ("write", "recurrent", {}, {"cell": "gru"}),
        ("tag", "bert", {}, {"after_pad": True}),
        ("fill", "bert", {"whole_words": True}, {}),
        ("classify", "bert", {"pooling": "attention", "many": True}, {}),
        ("classify", "modernbert", {"pooling": "first"}, {"every": 2, "window": 32}),
        ("classify", "vit", {}, {"convolution": True}),
        ("classify", "gpt", {"pooling": "last"}, {}),
        ("regress", "bert", {"pooling": "pooler"}, {}),
    ],
    ids=str,
)
def test_so_does_one_with_other_settings(task, model, aim, config, made):
    assert not_ok(examine_loaded(made(task, model, aim, **config))) == []


@pytest.mark.parametrize("segments", [1, 2])
def test_the_only_segment_may_be_zero_as_in_roberta(segments, made):
    """RoBERTa has no use for segments: its table is one row, and published ones are all 0."""
    loaded = made("fill", "bert", after_pad=True, segments=segments)
    with torch.no_grad():
        loaded.model.body.segments.weight.zero_()
    assert [verdict.check for verdict in not_ok(examine_loaded(loaded))] == ["zeros"] * (segments == 2)


def test_a_model_is_left_as_it_was_and_found_the_same_again(made):
    loaded = made("translate", "transformer")
    before = {name: tensor.clone() for name, tensor in loaded.model.state_dict().items()}
    luck = torch.get_rng_state()
    found = list(examine_loaded(loaded))
    assert torch.equal(torch.get_rng_state(), luck)
    assert all(torch.equal(tensor, before[name]) for name, tensor in loaded.model.state_dict().items())
    assert all(weight.grad is None for weight in loaded.model.parameters())
    assert not loaded.model.training
    assert list(examine_loaded(loaded)) == found


def test_a_difference_that_is_only_rounding_is_told_from_a_real_one(made, monkeypatch):
    loaded = made("translate", "transformer")
    before = {name: tensor.clone() for name, tensor in loaded.model.state_dict().items()}
    monkeypatch.setattr("regard.check.batch_independence.CLOSE", 1e-12)
    [found] = [v for v in examine_loaded(loaded) if v.check == "padding"]
    assert found.value > 1e-12
    assert found.status == "note"
    assert all(torch.equal(tensor, before[name]) for name, tensor in loaded.model.state_dict().items())
    assert loaded.model.head.weight is loaded.model.body.tokens.weight


def test_a_tokenizer_may_say_that_it_makes_small_letters_without_accents(made):
    loaded = made("classify", "bert")
    engine = loaded.tokenizer.engine
    engine.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()])
    [found] = [v for v in examine_loaded(loaded, ["The Cat is Sehr spät"]) if v.check == "round trip"]
    assert found.status == "ok"


def test_texts_of_the_user_are_used(made):
    loaded = made("classify", "bert")
    [found] = [v for v in examine_loaded(loaded, ["日 \u2603 本 日"]) if v.check == "fit"]
    assert found.status == "note"
    assert found.value >= 0.5
    with pytest.raises(ValueError, match="no text to examine"):
        list(examine_loaded(loaded, ["", "  "]))


def test_what_is_no_number_fails():
    assert within("x", float("nan"), 1.0, "", "").status == "FAILS"
    assert within("x", 1.0, 1.0, "", "").status == "ok"


# The command.


def digests(folder):
    return {file: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.rglob("*") if file.is_file()}


def test_a_trained_run_passes_and_is_not_touched(small_run, pairs_file, capsys):
    before = digests(small_run)
    assert main(["check", str(small_run), "--text", str(pairs_file), "--alone"]) == 0
    out = capsys.readouterr().out
    assert digests(small_run) == before
    for check in (
        "opens",
        "settings",
        "round trip",
        "tied",
        "causality",
        "padding",
        "cache",
        "heads",
        "guess",
        "memory",
    ):
        assert any(line.split("  ")[0] == check and " ok " in line for line in out.splitlines()), check
    assert "0 fail" in out


def test_json_has_the_same_and_the_exit_code_tells(small_run, pairs_file, capsys, tmp_path):
    assert main(["check", str(small_run), "--text", str(pairs_file), "--json", "--alone"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["fails"] == 0
    expected = [v._asdict() for v in examine(small_run, pairs_file.read_text().splitlines(), alone=True)]
    assert told["checks"] == expected


def test_something_that_fails_is_told_with_advice(folder_of, capsys, tmp_path):
    folder = folder_of("write", "gpt")
    file = folder / "generation_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"top_p": 0.5}))
    assert main(["check", str(folder), "--alone"]) == 1
    lines = capsys.readouterr().out.splitlines()
    at = next(i for i, line in enumerate(lines) if "FAILS" in line)
    assert lines[at].startswith("settings")
    assert "do_sample" in lines[at + 1]
    assert "1 fail" in lines[-1]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["nowhere/at-all/there"], "nowhere"),
        (["{run}", "--text", "{tmp}/none.txt"], "none.txt"),
        (["{run}", "--text", "{tmp}/bad.txt"], "bad.txt:2"),
        (["{tmp}"], "config.json"),
    ],
)
def test_bad_input_gets_one_message(args, says, small_run, tmp_path, capsys):
    (tmp_path / "bad.txt").write_bytes(b"good\n\xfd bad\n")
    assert main(["check", *(arg.format(run=small_run, tmp=tmp_path) for arg in args)]) == 2
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1


FOLDERS = [
    ("write", "recurrent"), ("translate", "recurrent"), ("write", "nano"), ("fill", "bert"), ("answer", "modernbert"),
    ("tag", "llama"), ("classify", "vit"), ("match", "clip"),
]  # fmt: skip


@pytest.mark.parametrize(("task", "model"), FOLDERS)
def test_a_folder_passes_beside_transformers_if_that_knows_the_family(task, model, folder_of):
    pytest.importorskip("transformers", reason="a peer to compare with")
    found = list(examine(folder_of(task, model)))
    assert not_ok(found) == []
    assert found[-1].check == "transformers"
    assert found[-1].says == "no counterpart" if model == "recurrent" else found[-1].value < 1e-5


def test_a_run_is_read_alike_by_transformers(small_run, pairs_file):
    pytest.importorskip("transformers", reason="a peer to compare with")
    [found] = [v for v in examine(small_run, pairs_file.read_text().splitlines()) if v.check == "transformers"]
    assert found.status == "ok"
    assert found.value < 1e-5
