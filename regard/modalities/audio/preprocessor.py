"""Audio as model inputs: log-mel frames, padded to whole tokens, and augmented in training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch

from regard.data.batches import Ints, padding_mask
from regard.data.rows import Row
from regard.modalities.audio.audio_augment import AudioAugment, spec_augment
from regard.modalities.audio.audio_files import Audio, audio_row
from regard.modalities.audio.audio_io import open_audio
from regard.modalities.audio.logmel import Frames, LogMel, normalize_clip, pad_clips
from regard.modalities.protocols import EncodedInputs, Inputs, Preprocessor, Target
from regard.modalities.synthetic import voices


class FrameArrays(EncodedInputs):
    """Frames of recordings. Lengths are in tokens of `stride` frames, at most `context`."""

    def __init__(self, frames: list[Frames], stride: int, context: int):
        super().__init__(np.array([-(-len(clip) // stride) for clip in frames], np.int64))
        self.frames, self.max_frames = frames, context * stride or None


@dataclass
class AudioPreprocessor(Preprocessor):
    extractor: LogMel
    augmentation: AudioAugment = field(default_factory=AudioAugment)

    modality = "audio"
    example = "sound.wav"

    def encode(self, rows: Sequence[Row[Audio, object]], context: int, whole: bool = False) -> FrameArrays:
        return FrameArrays(self.extractor.prepare(rows, context), self.extractor.stride, context)

    def collate(self, inputs: FrameArrays, rows: Ints, training: bool) -> Inputs:
        """The last token of a recording is padded with zeros after normalisation, so batch composition changes
        nothing."""
        clips = [inputs.frames[row] for row in rows]
        if training:
            clips = self.augment_clips(clips, inputs.max_frames)
        lengths = np.array([len(clip) for clip in clips])
        tokens = -(-lengths // self.extractor.stride)
        max_tokens = int(tokens.max())
        padded = pad_clips([*map(normalize_clip, clips)], max_tokens * self.extractor.stride)
        frames = torch.from_numpy(padded)  # (B,T,mels)
        if training and self.augmentation.spec_augment:
            frames = spec_augment(frames, torch.from_numpy(lengths), self.augmentation.spec_augment)
        return Inputs(frames, padding_mask(tokens, max_tokens))

    def augment_clips(self, clips: list[Frames], max_frames: int | None) -> list[Frames]:
        lengths = torch.tensor([len(clip) for clip in clips])
        frames, lengths = self.augmentation.augment(torch.from_numpy(pad_clips(clips)), lengths)
        return [clip[:n][:max_frames].numpy() for clip, n in zip(frames, lengths.tolist(), strict=True)]

    def sizes(self) -> dict[str, int]:
        return {"mels": self.extractor.mels, "stride": self.extractor.stride}

    def parse(self, raw: str, target: Target) -> Row[Audio, None]:
        """The name of an audio file."""
        recording = open_audio(raw)
        return audio_row(Audio((recording.samples,), recording.sampling_rate), None, raw, 1)

    def probes(self, count: int, target: Target) -> list[Row[Audio, object]]:
        clips = voices.voices("valid", 1)[:count]
        rate = self.extractor.sampling_rate  # whatever it is: the check does not listen
        return [audio_row(Audio((clip.samples,), rate), clip.word, "", i) for i, clip in enumerate(clips, 1)]

    def save(self, folder: Path) -> dict[str, object]:
        self.extractor.save(folder)
        return {"audio_augment": asdict(self.augmentation)}
