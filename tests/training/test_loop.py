"""The training loop: accumulation equals one large batch, runs repeat bit for bit, also across a resume."""

import copy
import json
import math

import numpy as np
import pytest
import torch

from regard.data.batches import bucket_by_length
from regard.data.tokenizer_train import TokenizerOptions, train_tokenizer
from regard.modalities.text.parallel_text import pairs_from_memory
from regard.modalities.text.preprocessor import TextPreprocessor
from regard.models.transformer import Transformer, TransformerConfig
from regard.tasks.translate import Translate
from regard.training.loop import Progress, TrainOptions, train_steps
from regard.training.optimizer import EMA, orthogonalize, scale_and_clip
from regard.training.run_folder import RunFolder
from regard.training.schedule import inverse_sqrt, wsd
from regard.training.settings import resolve
from regard.training.train import train

PAIRS = [(" ".join("abcdefg"[(i * 3 + k) % 7] for k in range(1 + i % 6)), "x y " * (i % 4) + "z") for i in range(40)]
ROWS = [*pairs_from_memory(PAIRS, "made")]


def make(dropout=0.0, dtype=torch.float32, seed=5, **train_options):
    tokenizer = train_tokenizer((text for pair in PAIRS for text in pair), TokenizerOptions(tokenizer="characters"))
    task = Translate(preprocessor=TextPreprocessor(tokenizer))
    torch.manual_seed(seed)
    sizes = {"dim": 12, "hidden": 20, "heads": 3, "encoder_layers": 2, "decoder_layers": 1, "context": 32}
    model = task.head(Transformer(TransformerConfig(vocab=len(tokenizer), dropout=dropout, **sizes))).to(dtype)
    train_options = TrainOptions(**{"steps": 6, "lr": 0.01, "warmup_steps": 2, "batch_tokens": 60} | train_options)
    return Progress.new(model, train_options), task, task.encode(ROWS, 32), train_options


def restore(run, progress):
    """Load the newest intact checkpoint; returns the problems of newer ones."""
    folder, state, problems = run.newest_checkpoint()
    run.restore(progress, folder, state)
    return problems


def gradients(parts):
    """Gradients over all examples, accumulated over this many uneven parts."""
    progress, task, examples, _ = make(dtype=torch.float64)
    count = 0
    for rows in np.array_split(np.argsort(examples.lengths.sum(1)), parts):
        loss = task.loss(progress.model, task.collate(examples, rows))
        loss.total.backward()
        count += loss.count
    scale_and_clip(list(progress.model.parameters()), count, max_norm=0.0)
    return [w.grad for w in progress.model.parameters()]


@pytest.mark.parametrize("parts", [2, 3, 7, 40])
def test_accumulation_equals_one_large_batch_to_1e_12(parts):
    at_once, accumulated = gradients(1), gradients(parts)
    for a, b in zip(at_once, accumulated, strict=True):
        assert (a - b).abs().max() <= 1e-12 * max(1.0, a.abs().max())


def test_accumulating_steps_use_consecutive_batches():
    progress, task, examples, train_options = make(grad_accum=3, steps=2)
    steps = list(train_steps(progress, task, examples, train_options))
    batches = bucket_by_length(examples.lengths, train_options.batch_tokens, train_options.seed, 0)
    tokens = [int(examples.targets.lengths[rows].sum()) for rows in batches]
    assert [step.count for step in steps] == [sum(tokens[:3]), sum(tokens[3:6])]


def weights_of(model):
    return [w.detach().clone() for w in model.parameters()]


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_a_seed_determines_all_bits(optimizer):
    def weights(seed):
        progress, task, examples, train_options = make(dropout=0.3, optimizer=optimizer, seed=seed)
        list(train_steps(progress, task, examples, train_options))
        return weights_of(progress.model)

    first, second, other_seed = weights(5), weights(5), weights(6)
    assert all(map(torch.equal, first, second))
    assert not all(map(torch.equal, first, other_seed))


def test_training_does_not_touch_the_callers_generator():
    progress, task, examples, train_options = make(dropout=0.5)
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    list(train_steps(progress, task, examples, train_options))
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
@pytest.mark.parametrize("stop", [1, 7, 13])
def test_a_resumed_run_equals_the_uninterrupted_one_bit_for_bit(stop, optimizer, tmp_path):
    options = {"dropout": 0.3, "steps": 20, "grad_accum": 2, "optimizer": optimizer}
    progress, task, examples, train_options = make(**options)
    losses = [step.loss for step in train_steps(progress, task, examples, train_options)]

    stopped, *_ = make(**options)
    run = RunFolder.new(tmp_path / "run")
    for step in train_steps(stopped, task, examples, train_options):
        if step.number == stop:
            run.save(stopped, {}, keep=2, files={})
            break
    resumed, *_ = make(**options, seed=99)
    restore(run, resumed)
    later = [step.loss for step in train_steps(resumed, task, examples, train_options)]
    assert later == losses[stop:]
    assert all(map(torch.equal, weights_of(resumed.model), weights_of(progress.model)))
    assert all(map(torch.equal, resumed.ema.means, progress.ema.means))


