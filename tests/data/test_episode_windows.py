"""Windows have the steps of their episodes, patchify is invertible, and observation statistics are correct."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.episode_windows import EpisodeWindows
from regard.data.episodes import Episode, observed
from regard.data.observation_norm import ObservationNorm
from regard.data.patchify import patchify, resolve_patch, unpatchify

WIDE = 2


def episode(steps: int, number: int = 0, terminated: bool = True) -> Episode:
    """Observation 100 n + t, action t mod 3, reward t."""
    observations = (100 * number + np.arange(steps + 1, dtype=np.float32))[:, None] * np.array([1, -2], np.float32)
    actions = np.arange(steps)
    return Episode(observations, actions % 3, actions.astype(np.float32), terminated)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=4), st.integers(1, 6), st.integers(1, 6))
@settings(max_examples=60)
def test_overlapping_windows_count_every_step_once(steps: list[int], context: int, stride: int) -> None:
    windows = EpisodeWindows([episode(count, i) for i, count in enumerate(steps)], context, tokens=1)
    counted = np.zeros(sum(steps), int)
    for start, fresh in zip(*windows.overlapping(min(stride, windows.context)), strict=True):
        [number], [first] = windows.locate(np.array([start]))
        length = min(windows.context, steps[number] - first)
        for t in range(length):
            counted[start + t] += t >= windows.context - fresh
    assert (counted == 1).all()


def test_a_batch_fills_its_token_budget() -> None:
    windows = EpisodeWindows([episode(40)], 5, tokens=3)
    assert [len(rows) for rows in windows.epoch(30, 1, 0)][:-1] == [2] * (len(windows.epoch(30, 1, 0)) - 1)
    assert windows.windows_per_batch(1) == 1
    assert np.array_equal(windows.epoch(30, 1, 3)[0], windows.epoch(30, 1, 3)[0])


@pytest.mark.parametrize("shape", [(7,), (6, 9), (6, 9, 3), (4, 4, 1)])
def test_unpatchify_inverts_patchify(shape: tuple[int, ...]) -> None:
    patch = resolve_patch(shape, None)
    x = torch.randn(2, 3, *shape)
    patches = patchify(x, shape, patch)
    assert patches.shape[:2] == (2, 3)
    assert torch.equal(unpatchify(patches, shape, patch), x)


def test_a_patch_is_a_square_of_the_frame() -> None:
    x = torch.arange(24.0).reshape(1, 1, 4, 6)
    patches = patchify(x, (4, 6), 2)
    assert patches.shape == (1, 1, 6, 4)
    assert patches[0, 0, 1].tolist() == [2, 3, 8, 9]
    assert patches[0, 0, 3].tolist() == [12, 13, 18, 19]


@pytest.mark.parametrize(
    ("shape", "patch"), [((30, 30), 10), ((28, 28), 7), ((64, 48), 8), ((13, 13), 13), ((17, 4), 1)]
)
def test_the_default_patch_tiles_the_frame(shape: tuple[int, int], patch: int) -> None:
    assert resolve_patch(shape, None) == patch


def test_a_patch_that_does_not_tile_is_refused_with_alternatives() -> None:
    with pytest.raises(
        ValueError, match=r"patches of 4 x 4 do not tile frames of 30 x 30: take --patch-size 1 or 2 or 3 or 5"
    ):
        resolve_patch((30, 30), 4)


def fit_norm(rows: list[Episode]) -> ObservationNorm:
    return ObservationNorm.fit(rows, None)


def test_every_entry_has_its_own_scale() -> None:
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(500, 3)) * [1, 100, 0] + [5, -7, 2]
    rows = [Episode(observations.astype(np.float32), np.zeros(499, int), np.zeros(499, np.float32))]
    norm = fit_norm(rows)
    normalized = norm.normalize(torch.from_numpy(rows[0].observations)[None])
    assert normalized.shape == (1, 500, 1, 3)
    assert torch.allclose(normalized.mean((0, 1, 2)), torch.zeros(3), atol=1e-5)
    assert torch.allclose(normalized.std((0, 1, 2)), torch.tensor([1.0, 1.0, 0.0]), atol=1e-2)
    deltas = norm.deltas(torch.from_numpy(rows[0].observations)[None])
    assert torch.allclose(deltas.square().mean((0, 1, 2)), torch.tensor([1.0, 1.0, 0.0]), atol=1e-3)
    assert norm.step_error(deltas).mean() == pytest.approx(2 / 3, abs=1e-3)


@pytest.mark.parametrize("colours", [(), (3,)])
def test_applying_true_deltas_gives_the_next_observations(colours: tuple[int, ...]) -> None:
    frames = np.random.default_rng(0).integers(0, 256, (9, 6, 4, *colours), np.uint8)
    row = observed(frames)
    norm, observations = fit_norm([row]), torch.from_numpy(row.as_float())[None]
    deltas = norm.deltas(observations)
    assert torch.allclose(norm.apply_delta(observations[:, :-1], deltas), observations[:, 1:], atol=1e-6)
    assert torch.allclose(norm.clip_delta(norm.normalize(observations[:, :-1]), deltas), deltas, atol=1e-5)
    true = ((observations[0, 1:] - observations[0, :-1]) ** 2).flatten(1).sum(1)
    assert torch.allclose(norm.step_error(deltas)[0], true, rtol=1e-4)
    assert np.allclose(
        norm.observation_error(observations[0, :-1].numpy(), observations[0, 1:].double().numpy()),
        true.numpy(),
        rtol=1e-4,
    )


def test_pixels_are_clipped_to_the_training_range() -> None:
    row = observed(np.array([[[0, 0]], [[255, 0]], [[0, 255]]], np.uint8))
    norm, now = fit_norm([row]), torch.from_numpy(row.as_float(0, 1))[None]
    wild = torch.full_like(norm.normalize(now), 100.0)
    assert norm.apply_delta(now, wild).max() == 1
    assert norm.apply_delta(now, -wild).min() == 0
    assert torch.allclose(
        norm.apply_delta(now, norm.clip_delta(norm.normalize(now), wild)), norm.apply_delta(now, wild)
    )


@pytest.mark.parametrize(
    "wrong", [{"shape": []}, {"mean": [1.0, 2.0]}, {"std": [0.0]}, {"delta_std": [float("nan")]}, {"patch": 7}]
)
def test_invalid_statistics_are_refused(wrong: dict[str, object]) -> None:
    fine = {"shape": [6, 4], "patch": 2, "mean": [0.0], "std": [1.0], "delta_std": [1.0], "low": 0.0, "high": 1.0}
    ObservationNorm(**fine)
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ObservationNorm(**fine | wrong)
