"""Every speaker says every word, recordings follow from the seed, and words differ more than takes."""

import numpy as np
import pytest

from regard.modalities.audio.logmel import LogMel, normalize_clip
from regard.modalities.synthetic.voices import SAMPLING_RATE, SPEAKERS, TAKES, WORDS, voices


@pytest.mark.parametrize("part", SPEAKERS)
def test_every_speaker_says_every_word(part):
    clips = voices(part)
    assert len(clips) == SPEAKERS[part] * TAKES * len(WORDS)
    assert len({clip.samples.tobytes() for clip in clips}) == len(clips)
    assert all(clip.samples.dtype == np.int16 for clip in clips)
    assert all(0.1 * SAMPLING_RATE < len(clip.samples) < 1.2 * SAMPLING_RATE for clip in clips)
    assert all(2000 < np.abs(clip.samples.astype(int)).max() < 32768 for clip in clips)


def test_sets_share_no_speaker_and_follow_from_the_seed():
    speakers = [{clip.speaker for clip in voices(part)} for part in SPEAKERS]
    assert not speakers[0] & speakers[1]
    assert not speakers[0] & speakers[2]
    assert not speakers[1] & speakers[2]
    repeated = voices.__wrapped__("valid")
    assert all(np.array_equal(a.samples, b.samples) for a, b in zip(voices("valid"), repeated, strict=True))
    assert not np.array_equal(voices("valid")[0].samples[:800], voices("valid", seed=1)[0].samples[:800])


def test_words_differ_more_than_takes_of_the_same_word():
    """By the frames of the same speaker, stretched to one length."""
    ears = LogMel(SAMPLING_RATE, 40, 4, 256, 80)

    def vector(clip):
        frames = normalize_clip(ears.frames(clip.samples))
        return frames[np.linspace(0, len(frames) - 1, 30).round().astype(int)].ravel()

    clips = [clip for clip in voices("valid") if clip.speaker == "valid0"]
    vectors = np.stack([vector(clip) for clip in clips])
    right = 0
    for i, clip in enumerate(vectors):
        far = ((vectors - clip) ** 2).sum(1)
        far[i] = np.inf
        right += clips[int(far.argmin())].word == clips[i].word
    assert right >= 0.9 * len(clips)
