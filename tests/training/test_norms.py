"""Gradient norms by module: they add up to the global norm, and recording them changes nothing."""

import math

import pytest
import torch

from regard.data.tokenizer_train import TokenizerOptions, train_tokenizer
from regard.modalities.text.parallel_text import pairs_from_memory
from regard.modalities.text.preprocessor import TextPreprocessor
from regard.models.transformer import Transformer, TransformerConfig
from regard.tasks.translate import Translate
from regard.training import loop
from regard.training.loop import Progress, TrainOptions
from regard.training.optimizer import freeze, module_of, norms_by_module
from regard.training.run_folder import RunFolder, metrics_line

PAIRS = [("abc"[: 1 + i % 3], "xyz"[i % 3 :]) for i in range(30)]
ROWS = [*pairs_from_memory(PAIRS, "made")]
MODULES = ["body.tokens", "body.encoder.0", "body.encoder.1", "body.decoder.0"]
NORMS = ["body.encoder_norm", "body.decoder_norm"]


def make(seed=1, **train_options):
    tokenizer = train_tokenizer((text for pair in PAIRS for text in pair), TokenizerOptions(tokenizer="characters"))
    task = Translate(preprocessor=TextPreprocessor(tokenizer))
    sizes = {"dim": 12, "hidden": 20, "heads": 3, "encoder_layers": 2, "decoder_layers": 1, "context": 32}
    torch.manual_seed(seed)
    model = task.head(Transformer(TransformerConfig(vocab=len(task.tokenizer), dropout=0.2, **sizes)))
    train_options = TrainOptions(**{"steps": 9, "lr": 0.01, "warmup_steps": 2, "batch_tokens": 60} | train_options)
    return Progress.new(model, train_options), task, task.encode(ROWS, 32), train_options


def test_module_norms_add_up_to_the_global_norm() -> None:
    for step in loop.train_steps(*make()):
        assert [*step.module_grad_norms] == [*MODULES, *NORMS, "head"]
        assert math.hypot(*step.module_grad_norms.values()) == pytest.approx(step.grad_norm, rel=1e-5)
        assert min(step.module_grad_norms.values()) > 0


def test_a_module_name_ends_at_the_number_of_a_layer() -> None:
    names = {
        "body.tokens.weight": "body.tokens",
        "body.blocks.11.mixer.inner.query.weight": "body.blocks.11",
        "body.image.blocks.0.norm.weight": "body.image.blocks.0",
        "body.image.stem.map.weight": "body.image",
        "body.scale": "body.scale",
        "head.out.0.weight": "head",
    }
    for name, module in names.items():
        assert module_of(name) == module
    assert norms_by_module(["a", "b", "a"], [3.0, 7.0, 4.0]) == {"a": 5.0, "b": 7.0}


def test_frozen_modules_have_no_norm() -> None:
    progress, *rest = make()
    freeze(progress.model, ["encoder.1"])
    step = next(loop.train_steps(progress, *rest))
    assert [*step.module_grad_norms] == [name for name in [*MODULES, *NORMS, "head"] if name != "body.encoder.1"]


def test_a_long_run_records_norms_at_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "NORM_RECORDS", 3)
    steps = list(loop.train_steps(*make()))
    assert [step.number for step in steps if step.module_grad_norms] == [1, 4, 7]
    assert ["module_grad_norms" in metrics_line(step) for step in steps] == [
        bool(step.module_grad_norms) for step in steps
    ]


def test_recording_norms_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def trained():
        progress, *rest = make()
        losses = [step.loss for step in loop.train_steps(progress, *rest)]
        return losses, [*progress.model.parameters()]

    losses, weights = trained()
    monkeypatch.setattr(loop, "NORM_RECORDS", 1)
    more_losses, more_weights = trained()
    assert losses == more_losses
    assert all(map(torch.equal, weights, more_weights))


def test_a_resumed_run_records_the_same_norms(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "NORM_RECORDS", 4)
    expected = [step.module_grad_norms for step in loop.train_steps(*make())]
    stopped, *rest = make()
    run = RunFolder.new(tmp_path / "run")
    for step in loop.train_steps(stopped, *rest):
        if step.number == 5:
            run.save(stopped, {}, keep=1, files={})
            break
    resumed, *_ = make(seed=9)
    folder, state, _ = run.newest_checkpoint()
    run.restore(resumed, folder, state)
    assert [step.module_grad_norms for step in loop.train_steps(resumed, *rest)] == expected[5:]
