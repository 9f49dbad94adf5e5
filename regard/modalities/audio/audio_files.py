"""Reads audio with labels or transcripts, from class folders and tables.

Each recording gives one row or one `BadRow`. All recordings of a data set must have the same sampling rate.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from regard.data.lines import UTF8, BadRow, Dialect, Note
from regard.data.media_files import SYSTEM_FILES, MediaFile, class_files, read_file_table
from regard.data.rows import Labels, Row
from regard.data.text_checks import check_text
from regard.modalities.audio.audio_io import AUDIO_FORMATS, Samples, decode_audio


class Audio(NamedTuple):
    parts: tuple[Samples, ...]  # consecutive; concatenated words share theirs with other rows
    sampling_rate: int
    speaker: str = ""  # the part of the file name between the first two _

    @property
    def samples(self) -> Samples:
        return self.parts[0] if len(self.parts) == 1 else np.concatenate(self.parts)


LabelledAudio = Row[Audio, Labels]
TranscribedAudio = Row[Audio, str]
Y = TypeVar("Y")


def audio_row(audio: Audio, target: Y, file: str, line: int) -> Row[Audio, Y]:
    return Row(audio, target, file, line, digest(*audio.parts))


def digest(*parts: Samples) -> str:
    hasher = blake2b(digest_size=16)
    for part in parts:
        hasher.update(part.tobytes())
    return hasher.hexdigest()


def read_labelled_audio(
    paths: Sequence[str | Path], fields: Sequence[str] | None = None
) -> Iterator[LabelledAudio | BadRow | Note]:
    """From a folder with one subfolder per class, or with files named by their class: seven_anna_3.wav."""
    if len(paths) != 1 or not os.path.isdir(paths[0]):
        for path in paths:
            if not os.path.exists(path):
                raise ValueError(f"{path}: no such file or folder")
        names = " ".join(map(str, paths)) or "nothing"
        kinds = "with one folder per class or with files named LABEL_anything.wav"
        raise ValueError(f"audio comes from one folder, {kinds}, not from {names}")
    if fields:
        raise ValueError(f"{paths[0]}: a folder of audio files has no fields like {' and '.join(fields)}")
    folder = Path(paths[0])
    items = list_labelled(folder)
    return require_common_rate(item if isinstance(item, BadRow) else labelled_audio(item, folder) for item in items)


def labelled_audio(item: MediaFile[Labels], folder: Path) -> LabelledAudio | BadRow:
    """A file beside class folders has its speaker in its name; seven_3.wav names none."""
    parts = item.path.stem.split("_") if item.path.parent == folder else []
    bad = check_text("label", item.target.names[0], item.file, 1)
    return bad or open_audio_file(item, parts[1] if len(parts) > 2 else "")


def open_audio_file(item: MediaFile[Y], speaker: str = "") -> Row[Audio, Y] | BadRow:
    recording = decode_audio(item.path)
    if isinstance(recording, str):
        return item.bad_row(recording, "not a sound")
    return audio_row(Audio((recording.samples,), recording.sampling_rate, speaker), item.target, item.file, item.line)


def list_labelled(folder: Path) -> Iterator[MediaFile[Labels] | BadRow]:
    entries = [path for path in sorted(folder.iterdir()) if path.name[0] not in "._" and path.name not in SYSTEM_FILES]
    folders = [path for path in entries if path.is_dir()]
    files = [path for path in entries if path.suffix.lower() in AUDIO_FORMATS and not path.is_dir()]
    if folders and files:
        detail = f"it has folders and, beside them, {files[0].name}: put every file into the folder of its class"
        raise ValueError(f"{folder}: {detail}")
    if not folders and not files:
        raise ValueError(f"{folder}: it has neither folders nor audio files, named {', '.join(AUDIO_FORMATS)}")
    for file in files:
        label, _, rest = file.stem.partition("_")
        detail = "no _ ends its label: name it LABEL_anything.wav, or put it into a folder of its class"
        bad = BadRow(str(file), 1, "missing field", detail)
        yield MediaFile(file, Labels((label,)), str(file)) if rest else bad
    if folders:
        yield from class_files(folder, folders, "audio file", "audio files")


def read_transcribed_audio(
    paths: Sequence[str | Path], fields: Sequence[str] | None = None, dialect: Dialect = UTF8
) -> Iterator[TranscribedAudio | BadRow | Note]:
    """From a table (.tsv) of audio files and their transcripts."""
    files, nouns = [*map(Path, paths)], ("audio", "transcript")
    return require_common_rate(read_file_table(files, fields, nouns, dialect, open_audio_file))


def require_common_rate(items: Iterable[Row[Audio, Y] | BadRow | Note]) -> Iterator[Row[Audio, Y] | BadRow | Note]:
    """Rows with the most common sampling rate; every other row becomes a `BadRow`, even if it is the first."""
    rows = list(items)
    rates = Counter(row.input.sampling_rate for row in rows if isinstance(row, Row))
    common = rates.most_common(1)[0][0] if rates else 0
    for row in rows:
        if not isinstance(row, Row) or row.input.sampling_rate == common:
            yield row
        else:
            detail = f"its sampling rate is {row.input.sampling_rate:,} Hz, but most have {common:,} Hz: convert it"
            yield BadRow(row.file, row.line, "not a sound", f"{detail} (ffmpeg -i OLD -ar {common} NEW)")
