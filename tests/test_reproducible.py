"""Batch invariance: an answer has the same bits alone and in a batch, here in a few;
benchmarks/batch_invariance.py has more."""

import json
import math
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

import regard
from regard.batch_invariant import REPLACEMENTS, UNCHANGED, batched_matmul, reproducible
from regard.cli import main
from regard.models import MODELS
from regard.parts.heads import Model

sys.path += [str(Path(__file__).parents[1] / "benchmarks"), str(Path(__file__).parent)]
import batch_invariance  # noqa: E402
import test_every_task as tasks  # noqa: E402
from batch_variant import BatchVariant  # noqa: E402

MODULE = "regard.batch_invariant"
KINDS = batch_invariance.build_cases()
SHORT = batch_invariance.Case(
    lambda rows, width: KINDS["write, logits"].run([r[:2] for r in rows], min(width, 2 * len(rows)))
)
FAMILY = [
    (name, structure) for name, family in MODELS.items() for structure in family.bodies if structure != "two-tower"
]
OTHERS = [("translate", "recurrent"), ("classify", "pooled"), ("write", "recurrent")]
TASKS = [*tasks.DEFAULTS, *tasks.IMAGE_TASKS, *tasks.AUDIO_TASKS, *tasks.MOLECULE_TASKS, *OTHERS]


def unchanged(call, *args, **kwargs):
    return call(*args, **kwargs)


@pytest.mark.parametrize("kind", KINDS)
def test_a_needle_gets_the_same_bits_in_every_batch(kind):
    assert batch_invariance.count_differences(KINDS[kind], 10, reproducible) == (0, 0)


@pytest.mark.parametrize(("name", "structure"), FAMILY)
def test_every_body_is_batch_invariant_and_close_to_the_default_kernels(name, structure):
    run = {
        ("encoder-decoder", "text"): batch_invariance.teacher_forced_outputs,
        ("encoder", "image"): batch_invariance.image_outputs,
        ("encoder", "audio"): batch_invariance.audio_outputs,
        ("encoder-decoder", "audio"): batch_invariance.transcription_outputs,
        ("encoder", "molecule"): batch_invariance.molecule_outputs,
        ("dynamics", "trajectory"): batch_invariance.dynamics_outputs,
    }.get((structure, MODELS[name].inputs[0]), batch_invariance.token_outputs)
    kind = batch_invariance.Case(partial(run, Model(batch_invariance.build_body(name, structure), nn.Identity())))
    assert batch_invariance.count_differences(kind, 4, reproducible) == (0, 0)
    rows = [[5, 7, 9, 11, 13], [8] * 19, [4]]
    with torch.inference_mode():
        default = kind.run(rows, 21)
        with reproducible():
            invariant = kind.run(rows, 21)
        assert_close(invariant, default, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("task", "model"), TASKS)
def test_every_task_answers_and_scores(task, model, tmp_path, monkeypatch):
    """The mode refuses no operation of a task; answers are equal to the last bit, texts equal those of the default."""
    monkeypatch.setenv("HOME", str(tmp_path))
    job = tasks.job_of(task, model, tmp_path)
    inputs, options = tasks.raw(task, model, tmp_path), job.task.decode_options(**tasks.short_options(job))
    trained = job.progress.model.eval()
    default = list(job.task.predict(trained, inputs, options))
    with reproducible():
        together = list(job.task.predict(trained, inputs, options))
        alone = [best for i, text in enumerate(inputs) for best in job.task.predict(trained, [text], options, first=i)]
        assert job.task.score(trained, job.data.sets["valid"])["loss"] > 0
    assert together == alone
    tasks.assert_same_predictions(together, default)


def mutate(change, monkeypatch):
    for name, value in change.items():
        monkeypatch.setattr(sys.modules[MODULE], name, REPLACEMENTS | value if name == "REPLACEMENTS" else value)


def count_changes(kind, batches, mode=reproducible):
    """In how many batches the needle gets other bits from kernels that are not batch-invariant."""
    with BatchVariant():
        return batch_invariance.count_differences(kind, batches, mode)[0]


