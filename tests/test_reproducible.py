"""Outputs are batch-invariant, bit for bit, in a few batches; benchmarks/batch_invariance.py tries ten thousand."""

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
from regard.cli import main
from regard.models import MODELS
from regard.parts.heads import Model
from regard.reproducible import EXACT, STEADY, product_of_each, reproducible

sys.path += [str(Path(__file__).parents[1] / "benchmarks"), str(Path(__file__).parent)]
import batch_invariance  # noqa: E402
import test_every_task as tasks  # noqa: E402
from batch_variant import BatchVariant  # noqa: E402

INSIDE = "regard.reproducible"
KINDS = batch_invariance.build_cases()
SHORT = batch_invariance.Case(
    lambda rows, width: KINDS["write, logits"].run([r[:2] for r in rows], min(width, 2 * len(rows)))
)
FAMILY = [(name, ability) for name, family in MODELS.items() for ability in family.bodies if ability != "matches"]
MORE = [("translate", "recurrent"), ("classify", "pooled"), ("write", "recurrent")]
TASKS = [*tasks.DEFAULTS, *tasks.SEES, *tasks.HEARS, *tasks.BONDS, *MORE]


def plainly(call, *args, **named):
    return call(*args, **named)


@pytest.mark.parametrize("kind", KINDS)
def test_a_needle_gets_the_same_bits_in_every_batch(kind):
    assert batch_invariance.count_differences(KINDS[kind], 10, reproducible) == (0, 0)


@pytest.mark.parametrize(("name", "ability"), FAMILY)
def test_so_does_every_body_and_they_are_nearly_the_usual_ones(name, ability):
    run = {
        "translates": batch_invariance.teacher_forced_outputs,
        "sees": batch_invariance.image_outputs,
        "hears": batch_invariance.audio_outputs,
        "transcribes": batch_invariance.transcription_outputs,
        "bonds": batch_invariance.molecule_outputs,
        "foresees": batch_invariance.dynamics_outputs,
    }.get(ability, batch_invariance.token_outputs)
    kind = batch_invariance.Case(partial(run, Model(batch_invariance.build_body(name, ability), nn.Identity())))
    assert batch_invariance.count_differences(kind, 4, reproducible) == (0, 0)
    rows = [[5, 7, 9, 11, 13], [8] * 19, [4]]
    with torch.inference_mode():
        usual = kind.run(rows, 21)
        with reproducible():
            steady = kind.run(rows, 21)
        assert_close(steady, usual, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("task", "model"), TASKS)
def test_every_task_answers_and_scores(task, model, tmp_path, monkeypatch):
    """Nothing that a task does is refused, and answers are equal to the last bit, texts those without the mode."""
    monkeypatch.setenv("HOME", str(tmp_path))
    job = tasks.job_of(task, model, tmp_path)
    asked, how = tasks.raw(task, model, tmp_path), job.task.ways(**tasks.how_of(job))
    trained = job.progress.model.eval()
    usual = list(job.task.predict(trained, asked, how))
    with reproducible():
        together = list(job.task.predict(trained, asked, how))
        alone = [best for i, text in enumerate(asked) for best in job.task.predict(trained, [text], how, first=i)]
        assert job.task.score(trained, job.data.sets["valid"])["loss"] > 0
    assert together == alone
    tasks.same_answers(together, usual)


def broken(change, monkeypatch):
    for name, value in change.items():
        monkeypatch.setattr(sys.modules[INSIDE], name, STEADY | value if name == "STEADY" else value)


def answers(kind, batches, mode=reproducible):
    """In how many batches the needle gets other bits from kernels that are not batch-invariant."""
    with BatchVariant():
        return batch_invariance.count_differences(kind, batches, mode)[0]


MUTANTS = {
    "rows are not filled up": (SHORT, {"ROWS": 1}),
    "few columns stay few": (KINDS["classify, bert"], {"NARROW": 0}),
    "questions are not filled up": (SHORT, {"TILE": (1, 16)}),
    "keys are not filled up": (SHORT, {"PIECE": 1, "TILE": (8, 1)}),
    "attention over the padded length": (KINDS["write, logits"], {"STEADY": {"scaled_dot_product_attention": plainly}}),
    "activations with their tails": (KINDS["write, logits"], {"STEADY": {"gelu": plainly}}),
    "pictures by the fused kernel": (KINDS["classify, pictures"], {"STEADY": {"conv2d": plainly}}),
    "a recurrent layer by the fused kernel": (KINDS["tag, lstm"], {"STEADY": {"lstm": plainly}}),
    "sums in the order of the kernel": (KINDS["embed, nano"], {"STEADY": {"sum": plainly}}),
}


