"""Optimisers: each weight has exactly one, steps follow their formulas, and weight decay applies to matrices only."""

from contextlib import suppress
from dataclasses import fields
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from regard.models import MODELS
from regard.parts.heads import Body, Model
from regard.training.optimizer import EMA, Muon, build_optimizers, freeze, orthogonalize, param_groups, scale_and_clip

KINDS = ["muon", "adamw", "sgd"]
SMALL = {
    "vocab": 11, "context": 8, "dim": 12, "layers": 1, "encoder_layers": 1, "decoder_layers": 1,
    "stages": 2, "heads": 2, "hidden": 10, "image_size": 8, "patch_size": 4, "image_dim": 8,
    "image_layers": 1, "image_heads": 2, "projection_dim": 6, "mels": 6, "stride": 2,
    "observation_dim": 5, "observation_tokens": 2, "num_actions": 3, "atom_features": 7, "pair_kinds": 4,
}  # fmt: skip
BODIES = [(name, structure) for name, family in MODELS.items() for structure in family.bodies]
every_body = pytest.mark.parametrize(("name", "structure"), BODIES)


def model_of(name: str, structure: str) -> Model:
    torch.manual_seed(1)
    family = MODELS[name]
    body: Any = family.bodies[structure](
        family.config(**{f.name: SMALL[f.name] for f in fields(family.config) if f.name in SMALL})
    )
    return Model(body, body.lm_head() if type(body).lm_head is not Body.lm_head else nn.Linear(12, 3))


def groups_of(optims: list[torch.optim.Optimizer]) -> list[dict[str, Any]]:
    return [group for optimizer in optims for group in optimizer.param_groups]


def with_grads(*shapes: tuple[int, ...], seed: int = 1) -> list[nn.Parameter]:
    torch.manual_seed(seed)
    weights = [nn.Parameter(torch.randn(shape, dtype=torch.float64)) for shape in shapes]
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    return weights


@every_body
@pytest.mark.parametrize("kind", KINDS)
def test_every_weight_has_exactly_one_optimizer(name: str, structure: str, kind: str) -> None:
    model = model_of(name, structure)
    optimized = [id(w) for group in groups_of(build_optimizers(model, 0.1, kind)) for w in group["params"]]
    assert sorted(optimized) == sorted(id(w) for w in model.parameters())


@every_body
@pytest.mark.parametrize("kind", KINDS)
def test_weight_decay_applies_to_matrices_only(name: str, structure: str, kind: str) -> None:
    for group in groups_of(build_optimizers(model_of(name, structure), 0.1, kind)):
        for weight in group["params"]:
            flat = weight.dim() < 2 or 1 in weight.shape[:2]
            assert group["weight_decay"] == (0.0 if flat else 0.1), tuple(weight.shape)


@every_body
def test_muon_trains_the_matrices_inside_the_body(name: str, structure: str) -> None:
    model = model_of(name, structure)
    names = {id(w): name for name, w in model.named_parameters()}
    muons = [o for o in build_optimizers(model, 0.1, "muon") if isinstance(o, Muon)]
    inner = {names[id(w)] for group in groups_of([*muons]) for w in group["params"]}
    for path, weight in model.named_parameters():
        words = ("tokens", "positions", "segments", "first", "head.", "actions", "pair_bias")
        is_embedding = any(word in path for word in words)
        is_matrix = weight.dim() > 1 and min(weight.flatten(1).shape) > 1
        is_hidden = path.startswith("body.") and is_matrix and not is_embedding
        assert (path in inner) is is_hidden, path
    assert not [o for o in build_optimizers(model, 0.1, "adamw") if isinstance(o, Muon)]


@pytest.mark.parametrize("shape", [(5, 9), (9, 5), (6, 6)])
def test_a_muon_step_is_the_orthogonalised_momentum(shape: tuple[int, int]) -> None:
    [weight] = with_grads(shape)
    muon = Muon([weight], weight_decay=0.3, momentum=0.9)
    muon.param_groups[0]["lr"] = 0.05
    momentum = torch.zeros_like(weight)
    for seed in range(3):
        [fresh] = with_grads(shape, seed=seed)
        before = weight.detach().clone()
        weight.grad = fresh.grad
        muon.step()
        momentum = 0.9 * momentum + 0.1 * fresh.grad
        ahead = 0.1 * fresh.grad + 0.9 * momentum
        expected = before * (1 - 0.05 * 0.3) - 0.05 * 0.2 * max(shape) ** 0.5 * orthogonalize(ahead)
        assert_close(weight.detach(), expected)
        assert_close(muon.state[weight]["momentum"], momentum)


