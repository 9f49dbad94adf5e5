"""Receipts: an answer can be replayed bit by bit, and nothing else passes for it."""

import json

import pytest

from regard.cli import main
from regard.load import load
from regard.receipts import make_receipt, model_hash
from regard.scheduler import Scheduler


@pytest.fixture(scope="module")
def receipt(small_run):
    """Of an answer that was sampled beside others."""
    loaded = load(small_run, device="cpu", speed="exact")
    options = loaded.make_options(temperature=0.9, seed=7)
    scheduler = Scheduler(loaded, is_reproducible=True)
    others = [scheduler.submit(text) for text in ("tea", "milk and bread", "tea and water")]
    done = scheduler.submit("tea and milk", options).result()
    for job in others:
        job.result()
    scheduler.close()
    return make_receipt(loaded, "small", model_hash(loaded), "tea and milk", options, done)


def verify(receipt, folder, tmp_path, capsys):
    file = tmp_path / "receipt.json"
    file.write_text(json.dumps(receipt))
    code = main(["verify", str(file), "--model", str(folder)])
    output = capsys.readouterr()
    return code, output.out + output.err


def test_an_answer_is_replayed_bit_by_bit(receipt, small_run, tmp_path, capsys):
    for content in (receipt, {"predictions": [], "receipt": receipt}):
        code, output = verify(content, small_run, tmp_path, capsys)
        assert (code, "verified: the same bits" in output) == (0, True), output


def test_one_bit_of_difference_is_noticed_on_the_same_processor(receipt, small_run, tmp_path, capsys):
    prediction = receipt["answer"]["predictions"][0]
    changed = {"predictions": [prediction | {"logprob": prediction["logprob"] * (1 + 2**-23)}]}
    code, output = verify(receipt | {"answer": changed}, small_run, tmp_path, capsys)
    assert (code, "NOT verified" in output) == (1, True), output
    elsewhere = receipt | {"answer": changed, "processor": "another"}
    code, output = verify(elsewhere, small_run, tmp_path, capsys)
    assert (code, "verified: the same text" in output) == (0, True), output


def test_another_text_is_noticed_on_every_processor(receipt, small_run, tmp_path, capsys):
    prediction = receipt["answer"]["predictions"][0]
    answer = {"predictions": [prediction | {"text": prediction["text"] + "!"}]}
    assert verify(receipt | {"answer": answer, "processor": "another"}, small_run, tmp_path, capsys)[0] == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_hash": "sha256:0"}, "it is another model, or was trained further"),
        ({"request": {"input": "<file>", "embed": False, "options": {}, "file": "sha256:1"}}, "name it with --file"),
    ],
)
def test_another_model_or_file_is_refused(receipt, small_run, tmp_path, capsys, change, message):
    code, output = verify(receipt | change, small_run, tmp_path, capsys)
    assert (code, message in output) == (2, True), output


def test_a_file_that_is_no_receipt_is_refused(small_run, tmp_path, capsys):
    code, output = verify({"model": "small"}, small_run, tmp_path, capsys)
    assert (code, "is no receipt: it has no regard, model_hash" in output) == (2, True), output


def test_a_missing_receipt_is_named(tmp_path, capsys):
    assert main(["verify", str(tmp_path / "none.json")]) == 2
    assert "none.json: no such file" in capsys.readouterr().err
