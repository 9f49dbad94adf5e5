"""Stems turn an image into tokens in row-major order."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from regard.parts.stems import ConvStem, PatchEmbedding, check_image_shape, flatten_pixels

B, C, HEIGHT, WIDTH, PATCH, D = 2, 3, 8, 12, 4, 10


def images(height: int = HEIGHT, width: int = WIDTH) -> Tensor:
    torch.manual_seed(1)
    return torch.randn(B, C, height, width)


@pytest.mark.parametrize("bias", [False, True])
def test_patch_embedding_is_one_linear_map_per_patch(bias: bool) -> None:
    stem, pixels = PatchEmbedding(C, PATCH, D, bias=bias), images()
    y = stem(pixels)
    assert y.shape == (B, (HEIGHT // PATCH) * (WIDTH // PATCH), D)
    weight, index = stem.map.weight.flatten(1), 0
    for row in range(0, HEIGHT, PATCH):
        for column in range(0, WIDTH, PATCH):
            patch = pixels[:, :, row : row + PATCH, column : column + PATCH].flatten(1)
            assert_close(y[:, index], patch @ weight.T + (stem.map.bias if bias else 0), rtol=1e-4, atol=1e-5)
            index += 1


def test_indivisible_image_is_refused() -> None:
    with pytest.raises(ValueError, match="8 x 10 pixels cannot be divided into patches of size 4"):
        PatchEmbedding(C, PATCH, D)(images(8, 10))


@pytest.mark.parametrize("patch", [1, 3, 12])
def test_conv_stem_downsamples_by_powers_of_two(patch: int) -> None:
    if patch > 1:
        with pytest.raises(ValueError, match=f"8 ... times, not {patch} times"):
            ConvStem(C, D, patch)
    else:
        assert ConvStem(C, D, patch)(images(8, 8)).shape == (B, 64, D)


@pytest.mark.parametrize("size", [4, 28, 29, 31, 32])
def test_num_patches_equals_the_output_length(size: int) -> None:
    stem8 = ConvStem(C, D, 8)
    assert stem8(images(size, size)).shape == (B, stem8.num_patches(size), D)
    stem = ConvStem(C, D)
    assert stem(images(size, size)).shape == (B, stem.num_patches(size), D)
    assert stem.num_patches(28) == 7 * 7
    if size % PATCH == 0:
        patches = PatchEmbedding(C, PATCH, D)
        assert patches(images(size, size)).shape == (B, patches.num_patches(size), D)


def test_receptive_fields() -> None:
    for stem, stem8 in (PatchEmbedding(C, PATCH, D), 4), (ConvStem(C, D).eval(), 9):
        pixels = images(16, 16).requires_grad_()
        (gradient,) = torch.autograd.grad(stem(pixels)[0, 4 + 1].square().sum(), pixels)  # second row, second column
        visible = gradient[0].abs().amax(0) > 0
        assert [visible.any(0).sum(), visible.any(1).sum()] == [stem8, stem8]


def test_every_weight_has_a_gradient() -> None:
    stem = ConvStem(C, D)
    (stem(images()) * torch.randn(D)).sum().backward()
    assert all(weight.grad.abs().max() > 0 for weight in stem.parameters())


def test_tokens_are_in_row_major_order() -> None:
    maps = torch.arange(6).view(1, 1, 2, 3)
    assert flatten_pixels(maps).flatten().tolist() == [0, 1, 2, 3, 4, 5]


def test_other_image_shapes_are_refused() -> None:
    check_image_shape(images(8, 8), C, 8)
    with pytest.raises(ValueError, match="images of 3 x 8 x 8, not 3 x 8 x 12"):
        check_image_shape(images(), C, 8)
    with pytest.raises(ValueError, match="images of 1 x 8 x 8, not 3 x 8 x 8"):
        check_image_shape(images(8, 8), 1, 8)
