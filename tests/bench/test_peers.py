"""Other programs are given the same model: in fp32 they say what ours says, and in int8 nearly so."""

import pytest
import torch

from regard.bench.backend import Asked
from regard.bench.peers import PEERS, gguf, invited
from regard.bench.peers.gguf import interleaved
from regard.bench.regard_backend import ours
from regard.bench.workload import work_for
from regard.check.compare import relative_difference
from regard.load import load

MISSING = "not installed"


def asked(folder, tmp_path):
    return Asked(folder, load(folder, "cpu"), 1, tmp_path)


def runners_of(name, folder, tmp_path):
    found = invited(name, asked(folder, tmp_path))
    if isinstance(found, str) and found.startswith(MISSING):
        pytest.skip(f"{name}: {found}")
    assert not isinstance(found, str), found
    return found


@pytest.mark.parametrize(
    ("peer", "model"),
    [(peer, model) for peer in PEERS for model in ("gpt", "llama")]
    + [(peer, "transformer") for peer in ("transformers", "CTranslate2")],
)
def test_who_writes_the_same_model_writes_the_same_tokens(peer, model, folder_of, tmp_path):
    loaded = load(folder_of(model), "cpu")
    rows = work_for(loaded, None).rows[60:64]  # of a translator these are of different lengths
    rows = rows if model == "transformer" else [row[:9] for row in rows]
    mine = ours(loaded, "exact").write
    for runner in runners_of(peer, folder_of(model), tmp_path):
        for count, new in ((1, 1), (4, 6)):
            said = runner.write(rows[:count], new, 1)
            assert [len(row) for row in said] == [new] * count, runner.title
            if runner.numbers == "fp32":
                assert said == mine(rows[:count], new, 1), runner.title


@pytest.mark.parametrize("peer", ["transformers", "CTranslate2"])
def test_who_has_a_beam_finds_the_same_translations(peer, folder_of, tmp_path):
    loaded = load(folder_of("transformer"), "cpu")
    rows = work_for(loaded, None).rows[60:64]
    [runner] = [r for r in runners_of(peer, folder_of("transformer"), tmp_path) if r.numbers == "fp32"]
    assert runner.write(rows, 6, 3) == ours(loaded, "exact").write(rows, 6, 3)


@pytest.mark.parametrize(
    ("peer", "model"),
    [("transformers", model) for model in ("vectors", "labels", "tags", "pictures")]
    + [("CTranslate2", "vectors"), ("CTranslate2", "labels"), ("onnxruntime", "labels")],
)
def test_who_reads_with_the_same_model_finds_the_same_numbers(peer, model, folder_of, tmp_path):
    loaded = load(folder_of(model), "cpu")
    given = next(work_for(loaded, None).batches(5))
    right = ours(loaded, "exact").read(given)
    for runner in runners_of(peer, folder_of(model), tmp_path):
        found = runner.read(given)
        if right.dim() == 3:
            right, found = right[given.mask[:, 0, 0]], found[given.mask[:, 0, 0]]
        assert relative_difference(right, found) < (1e-4 if runner.numbers == "fp32" else 0.2), runner.title


@pytest.mark.parametrize(
    ("peer", "model", "word"),
    [
        ("transformers", "gru", "our own"),
        ("llama.cpp", "vectors", "only writes"),
        ("CTranslate2", "pictures", "pictures"),
        ("onnxruntime", "transformer", "two towers"),
    ],
)
def test_who_cannot_read_a_folder_says_why(peer, model, word, folder_of, tmp_path):
    found = invited(peer, asked(folder_of(model), tmp_path))
    assert isinstance(found, str)
    assert word in found or found.startswith(MISSING)


def test_what_goes_wrong_in_another_program_does_not_stop_ours(folder_of, tmp_path, monkeypatch):
    def broken(asked):
        raise RuntimeError("no such kernel\nand more")

    monkeypatch.setitem(PEERS, "transformers", broken)
    said = invited("transformers", asked(folder_of("gpt"), tmp_path))
    assert said == "cannot read this folder: RuntimeError: no such kernel"


def test_widths_that_llama_cpp_cannot_round_are_told(folder_of):
    config = load(folder_of("gru"), "cpu").model.body.config
    assert "unknown" in gguf.why_not(config)
    wide = load(folder_of("gpt"), "cpu").model.body.config
    assert gguf.why_not(wide) == ""
    object.__setattr__(wide, "hidden", 33)
    assert "(64, 33)" in gguf.why_not(wide)


def test_rotary_pairs_become_neighbours():
    """Number i of a head and number i + E/2 turn together."""
    rows = torch.arange(2 * 6 * 1.0).view(12, 1)  # 2 heads of 6
    assert interleaved(rows, 2).flatten().tolist() == [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]
