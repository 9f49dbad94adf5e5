"""Rounded weights: how far they are from what they were, and what becomes of them in a folder."""

import json
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

import regard
from regard.cli import main
from regard.engine.accelerate import fast
from regard.engine.arena import unfilled
from regard.engine.quantize import GROUP, Int8, rounded
from regard.load import load
from regard.parts.heads import Model

TEXTS = ["tea and water please 3", "no milk", "bread and tea and milk and water please"]


@pytest.mark.parametrize("shape", [(1, 1), (64, 32), (65, 33), (130, 70)])
def test_a_weight_is_off_by_half_a_step_at_most(shape):
    torch.manual_seed(0)
    weight = torch.randn(shape) * torch.rand(shape[0], 1) * 10
    weight[-1] = 0
    back = Int8.of(weight).matrix()
    assert back.shape == weight.shape
    for first in range(0, shape[1], GROUP):
        some = slice(first, first + GROUP)
        step = weight[:, some].abs().amax(1, keepdim=True) / 127
        assert ((back - weight)[:, some].abs() <= step * 0.57).all()  # the scale itself is rounded to 11 bits
    assert (back[-1] == 0).all()


def test_a_rounded_model_says_almost_the_same(writer):
    ids = torch.arange(12).view(2, 6)
    with torch.inference_mode():
        wanted, found = writer(ids), rounded(writer)(ids)
    assert 0 < (wanted - found).abs().max() < 0.1 * wanted.abs().max()


def test_unfilled_models_are_made_without_a_random_number():
    with unfilled():
        before = torch.get_rng_state()
        layer, table = torch.nn.Linear(5, 3), torch.nn.Embedding(4, 2, padding_idx=1)
        assert torch.equal(before, torch.get_rng_state())
    assert layer.weight.shape == (3, 5)
    assert table.weight.shape == (4, 2)
    torch.manual_seed(0)
    assert torch.nn.Linear(5, 3).weight.std() > 0.1


@pytest.fixture(scope="module")
def folder(small_run, tmp_path_factory):
    pytest.importorskip("regard.engine.kernels.llvm", exc_type=ImportError)
    folder = tmp_path_factory.mktemp("int8") / "model"
    load(small_run, speed="int8").save(folder)
    return folder


class TestFolders:
    def test_exact_gives_the_answers_of_the_plain_modules(self, small_run):
        plain, quick = load(small_run), load(small_run, speed="exact")
        for how in ({"beam": 1}, {"beam": 3, "n_best": 2}, {"temperature": 0.9, "n_best": 2}):
            for one, other in zip(plain.answers(TEXTS, **how), quick.answers(TEXTS, **how), strict=True):
                assert [a.text for a in one] == [a.text for a in other]
                assert [a.logp for a in one] == pytest.approx([a.logp for a in other], abs=1e-4)

    def test_a_saved_one_answers_as_the_one_in_memory(self, small_run, folder, tmp_path):
        made, read = load(small_run, speed="int8"), load(folder)
        assert list(made.answers(TEXTS)) == list(read.answers(TEXTS))
        read.save(tmp_path / "again")
        assert (tmp_path / "again/int8.safetensors").read_bytes() == (folder / "int8.safetensors").read_bytes()
        assert not (folder / "model.safetensors").exists()

    def test_an_exact_one_is_saved_as_it_was(self, small_run, tmp_path):
        load(small_run, speed="exact").save(tmp_path / "exact")
        load(small_run).save(tmp_path / "plain")
        for name in ("model.safetensors", "config.json"):
            assert (tmp_path / "exact" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()

    @pytest.mark.parametrize("speed", ["exact", "int8"])
    def test_the_command_takes_it(self, small_run, pairs_file, speed, capsys):
        assert main(["run", str(small_run), "tea and water 1", "--speed", speed]) == 0
        assert main(["score", str(small_run), str(pairs_file), "--speed", speed, "--json"]) == 0
        told = capsys.readouterr().out.splitlines()
        assert json.loads(told[-1])["examples"] == 120

    def test_scores_are_those_of_the_plain_model(self, small_run, pairs_file):
        def scored(speed):
            loaded = load(small_run, speed=speed)
            return loaded.task.score(loaded.model, loaded.rows([str(pairs_file)]))["loss"]

        plain = scored(None)
        assert scored("exact") == pytest.approx(plain, abs=1e-5)
        assert scored("int8") == pytest.approx(plain, abs=0.05)

    def test_what_does_not_fit_is_refused_by_name(self, folder, tmp_path):
        tensors = load_file(folder / "int8.safetensors")
        name = next(name for name in tensors if name.endswith("query.scales"))
        spoilt = {
            "missing": {key: tensor for key, tensor in tensors.items() if key != name},
            "too much": tensors | {"more": torch.zeros(1)},
            "should be": tensors | {name: tensors[name].float()},
        }
        for message, others in spoilt.items():
            broken = tmp_path / message.split()[0]
            load(folder).save(broken)
            save_file(others, broken / "int8.safetensors")
            with pytest.raises(ValueError, match=rf"int8\.safetensors: .*{message}"):
                load(broken)
        (broken / "int8.json").write_text('{"format": "other"}')
        with pytest.raises(ValueError, match="another layout"):
            load(broken)


class TestWithoutTheEngine:
    def test_exact_is_the_plain_model(self, gpt, monkeypatch, capsys):
        monkeypatch.setitem(sys.modules, "regard.engine.engine_model", None)
        assert fast(gpt, "exact") == (gpt, gpt)
        assert not capsys.readouterr().err

    @pytest.mark.parametrize("why", ["no numba", "no kernel", "no such body"])
    def test_int8_is_that_of_pytorch_and_it_says_so(self, gpt, why, monkeypatch, capsys):
        model = gpt
        if why == "no numba":
            monkeypatch.setitem(sys.modules, "regard.engine.engine_model", None)
        elif why == "no kernel":
            monkeypatch.setattr(
                pytest.importorskip("regard.engine.kernels.interpreter", exc_type=ImportError), "lead", lambda *_: 1 / 0
            )
        else:
            config = regard.models.recurrent.RecurrentConfig(vocab=53, dim=16)
            body = regard.models.recurrent.Writer(config)
            model = Model(body, body.vocabulary()).eval()
        ids = torch.arange(12).view(2, 6)
        found, plain = fast(model, "int8")
        assert plain is model
        told = capsys.readouterr().err
        assert "PyTorch's own int8 is used" in told
        assert told.count("\n") == 1
        with torch.inference_mode():
            assert (found(ids) - model(ids)).abs().max() < 0.2 * model(ids).abs().max()

    def test_a_processor_without_what_it_needs_is_told_apart(self):
        """LLVM would abort the process: no half-precision numbers, no fused products."""
        llvm = pytest.importorskip("regard.engine.kernels.llvm", exc_type=ImportError)
        old = {"avx2": True, "fma": True}
        assert llvm.lacks(None, "", old) == ["f16c"]
        assert llvm.lacks(None, "", old | {"f16c": True}) == []
        assert llvm.lacks("generic", "+avx,+fma", old) == ["f16c"]
        assert llvm.lacks("haswell", "", {}) == llvm.lacks("generic", "+f16c,+fma", {}) == []

    def test_another_speed_is_refused(self, gpt):
        with pytest.raises(ValueError, match="int8"):
            fast(gpt, "int9")
