"""A stem makes a vector of every place of an image, row by row."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from regard.parts.stems import ConvStem, PatchEmbedding, as_tokens, check_image_shape

B, C, HEIGHT, WIDTH, PATCH, D = 2, 3, 8, 12, 4, 10


def images(height: int = HEIGHT, width: int = WIDTH) -> Tensor:
    torch.manual_seed(1)
    return torch.randn(B, C, height, width)


@pytest.mark.parametrize("bias", [False, True])
def test_a_patch_is_mapped_alone_by_one_matrix(bias: bool) -> None:
    stem, pixels = PatchEmbedding(C, PATCH, D, bias=bias), images()
    y = stem(pixels)
    assert y.shape == (B, (HEIGHT // PATCH) * (WIDTH // PATCH), D)
    weight, place = stem.map.weight.flatten(1), 0
    for row in range(0, HEIGHT, PATCH):
        for column in range(0, WIDTH, PATCH):
            patch = pixels[:, :, row : row + PATCH, column : column + PATCH].flatten(1)
            assert_close(y[:, place], patch @ weight.T + (stem.map.bias if bias else 0), rtol=1e-4, atol=1e-5)
            place += 1


def test_an_image_that_patches_do_not_tile_is_refused_with_the_numbers() -> None:
    with pytest.raises(ValueError, match="patches of 4 x 4 do not tile an image of 8 x 10"):
        PatchEmbedding(C, PATCH, D)(images(8, 10))


@pytest.mark.parametrize("patch", [1, 3, 12])
def test_convolutions_only_halve(patch: int) -> None:
    if patch > 1:
        with pytest.raises(ValueError, match=f"8 ... times, not {patch} times"):
            ConvStem(C, D, patch)
    else:
        assert ConvStem(C, D, patch)(images(8, 8)).shape == (B, 64, D)


@pytest.mark.parametrize("image", [4, 28, 29, 31, 32])
def test_places_count_what_comes_out(image: int) -> None:
    wide = ConvStem(C, D, 8)
    assert wide(images(image, image)).shape == (B, wide.places(image), D)
    stem = ConvStem(C, D)
    assert stem(images(image, image)).shape == (B, stem.places(image), D)
    assert stem.places(28) == 7 * 7
    if image % PATCH == 0:
        patches = PatchEmbedding(C, PATCH, D)
        assert patches(images(image, image)).shape == (B, patches.places(image), D)


def test_convolutions_overlap_where_patches_do_not() -> None:
    for stem, wide in (PatchEmbedding(C, PATCH, D), 4), (ConvStem(C, D).eval(), 9):
        pixels = images(16, 16).requires_grad_()
        (slope,) = torch.autograd.grad(stem(pixels)[0, 4 + 1].square().sum(), pixels)  # second row, second column
        seen = slope[0].abs().amax(0) > 0
        assert [seen.any(0).sum(), seen.any(1).sum()] == [wide, wide]


def test_every_weight_of_the_stem_learns() -> None:
    stem = ConvStem(C, D)
    (stem(images()) * torch.randn(D)).sum().backward()
    assert all(weight.grad.abs().max() > 0 for weight in stem.parameters())


def test_tokens_stand_row_by_row() -> None:
    maps = torch.arange(6).view(1, 1, 2, 3)
    assert as_tokens(maps).flatten().tolist() == [0, 1, 2, 3, 4, 5]


def test_an_image_of_another_size_is_refused_with_both() -> None:
    check_image_shape(images(8, 8), C, 8)
    with pytest.raises(ValueError, match="images of 3 x 8 x 8, not 3 x 8 x 12"):
        check_image_shape(images(), C, 8)
    with pytest.raises(ValueError, match="images of 1 x 8 x 8, not 3 x 8 x 8"):
        check_image_shape(images(8, 8), 1, 8)
