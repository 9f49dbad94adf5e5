"""Audio augmentation differs between clips, follows from the seed and does nothing if it is switched off."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from regard.modalities.audio.audio_augment import AudioAugment, add_noise, random_eq_curves, spec_augment, warp
from regard.modalities.audio.audio_files import Audio, audio_row
from regard.modalities.audio.logmel import LogMel, normalize_clip, pad_clips
from regard.modalities.audio.preprocessor import AudioPreprocessor

B, T, M = 5, 30, 12
OFF = {"shift": 0, "tempo": 0.0, "vtlp": 0.0, "pitch": 0.0, "random_eq": 0.0, "noise": -100.0, "spec_augment": 0.0}
LENGTHS = torch.tensor([30, 12, 25, 8, 30])


def frames(seed=0):
    return torch.randn(B, T, M, generator=torch.Generator().manual_seed(seed))


def test_without_augmentation_frames_are_unchanged():
    result, lengths = AudioAugment(mels=M, **OFF).augment(frames(), LENGTHS)
    assert torch.equal(result, frames())
    assert torch.equal(lengths, LENGTHS)


@pytest.mark.parametrize("how", [{"tempo": 0.3}, {"vtlp": 0.2}, {"pitch": 3.0}, {"random_eq": 6.0}, {"noise": 0.0}])
def test_augmentations_differ_between_clips_and_follow_from_the_seed(how):
    hearing = AudioAugment(mels=M, **OFF | how)
    same = frames()[:1].expand(B, -1, -1)
    torch.manual_seed(1)
    result, lengths = hearing.augment(same, torch.full((B,), 20))
    torch.manual_seed(1)
    repeated, _ = hearing.augment(same, torch.full((B,), 20))
    assert torch.equal(result, repeated)
    assert result.isfinite().all()
    for b in range(1, B):
        assert not torch.allclose(result[b, :15], result[0, :15])
    assert (lengths != 20).any() == ("tempo" in how)


def test_a_shift_moves_all_frames_and_pads_with_the_minimum():
    torch.manual_seed(0)
    result, lengths = warp(frames(), LENGTHS, 6, 0.0, 0.0, 0.0)
    for b, length in enumerate(LENGTHS.tolist()):
        whole = frames()[b, :length]
        starts = [s for s in range(-2, 7) if fits(result[b, : lengths[b]], whole, s)]
        assert starts, "nowhere is the sound as it was"
        start = starts[0]
        if start > 0:
            assert_close(result[b, :start], whole.amin(0).expand(start, -1))


def fits(result, whole, start):
    inside = range(max(0, -start), min(len(whole), len(result) - start))
    return all(torch.allclose(result[t + start], whole[t], atol=1e-4) for t in inside)


def test_pitch_shifts_mels_and_vtlp_stretches_about_the_middle():
    tone = torch.zeros(200, 4, 41)
    tone[:, :, 20] = 1.0
    torch.manual_seed(0)
    result, _ = warp(tone, torch.full((200,), 4), 0, 0.0, 0.0, 3.0)
    peaks = result[:, 0].argmax(1)
    assert {*peaks.tolist()} == {*range(17, 24)}
    stretched, _ = warp(tone, torch.full((200,), 4), 0, 0.0, 0.3, 0.0)
    assert {*stretched[:, 0].argmax(1).tolist()} == {20}, "about its middle"


def test_noise_only_adds_power_and_random_eq_is_constant_in_time():
    torch.manual_seed(0)
    assert (add_noise(frames(), LENGTHS, -12.0, -3.0) >= frames() - 1e-5).all()
    curve = random_eq_curves(B, M, 1.0)
    assert curve.shape == (B, 1, M)
    assert curve.abs().max() <= 1 + 1 / 2 + 1 / 3


def test_spec_augment_masks_at_most_its_share_of_time_and_mels():
    torch.manual_seed(0)
    result = spec_augment(torch.ones(200, T, M), torch.full((200,), T), 0.3) == 0
    times, bands = result.all(2).sum(1), result.all(1).sum(1)
    assert times.max() <= 0.3 * T + 1
    assert bands.max() <= 0.3 * M + 1
    assert (times > 0).any()
    assert (bands > 0).any()
    assert not result.all((1, 2)).any()


def test_padding_does_not_change_frames_and_lengths_are_whole_tokens():
    """The same frames alone and beside a longer sound, to the last bit."""
    draw = np.random.default_rng(0)
    rows = [
        audio_row(Audio((draw.integers(-9000, 9000, n).astype(np.int16),), 8000), None, "f", 1)
        for n in (3000, 900, 5000)
    ]
    ears = AudioPreprocessor(LogMel(8000, M, 4, 256, 80), AudioAugment(mels=M))
    examples = ears.encode(rows, 100)
    together = ears.collate(examples, np.arange(3), training=False)
    assert together.x.shape[1] == 4 * together.mask.shape[3]
    for i, length in enumerate(examples.lengths[:, 0]):
        alone = ears.collate(examples, np.array([i]), training=False)
        assert alone.mask.all()
        assert alone.x.shape[1] == 4 * length
        assert torch.equal(alone.x[0], together.x[i, : 4 * length])
        assert (together.x[i, 4 * length :] == 0).all()
        assert together.mask[i].sum() == length


def test_normalized_clips_have_mean_0_and_std_1():
    clip = normalize_clip(frames()[0].numpy() * 5 + 3)
    assert np.allclose(clip.mean(0), 0, atol=1e-5)
    assert 0.9 < clip.std() < 1.0
    assert np.isfinite(normalize_clip(np.full((4, M), 2.0, np.float32))).all()
    assert pad_clips([clip[:3], clip]).shape == (2, T, M)