MUTANTS = {
    "rows are not padded": (SHORT, {"LINEAR_ROWS": 1}),
    "few columns are not padded": (KINDS["classify, bert"], {"LINEAR_COLUMNS": 0}),
    "queries are not padded": (SHORT, {"TILE": (1, 16)}),
    "keys are not padded": (SHORT, {"CHUNK": 1, "TILE": (8, 1)}),
    "attention over the padded length": (
        KINDS["write, logits"],
        {"REPLACEMENTS": {"scaled_dot_product_attention": unchanged}},
    ),
    "activations with a remainder": (KINDS["write, logits"], {"REPLACEMENTS": {"gelu": unchanged}}),
    "images by the fused kernel": (KINDS["classify, pictures"], {"REPLACEMENTS": {"conv2d": unchanged}}),
    "a recurrent layer by the fused kernel": (KINDS["tag, lstm"], {"REPLACEMENTS": {"lstm": unchanged}}),
    "sums in the order of the kernel": (KINDS["embed, nanochat"], {"REPLACEMENTS": {"sum": unchanged}}),
}


@pytest.mark.parametrize("kind", [*KINDS, "short"])
def test_a_needle_gets_the_same_bits_from_batch_variant_kernels(kind):
    run = {**KINDS, "short": SHORT}[kind]
    assert count_changes(run, 3) == 0
    if not kind.endswith(("greedy", "beam 4", "sampled")):  # few tokens, whose log-probabilities are rounded
        assert count_changes(run, 3, nullcontext) > 0


@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_part_of_the_mode_is_needed(mutant, monkeypatch):
    kind, change = MUTANTS[mutant]
    mutate(change, monkeypatch)
    assert any(count_changes(kind, batches) for batches in (2, 12))


sizes = st.integers(1, 70)


@settings(max_examples=30)
@given(sizes, sizes, sizes, st.data())
def test_a_row_of_a_product_does_not_depend_on_the_others(rows, K, N, data):
    x, weight, bias = torch.randn(rows, K), torch.randn(N, K), torch.randn(N)
    start = data.draw(st.integers(0, rows - 1))
    end = data.draw(st.integers(start + 1, rows))
    with reproducible():
        together, alone = F.linear(x, weight, bias), F.linear(x[start:end], weight, bias)
    assert batch_invariance.count_different_bits(together[start:end], alone) == 0
    assert_close(together, x @ weight.T + bias, rtol=1e-4, atol=1e-4)


@settings(max_examples=30)
@given(sizes, st.integers(1, 400), sizes, st.integers(1, 400), st.integers(1, 9))
def test_a_batched_product_does_not_depend_on_zeros_at_its_end(M, K, N, more, B):
    a, b = torch.randn(B, M, K), torch.randn(B, K, N)
    longer = batched_matmul(F.pad(a, (0, more, 0, 3)), F.pad(b, (0, 5, 0, more)))
    assert batch_invariance.count_different_bits(longer[-1:, :M, :N], batched_matmul(a[-1:], b[-1:])) == 0
    assert_close(longer[:, :M, :N], a @ b, rtol=1e-4, atol=1e-4)


@settings(max_examples=30)
@given(sizes, sizes, sizes, st.sampled_from(["softmax", "log_softmax"]), st.sampled_from([0, 1, -1]))
def test_a_softmax_does_not_depend_on_masked_columns(rows, S, more, name, dim):
    x = torch.randn(rows, S).movedim(1, dim)
    wide = torch.cat((x, torch.full_like(x, -math.inf).repeat(*(more if d == dim % 2 else 1 for d in (0, 1)))), dim)
    with reproducible():
        short, long = getattr(x, name)(dim), getattr(wide, name)(dim)
    assert batch_invariance.count_different_bits(long.narrow(dim, 0, S), short) == 0
    assert_close(short, getattr(x, name)(dim))


def test_kernels_that_depend_on_the_shape_change_no_number(monkeypatch):
    """Whether a product, a softmax and an activation change with the numbers beside them."""
    a, b = torch.randn(2, 16, 300), torch.randn(2, 300, 32)
    x, many = torch.randn(5, 41), torch.randn(2**14 + 77)

    def depends(product, softmax, gelu):
        with BatchVariant():
            wide = product(F.pad(a, (0, 300)), F.pad(b, (0, 0, 0, 300)))
            long = softmax(F.pad(x, (0, 16), value=-math.inf), dim=-1)[:, :41]
            parts = torch.cat([gelu(part) for part in many.split([1, 31, 300, 2**14 - 255])])
            pairs = (wide, product(a, b)), (long, softmax(x, dim=-1)), (parts, gelu(many))
            return [batch_invariance.count_different_bits(*pair) > 0 for pair in pairs]

    ours = batched_matmul, partial(REPLACEMENTS["softmax"], torch.softmax), partial(REPLACEMENTS["gelu"], F.gelu)
    assert depends(torch.matmul, torch.softmax, F.gelu) == [True, True, True]
    assert depends(*ours) == [False, False, False]
    mutate({"LANES": 1, "SINGLE_THREAD": 2**30}, monkeypatch)
    assert depends(*ours) == [False, True, True]


