"""The ResNet makes a vector of every place, halves the image at each stage, and a place sees its neighbours."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from regard.models.resnet import SIZES, ProjectionShortcut, ResNet, ResNetConfig
from regard.parts.stems import to_channels_last

B, C, D = 2, 3, 24


def small(stages: int = 3, layers: int = 2) -> ResNet:
    torch.manual_seed(1)
    return ResNet(ResNetConfig(C, D, stages, layers)).double()


def images(height: int = 12, width: int = 20) -> Tensor:
    return torch.randn(B, C, height, width, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("layers", [1, 3])
def test_each_stage_but_the_first_halves_the_image(stages: int, layers: int) -> None:
    places = (12 // 2 ** (stages - 1)) * (20 // 2 ** (stages - 1))
    assert small(stages, layers)(images()).shape == (B, places, D)


def test_an_odd_row_at_the_edge_counts_as_a_whole_one() -> None:
    assert small()(images(13, 9)).shape == (B, 4 * 3, D)


@pytest.mark.parametrize(("name", "millions"), [("resnet20", 0.27), ("resnet18", 11.17)])
def test_published_sizes_are_as_large_as_published(name: str, millions: float) -> None:
    with torch.device("meta"):
        body = ResNet(ResNetConfig(**SIZES[name]))
    assert sum(weight.numel() for weight in body.parameters()) / 1e6 == pytest.approx(millions, rel=0.02)


def test_every_weight_learns() -> None:
    body = small()
    (body(images()) * torch.randn(D)).sum().backward()
    assert [name for name, w in body.named_parameters() if w.grad is None or w.grad.abs().max() < 1e-9] == []


def test_in_use_a_batch_equals_its_images_one_by_one_and_in_training_it_does_not() -> None:
    body, pixels = small(), images()
    assert (body(pixels)[:1] - body(pixels[:1])).abs().max() > 1e-3
    body.eval()
    assert_close(body(pixels), torch.cat([body(image[None]) for image in pixels]))


def test_one_block_sees_the_pixels_at_most_three_away() -> None:
    """The stem's convolution and the block's two reach one pixel each."""
    body, pixels = small(stages=1, layers=1).eval(), images().requires_grad_()
    row, column = 5, 9
    (slope,) = torch.autograd.grad(body(pixels)[0, row * 20 + column].square().sum(), pixels)
    seen = slope.abs().amax((0, 1)) > 0
    near = torch.zeros(12, 20, dtype=torch.bool)
    near[row - 3 : row + 4, column - 3 : column + 4] = True
    assert not (seen & ~near).any()
    assert seen[row - 3, column]
    assert seen[row, column + 3]


def test_sizes_that_cannot_be_are_refused_with_their_numbers() -> None:
    with pytest.raises(ValueError, match=r"dim \(30\) .*\(3\)"):
        ResNetConfig(dim=30, stages=3)
    with pytest.raises(ValueError, match="layers must be at least 1, not 0"):
        ResNetConfig(layers=0)


@pytest.mark.parametrize("narrow", [2, 4, 7])
def test_what_skips_a_block_has_the_gradients_of_a_convolution_with_strides(narrow: int) -> None:
    """With few channels PyTorch's own, pixel by pixel, writes past its memory on some processors."""
    skip = to_channels_last(ProjectionShortcut(narrow, 2 * narrow, 2))
    x, wanted = torch.randn(3, narrow, 9, 8), torch.randn(3, 2 * narrow, 5, 4)
    (skip.eval()(x) * wanted).sum().backward()
    weight = skip[0].weight.detach().double().requires_grad_()
    (F.conv2d(x.double(), weight, stride=2) * wanted).sum().backward()
    assert_close(skip[0].weight.grad, weight.grad.float(), atol=1e-3, rtol=1e-4)
