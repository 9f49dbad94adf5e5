"""Reads audio with labels or transcripts, from class folders and tables.

Each recording gives one row or one `BadRow`. All recordings of a data set must have the same sampling rate.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from regard.data.audio_io import AUDIO_FORMATS, Samples, decode_audio
from regard.data.image_files import IDX_NAME, IMAGE_FORMATS, SYSTEM_FILES
from regard.data.lines import UTF8, BadRow, Dialect, Lines, Note
from regard.data.parallel_text import file_suffixes
from regard.data.tables import columns, missing_columns, split_columns
from regard.data.text_checks import check_text, read_failure


class LabelledAudio(NamedTuple):
    samples: Samples
    sampling_rate: int
    labels: tuple[str, ...]
    file: str
    line: int
    speaker: str = ""  # the part of the file name between the first two _

    @property
    def input_key(self) -> str:
        return digest(self.samples)

    @property
    def row_key(self) -> str:
        return "\t".join((self.input_key, *self.labels))


class TranscribedAudio(NamedTuple):
    parts: tuple[Samples, ...]  # consecutive; concatenated words share theirs with other rows
    text: str
    sampling_rate: int
    file: str
    line: int

    @property
    def samples(self) -> Samples:
        return self.parts[0] if len(self.parts) == 1 else np.concatenate(self.parts)

    @property
    def input_key(self) -> str:
        return digest(*self.parts)

    @property
    def row_key(self) -> str:
        return f"{self.input_key}\t{self.text}"

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.text,)


AudioRow = TypeVar("AudioRow", LabelledAudio, TranscribedAudio)
MAX_ENTRIES = 1000  # entries of a folder that `detect_media` looks at


def detect_media(path: str) -> Literal["images", "audio"] | None:
    """What a folder contains, by the names of the files in it and in its subfolders."""
    if not os.path.isdir(path):
        return None
    counts: Counter[Literal["images", "audio"]] = Counter()
    for folder in (path, *(entry.path for entry in islice(os.scandir(path), MAX_ENTRIES) if entry.is_dir())):
        names = [entry.name.lower() for entry in islice(os.scandir(folder), MAX_ENTRIES)]
        counts["images"] += sum(name.endswith((*IMAGE_FORMATS,)) or bool(IDX_NAME.search(name)) for name in names)
        counts["audio"] += sum(name.endswith(AUDIO_FORMATS) for name in names)
    [(kind, count)] = counts.most_common(1)
    return kind if count else None


def digest(*parts: Samples) -> str:
    hasher = blake2b(digest_size=16)
    for part in parts:
        hasher.update(part.tobytes())
    return hasher.hexdigest()


def read_labelled_audio(
    paths: Sequence[str | Path], fields: Sequence[str] | None = None
) -> Iterator[LabelledAudio | BadRow]:
    """From a folder with one subfolder per class, or with files named by their class: seven_anna_3.wav."""
    if len(paths) != 1 or not os.path.isdir(paths[0]):
        for path in paths:
            if not os.path.exists(path):
                raise ValueError(f"{path}: no such file or folder")
        raise ValueError(
            f"audio comes from one folder, with one folder per class or with files named LABEL_anything.wav, "
            f"not from {' '.join(map(str, paths)) or 'nothing'}"
        )
    if fields:
        raise ValueError(f"{paths[0]}: a folder of audio files has no fields like {' and '.join(fields)}")
    yield from require_common_rate(decode_labelled(Path(paths[0])))


def decode_labelled(folder: Path) -> Iterator[LabelledAudio | BadRow]:
    for file, label, speaker in list_labelled(folder):
        if isinstance(file, BadRow):
            yield file
            continue
        if bad := check_text("label", label, str(file), 1):
            yield bad
            continue
        recording = decode_audio(file)
        if isinstance(recording, str):
            yield BadRow(str(file), 1, read_failure(recording, "not a sound"), recording)
        else:
            yield LabelledAudio(*recording, (label,), str(file), 1, speaker)


def list_labelled(folder: Path) -> Iterator[tuple[Path | BadRow, str, str]]:
    """Files, each with its label and its speaker."""
    entries = [path for path in sorted(folder.iterdir()) if path.name[0] not in "._" and path.name not in SYSTEM_FILES]
    folders = [path for path in entries if path.is_dir()]
    files = [path for path in entries if path.suffix.lower() in AUDIO_FORMATS and not path.is_dir()]
    if folders and files:
        raise ValueError(
            f"{folder}: it has folders and, beside them, {files[0].name}: put every file into the folder of its class"
        )
    if not folders and not files:
        raise ValueError(f"{folder}: it has neither folders nor audio files, named {', '.join(AUDIO_FORMATS)}")
    for file in files:
        label, _, rest = file.stem.partition("_")
        if rest:
            yield file, label, rest.partition("_")[0] if "_" in rest else ""  # seven_3.wav names no speaker
        else:
            detail = "no _ ends its label: name it LABEL_anything.wav, or put it into a folder of its class"
            yield BadRow(str(file), 1, "missing field", detail), "", ""
    for subfolder in folders:
        paths = [path for path in sorted(subfolder.iterdir()) if path.name[0] != "." and path.name not in SYSTEM_FILES]
        if not paths:
            yield BadRow(str(subfolder), 1, "empty", "this class has no audio file"), "", ""
        if paths and all(path.is_dir() for path in paths):
            raise ValueError(
                f"{subfolder}: folders, but no audio files; if this is one of several sets, name it, not {folder}"
            )
        for path in paths:
            yield path, subfolder.name, ""


def read_transcribed_audio(
    paths: Sequence[str | Path], fields: Sequence[str] | None = None, dialect: Dialect = UTF8
) -> Iterator[TranscribedAudio | BadRow | Note]:
    """From a table (.tsv) of audio files and their transcripts. Paths are relative to the table. `fields` names the two
    columns: numbers from 1, or names in the first line."""
    if fields and len(fields) != 2:
        raise ValueError(f"fields are audio file and text, not {' '.join(fields)}")
    files = [Path(path) for path in paths]
    if file_suffixes(files, dialect) not in ([".tsv"], [".txt"]):
        raise ValueError(
            f"transcribed audio comes from one .tsv file of audio files and texts, or from a folder of single words, "
            f"not from {' '.join(map(str, files)) or 'nothing'}"
        )
    lines = Lines(files[0], dialect.encoding)
    yield from require_common_rate(decode_transcribed(lines, files[0].parent, fields, dialect.separator))
    yield from lines.notes()


def decode_transcribed(
    lines: Lines, folder: Path, fields: Sequence[str] | None, separator: str | None
) -> Iterator[TranscribedAudio | BadRow]:
    rows = split_columns(lines, separator)
    left, right = columns(rows, lines.file, fields) if fields else (0, 1)
    for row in rows:
        if isinstance(row, BadRow):
            yield row
            continue
        number, cells = row
        if len(cells) <= max(left, right):
            yield missing_columns(cells, max(left, right) + 1, lines.file, number, separator)
            continue
        name, text = cells[left], cells[right]
        if bad := check_text("audio file", name, lines.file, number) or check_text("text", text, lines.file, number):
            yield bad
            continue
        recording = decode_audio(folder / name)
        if isinstance(recording, str):
            yield BadRow(lines.file, number, read_failure(recording, "not a sound"), f"{name}: {recording}")
        else:
            yield TranscribedAudio((recording.samples,), text, recording.sampling_rate, lines.file, number)


def require_common_rate(items: Iterable[AudioRow | BadRow]) -> Iterator[AudioRow | BadRow]:
    """Rows with the most common sampling rate; every other row becomes a `BadRow`, even if it is the first."""
    rows = list(items)
    rates = Counter(row.sampling_rate for row in rows if not isinstance(row, BadRow))
    common = rates.most_common(1)[0][0] if rates else 0
    for row in rows:
        if isinstance(row, BadRow) or row.sampling_rate == common:
            yield row
        else:
            detail = f"its sampling rate is {row.sampling_rate:,} Hz, but most have {common:,} Hz: convert it"
            yield BadRow(row.file, row.line, "not a sound", f"{detail} (ffmpeg -i OLD -ar {common} NEW)")