@pytest.mark.parametrize("kind", [*KINDS, "short"])
def test_a_needle_gets_the_same_bits_from_kernels_that_see_the_batch(kind):
    run = {**KINDS, "short": SHORT}[kind]
    assert answers(run, 3) == 0
    if not kind.endswith(("greedy", "beam 4", "sampled")):  # few tokens, and a log-probability rounded after each
        assert answers(run, 3, nullcontext) > 0


@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_part_of_the_mode_is_needed(mutant, monkeypatch):
    kind, change = MUTANTS[mutant]
    broken(change, monkeypatch)
    assert any(answers(kind, batches) for batches in (2, 12))


sizes = st.integers(1, 70)


@settings(max_examples=30)
@given(sizes, sizes, sizes, st.data())
def test_a_row_of_a_product_does_not_see_the_others(rows, K, N, data):
    x, weight, bias = torch.randn(rows, K), torch.randn(N, K), torch.randn(N)
    start = data.draw(st.integers(0, rows - 1))
    end = data.draw(st.integers(start + 1, rows))
    with reproducible():
        together, alone = F.linear(x, weight, bias), F.linear(x[start:end], weight, bias)
    assert batch_invariance.count_different_bits(together[start:end], alone) == 0
    assert_close(together, x @ weight.T + bias, rtol=1e-4, atol=1e-4)


@settings(max_examples=30)
@given(sizes, st.integers(1, 400), sizes, st.integers(1, 400), st.integers(1, 9))
def test_a_product_of_each_does_not_see_zeros_at_its_end(M, K, N, more, B):
    a, b = torch.randn(B, M, K), torch.randn(B, K, N)
    longer = product_of_each(F.pad(a, (0, more, 0, 3)), F.pad(b, (0, 5, 0, more)))
    assert batch_invariance.count_different_bits(longer[-1:, :M, :N], product_of_each(a[-1:], b[-1:])) == 0
    assert_close(longer[:, :M, :N], a @ b, rtol=1e-4, atol=1e-4)


@settings(max_examples=30)
@given(sizes, sizes, sizes, st.sampled_from(["softmax", "log_softmax"]), st.sampled_from([0, 1, -1]))
def test_a_softmax_does_not_see_what_is_hidden(rows, S, more, name, dim):
    x = torch.randn(rows, S).movedim(1, dim)
    wide = torch.cat((x, torch.full_like(x, -math.inf).repeat(*(more if d == dim % 2 else 1 for d in (0, 1)))), dim)
    with reproducible():
        short, long = getattr(x, name)(dim), getattr(wide, name)(dim)
    assert batch_invariance.count_different_bits(long.narrow(dim, 0, S), short) == 0
    assert_close(short, getattr(x, name)(dim))


def test_a_number_does_not_see_kernels_that_see_the_shape(monkeypatch):
    """Bits by which a product, a softmax and an activation change with what stands beside them."""
    a, b = torch.randn(2, 16, 300), torch.randn(2, 300, 32)
    x, many = torch.randn(5, 41), torch.randn(2**14 + 77)

    def apart(product, softmax, gelu):
        with BatchVariant():
            wide = product(F.pad(a, (0, 300)), F.pad(b, (0, 0, 0, 300)))
            long = softmax(F.pad(x, (0, 16), value=-math.inf), dim=-1)[:, :41]
            parts = torch.cat([gelu(part) for part in many.split([1, 31, 300, 2**14 - 255])])
            pairs = (wide, product(a, b)), (long, softmax(x, dim=-1)), (parts, gelu(many))
            return [batch_invariance.count_different_bits(*pair) > 0 for pair in pairs]

    ours = product_of_each, partial(STEADY["softmax"], torch.softmax), partial(STEADY["gelu"], F.gelu)
    assert apart(torch.matmul, torch.softmax, F.gelu) == [True, True, True]
    assert apart(*ours) == [False, False, False]
    broken({"VECTOR": 1, "FEW": 2**30}, monkeypatch)
    assert apart(*ours) == [False, True, True]


