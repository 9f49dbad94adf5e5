"""Audio: recordings in folders of their labels, and tables of audio files and transcripts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from regard.data.media_files import is_folder_of
from regard.data.rows import Labels, Row
from regard.data.splits import DataOptions, Rows
from regard.json_files import lexists
from regard.modalities.audio import logmel
from regard.modalities.audio.audio_augment import AudioAugment
from regard.modalities.audio.audio_files import Audio, audio_row, read_labelled_audio, read_transcribed_audio
from regard.modalities.audio.audio_io import AUDIO_FORMATS
from regard.modalities.audio.concat_words import concat_words, split_and_concat
from regard.modalities.audio.logmel import LogMel
from regard.modalities.audio.preprocessor import AudioPreprocessor
from regard.modalities.protocols import FitOptions, Modality, ReadOptions, Target, stored_options
from regard.modalities.synthetic import voices


class AudioModality(Modality):
    name = "audio"
    unit = "recordings"
    file = "logmel.json"
    size_names = ("mels", "stride")
    formats = {
        Target.LABELS: "a folder with one folder per label, or with files named LABEL_anything.wav",
        Target.TEXT: "a .tsv of audio files and transcripts, or a folder of single words",
    }
    synthetic_data = {Target.LABELS: "spoken digits", Target.TEXT: "spoken digit strings"}
    default_models = {"encoder": "audio_encoder", "encoder-decoder": "speech2text"}
    file_formats = AUDIO_FORMATS

    def option_groups(self, target: Target) -> tuple[type, ...]:
        return (AudioAugment,)

    def recognizes(self, path: str) -> bool:
        return is_folder_of(path, lambda name: name.endswith(AUDIO_FORMATS))

    def read(self, paths: Sequence[str], how: ReadOptions) -> Rows:
        if how.target is Target.LABELS:
            return read_labelled_audio(paths, how.fields)
        if is_folder(paths):
            return concat_words(read_labelled_audio(paths, how.fields))
        return read_transcribed_audio(paths, how.fields, how.dialect)

    def synthetic(self, target: Target) -> Mapping[str, Rows]:
        """Spoken digits; every speaker is in one set only."""
        clips = {
            part: [
                audio_row(Audio((clip.samples,), voices.SAMPLING_RATE, clip.speaker), Labels((clip.word,)), "voices", i)
                for i, clip in enumerate(voices.voices(part), 1)
            ]
            for part in voices.SPEAKERS
        }
        return clips if target is Target.LABELS else {part: concat_words(rows) for part, rows in clips.items()}

    def training_sets(self, files: DataOptions, how: ReadOptions) -> Mapping[str, Rows]:
        """Single words are split into sets before they are concatenated, so no clip is in two sets."""
        if how.target is Target.LABELS or files.valid or not is_folder(files.data):
            return super().training_sets(files, how)
        return split_and_concat(read_labelled_audio(files.data, files.fields), files.valid_share_for)

    def fit(self, rows: Sequence[Row[Audio, object]], how: FitOptions) -> AudioPreprocessor:
        options = how.groups[AudioAugment]
        if not isinstance(how.start, AudioPreprocessor):
            return AudioPreprocessor(LogMel.fit(rows, options.mels, options.stride), options)
        extractor = how.start.extractor
        for name, default in (("mels", AudioAugment.mels), ("stride", AudioAugment.stride)):
            value = getattr(extractor, name)
            if getattr(options, name) not in (value, default):
                raise ValueError(f"the model of --from has {name} {value}: leave out --{name}")
        return AudioPreprocessor(extractor, replace(options, mels=extractor.mels, stride=extractor.stride))

    def load(self, folder: Path, stored: Mapping[str, object]) -> AudioPreprocessor | None:
        if not lexists(folder / logmel.FILE):
            return None
        return AudioPreprocessor(LogMel.load(folder), stored_options(folder, stored, "audio_augment", AudioAugment))


def is_folder(paths: Sequence[str]) -> bool:
    return len(paths) == 1 and os.path.isdir(paths[0])
