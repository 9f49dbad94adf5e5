"""Sounds with labels or texts, from folders and lists of files.

Every sound gives exactly one row or one `Bad`. All sounds of a set have one rate, in samples a second: what is recorded
at another says something else.
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

from regard.data.audio_io import ENDINGS, Samples, decode
from regard.data.flaws import flaw, unread
from regard.data.image_files import IDX, IMAGE_FORMATS, LITTER
from regard.data.lines import UTF8, Bad, Dialect, Lines, Note
from regard.data.tables import columns, split_columns, too_few
from regard.data.text import kinds_of


class LabelledAudio(NamedTuple):
    samples: Samples
    sampling_rate: int
    labels: tuple[str, ...]
    file: str
    line: int
    speaker: str = ""  # what stands between the first two _ of the file's name

    @property
    def asked(self) -> str:
        return digest(self.samples)

    @property
    def said(self) -> str:
        return "\t".join((self.asked, *self.labels))


class TranscribedAudio(NamedTuple):
    parts: tuple[Samples, ...]  # that follow each other; those of joined sounds are shared
    text: str
    sampling_rate: int
    file: str
    line: int

    @property
    def samples(self) -> Samples:
        return self.parts[0] if len(self.parts) == 1 else np.concatenate(self.parts)

    @property
    def asked(self) -> str:
        return digest(*self.parts)

    @property
    def said(self) -> str:
        return f"{self.asked}\t{self.text}"

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.text,)


S = TypeVar("S", LabelledAudio, TranscribedAudio)
LOOKED_AT = 1000  # entries of a folder that tell what is in it


def detect_media(path: str) -> Literal["images", "audio"] | None:
    """What a folder holds, by the names of the files in it and in its folders."""
    if not os.path.isdir(path):
        return None
    kinds: Counter[Literal["images", "audio"]] = Counter()
    for folder in (path, *(one.path for one in islice(os.scandir(path), LOOKED_AT) if one.is_dir())):
        names = [one.name.lower() for one in islice(os.scandir(folder), LOOKED_AT)]
        kinds["images"] += sum(name.endswith((*IMAGE_FORMATS,)) or bool(IDX.search(name)) for name in names)
        kinds["audio"] += sum(name.endswith(ENDINGS) for name in names)
    [(kind, count)] = kinds.most_common(1)
    return kind if count else None


def digest(*parts: Samples) -> str:
    made = blake2b(digest_size=16)
    for part in parts:
        made.update(part.tobytes())
    return made.hexdigest()


def read_labelled_audio(
    paths: Sequence[str | Path], fields: Sequence[str] | None = None
) -> Iterator[LabelledAudio | Bad]:
    """A folder with one subfolder a class, or with files that are named by their class: seven_anna_3.wav."""
    if len(paths) != 1 or not os.path.isdir(paths[0]):
        for path in paths:
            if not os.path.exists(path):
                raise ValueError(f"{path}: no such file or folder")
        raise ValueError(
            f"sounds come from one folder, with a folder for each class or with files named LABEL_anything.wav, "
            f"not from {' '.join(map(str, paths)) or 'nothing'}"
        )
    if fields:
        raise ValueError(f"{paths[0]}: a folder of sounds has no fields like {' and '.join(fields)}")
    yield from of_one_rate(labelled(Path(paths[0])))


def labelled(folder: Path) -> Iterator[LabelledAudio | Bad]:
    for file, label, speaker in named(folder):
        if isinstance(file, Bad):
            yield file
            continue
        if bad := flaw("label", label, str(file), 1):
            yield bad
            continue
        found = decode(file)
        if isinstance(found, str):
            yield Bad(str(file), 1, unread(found, "not a sound"), found)
        else:
            yield LabelledAudio(*found, (label,), str(file), 1, speaker)


def named(folder: Path) -> Iterator[tuple[Path | Bad, str, str]]:
    """Files, each with its label and its speaker."""
    entries = [one for one in sorted(folder.iterdir()) if one.name[0] not in "._" and one.name not in LITTER]
    folders = [one for one in entries if one.is_dir()]
    files = [one for one in entries if one.suffix.lower() in ENDINGS and not one.is_dir()]
    if folders and files:
        raise ValueError(
            f"{folder}: it has folders and, beside them, {files[0].name}: put every sound into the folder of its class"
        )
    if not folders and not files:
        raise ValueError(
            f"{folder}: there is neither a sound in it nor a folder: sounds are named {', '.join(ENDINGS)}"
        )
    for file in files:
        label, _, rest = file.stem.partition("_")
        if rest:
            yield file, label, rest.partition("_")[0] if "_" in rest else ""  # seven_3.wav does not say whose it is
        else:
            bad = "no _ ends its label: name it LABEL_anything.wav, or put it into a folder of its class"
            yield Bad(str(file), 1, "missing field", bad), "", ""
    for own in folders:
        inside = [one for one in sorted(own.iterdir()) if one.name[0] != "." and one.name not in LITTER]
        if not inside:
            yield Bad(str(own), 1, "empty", "there is no sound of this class"), "", ""
        if inside and all(one.is_dir() for one in inside):
            raise ValueError(f"{own}: folders, but no sounds; if this is one of several sets, name it, not {folder}")
        for one in inside:
            yield one, own.name, ""


def read_transcribed_audio(
    paths: Sequence[str | Path], fields: Sequence[str] | None = None, dialect: Dialect = UTF8
) -> Iterator[TranscribedAudio | Bad | Note]:
    """A table (.tsv) of sounds and what is said in them: the files of the sounds are named as seen from the table.
    `fields` are their columns: numbers from 1, or names in the first line."""
    if fields and len(fields) != 2:
        raise ValueError(f"fields are sound and text, not {' '.join(fields)}")
    files = [Path(path) for path in paths]
    if kinds_of(files, dialect) not in ([".tsv"], [".txt"]):
        raise ValueError(
            f"what is said in sounds comes from one .tsv file of sounds and texts, or from a folder of single words, "
            f"not from {' '.join(map(str, files)) or 'nothing'}"
        )
    lines = Lines(files[0], dialect.encoding)
    yield from of_one_rate(listed(lines, files[0].parent, fields, dialect.separator))
    yield from lines.notes()


def listed(
    lines: Lines, folder: Path, fields: Sequence[str] | None, separator: str | None
) -> Iterator[TranscribedAudio | Bad]:
    rows = split_columns(lines, separator)
    left, right = columns(rows, lines.file, fields) if fields else (0, 1)
    for row in rows:
        if isinstance(row, Bad):
            yield row
            continue
        number, cells = row
        if len(cells) <= max(left, right):
            yield too_few(cells, max(left, right) + 1, lines.file, number, separator)
            continue
        name, text = cells[left], cells[right]
        if bad := flaw("sound", name, lines.file, number) or flaw("text", text, lines.file, number):
            yield bad
            continue
        found = decode(folder / name)
        if isinstance(found, str):
            yield Bad(lines.file, number, unread(found, "not a sound"), f"{name}: {found}")
        else:
            yield TranscribedAudio((found.samples,), text, found.sampling_rate, lines.file, number)


def of_one_rate(items: Iterable[S | Bad]) -> Iterator[S | Bad]:
    """Sounds of the rate that most of them have; what has another is bad, be it the first of all."""
    found = list(items)
    rates = Counter(item.sampling_rate for item in found if not isinstance(item, Bad))
    wanted = rates.most_common(1)[0][0] if rates else 0
    for item in found:
        if isinstance(item, Bad) or item.sampling_rate == wanted:
            yield item
        else:
            detail = f"it has {item.sampling_rate:,} samples a second, but most have {wanted:,}: convert it"
            yield Bad(item.file, item.line, "not a sound", f"{detail} (ffmpeg -i OLD -ar {wanted} NEW)")
