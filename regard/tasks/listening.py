"""Sounds, as a task is given them: frames of mels, padded to whole tokens; and the voices that ship."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.data.audio_augment import AudioAugment, spec_augment
from regard.data.audio_files import LabelledAudio, TranscribedAudio, read_labelled_audio, read_transcribed_audio
from regard.data.audio_io import open_audio
from regard.data.batches import ByLength, Ints, padding_mask
from regard.data.bundled import voices
from regard.data.concat_words import concat_words, split_and_concat
from regard.data.files import Files, Rows
from regard.data.lines import UTF8, Dialect
from regard.data.logmel import Frames, LogMel, normalize_clip, pad_clips
from regard.tasks.inputs import Given, told


class Heard(ByLength):
    """Sounds, with the answer to each. Lengths are in tokens, of which a model takes at most `context`."""

    def __init__(self, frames: list[Frames], wanted: Any, stride: int, context: int):
        self.rows, self.wanted, self.longest = frames, wanted, context * stride or None
        self.lengths = np.array([-(-len(one) // stride) for one in frames], np.int64)[:, None]
        self.units = len(frames)


@dataclass
class SoundInput:
    sounds: LogMel
    hearing: AudioAugment

    def prepare(self, rows: Sequence[Any], wanted: Any, context: int) -> Heard:
        return Heard(self.sounds.prepare(rows, context), wanted, self.sounds.stride, context)

    def given(self, examples: Heard, rows: Ints, training: bool) -> Given:
        """The last frames of a sound's last token may be padding: 0, in whatever company it is."""
        clips = [examples.rows[row] for row in rows]
        if training:
            clips = self.changed(clips, examples.longest)
        lengths = np.array([len(clip) for clip in clips])
        tokens = -(-lengths // self.sounds.stride)
        most = int(tokens.max())
        frames = torch.from_numpy(pad_clips([*map(normalize_clip, clips)], most * self.sounds.stride))  # (B,T,mels)
        if training and self.hearing.spec_augment:
            frames = spec_augment(frames, torch.from_numpy(lengths), self.hearing.spec_augment)
        return Given(frames, padding_mask(tokens, most))

    def changed(self, clips: list[Frames], longest: int | None) -> list[Frames]:
        lengths = torch.tensor([len(clip) for clip in clips])
        frames, lengths = self.hearing.augment(torch.from_numpy(pad_clips(clips)), lengths)
        return [clip[:n][:longest].numpy() for clip, n in zip(frames, lengths.tolist(), strict=True)]

    def sizes(self) -> dict[str, int]:
        return {"mels": self.sounds.mels, "stride": self.sounds.stride}


def fit_sounds(rows: Any, reading: dict[str, Any], readers: dict[str, Any]) -> dict[str, Any]:
    """The ears of the model it starts from, or new ones; and how sounds are heard in training."""
    hearing = told(AudioAugment, reading)
    sounds = readers.get("sounds") or LogMel.fit(rows, hearing["mels"], hearing["stride"])
    for name, usual in (("mels", AudioAugment.mels), ("stride", AudioAugment.stride)):
        has = getattr(sounds, name)
        if hearing[name] not in (has, usual):
            raise ValueError(f"the model to start from has {name} {has}: leave out --{name}")
        hearing[name] = has
    return {"sounds": sounds, "hearing": hearing}


def bundled_clips() -> dict[str, list[LabelledAudio]]:
    """The digits, by speakers of which each is in one set only."""
    return {
        part: [
            LabelledAudio(clip.samples, voices.SAMPLING_RATE, (clip.word,), "voices", line, clip.speaker)
            for line, clip in enumerate(voices.voices(part), 1)
        ]
        for part in voices.SPEAKERS
    }


def bundled_strings() -> dict[str, Rows]:
    return {part: concat_words(clips) for part, clips in bundled_clips().items()}


def spoken_rows(paths: tuple[str, ...], fields: tuple[str, ...] | None, dialect: Dialect = UTF8) -> Rows:
    """From a table of sounds and texts, or from a folder of single words, which are joined."""
    if is_folder(paths):
        return concat_words(read_labelled_audio(paths, fields))
    return read_transcribed_audio(paths, fields, dialect)


def spoken_sets(files: Files) -> dict[str, Rows]:
    """Of a folder of single words without another to validate on."""
    return dict(split_and_concat(read_labelled_audio(files.data, files.fields), files.share))


def is_folder(paths: tuple[str, ...]) -> bool:
    return len(paths) == 1 and Path(paths[0]).is_dir()


def open_spoken(names: Sequence[str]) -> list[TranscribedAudio]:
    found = [(name, open_audio(name)) for name in names]
    return [TranscribedAudio((sound.samples,), "", sound.sampling_rate, name, 1) for name, sound in found]