def test_a_damaged_newest_checkpoint_is_skipped_and_named(tmp_path):
    progress, task, examples, train_options = make()
    run = RunFolder.new(tmp_path / "run")
    for _ in train_steps(progress, task, examples, train_options):
        run.save(progress, {}, keep=2, files={})
    file = run.folder / "step-6" / "state.safetensors"
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(content)
    restored, *_ = make(seed=8)
    problems = restore(run, restored)
    assert restored.step == 5
    assert "step-6" in problems[0]


def test_a_nan_loss_raises_before_the_weights_change():
    progress, task, examples, train_options = make()
    before = weights_of(progress.model)
    progress.model.head.loss = lambda *_: progress.model.body.tokens.weight.sum() * float("nan")
    with pytest.raises(FloatingPointError, match="step 1"):
        list(train_steps(progress, task, examples, train_options))
    assert all(map(torch.equal, before, weights_of(progress.model)))


def test_a_batch_is_memorised():
    progress, task, examples, train_options = make(steps=150, lr=0.02, warmup_steps=10, batch_tokens=2000)
    losses = [step.loss for step in train_steps(progress, task, examples, train_options)]
    scores = task.score(progress.model.eval(), ROWS)
    assert losses[-1] < 0.5 * losses[0]
    assert scores["loss"] < 0.8, "half of the targets belong to several sources"


def test_the_ema_follows_its_formula_and_restores_the_weights():
    progress, *_ = make()
    ema = EMA(progress.model, 0.9)
    start = copy.deepcopy(ema.means)
    with torch.no_grad():
        for weight in progress.model.parameters():
            weight.add_(1.0)
    ema.update(step=1000)
    for mean, first in zip(ema.means, start, strict=True):
        torch.testing.assert_close(mean, first + 0.1)
    now = weights_of(progress.model)
    means = [mean.clone() for mean in ema.means]
    with ema.average_parameters():
        assert all(map(torch.equal, weights_of(progress.model), means))
    assert all(map(torch.equal, weights_of(progress.model), now))


def test_clipping_keeps_the_direction_of_the_gradient():
    weight = torch.nn.Parameter(torch.zeros(3, 4))
    weight.grad = torch.full((3, 4), 6.0)
    norm, _ = scale_and_clip([weight], count=2, max_norm=1.0)
    assert norm.item() == pytest.approx(3.0 * 12**0.5)
    assert weight.grad.norm().item() == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("shape", [(7, 7), (5, 9), (9, 5)])
def test_muon_steps_are_nearly_orthogonalize(shape):
    torch.manual_seed(0)
    values = torch.linalg.svdvals(orthogonalize(torch.randn(4, *shape)))
    assert values.min() > 0.5
    assert values.max() < 1.3


def test_schedules_warm_up_and_decay():
    rates = [wsd(step, steps=100, warmup_steps=10, decay_share=0.5) for step in range(100)]
    assert rates[0] == 0.1
    assert max(rates) == rates[9] == rates[50] == 1.0
    assert rates[-1] == pytest.approx(1 / 100)
    assert [inverse_sqrt(step, 16) for step in (3, 15, 63)] == [0.25, 1.0, 0.5]


def test_the_library_trains_like_the_command(pairs_file, tmp_path):
    sizes = {"dim": 16, "hidden": 24, "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "context": 64}
    steps = list(
        train("translate", data=[str(pairs_file)], output_dir=str(tmp_path / "run"), steps=6, evals=3, **sizes)
    )
    assert [step.number for step in steps] == [1, 2, 3, 4, 5, 6]
    assert [bool(step.scores) for step in steps] == [False, True] * 3
    assert json.loads((tmp_path / "run" / "train.json").read_text())["steps"] == 6


def test_an_unknown_setting_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match="did you mean dropout"):
        resolve("translate", droput=0.1)


def test_early_stopping_and_checkpoint_averaging(pairs_file, tmp_path):
    sizes = {"dim": 16, "hidden": 24, "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "context": 64}
    options = {"lr": 1e-9, "patience": 2, "evals": 10, "average_checkpoints": 2}
    steps = list(
        train("translate", data=[str(pairs_file)], output_dir=str(tmp_path / "run"), steps=50, **options, **sizes)
    )
    assert steps[-1].number == 15, "no improvement at this learning rate: the first evaluation, then two more"
    assert (tmp_path / "run" / "model.safetensors").exists()


def test_nonfinite_steps_are_skipped_and_counted(tmp_path):
    progress, task, examples, train_options = make(steps=6, max_nonfinite=2)
    right, bad = progress.model.head.loss, {1, 4}
    progress.model.head.loss = lambda *args: right(*args) * (math.nan if progress.step in bad else 1)
    losses, weights = [], []
    for step in train_steps(progress, task, examples, train_options):
        losses.append(step.loss)
        weights.append(weights_of(progress.model))
    assert [math.isnan(loss) for loss in losses] == [False, True, False, False, True, False]
    assert progress.num_skipped == 2
    for number in (1, 4):
        assert all(map(torch.equal, weights[number - 1], weights[number]))
    assert not all(map(torch.equal, weights[1], weights[2]))
    run = RunFolder.new(tmp_path / "run")
    run.save(progress, {}, keep=1, files={})
    restored, *_ = make(steps=6, max_nonfinite=2)
    restore(run, restored)
    assert restored.num_skipped == 2
    bad.add(5)
    progress.step = 5
    with pytest.raises(FloatingPointError, match="step 6"):
        list(train_steps(progress, task, examples, train_options))
