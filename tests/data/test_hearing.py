"""Hearing: sounds are changed in training, each in a way of its own, and nothing is when nothing is to be."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from regard.data.hearing import Hearing, coloured, hidden, moved, noisy
from regard.data.mels import Mels, normal, side_by_side
from regard.data.sounds import Sound
from regard.tasks.audio_input import AudioInput

B, T, M = 5, 30, 12
OFF = {"shift": 0, "tempo": 0.0, "tract": 0.0, "pitch": 0.0, "colour": 0.0, "noise": -100.0, "masks": 0.0}
LENGTHS = torch.tensor([30, 12, 25, 8, 30])


def frames(seed=0):
    return torch.randn(B, T, M, generator=torch.Generator().manual_seed(seed))


def test_nothing_is_changed_if_nothing_is_to_be():
    found, lengths = Hearing(mels=M, **OFF).heard(frames(), LENGTHS)
    assert torch.equal(found, frames())
    assert torch.equal(lengths, LENGTHS)


@pytest.mark.parametrize("how", [{"tempo": 0.3}, {"tract": 0.2}, {"pitch": 3.0}, {"colour": 6.0}, {"noise": 0.0}])
def test_each_change_is_another_for_each_sound_and_follows_from_the_seed(how):
    hearing = Hearing(mels=M, **OFF | how)
    same = frames()[:1].expand(B, -1, -1)
    torch.manual_seed(1)
    found, lengths = hearing.heard(same, torch.full((B,), 20))
    torch.manual_seed(1)
    again, _ = hearing.heard(same, torch.full((B,), 20))
    assert torch.equal(found, again)
    assert found.isfinite().all()
    for b in range(1, B):
        assert not torch.allclose(found[b, :15], found[0, :15])
    assert (lengths != 20).any() == ("tempo" in how)


def test_a_shift_moves_all_frames_alike_and_what_is_new_is_quiet():
    torch.manual_seed(0)
    found, lengths = moved(frames(), LENGTHS, 6, 0.0, 0.0, 0.0)
    for b, length in enumerate(LENGTHS.tolist()):
        whole = frames()[b, :length]
        starts = [s for s in range(-2, 7) if fits(found[b, : lengths[b]], whole, s)]
        assert starts, "nowhere is the sound as it was"
        start = starts[0]
        if start > 0:
            assert_close(found[b, :start], whole.amin(0).expand(start, -1))


def fits(found, whole, start):
    inside = range(max(0, -start), min(len(whole), len(found) - start))
    return all(torch.allclose(found[t + start], whole[t], atol=1e-4) for t in inside)


def test_bands_move_up_or_down_and_a_tone_stays_one():
    tone = torch.zeros(200, 4, 41)
    tone[:, :, 20] = 1.0
    torch.manual_seed(0)
    found, _ = moved(tone, torch.full((200,), 4), 0, 0.0, 0.0, 3.0)
    peaks = found[:, 0].argmax(1)
    assert {*peaks.tolist()} == {*range(17, 24)}
    stretched, _ = moved(tone, torch.full((200,), 4), 0, 0.0, 0.3, 0.0)
    assert {*stretched[:, 0].argmax(1).tolist()} == {20}, "about its middle"


def test_noise_only_adds_and_a_colour_is_the_same_all_the_time():
    torch.manual_seed(0)
    assert (noisy(frames(), LENGTHS, -12.0, -3.0) >= frames() - 1e-5).all()
    curve = coloured(B, M, 1.0)
    assert curve.shape == (B, 1, M)
    assert curve.abs().max() <= 1 + 1 / 2 + 1 / 3


def test_a_mask_hides_one_stretch_of_each_and_no_more_than_its_share():
    torch.manual_seed(0)
    found = hidden(torch.ones(200, T, M), torch.full((200,), T), 0.3) == 0
    times, bands = found.all(2).sum(1), found.all(1).sum(1)
    assert times.max() <= 0.3 * T + 1
    assert bands.max() <= 0.3 * M + 1
    assert (times > 0).any()
    assert (bands > 0).any()
    assert not found.all((1, 2)).any()


def test_padding_is_invisible_and_tokens_are_whole():
    """The same frames alone and beside a longer sound, to the last bit."""
    draw = np.random.default_rng(0)
    rows = [Sound(draw.integers(-9000, 9000, n).astype(np.int16), 8000, ("a",), "f", 1) for n in (3000, 900, 5000)]
    ears = AudioInput(Mels(8000, M, 4, 256, 80), Hearing(mels=M))
    heard = ears.encode(rows, np.zeros(3), 100)
    together = ears.collate(heard, np.arange(3), training=False)
    assert together.x.shape[1] == 4 * together.mask.shape[3]
    for i, length in enumerate(heard.lengths[:, 0]):
        alone = ears.collate(heard, np.array([i]), training=False)
        assert alone.mask.all()
        assert alone.x.shape[1] == 4 * length
        assert torch.equal(alone.x[0], together.x[i, : 4 * length])
        assert (together.x[i, 4 * length :] == 0).all()
        assert together.mask[i].sum() == length


def test_normal_frames_have_no_mean_and_no_scale():
    one = normal(frames()[0].numpy() * 5 + 3)
    assert np.allclose(one.mean(0), 0, atol=1e-5)
    assert 0.9 < one.std() < 1.0
    assert np.isfinite(normal(np.full((4, M), 2.0, np.float32))).all()
    assert side_by_side([one[:3], one]).shape == (2, T, M)
