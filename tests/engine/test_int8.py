"""int8 weights: quantization error, and int8 folders."""

import json
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

import regard
from regard.cli import main
from regard.engine.accelerate import accelerate
from regard.engine.arena import no_init_weights
from regard.engine.quantize import GROUP, Int8Linear, quantize_model
from regard.load import load
from regard.parts.heads import Model

TEXTS = ["tea and water please 3", "no milk", "bread and tea and milk and water please"]


@pytest.mark.parametrize("shape", [(1, 1), (64, 32), (65, 33), (130, 70)])
def test_quantization_error_is_at_most_half_a_step(shape):
    torch.manual_seed(0)
    weight = torch.randn(shape) * torch.rand(shape[0], 1) * 10
    weight[-1] = 0
    restored = Int8Linear.from_float(weight).dequantize()
    assert restored.shape == weight.shape
    for first in range(0, shape[1], GROUP):
        group = slice(first, first + GROUP)
        step = weight[:, group].abs().amax(1, keepdim=True) / 127
        assert (
            (restored - weight)[:, group].abs() <= step * 0.57
        ).all()  # the scale itself is fp16, with 11 significant bits
    assert (restored[-1] == 0).all()


def test_quantized_logits_are_close(decoder):
    ids = torch.arange(12).view(2, 6)
    with torch.inference_mode():
        expected, actual = decoder(ids), quantize_model(decoder)(ids)
    assert 0 < (expected - actual).abs().max() < 0.1 * expected.abs().max()


def test_no_init_weights_draws_no_random_numbers():
    with no_init_weights():
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
    load(small_run, speed="int8").save_pretrained(folder)
    return folder


class TestFolders:
    def test_exact_equals_the_plain_model(self, small_run):
        plain, exact = load(small_run), load(small_run, speed="exact")
        for how in ({"num_beams": 1}, {"num_beams": 3, "num_return": 2}, {"temperature": 0.9, "num_return": 2}):
            for first, second in zip(plain.generate(TEXTS, **how), exact.generate(TEXTS, **how), strict=True):
                assert [a.text for a in first] == [a.text for a in second]
                assert [a.logprob for a in first] == pytest.approx([a.logprob for a in second], abs=1e-4)

    def test_a_saved_int8_folder_answers_as_the_model_in_memory(self, small_run, folder, tmp_path):
        quantized, loaded_folder = load(small_run, speed="int8"), load(folder)
        assert list(quantized.generate(TEXTS)) == list(loaded_folder.generate(TEXTS))
        loaded_folder.save_pretrained(tmp_path / "again")
        assert (tmp_path / "again/int8.safetensors").read_bytes() == (folder / "int8.safetensors").read_bytes()
        assert not (folder / "model.safetensors").exists()

    def test_an_exact_model_saves_the_original_files(self, small_run, tmp_path):
        load(small_run, speed="exact").save_pretrained(tmp_path / "exact")
        load(small_run).save_pretrained(tmp_path / "plain")
        for name in ("model.safetensors", "config.json"):
            assert (tmp_path / "exact" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()

    @pytest.mark.parametrize("speed", ["exact", "int8"])
    def test_run_and_score_accept_speed(self, small_run, pairs_file, speed, capsys):
        assert main(["run", str(small_run), "tea and water 1", "--speed", speed]) == 0
        assert main(["score", str(small_run), str(pairs_file), "--speed", speed, "--json"]) == 0
        output = capsys.readouterr().out.splitlines()
        assert json.loads(output[-1])["examples"] == 120

    def test_losses_equal_the_plain_model(self, small_run, pairs_file):
        def loss_of(speed):
            loaded = load(small_run, speed=speed)
            return loaded.task.score(loaded.model, loaded.rows([str(pairs_file)]))["loss"]

        plain = loss_of(None)
        assert loss_of("exact") == pytest.approx(plain, abs=1e-5)
        assert loss_of("int8") == pytest.approx(plain, abs=0.05)

    def test_a_mismatched_tensor_is_refused_by_name(self, folder, tmp_path):
        tensors = load_file(folder / "int8.safetensors")
        name = next(name for name in tensors if name.endswith("query.scales"))
        broken_files = {
            "missing": {key: tensor for key, tensor in tensors.items() if key != name},
            "unexpected": tensors | {"more": torch.zeros(1)},
            "should be": tensors | {name: tensors[name].float()},
        }
        for message, broken_tensors in broken_files.items():
            broken = tmp_path / message.split()[0]
            load(folder).save_pretrained(broken)
            save_file(broken_tensors, broken / "int8.safetensors")
            with pytest.raises(ValueError, match=rf"int8\.safetensors: .*{message}"):
                load(broken)
        (broken / "int8.json").write_text('{"format": "other"}')
        with pytest.raises(ValueError, match="another layout"):
            load(broken)


class TestWithoutEngine:
    def test_exact_is_the_plain_model(self, gpt, monkeypatch, capsys):
        monkeypatch.setitem(sys.modules, "regard.engine.engine_model", None)
        assert accelerate(gpt, "exact") == (gpt, gpt)
        assert not capsys.readouterr().err

    @pytest.mark.parametrize("why", ["no numba", "no kernel", "no such body"])
    def test_int8_falls_back_to_pytorch_with_a_notice(self, gpt, why, monkeypatch, capsys):
        model = gpt
        if why == "no numba":
            monkeypatch.setitem(sys.modules, "regard.engine.engine_model", None)
        elif why == "no kernel":
            monkeypatch.setattr(
                pytest.importorskip("regard.engine.kernels.interpreter", exc_type=ImportError),
                "run_program",
                lambda *_: 1 / 0,
            )
        else:
            config = regard.models.recurrent.RecurrentConfig(vocab=53, dim=16)
            body = regard.models.recurrent.RecurrentLM(config)
            model = Model(body, body.lm_head()).eval()
        ids = torch.arange(12).view(2, 6)
        actual, plain = accelerate(model, "int8")
        assert plain is model
        output = capsys.readouterr().err
        assert "PyTorch's dynamic int8 quantization is used" in output
        assert output.count("\n") == 1
        with torch.inference_mode():
            assert (actual(ids) - model(ids)).abs().max() < 0.2 * model(ids).abs().max()

    def test_missing_cpu_features_are_detected(self):
        """Without fp16 conversion or FMA, LLVM would abort the process."""
        llvm = pytest.importorskip("regard.engine.kernels.llvm", exc_type=ImportError)
        old_cpu = {"avx2": True, "fma": True}
        assert llvm.missing_features(None, "", old_cpu) == ["f16c"]
        assert llvm.missing_features(None, "", old_cpu | {"f16c": True}) == []
        assert llvm.missing_features("generic", "+avx,+fma", old_cpu) == ["f16c"]
        assert llvm.missing_features("haswell", "", {}) == llvm.missing_features("generic", "+f16c,+fma", {}) == []

    def test_an_unknown_speed_is_refused(self, gpt):
        with pytest.raises(ValueError, match="int8"):
            accelerate(gpt, "int9")
