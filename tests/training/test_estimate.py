"""Estimates: FLOPs and memory of a traced step equal those of a real one, and brute-force counts of tiny models."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from regard.models.gpt import GPTConfig
from regard.parts.heads import LMHead
from regard.training.estimate import (
    StepEstimator,
    StepMemory,
    extend_layers,
    num_bytes,
    padded_size,
    random_model,
    tower_layers,
    typical_batches,
)
from regard.training.loop import Progress, train_steps
from regard.training.optimizer import Muon
from regard.training.run_plan import prepare_run
from regard.training.start import new_settings
from regard.training.step_trace import StepTrace

DIM, HIDDEN, LAYERS, CONTEXT, ROWS = 16, 48, 2, 24, 3
GPT = {
    "model": "gpt", "dim": DIM, "hidden": HIDDEN, "heads": 2, "layers": LAYERS, "context": CONTEXT, "dropout": 0.0,
    "batch_tokens": CONTEXT * ROWS, "tokenizer": "characters", "threads": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    file = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    file.write_text("tea and water please. " * 60)
    return str(file)


def prepared(corpus, **options):
    return prepare_run(new_settings("write", data=[corpus], valid=[corpus], **GPT | options))


def estimator(run):
    return StepEstimator(run.settings, run.task, run.examples)


def real_steps(run, rows, count=2):
    """Steps on real tensors, all on the same batch; their optimizers' state exists from the second on."""
    batch = run.task.collate(run.examples, rows)
    options = replace(run.settings.train_options, steps=count, lr=1e-3, warmup_steps=1)
    task = replace(run.task)
    task.collate = lambda *_: batch
    progress = Progress.new(random_model(run.settings, run.task, run.config), options)
    for _ in train_steps(progress, task, run.examples, options):
        pass
    return progress


def allocated_peak(work):
    """Bytes that PyTorch's allocator holds at the peak."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        result = work()
    events = profiler.profiler.kineto_results.events()
    sizes = [e.nbytes() for e in sorted(events, key=lambda e: e.start_ns()) if e.name() == "[memory]"]
    return max(np.cumsum(sizes)), result


def test_the_flops_of_a_step_are_those_counted_by_hand(corpus):
    run = prepared(corpus)
    estimate, vocab = estimator(run), run.config.vocab
    cost, tokens = estimate.cost(run.config), CONTEXT * len(estimate.average)
    block = 2 * tokens * (4 * DIM * DIM + 2 * DIM * HIDDEN)  # four projections of attention, two layers behind it
    scores = 2 * tokens * CONTEXT * DIM  # q·k; the weighted sum has as many
    forward = LAYERS * (block + 2 * scores)
    assert cost.batch_flops == 3 * forward + 6 * vocab * DIM * tokens
    muon = LAYERS * (4 * newton_schulz(DIM, DIM) + 2 * newton_schulz(DIM, HIDDEN))
    assert cost.update_flops == muon
    assert cost.flops(4) == 4 * cost.batch_flops + muon


def newton_schulz(a, b):
    """Of a matrix whose shorter side is a: a gram matrix, its square, and their product with the matrix, five times."""
    return 5 * (4 * a**2 * b + 2 * a**3)


def test_the_fused_kernel_counts_as_stored_attention_and_its_scores_are_computed_twice(corpus):
    """Above 64 tokens the scores are not stored."""
    run = prepared(corpus, context=96, batch_tokens=96 * ROWS, optimizer="adamw")
    estimate = estimator(run)
    tokens = 96 * len(estimate.average)
    block, scores = 2 * tokens * (4 * DIM * DIM + 2 * DIM * HIDDEN), 2 * tokens * 96 * DIM
    head = 6 * run.config.vocab * DIM * tokens
    assert estimate.cost(run.config).batch_flops == 3 * LAYERS * block + 7 * LAYERS * scores + head


@pytest.mark.parametrize("context", [CONTEXT, 96])
def test_the_flops_of_a_real_step_are_those_of_the_trace(corpus, context):
    """As torch counts them; it misses the gradient of the output layer, made in place, and the CPU's fused kernel."""
    run = prepared(corpus, context=context, batch_tokens=context * ROWS)
    estimate = estimator(run)
    cost, tokens = estimate.cost(run.config), context * len(estimate.average)
    with FlopCounterMode(display=False) as counter:
        real_steps(run, estimate.average)
    missed = 2 * run.config.vocab * DIM * tokens
    missed += 7 * LAYERS * 2 * context * tokens * DIM if context > 64 else 0
    assert counter.get_total_flops() == 2 * (cost.flops(1) - missed)


@pytest.mark.parametrize("optimizer", ["muon", "adamw", "sgd"])
def test_memory_is_that_of_the_allocator(corpus, optimizer):
    run = prepared(corpus, optimizer=optimizer, dim=64, hidden=256, batch_tokens=480)
    estimate = estimator(run)
    peak, progress = allocated_peak(lambda: real_steps(run, estimate.largest))
    memory = estimate.cost(run.config).memory
    parameters = sum(w.numel() for w in progress.model.parameters())
    state = [
        x for o in progress.optimizers for s in o.state.values() for x in s.values() if isinstance(x, torch.Tensor)
    ]
    assert memory.gradients == memory.ema == 4 * parameters
    assert memory.weights == 4 * parameters + num_bytes(progress.model.buffers())
    assert memory.optimizer == num_bytes(state)
    assert memory.total == pytest.approx(peak, rel=0.02)