CURVES = {
    "gelu": F.gelu, "gelu-tanh": partial(F.gelu, approximate="tanh"), "silu": F.silu, "tanh": torch.tanh,
    "sigmoid": torch.sigmoid, "exp": torch.exp, "log": lambda x: x.abs().log(), "exp_": lambda x: x.clone().exp_(),
}  # fmt: skip


@pytest.mark.parametrize("curve", CURVES)
def test_a_number_does_not_see_its_place(curve):
    x = torch.randn(2**14 + 77)
    with reproducible():
        whole = CURVES[curve](x)
        parts = [CURVES[curve](part) for part in x.split([1, 31, 300, 2**14 - 300, 45])]
    assert batch_invariance.count_different_bits(whole, torch.cat(parts)) == 0
    assert_close(whole, CURVES[curve](x))


@settings(max_examples=20)
@given(st.integers(1, 700), st.integers(1, 700), st.booleans())
def test_a_sum_does_not_see_zeros_at_its_end(length, more, keepdim):
    x = torch.randn(2, length, 3)
    with reproducible():
        short, long = x.sum(1, keepdim), F.pad(x, (0, 0, 0, more)).sum(1, keepdim)
        mean, all_in_all, count = x.mean(1, keepdim), x.sum(), (x > 0).sum(1)
    assert batch_invariance.count_different_bits(short, long) == 0
    assert_close([short, mean, all_in_all], [x.sum(1, keepdim), x.mean(1, keepdim), x.sum()], rtol=1e-4, atol=1e-4)
    assert count.equal((x > 0).sum(1))


def test_attention_to_a_long_text_is_worked_out_in_parts(monkeypatch):
    q, k, v = torch.randn(3, 2, 4, 29, 6).unbind()
    mask = torch.rand(2, 1, 29, 29) < 0.5
    mask |= torch.eye(29, dtype=torch.bool)
    with reproducible():
        at_once = F.scaled_dot_product_attention(q, k, v, mask)
        monkeypatch.setattr(sys.modules[INSIDE], "ROOM", 1)
        in_parts = F.scaled_dot_product_attention(q, k, v, mask)
    assert batch_invariance.count_different_bits(at_once, in_parts) == 0
    assert_close(at_once, F.scaled_dot_product_attention(q, k, v, mask))


def test_what_is_not_known_is_refused():
    x = torch.randn(4, 4)
    with reproducible():
        with pytest.raises(ValueError, match="linalg_svd is not known to give the same bits"):
            torch.linalg.svd(x)
        with pytest.raises(ValueError, match="in float32, not in float64"):
            F.linear(x.double(), x.double())
        with pytest.raises(ValueError, match="on the CPU, not on meta: use --device cpu"):
            F.linear(x.to("meta"), x.to("meta"))
    assert not EXACT & STEADY.keys()
    assert regard.reproducible is reproducible


def test_the_command_says_the_same_alone_and_in_company(small_run, pairs_file, capsys):
    def told(*texts):
        assert main(["run", str(small_run), "--json", "--reproducible", *texts]) == 0
        return json.loads(capsys.readouterr().out.splitlines()[-1])["answers"]

    text = "tea and water please"
    assert told(text) == told("milk", "no bread and no water and no milk please", "tea", text)
    assert main(["score", str(small_run), str(pairs_file), "--json", "--reproducible"]) == 0
    steady = json.loads(capsys.readouterr().out)
    assert main(["score", str(small_run), str(pairs_file), "--json"]) == 0
    usual = json.loads(capsys.readouterr().out)
    assert steady["loss"] == pytest.approx(usual["loss"], rel=1e-5)
    assert steady["bleu"] == usual["bleu"]


def test_the_command_needs_the_cpu(small_run, capsys):
    assert main(["run", str(small_run), "tea", "--reproducible", "--device", "meta"]) == 2
    assert "on the CPU, not on meta: use --device cpu" in capsys.readouterr().err
