"""The gradient of each part: together they are the whole one, and to measure them changes nothing."""

import math

import pytest
import torch

from regard.data.pieces import Pieces, learn
from regard.models.transformer import Transformer, TransformerConfig
from regard.tasks.translate import Translate
from regard.training import loop
from regard.training.loop import Progress, TrainOptions
from regard.training.optimizer import by_parts, freeze, part_of
from regard.training.run_folder import RunFolder, metrics_line

PAIRS = [("abc"[: 1 + i % 3], "xyz"[i % 3 :]) for i in range(30)]
PARTS = ["body.tokens", "body.encoder.0", "body.encoder.1", "body.decoder.0"]
NORMS = ["body.encoder_norm", "body.decoder_norm"]


def make(seed=1, **train_options):
    task = Translate(tokenizer=learn((text for pair in PAIRS for text in pair), Pieces(pieces="characters")))
    sizes = {"dim": 12, "hidden": 20, "heads": 3, "encoder_layers": 2, "decoder_layers": 1, "context": 32}
    torch.manual_seed(seed)
    model = task.head(Transformer(TransformerConfig(vocab=len(task.tokenizer), dropout=0.2, **sizes)))
    train_options = TrainOptions(**{"steps": 9, "lr": 0.01, "warmup_steps": 2, "batch_tokens": 60} | train_options)
    return Progress.new(model, train_options), task, task.prepare(PAIRS), train_options


def test_the_parts_are_the_whole() -> None:
    for step in loop.train_steps(*make()):
        assert [*step.module_grad_norms] == [*PARTS, *NORMS, "head"]
        assert math.hypot(*step.module_grad_norms.values()) == pytest.approx(step.grad_norm, rel=1e-5)
        assert min(step.module_grad_norms.values()) > 0


def test_a_part_goes_up_to_the_number_of_a_layer() -> None:
    names = {
        "body.tokens.weight": "body.tokens",
        "body.blocks.11.mixer.inner.query.weight": "body.blocks.11",
        "body.image.blocks.0.norm.weight": "body.image.blocks.0",
        "body.image.stem.map.weight": "body.image",
        "body.scale": "body.scale",
        "head.out.0.weight": "head",
    }
    for name, part in names.items():
        assert part_of(name) == part
    assert by_parts(["a", "b", "a"], [3.0, 7.0, 4.0]) == {"a": 5.0, "b": 7.0}


def test_what_is_frozen_has_no_gradient_to_measure() -> None:
    progress, *rest = make()
    freeze(progress.model, ["encoder.1"])
    step = next(loop.train_steps(progress, *rest))
    assert [*step.module_grad_norms] == [name for name in [*PARTS, *NORMS, "head"] if name != "body.encoder.1"]


def test_a_long_run_is_measured_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "MEASURED", 3)
    steps = list(loop.train_steps(*make()))
    assert [step.number for step in steps if step.module_grad_norms] == [1, 4, 7]
    assert ["module_grad_norms" in metrics_line(step) for step in steps] == [
        bool(step.module_grad_norms) for step in steps
    ]


def test_measuring_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def trained():
        progress, *rest = make()
        losses = [step.loss for step in loop.train_steps(progress, *rest)]
        return losses, [*progress.model.parameters()]

    losses, weights = trained()
    monkeypatch.setattr(loop, "MEASURED", 1)
    again, others = trained()
    assert losses == again
    assert all(map(torch.equal, weights, others))


def test_a_resumed_run_measures_what_the_uninterrupted_one_does(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "MEASURED", 4)
    wanted = [step.module_grad_norms for step in loop.train_steps(*make())]
    stopped, *rest = make()
    run = RunFolder.new(tmp_path / "run")
    for step in loop.train_steps(stopped, *rest):
        if step.number == 5:
            run.save(stopped, {}, keep=1)
            break
    resumed, *_ = make(seed=9)
    run.resume(resumed)
    assert [step.module_grad_norms for step in loop.train_steps(resumed, *rest)] == wanted[5:]