FUNCTIONS = {
    "gelu": F.gelu, "gelu-tanh": partial(F.gelu, approximate="tanh"), "silu": F.silu, "tanh": torch.tanh,
    "sigmoid": torch.sigmoid, "exp": torch.exp, "log": lambda x: x.abs().log(), "exp_": lambda x: x.clone().exp_(),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_activation_does_not_depend_on_the_place(name):
    x = torch.randn(2**14 + 77)
    with reproducible():
        whole = FUNCTIONS[name](x)
        parts = [FUNCTIONS[name](part) for part in x.split([1, 31, 300, 2**14 - 300, 45])]
    assert batch_invariance.count_different_bits(whole, torch.cat(parts)) == 0
    assert_close(whole, FUNCTIONS[name](x))


@settings(max_examples=20)
@given(st.integers(1, 700), st.integers(1, 700), st.booleans())
def test_a_sum_does_not_depend_on_zeros_at_its_end(length, more, keepdim):
    x = torch.randn(2, length, 3)
    with reproducible():
        short, long = x.sum(1, keepdim), F.pad(x, (0, 0, 0, more)).sum(1, keepdim)
        mean, total, count = x.mean(1, keepdim), x.sum(), (x > 0).sum(1)
    assert batch_invariance.count_different_bits(short, long) == 0
    assert_close([short, mean, total], [x.sum(1, keepdim), x.mean(1, keepdim), x.sum()], rtol=1e-4, atol=1e-4)
    assert count.equal((x > 0).sum(1))


def test_attention_to_a_long_text_is_computed_in_blocks(monkeypatch):
    q, k, v = torch.randn(3, 2, 4, 29, 6).unbind()
    mask = torch.rand(2, 1, 29, 29) < 0.5
    mask |= torch.eye(29, dtype=torch.bool)
    with reproducible():
        at_once = F.scaled_dot_product_attention(q, k, v, mask)
        monkeypatch.setattr(sys.modules[MODULE], "MAX_SCORES", 1)
        in_blocks = F.scaled_dot_product_attention(q, k, v, mask)
    assert batch_invariance.count_different_bits(at_once, in_blocks) == 0
    assert_close(at_once, F.scaled_dot_product_attention(q, k, v, mask))


def test_unsupported_operations_are_refused():
    x = torch.randn(4, 4)
    with reproducible():
        with pytest.raises(ValueError, match="linalg_svd is not known to be batch-invariant"):
            torch.linalg.svd(x)
        with pytest.raises(ValueError, match="needs float32, but the model is in float64"):
            F.linear(x.double(), x.double())
        with pytest.raises(ValueError, match="needs the CPU, but the model is on meta: use --device cpu"):
            F.linear(x.to("meta"), x.to("meta"))
    assert not UNCHANGED & REPLACEMENTS.keys()
    assert regard.reproducible is reproducible


def test_the_command_answers_the_same_alone_and_in_a_batch(small_run, pairs_file, capsys):
    def answers(*texts):
        assert main(["run", str(small_run), "--json", "--reproducible", *texts]) == 0
        return json.loads(capsys.readouterr().out.splitlines()[-1])["predictions"]

    text = "tea and water please"
    assert answers(text) == answers("milk", "no bread and no water and no milk please", "tea", text)
    assert main(["score", str(small_run), str(pairs_file), "--json", "--reproducible"]) == 0
    invariant = json.loads(capsys.readouterr().out)
    assert main(["score", str(small_run), str(pairs_file), "--json"]) == 0
    default = json.loads(capsys.readouterr().out)
    assert invariant["loss"] == pytest.approx(default["loss"], rel=1e-5)
    assert invariant["bleu"] == default["bleu"]


def test_the_command_needs_the_cpu(small_run, capsys):
    assert main(["run", str(small_run), "tea", "--reproducible", "--device", "meta"]) == 2
    assert "needs the CPU, but the model is on meta: use --device cpu" in capsys.readouterr().err
