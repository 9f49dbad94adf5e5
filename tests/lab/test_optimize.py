"""The training loop lowers the loss, stops early, and clips gradients."""

import pytest
import torch
from torch import nn

from regard.lab.optimize import lr_schedule, optimize, token_gradient_norms
from regard.parts.heads import Model


def linear_model():
    """A linear model, and batches of 2a - b + 3c."""
    torch.manual_seed(1)
    model = Model(nn.Linear(3, 1), nn.Identity())

    def batch_loss():
        x = torch.randn(16, 3)
        return (model(x)[:, 0] - x @ torch.tensor([2.0, -1.0, 3.0])).square().mean()

    return model, batch_loss


@pytest.mark.parametrize("kind", ["muon", "adamw", "sgd"])
def test_the_loss_falls(kind):
    model, batch_loss = linear_model()
    losses = optimize(model, batch_loss, [0.05] * 100, kind=kind)
    assert len(losses) == 100
    assert sum(losses[-10:]) < 0.2 * sum(losses[:10])
    assert all(weight.grad is None for weight in model.parameters())


def test_training_stops_early():
    model, batch_loss = linear_model()
    losses = optimize(model, batch_loss, [0.1] * 500, stop_below=0.1)
    assert losses[-1] < 0.1 <= min(losses[:-1])
    assert len(losses) < 500


def test_each_step_has_its_own_learning_rate():
    model, batch_loss = linear_model()
    before = model.body.weight.detach().clone()
    optimize(model, batch_loss, [0.0, 0.0])
    assert torch.equal(model.body.weight, before)
    optimize(model, batch_loss, [0.0, 0.1])
    assert not torch.equal(model.body.weight, before)


@pytest.mark.parametrize(("clip", "moved"), [(0.0, 1000.0), (2.0, 2.0), (5000.0, 1000.0)])
def test_gradients_are_clipped(clip, moved):
    model = Model(nn.Linear(1, 1, bias=False), nn.Identity())
    before = model.body.weight.item()
    optimize(model, lambda: 1000 * model(torch.ones(1, 1)).sum(), [1e-3], clip, stop_below=-torch.inf, kind="sgd")
    assert before - model.body.weight.item() == pytest.approx(
        1.9e-3 * moved, rel=1e-3
    )  # Nesterov's first step is 1.9 g


@pytest.mark.parametrize("steps", [1, 10, 57, 200])
def test_the_learning_rate_rises_and_falls(steps):
    result = lr_schedule(0.3, steps)
    assert len(result) == steps
    assert max(result) == pytest.approx(0.3)
    top = result.index(max(result))
    assert top <= steps / 20
    assert result[:top] == sorted(result[:top])
    assert result[top:] == sorted(result[top:], reverse=True)
    assert all(lr > 0 for lr in result)
    assert result[-1] <= 0.3 * 2.2 / max(2, steps)


def test_token_gradient_norms_are_means_over_the_texts():
    """The loss is 3a of the second word, and 4b of the last of every other text: in the mean, 3 and 2 long."""
    body = nn.Module()
    body.tokens = nn.Embedding(7, 2)
    model, ids = Model(body, nn.Identity()), torch.randint(7, (6, 4))

    def batch_loss():
        x = body.tokens(ids)
        return 3 * x[:, 1, 0].sum() + 4 * x[::2, 3, 1].sum()

    assert token_gradient_norms(model, batch_loss).tolist() == pytest.approx([0, 3, 0, 2])
