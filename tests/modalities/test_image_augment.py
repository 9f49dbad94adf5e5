"""Image augmentation shifts, flips, rotates, zooms and jitters images, and nothing else."""

import math

import pytest
import torch
from torch.testing import assert_close

from regard.modalities.image.image_augment import ImageAugment, rotate_and_zoom

B, C, H, W = 40, 2, 9, 9


def images() -> torch.Tensor:
    return torch.randint(0, 256, (B, C, H, W), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))


def test_without_augmentation_images_are_unchanged() -> None:
    pixels = images()
    assert ImageAugment().augment(pixels) is pixels


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("shift", [0, 2])
def test_images_are_shifted_and_flipped(shift: int, flip: bool) -> None:
    count, channels, high, wide = 300, 2, 5, 6
    pixels = torch.randint(
        0, 256, (count, channels, high, wide), dtype=torch.uint8, generator=torch.Generator().manual_seed(3)
    )
    torch.manual_seed(4)
    result = ImageAugment(shift=shift, flip=flip).augment(pixels)
    assert (result.shape, result.dtype) == (pixels.shape, torch.uint8)
    possible = {}
    for down in range(-shift, shift + 1):
        for right in range(-shift, shift + 1):
            rows = [min(max(row + down, 0), high - 1) for row in range(high)]
            places = [min(max(place + right, 0), wide - 1) for place in range(wide)]
            moved = pixels[:, :, rows][..., places]
            possible[down, right, False] = moved
            if flip:
                possible[down, right, True] = moved.flip(-1)
    counts = {key: int((result == moved).flatten(1).all(1).sum()) for key, moved in possible.items()}
    assert sum(counts.values()) == count, "each is exactly one of them"
    assert all(counts.values()), "and each of them comes up"
    if flip:
        assert 0.4 < sum(number for (_, _, flipped), number in counts.items() if flipped) / count < 0.6
    torch.manual_seed(4)
    assert torch.equal(ImageAugment(shift=shift, flip=flip).augment(pixels), result)


@pytest.mark.parametrize(
    "how", [{"rotate": 30.0}, {"zoom": 0.3}, {"color_jitter": 0.4}, {"rotate": 9.0, "zoom": 0.1, "color_jitter": 0.1}]
)
def test_augmentations_follow_from_the_seed_and_differ_between_images(how: dict[str, float]) -> None:
    pixels = images()[:1].expand(B, C, H, W)
    torch.manual_seed(4)
    augmented = ImageAugment(**how).augment(pixels)  # type: ignore[arg-type]
    assert augmented.shape == pixels.shape
    assert augmented.min() >= 0
    assert augmented.max() <= 255
    assert len({tuple(image.flatten().tolist()) for image in augmented}) == B
    torch.manual_seed(4)
    assert torch.equal(ImageAugment(**how).augment(pixels), augmented)  # type: ignore[arg-type]


def test_a_rotation_by_90_degrees_equals_rot90(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = images()
    monkeypatch.setattr(torch, "rand", lambda *size, **_: torch.ones(size))  # the most there is
    assert_close(rotate_and_zoom(pixels, 90, 0.0), pixels.float().rot90(1, (2, 3)), atol=1e-2, rtol=0)


def test_a_zoom_scales_about_the_centre(monkeypatch: pytest.MonkeyPatch) -> None:
    spot = torch.zeros(1, 1, 41, 41)
    spot[..., 15:26, 15:26] = 255.0
    monkeypatch.setattr(torch, "rand", lambda *size, **_: torch.ones(size))
    augmented = rotate_and_zoom(spot, 0.0, 0.5)
    assert augmented[0, 0, 20, 20] == 255
    assert math.isclose(augmented.sum() / spot.sum(), 1.5**2, rel_tol=0.05)


def test_color_jitter_is_one_factor_per_channel() -> None:
    pixels = torch.full((B, C, H, W), 100.0)
    augmented = ImageAugment(color_jitter=0.4).augment(pixels)
    factors = augmented[:, :, 0, 0] / 100
    assert_close(augmented, pixels * factors[:, :, None, None])
    assert factors.min() >= 0.6
    assert factors.max() <= 1.4
    assert factors.max() - factors.min() > 0.5
    assert (factors[:, 0] - factors[:, 1]).abs().max() > 0.1


@pytest.mark.parametrize(
    "wrong", [{"shift": -1}, {"rotate": 181.0}, {"zoom": 1.0}, {"color_jitter": -0.1}, {"image_size": 0}]
)
def test_invalid_options_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong)).replace('_', '-')} must be"):
        ImageAugment(**wrong)  # type: ignore[arg-type]
