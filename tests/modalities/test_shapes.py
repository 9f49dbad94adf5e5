"""An independent segmentation of the pixels confirms every caption."""

import colorsys
import re
from collections import Counter
from typing import NamedTuple

import numpy as np
import pytest

from regard.modalities.synthetic import shapes as module
from regard.modalities.synthetic.shapes import COLOURS, SHAPES, SIDE, Scene, SceneObject, shapes, split

HUES = {"red": 0, "orange": 31, "yellow": 53, "green": 130, "turquoise": 178, "blue": 230, "purple": 278, "pink": 333}
THING = r"a (small|large) (\w+) (\w+)"
PATTERNS = {
    "alone": rf"{THING} (in the middle|at the (?:top|bottom) (?:left|right))",
    "two": rf"{THING} (left of|right of|above|below) {THING}",
    "three": rf"{THING} with {THING} (on its left|on its right) and {THING} (above|below)",
}


class Patch(NamedTuple):
    """Pixels that touch each other and stand out by their colour."""

    hue: str
    area: np.ndarray  # of booleans, cut to the box around them
    top: int
    left: int
    bottom: int
    right: int

    @property
    def extent(self) -> int:
        return max(self.bottom - self.top, self.right - self.left)


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    return shapes()


def find_regions(pixels: np.ndarray) -> list[Patch]:
    """The patches of a picture, the largest first."""
    bright = pixels.astype(int)
    strong = bright.max(2) - bright.min(2) > 70
    regions = []
    while strong.any():
        todo = [tuple(np.argwhere(strong)[0])]
        patch = np.zeros_like(strong)
        while todo:
            y, x = todo.pop()
            if 0 <= y < SIDE and 0 <= x < SIDE and strong[y, x]:
                strong[y, x], patch[y, x] = False, True
                todo += [(y + dy, x + dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)]
        if patch.sum() > 4:
            (top, left), (bottom, right) = np.argwhere(patch).min(0), np.argwhere(patch).max(0) + 1
            area = patch[top:bottom, left:right]
            regions.append(Patch(colour(bright[patch]), area, top, left, bottom, right))
    return sorted(regions, key=lambda patch: -patch.extent)


def colour(pixels: np.ndarray) -> str:
    hue, *_ = colorsys.rgb_to_hsv(*np.median(pixels, 0) / 255)
    return min(HUES, key=lambda name: abs((360 * hue - HUES[name] + 180) % 360 - 180))


def lies(item: Patch, second: Patch) -> set[str]:
    """Where one is, seen from the other."""
    sides = {"left": item.right <= second.left, "right": item.left >= second.right}
    sides |= {"above": item.bottom <= second.top, "below": item.top >= second.bottom}
    return {side for side, true in sides.items() if true}


def test_6_000_distinct_captions_describe_one_to_three_objects(scenes: list[Scene]) -> None:
    assert len({scene.caption for scene in scenes}) == len(scenes) == 6_000
    kinds = Counter(kind for s in scenes for kind, form in PATTERNS.items() if re.fullmatch(form, s.caption))
    assert kinds.total() == len(scenes)
    assert min(kinds.values()) > 300
    assert {scene.pixels.shape for scene in scenes} == {(SIDE, SIDE, 3)}
    assert {scene.pixels.dtype for scene in scenes} == {np.dtype(np.uint8)}


def test_the_pixels_match_the_caption(scenes: list[Scene]) -> None:
    checked: Counter[str] = Counter()
    for scene in scenes[::10]:
        patches = find_regions(scene.pixels)
        if match := re.fullmatch(PATTERNS["alone"], scene.caption):
            size, hue, shape, place = match.groups()
            described, main = [], (size, hue, shape)
            (patch,) = patches
            down, right = (patch.top + patch.bottom) / 2 - SIDE / 2, (patch.left + patch.right) / 2 - SIDE / 2
            assert ("top" in place, "bottom" in place) == (down < -4, down > 4), scene.caption
            assert ("left" in place, "right" in place) == (right < -4, right > 4), scene.caption
            checked[place] += 1
        elif match := re.fullmatch(PATTERNS["two"], scene.caption):
            *item, side, size, hue, shape = match.groups()
            described, main = [(*item, side)], (size, hue, shape)
        else:
            size, hue, shape, *neighbours = re.fullmatch(PATTERNS["three"], scene.caption).groups()
            described, main = [tuple(neighbours[:4]), tuple(neighbours[4:])], (size, hue, shape)
        assert len(patches) == 1 + len(described), scene.caption
        assert (patches[0].hue, scene.label) == main[1:]
        assert (patches[0].extent > 10) == (main[0] == "large")
        for patch in patches[1:]:
            (side,) = lies(patch, patches[0]) or {"beside"}
            ((size, hue, _, place),) = [entry for entry in described if side in entry[3]]
            assert (size, hue) == ("small", patch.hue), scene.caption
            assert patch.extent <= 10
            checked[side] += 1
    assert len(checked) == 5 + 4
    assert min(checked.values()) > 2