def test_a_convolution_steps_like_its_flattened_matrix() -> None:
    [square], [flat] = with_grads((6, 3, 3, 3)), with_grads((6, 27))
    flat.data, flat.grad = square.detach().flatten(1).clone(), square.grad.flatten(1).clone()
    for weight in (square, flat):
        muon = Muon([weight], weight_decay=0.3)
        muon.param_groups[0]["lr"] = 0.1
        muon.step()
    assert_close(square.detach().flatten(1), flat.detach())


def test_a_step_does_not_depend_on_other_matrices_of_its_shape() -> None:
    shapes = [(4, 7), (7, 4), (4, 7), (5, 5), (4, 7)]
    together, separate = with_grads(*shapes), with_grads(*shapes)
    for muon in [Muon(together), *(Muon([weight]) for weight in separate)]:
        muon.param_groups[0]["lr"] = 0.1
        muon.step()
    for first, second in zip(together, separate, strict=True):
        assert_close(first, second)


def test_a_weight_without_a_gradient_does_not_change() -> None:
    first, second = with_grads((4, 7), (4, 7))
    second.grad = None
    muon, before = Muon([first, second], weight_decay=0.5), second.detach().clone()
    muon.param_groups[0]["lr"] = 0.1
    muon.step()
    assert torch.equal(second, before)


@pytest.mark.parametrize("shape", [(3, 8, 5), (3, 5, 8), (1, 4, 4)])
def test_orthogonalisation_keeps_the_singular_vectors(shape: tuple[int, ...]) -> None:
    torch.manual_seed(2)
    matrices = torch.randn(shape, dtype=torch.float64)
    u, _, vt = torch.linalg.svd(matrices, full_matrices=False)
    stretch = u.mT @ orthogonalize(matrices) @ vt.mT
    values = stretch.diagonal(0, 1, 2)
    assert_close(stretch, torch.diag_embed(values))
    assert values.min() > 0.5
    assert values.max() < 1.3
    assert_close(orthogonalize(1e3 * matrices), orthogonalize(matrices), rtol=1e-5, atol=1e-5)
    assert not orthogonalize(torch.zeros(shape)).any()


@pytest.mark.parametrize("kind", KINDS)
def test_each_optimizer_minimises_a_quadratic(kind: str) -> None:
    torch.manual_seed(3)
    body = nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6))
    model, x, expected = Model(body, nn.Linear(6, 4)), torch.randn(32, 6), torch.randn(6, 4)
    optims = build_optimizers(model, 0.0, kind)

    def loss() -> Tensor:
        return (model(x) - body(x).detach() @ expected).square().mean()

    first = loss().item()
    for step in range(200):
        for group in groups_of(optims):
            group["lr"] = 0.05 * (1 - step / 200)
        model.zero_grad()
        loss().backward()
        for optimizer in optims:
            optimizer.step()
    assert loss().item() < 0.01 * first


def test_sgd_has_nesterov_momentum() -> None:
    weights = with_grads((3, 4))
    model = Model(nn.Identity(), nn.Identity())
    model.weight = weights[0]
    [sgd] = build_optimizers(model, 0.0, "sgd")
    before, grad = weights[0].detach().clone(), weights[0].grad.clone()
    for group in sgd.param_groups:
        group["lr"] = 0.1
    sgd.step()
    assert_close(weights[0].detach(), before - 0.1 * (grad + 0.9 * grad))
    sgd.step()
    assert_close(weights[0].detach(), before - 0.1 * 1.9 * grad - 0.1 * (grad + 0.9 * 1.9 * grad))


def test_gains_and_biases_form_a_group_without_weight_decay() -> None:
    weights = with_grads((3, 4), (4,), (1, 9), (2, 3, 5), ())
    matrices, vectors = param_groups(weights, 0.2, {id(weight): 1.0 for weight in weights})
    assert [tuple(w.shape) for w in matrices["params"]] == [(3, 4), (2, 3, 5)]
    assert [tuple(w.shape) for w in vectors["params"]] == [(4,), (1, 9), ()]
    assert (matrices["weight_decay"], vectors["weight_decay"]) == (0.2, 0.0)


