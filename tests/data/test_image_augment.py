"""Views: what may happen to a picture in training, and what may not."""

import math

import pytest
import torch
from torch.testing import assert_close

from regard.data.image_augment import ImageAugment, turned

B, C, H, W = 40, 2, 9, 9


def pictures() -> torch.Tensor:
    return torch.randint(0, 256, (B, C, H, W), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))


def test_nothing_asked_for_is_nothing_done() -> None:
    pixels = pictures()
    assert ImageAugment().augment(pixels) is pixels


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("shift", [0, 2])
def test_a_picture_is_moved_or_mirrored(shift: int, flip: bool) -> None:
    count, channels, high, wide = 300, 2, 5, 6
    pixels = torch.randint(
        0, 256, (count, channels, high, wide), dtype=torch.uint8, generator=torch.Generator().manual_seed(3)
    )
    torch.manual_seed(4)
    found = ImageAugment(shift=shift, flip=flip).augment(pixels)
    assert (found.shape, found.dtype) == (pixels.shape, torch.uint8)
    possible = {}
    for down in range(-shift, shift + 1):
        for right in range(-shift, shift + 1):
            rows = [min(max(row + down, 0), high - 1) for row in range(high)]
            places = [min(max(place + right, 0), wide - 1) for place in range(wide)]
            moved = pixels[:, :, rows][..., places]
            possible[down, right, False] = moved
            if flip:
                possible[down, right, True] = moved.flip(-1)
    counts = {key: int((found == moved).flatten(1).all(1).sum()) for key, moved in possible.items()}
    assert sum(counts.values()) == count, "each is exactly one of them"
    assert all(counts.values()), "and each of them comes up"
    if flip:
        assert 0.4 < sum(number for (_, _, turned), number in counts.items() if turned) / count < 0.6
    torch.manual_seed(4)
    assert torch.equal(ImageAugment(shift=shift, flip=flip).augment(pixels), found)


@pytest.mark.parametrize(
    "how", [{"rotate": 30.0}, {"zoom": 0.3}, {"color_jitter": 0.4}, {"rotate": 9.0, "zoom": 0.1, "color_jitter": 0.1}]
)
def test_the_same_luck_gives_the_same_view_and_each_picture_its_own(how: dict[str, float]) -> None:
    pixels = pictures()[:1].expand(B, C, H, W)
    torch.manual_seed(4)
    augment = ImageAugment(**how).augment(pixels)  # type: ignore[arg-type]
    assert augment.shape == pixels.shape
    assert augment.min() >= 0
    assert augment.max() <= 255
    assert len({tuple(one.flatten().tolist()) for one in augment}) == B
    torch.manual_seed(4)
    assert torch.equal(ImageAugment(**how).augment(pixels), augment)  # type: ignore[arg-type]


def test_a_quarter_turn_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = pictures()
    monkeypatch.setattr(torch, "rand", lambda *size, **_: torch.ones(size))  # the most there is
    assert_close(turned(pixels, 90, 0.0), pixels.float().rot90(1, (2, 3)), atol=1e-2, rtol=0)


def test_a_zoom_makes_it_larger_about_its_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    spot = torch.zeros(1, 1, 41, 41)
    spot[..., 15:26, 15:26] = 255.0
    monkeypatch.setattr(torch, "rand", lambda *size, **_: torch.ones(size))
    augment = turned(spot, 0.0, 0.5)
    assert augment[0, 0, 20, 20] == 255
    assert math.isclose(augment.sum() / spot.sum(), 1.5**2, rel_tol=0.05)


def test_a_tint_is_one_factor_for_each_colour() -> None:
    pixels = torch.full((B, C, H, W), 100.0)
    augment = ImageAugment(color_jitter=0.4).augment(pixels)
    factors = augment[:, :, 0, 0] / 100
    assert_close(augment, pixels * factors[:, :, None, None])
    assert factors.min() >= 0.6
    assert factors.max() <= 1.4
    assert factors.max() - factors.min() > 0.5
    assert (factors[:, 0] - factors[:, 1]).abs().max() > 0.1


@pytest.mark.parametrize(
    "wrong", [{"shift": -1}, {"rotate": 181.0}, {"zoom": 1.0}, {"color_jitter": -0.1}, {"image_size": 0}]
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        ImageAugment(**wrong)  # type: ignore[arg-type]