def test_the_label_is_the_main_shape(scenes: list[Scene]) -> None:
    checked: Counter[str] = Counter()
    for scene in scenes[::10]:
        area = find_regions(scene.pixels)[0].area
        if area.shape[0] < 12:
            continue
        (height, width), full, rows = area.shape, area.mean(), area.sum(1)
        hole = not area[height // 2 - 1 : height // 2 + 1, width // 2 - 1 : width // 2 + 1].any()
        top, bottom = rows[: height // 3].sum(), rows[-(height // 3) :].sum()
        corner = area[: height // 4, : width // 4].mean()
        fits = {
            "ring": hole,
            "circle": full > 0.66 and corner < 0.6,
            "square": full > 0.7 and corner > 0.2,
            "triangle": bottom > 2 * top and full > 0.4,
            "heart": top > 1.3 * bottom and full > 0.5,
            "diamond": 0.45 < full < 0.68 and 0.6 < top / bottom < 1.7 and corner < 0.2,
            "cross": 0.35 < full < 0.65 and corner < 0.1,
            "star": full < 0.55 and corner < 0.1 and area[0].mean() < 0.3,
        }
        assert fits[scene.label], scene.caption
        checked[scene.label] += 1
    assert set(checked) == {*SHAPES}


def test_objects_do_not_touch_and_stay_inside(scenes: list[Scene]) -> None:
    for scene in scenes:
        main, *neighbours = scene.objects
        assert all(1.1 * main.radius < at + 0.1 < SIDE + 0.2 - 1.1 * main.radius for at in (main.x, main.y)), main
        for item in neighbours:
            assert all(item.radius < at < SIDE - item.radius for at in (item.x, item.y)), item
        for i, item in enumerate(scene.objects):
            assert all(np.hypot(item.x - two.x, item.y - two.y) > item.radius + two.radius for two in scene.objects[:i])


def test_short_lists_are_prefixes_and_seeds_differ(scenes: list[Scene]) -> None:
    short = shapes(50)
    assert all(np.array_equal(a.pixels, b.pixels) and a[1:] == b[1:] for a, b in zip(short, scenes, strict=False))
    second = shapes(50, seed=1)
    assert [scene.caption for scene in second] != [scene.caption for scene in short]


def test_the_same_objects_are_rendered_differently() -> None:
    thing = (SceneObject("large", "red", "star", 16.0, 16.0, 7.0),)
    rng, noise = module.random.Random(0), np.random.RandomState(0)
    item, two = (module.render(thing, rng, noise) for _ in range(2))
    assert not np.array_equal(item, two)


def test_held_out_examples_are_new_but_have_only_training_words(scenes: list[Scene]) -> None:
    parts = {part: [s.caption for s in scenes if split(s) == part] for part in ("train", "valid", "test")}
    assert sum(map(len, parts.values())) == len(scenes)
    words = {word for caption in parts["train"] for word in caption.split()}
    assert {*COLOURS, *SHAPES} <= words
    for part in ("valid", "test"):
        assert len(parts[part]) >= 300
        assert {word for caption in parts[part] for word in caption.split()} <= words


def test_too_many_scenes_are_refused_with_both_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    thing = SceneObject("large", "red", "star", 16.0, 16.0, 7.0)
    monkeypatch.setattr(module, "draw_scene", lambda rng: (f"{thing} {rng.choice('ab')}", (thing,)))
    monkeypatch.setattr(module, "MAX_REPEATS", 50)
    with pytest.raises(ValueError, match="1,000 .* only 2"):
        shapes(1000)
