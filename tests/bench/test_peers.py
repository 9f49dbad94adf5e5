"""Peers read the same folder: their fp32 outputs equal those of regard, their int8 outputs nearly so."""

import pytest
import torch

from regard.bench.backend import BackendArgs
from regard.bench.peers import PEERS, gguf, open_peer
from regard.bench.peers.gguf import interleave_rope
from regard.bench.regard_backend import regard_backend
from regard.bench.workload import build_workload
from regard.check.compare import relative_difference
from regard.load import load

MISSING = "not installed"


def backend_args(folder, tmp_path):
    return BackendArgs(folder, load(folder, "cpu"), 1, tmp_path)


def open_backends(name, folder, tmp_path):
    result = open_peer(name, backend_args(folder, tmp_path))
    if isinstance(result, str) and result.startswith(MISSING):
        pytest.skip(f"{name}: {result}")
    assert not isinstance(result, str), result
    return result


@pytest.mark.parametrize(
    ("peer", "model"),
    [(peer, model) for peer in PEERS for model in ("gpt", "llama")]
    + [(peer, "transformer") for peer in ("transformers", "CTranslate2")],
)
def test_peer_generates_the_same_tokens(peer, model, folder_of, tmp_path):
    loaded = load(folder_of(model), "cpu")
    rows = build_workload(loaded, None).rows[60:64]  # of different lengths for a translator
    rows = rows if model == "transformer" else [row[:9] for row in rows]
    generate = regard_backend(loaded, "exact").generate
    for backend in open_backends(peer, folder_of(model), tmp_path):
        for count, new in ((1, 1), (4, 6)):
            output = backend.generate(rows[:count], new, 1)
            assert [len(row) for row in output] == [new] * count, backend.title
            if backend.precision == "fp32":
                assert output == generate(rows[:count], new, 1), backend.title


@pytest.mark.parametrize("peer", ["transformers", "CTranslate2"])
def test_peer_beam_search_finds_the_same_translations(peer, folder_of, tmp_path):
    loaded = load(folder_of("transformer"), "cpu")
    rows = build_workload(loaded, None).rows[60:64]
    [backend] = [r for r in open_backends(peer, folder_of("transformer"), tmp_path) if r.precision == "fp32"]
    assert backend.generate(rows, 6, 3) == regard_backend(loaded, "exact").generate(rows, 6, 3)


@pytest.mark.parametrize(
    ("peer", "model"),
    [("transformers", model) for model in ("embeddings", "labels", "tags", "images", "pairs")]
    + [("CTranslate2", "embeddings"), ("CTranslate2", "labels"), ("onnxruntime", "labels")],
)
def test_peer_forward_has_the_same_outputs(peer, model, folder_of, tmp_path):
    loaded = load(folder_of(model), "cpu")
    batch = next(build_workload(loaded, None).batches(5))
    reference = regard_backend(loaded, "exact").forward(batch)
    for backend in open_backends(peer, folder_of(model), tmp_path):
        result = backend.forward(batch)
        if reference.dim() == 3:
            mask = batch.inputs.mask[:, 0, 0]
            reference, result = reference[mask], result[mask]
        assert relative_difference(reference, result) < (1e-4 if backend.precision == "fp32" else 0.2), backend.title


@pytest.mark.parametrize(
    ("peer", "model", "word"),
    [
        ("transformers", "gru", "our own"),
        ("llama.cpp", "embeddings", "only generates"),
        ("CTranslate2", "images", "no image models"),
        ("onnxruntime", "transformer", "encoder-decoders"),
    ],
)
def test_peer_gives_a_reason_for_an_unsupported_folder(peer, model, word, folder_of, tmp_path):
    result = open_peer(peer, backend_args(folder_of(model), tmp_path))
    assert isinstance(result, str)
    assert word in result or result.startswith(MISSING)


def test_exception_of_a_peer_becomes_a_reason(folder_of, tmp_path, monkeypatch):
    def broken(args):
        raise RuntimeError("no such kernel\nand more")

    monkeypatch.setitem(PEERS, "transformers", broken)
    output = open_peer("transformers", backend_args(folder_of("gpt"), tmp_path))
    assert output == "cannot read this folder: RuntimeError: no such kernel"


def test_gguf_names_widths_that_q8_0_cannot_hold(folder_of):
    config = load(folder_of("gru"), "cpu").model.body.config
    assert "architecture" in gguf.unsupported_reason(config)
    wide = load(folder_of("gpt"), "cpu").model.body.config
    assert gguf.unsupported_reason(wide) == ""
    object.__setattr__(wide, "hidden", 33)
    assert "(64, 33)" in gguf.unsupported_reason(wide)


def test_interleave_rope_makes_pairs_adjacent():
    """Elements i and i + E/2 of a head form a rotary pair."""
    rows = torch.arange(2 * 6 * 1.0).view(12, 1)  # 2 heads of 6
    assert interleave_rope(rows, 2).flatten().tolist() == [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]
