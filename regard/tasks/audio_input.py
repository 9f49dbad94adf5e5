"""Audio as model inputs: log-mel frames, padded to whole tokens; and the bundled spoken digits."""

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
from regard.data.batches import BucketedExamples, Ints, padding_mask
from regard.data.bundled import voices
from regard.data.concat_words import concat_words, split_and_concat
from regard.data.lines import UTF8, Dialect
from regard.data.logmel import Frames, LogMel, normalize_clip, pad_clips
from regard.data.splits import DataOptions, Rows
from regard.tasks.inputs import Inputs, select_options


class AudioExamples(BucketedExamples):
    """Frames of recordings, and their targets. Lengths are in tokens of `stride` frames, at most `context`."""

    def __init__(self, frames: list[Frames], targets: Any, stride: int, context: int):
        self.rows, self.targets, self.max_frames = frames, targets, context * stride or None
        self.lengths = np.array([-(-len(clip) // stride) for clip in frames], np.int64)[:, None]
        self.units = len(frames)


@dataclass
class AudioInput:
    extractor: LogMel
    augmentation: AudioAugment

    def encode(self, rows: Sequence[Any], targets: Any, context: int) -> AudioExamples:
        return AudioExamples(self.extractor.prepare(rows, context), targets, self.extractor.stride, context)

    def collate(self, examples: AudioExamples, rows: Ints, training: bool) -> Inputs:
        """The last token of a recording is padded with zeros after normalisation, so batch composition changes
        nothing."""
        clips = [examples.rows[row] for row in rows]
        if training:
            clips = self.augment_clips(clips, examples.max_frames)
        lengths = np.array([len(clip) for clip in clips])
        tokens = -(-lengths // self.extractor.stride)
        max_tokens = int(tokens.max())
        frames = torch.from_numpy(
            pad_clips([*map(normalize_clip, clips)], max_tokens * self.extractor.stride)
        )  # (B,T,mels)
        if training and self.augmentation.spec_augment:
            frames = spec_augment(frames, torch.from_numpy(lengths), self.augmentation.spec_augment)
        return Inputs(frames, padding_mask(tokens, max_tokens))

    def augment_clips(self, clips: list[Frames], max_frames: int | None) -> list[Frames]:
        lengths = torch.tensor([len(clip) for clip in clips])
        frames, lengths = self.augmentation.augment(torch.from_numpy(pad_clips(clips)), lengths)
        return [clip[:n][:max_frames].numpy() for clip, n in zip(frames, lengths.tolist(), strict=True)]

    def sizes(self) -> dict[str, int]:
        return {"mels": self.extractor.mels, "stride": self.extractor.stride}


def fit_audio(rows: Any, input_options: dict[str, Any], preprocessors: dict[str, Any]) -> dict[str, Any]:
    """The feature extractor of the model that training starts from, or a new one; and the options of augmentation."""
    augment = select_options(AudioAugment, input_options)
    extractor = preprocessors.get("feature_extractor") or LogMel.fit(rows, augment["mels"], augment["stride"])
    for name, default in (("mels", AudioAugment.mels), ("stride", AudioAugment.stride)):
        value = getattr(extractor, name)
        if augment[name] not in (value, default):
            raise ValueError(f"the model of --from has {name} {value}: leave out --{name}")
        augment[name] = value
    return {"feature_extractor": extractor, "audio_augment": augment}


def bundled_clips() -> dict[str, list[LabelledAudio]]:
    """Spoken digits; every speaker is in one set only."""
    return {
        part: [
            LabelledAudio(clip.samples, voices.SAMPLING_RATE, (clip.word,), "voices", line, clip.speaker)
            for line, clip in enumerate(voices.voices(part), 1)
        ]
        for part in voices.SPEAKERS
    }


def bundled_utterances() -> dict[str, Rows]:
    return {part: concat_words(clips) for part, clips in bundled_clips().items()}


def read_speech(paths: tuple[str, ...], fields: tuple[str, ...] | None, dialect: Dialect = UTF8) -> Rows:
    """Utterances from a table of audio files and texts, or concatenated from a folder of single words."""
    if is_folder(paths):
        return concat_words(read_labelled_audio(paths, fields))
    return read_transcribed_audio(paths, fields, dialect)


def split_speech(files: DataOptions) -> dict[str, Rows]:
    """Split a folder of single words into training and validation clips, then concatenate each."""
    return dict(split_and_concat(read_labelled_audio(files.data, files.fields), files.valid_share_for))


def is_folder(paths: tuple[str, ...]) -> bool:
    return len(paths) == 1 and Path(paths[0]).is_dir()


def open_recordings(names: Sequence[str]) -> list[TranscribedAudio]:
    recordings = [(name, open_audio(name)) for name in names]
    return [TranscribedAudio((sound.samples,), "", sound.sampling_rate, name, 1) for name, sound in recordings]