LAYERS_ABOVE = {  # layers above the modules of a body; the towers of clip have 3 and 2
    "bert": {"tokens": 3, "positions": 3, "segments": 3, "embed_norm": 3, "blocks.0": 2, "blocks.1": 1},
    "gpt": {"tokens": 3, "positions": 3, "blocks.0": 2, "blocks.1": 1, "norm": 1},
    "llama": {"tokens": 3, "blocks.0": 2, "blocks.1": 1, "norm": 1},
    "transformer": {"tokens": 3, "encoder.0": 2, "encoder.1": 1, "decoder.0": 2, "decoder.1": 1},
    "vit": {"first": 3, "stem": 3, "positions": 3, "blocks.0": 2, "blocks.1": 1, "norm": 1},
    "clip": {
        **{"image.stem": 4, "image.positions": 4, "image.blocks.0": 3, "image.blocks.2": 1, "image.norm": 1},
        **{"text.tokens": 3, "text.positions": 3, "text.blocks.0": 2, "text.blocks.1": 1, "text.out": 1, "scale": 1},
    },
    "pooled": {"tokens": 1, "feedforward": 1},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", LAYERS_ABOVE)
def test_layer_decay_scales_the_learning_rate_by_depth(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, layers in {"layers": 2, "encoder_layers": 2, "decoder_layers": 2, "image_layers": 3}.items():
        monkeypatch.setitem(SMALL, key, layers)
    model = model_of(name, next(iter(MODELS[name].bodies)))
    optims = groups_of(build_optimizers(model, 0.1, kind, layer_decay=0.5))
    lr_scales = {id(weight): group["lr_scale"] for group in optims for weight in group["params"]}
    assert len(lr_scales) == len([*model.parameters()])
    for path, weight in model.named_parameters():
        for module, above in LAYERS_ABOVE[name].items():
            if path.startswith(f"body.{module}."):
                assert lr_scales[id(weight)] == 0.5**above, path
        if path.startswith("head."):
            assert lr_scales[id(weight)] == 1.0, path
    assert {group["lr_scale"] for group in groups_of(build_optimizers(model, 0.1, kind))} == {1.0}


@pytest.mark.parametrize("kind", KINDS)
def test_frozen_weights_have_no_optimizer(kind: str) -> None:
    model = model_of("bert", "encoder")
    frozen = freeze(model, ["tokens", "blocks.0.mixer"])
    optimized = {id(weight) for group in groups_of(build_optimizers(model, 0.1, kind)) for weight in group["params"]}
    for path, weight in model.named_parameters():
        is_frozen = path.startswith(("body.tokens.", "body.blocks.0.mixer."))
        assert (path in frozen) is is_frozen is (id(weight) not in optimized) is not weight.requires_grad


@pytest.mark.parametrize("max_norm", [0.0, 0.5, 1e9])
def test_summed_gradients_are_averaged_and_clipped(max_norm: float) -> None:
    weights = [*with_grads((3, 4), (5,)), nn.Parameter(torch.zeros(2, dtype=torch.float64))]
    sums = [w.grad.clone() for w in weights[:2]]
    norm, weight_norms = scale_and_clip(weights, 7, max_norm)
    length = torch.cat([g.flatten() / 7 for g in sums]).norm()
    assert_close(norm, length)
    assert_close(weight_norms, torch.stack([g.norm() / 7 for g in sums]))
    factor = min(1.0, max_norm / length.item()) if max_norm else 1.0
    for weight, grad in zip(weights, sums, strict=False):
        assert_close(weight.grad, grad / 7 * factor, rtol=1e-5, atol=1e-8)
    assert weights[2].grad is None


def test_the_ema_forgets_the_initial_weights() -> None:
    model = nn.Linear(2, 3, bias=False)
    nn.init.zeros_(model.weight)
    ema = EMA(model, 0.99)
    nn.init.ones_(model.weight)
    mean = 0.0
    for step in range(30):
        ema.update(step)
        mean += (1 - min(0.99, (1 + step) / (10 + step))) * (1 - mean)
        assert_close(ema.means[0], torch.full((3, 2), mean))
    assert mean > 0.99
    with suppress(RuntimeError), ema.average_parameters():
        assert_close(model.weight.detach(), ema.means[0])
        raise RuntimeError("stop")
    assert torch.equal(model.weight, torch.ones(3, 2)), "an exception restores the weights as well"