@pytest.mark.parametrize(("options", "per_weight"), [({"optimizer": "adamw"}, 8), ({"optimizer": "sgd"}, 4)])
def test_optimizer_state_has_two_moments_or_one(corpus, options, per_weight):
    run = prepared(corpus, ema=0.0, **options)
    cost = estimator(run).cost(run.config)
    weights = len(list(random_model(run.settings, run.task, run.config).parameters()))
    steps = 4 * weights if options["optimizer"] == "adamw" else 0  # AdamW counts its steps, once for each weight
    assert cost.memory.optimizer == per_weight * cost.parameters + steps
    assert cost.memory.ema == 0


def test_frozen_weights_have_no_gradients_and_no_state(corpus):
    run = prepared(corpus, freeze=("blocks",))
    whole, frozen = (estimator(prepared(corpus, **o)).cost(run.config).memory for o in ({}, {"freeze": ("blocks",)}))
    assert frozen.weights == whole.weights
    assert frozen.gradients < whole.gradients / 2
    assert frozen.optimizer < whole.optimizer / 2


def test_accumulated_gradients_are_alive_with_the_activations(corpus):
    one, two = (estimator(prepared(corpus, grad_accum=n, dim=64, hidden=256)) for n in (1, 2))
    config = prepared(corpus, dim=64, hidden=256).config
    first, second = one.cost(config), two.cost(config)
    assert second.batch_flops == first.batch_flops
    assert second.update_flops == first.update_flops
    assert second.memory.activations > first.memory.activations


def test_recomputation_trades_flops_for_memory(corpus):
    run = prepared(corpus, layers=4, context=96, batch_tokens=960)
    stored, recomputed = (estimator(run).cost(run.config, recompute=value) for value in (False, True))
    assert recomputed.memory.activations < stored.memory.activations / 2
    assert 1.2 < recomputed.batch_flops / stored.batch_flops < 1.34
    assert recomputed.memory.states == stored.memory.states


def test_in_bf16_activations_halve_and_states_do_not(corpus):
    run = prepared(corpus, context=96, batch_tokens=960, layers=4)
    single, half = (estimator(run).cost(run.config, dtype) for dtype in (None, "bf16"))
    assert half.memory.gradients == single.memory.gradients == 4 * single.parameters
    assert half.memory.activations < 0.85 * single.memory.activations
    assert half.batch_flops == single.batch_flops


def test_deep_models_are_extended_from_shallow_ones(corpus):
    """8 blocks from 3 and 6, to the last parameter and FLOP."""
    deep = prepared(corpus, layers=8)
    cost = estimator(deep).cost(deep.config)
    whole = estimator(deep)
    parameters, batch_flops, update_flops, *memory = whole.trace(deep.config, whole.average, None, False).tolist()
    assert (cost.parameters, cost.batch_flops, cost.update_flops) == (parameters, batch_flops, update_flops)
    assert tuple(cost.memory) == pytest.approx(memory, rel=0.01)
    assert cost.memory.states == StepMemory(*memory).states


def test_every_tower_is_extended_by_its_own_blocks():
    def measure(layers):
        return np.array([5.0 + 2 * layers["layers"] + 3 * layers["image_layers"] + 7 * layers["conv_layers"]])

    layers = {"layers": 40, "image_layers": 12, "conv_layers": 2}
    assert extend_layers(measure, layers) == measure(layers)


def test_only_numbers_of_blocks_are_towers():
    assert tower_layers(GPTConfig(vocab=9, layers=3)) == {"layers": 3}


def test_the_typical_batches_are_the_largest_and_an_average_one(pairs_file):
    run = prepare_run(new_settings("translate", data=[str(pairs_file)], batch_tokens=60, tokenizer="characters"))
    average, largest = typical_batches(run.examples, 60, 1)
    sizes = [padded_size(run.examples, rows) for rows in run.examples.epoch(60, 1, 0)]
    assert padded_size(run.examples, largest) == max(sizes)
    assert min(sizes) < padded_size(run.examples, average) < max(sizes)


def test_a_trace_counts_what_lives_and_forgets_what_died():
    with StepTrace() as trace:
        x = torch.zeros(1000)
        y = x + 1
        view = y[:10]
        assert trace.allocated == 8000
        del y
        assert trace.allocated == 8000, "the view keeps the storage alive"
        del view
    assert (trace.allocated, trace.peak) == (4000, 8000)
    assert x.shape == (1000,)


def test_a_trace_selects_by_real_masks():
    """The number of selected rows depends on the data, which fake tensors do not have."""
    mask = torch.tensor([True, False, True])
    with StepTrace() as trace:
        x = torch.zeros(3, 4, requires_grad=True)
        (x[mask] @ torch.zeros(4, 5)).sum().backward()
    assert trace.flops == 2 * 2 * 4 * 5 * 2, "the gradient of x has as many as the product"


def test_an_lstm_counts_its_products():
    with StepTrace() as trace:
        lstm = nn.LSTM(5, 8, batch_first=True)
        lstm(torch.zeros(2, 3, 5, requires_grad=True))[0].sum().backward()
    assert trace.flops == 3 * 2 * (2 * 3) * 4 * 8 * (5 + 8)


def test_the_chunked_loss_counts_three_products():
    with StepTrace() as trace:
        head = LMHead(nn.Parameter(torch.zeros(50, 8)))
        head.loss(torch.zeros(6, 8, requires_grad=True), torch.zeros(6, dtype=torch.long)).backward()
    assert trace.flops == 6 * 50 * 8 * 6


def test_muon_counts_its_iterations():
    with StepTrace() as trace:
        weights = [nn.Parameter(torch.zeros(shape)) for shape in ((4, 9), (9, 4), (4, 9))]
        for weight in weights:
            weight.grad = torch.zeros_like(weight)
        Muon([{"params": weights, "lr_scale": 1.0}]).step()
    assert trace.flops == 3 * newton_schulz(4, 9)
