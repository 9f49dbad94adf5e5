"""Lessons are learnt: the loss falls, no longer than needed, and no gradient is longer than it may be."""

import pytest
import torch
from torch import nn

from regard.lab.optimize import gradient_at_words, learn, rates
from regard.parts.heads import Model


def line():
    """A model of three numbers, and lessons about 2a - b + 3c."""
    torch.manual_seed(1)
    model = Model(nn.Linear(3, 1), nn.Identity())

    def lesson():
        x = torch.randn(16, 3)
        return (model(x)[:, 0] - x @ torch.tensor([2.0, -1.0, 3.0])).square().mean()

    return model, lesson


@pytest.mark.parametrize("kind", ["muon", "adamw", "sgd"])
def test_the_loss_falls_and_each_lesson_has_one(kind):
    model, lesson = line()
    losses = learn(model, lesson, [0.05] * 100, kind=kind)
    assert len(losses) == 100
    assert sum(losses[-10:]) < 0.2 * sum(losses[:10])
    assert all(weight.grad is None for weight in model.parameters())


def test_no_more_lessons_than_needed():
    model, lesson = line()
    losses = learn(model, lesson, [0.1] * 500, enough=0.1)
    assert losses[-1] < 0.1 <= min(losses[:-1])
    assert len(losses) < 500


def test_each_lesson_has_its_own_rate():
    model, lesson = line()
    before = model.body.weight.detach().clone()
    learn(model, lesson, [0.0, 0.0])
    assert torch.equal(model.body.weight, before)
    learn(model, lesson, [0.0, 0.1])
    assert not torch.equal(model.body.weight, before)


@pytest.mark.parametrize(("clip", "moved"), [(0.0, 1000.0), (2.0, 2.0), (5000.0, 1000.0)])
def test_a_gradient_is_made_no_longer_than_the_clip(clip, moved):
    model = Model(nn.Linear(1, 1, bias=False), nn.Identity())
    before = model.body.weight.item()
    learn(model, lambda: 1000 * model(torch.ones(1, 1)).sum(), [1e-3], clip, enough=-torch.inf, kind="sgd")
    assert before - model.body.weight.item() == pytest.approx(
        1.9e-3 * moved, rel=1e-3
    )  # Nesterov's first step is 1.9 g


@pytest.mark.parametrize("lessons", [1, 10, 57, 200])
def test_rates_rise_stay_and_fall(lessons):
    found = rates(0.3, lessons)
    assert len(found) == lessons
    assert max(found) == pytest.approx(0.3)
    top = found.index(max(found))
    assert top <= lessons / 20
    assert found[:top] == sorted(found[:top])
    assert found[top:] == sorted(found[top:], reverse=True)
    assert all(rate > 0 for rate in found)
    assert found[-1] <= 0.3 * 2.2 / max(2, lessons)


def test_a_gradient_reaches_the_words_that_count_and_no_others():
    """The loss is 3a of the second word, and 4b of the last of every other text: in the mean, 3 and 2 long."""
    body = nn.Module()
    body.tokens = nn.Embedding(7, 2)
    model, ids = Model(body, nn.Identity()), torch.randint(7, (6, 4))

    def lesson():
        x = body.tokens(ids)
        return 3 * x[:, 1, 0].sum() + 4 * x[::2, 3, 1].sum()

    assert gradient_at_words(model, lesson).tolist() == pytest.approx([0, 3, 0, 2])
