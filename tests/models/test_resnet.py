"""ResNet halves the resolution at each stage, has a local receptive field, and the published sizes."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from regard.models.resnet import SIZES, ProjectionShortcut, ResNet, ResNetConfig
from regard.parts.stems import to_channels_last

B, C, D = 2, 3, 24


def make_body(stages: int = 3, layers: int = 2) -> ResNet:
    torch.manual_seed(1)
    return ResNet(ResNetConfig(C, D, stages, layers)).double()


def images(height: int = 12, width: int = 20) -> Tensor:
    return torch.randn(B, C, height, width, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("layers", [1, 3])
def test_each_stage_but_the_first_halves_the_resolution(stages: int, layers: int) -> None:
    positions = (12 // 2 ** (stages - 1)) * (20 // 2 ** (stages - 1))
    assert make_body(stages, layers)(images()).shape == (B, positions, D)


def test_odd_sizes_round_up() -> None:
    assert make_body()(images(13, 9)).shape == (B, 4 * 3, D)


@pytest.mark.parametrize(("name", "millions"), [("resnet20", 0.27), ("resnet18", 11.17)])
def test_published_parameter_counts(name: str, millions: float) -> None:
    with torch.device("meta"):
        body = ResNet(ResNetConfig(**SIZES[name]))
    assert sum(weight.numel() for weight in body.parameters()) / 1e6 == pytest.approx(millions, rel=0.02)


def test_every_weight_has_a_gradient() -> None:
    body = make_body()
    (body(images()) * torch.randn(D)).sum().backward()
    assert [name for name, w in body.named_parameters() if w.grad is None or w.grad.abs().max() < 1e-9] == []


def test_batch_equals_single_images_in_eval_mode_only() -> None:
    body, pixels = make_body(), images()
    assert (body(pixels)[:1] - body(pixels[:1])).abs().max() > 1e-3
    body.eval()
    assert_close(body(pixels), torch.cat([body(image[None]) for image in pixels]))


def test_receptive_field_of_one_block() -> None:
    """The stem's convolution and the block's two reach one pixel each."""
    body, pixels = make_body(stages=1, layers=1).eval(), images().requires_grad_()
    row, column = 5, 9
    (gradient,) = torch.autograd.grad(body(pixels)[0, row * 20 + column].square().sum(), pixels)
    trace = gradient.abs().amax((0, 1)) > 0
    neighbourhood = torch.zeros(12, 20, dtype=torch.bool)
    neighbourhood[row - 3 : row + 4, column - 3 : column + 4] = True
    assert not (trace & ~neighbourhood).any()
    assert trace[row - 3, column]
    assert trace[row, column + 3]


def test_invalid_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"dim \(30\) .*stages = 3"):
        ResNetConfig(dim=30, stages=3)
    with pytest.raises(ValueError, match="layers must be at least 1, not 0"):
        ResNetConfig(layers=0)


@pytest.mark.parametrize("in_dim", [2, 4, 7])
def test_shortcut_has_the_gradients_of_a_strided_convolution(in_dim: int) -> None:
    """With few channels in channels-last format, PyTorch's own writes out of bounds on some processors."""
    shortcut = to_channels_last(ProjectionShortcut(in_dim, 2 * in_dim, 2))
    x, expected = torch.randn(3, in_dim, 9, 8), torch.randn(3, 2 * in_dim, 5, 4)
    (shortcut.eval()(x) * expected).sum().backward()
    weight = shortcut[0].weight.detach().double().requires_grad_()
    (F.conv2d(x.double(), weight, stride=2) * expected).sum().backward()
    assert_close(shortcut[0].weight.grad, weight.grad.float(), atol=1e-3, rtol=1e-4)
