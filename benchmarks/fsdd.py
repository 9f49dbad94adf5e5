"""Data of the speech benchmarks: the Free Spoken Digit Dataset, 3,000 clips of six speakers, as folders of wav."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

from corpus import SHARED

SPEAKERS = ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")


def write_splits(folder: Path, splits: dict[str, Callable[[str, int], bool]]) -> dict[str, Path]:
    """A folder of wav files for each split: the clips whose (speaker, take) it selects."""
    with ZipFile(SHARED / "fsdd" / "recordings.zip") as archive:
        for name in archive.namelist():
            if not name.endswith(".wav"):
                continue
            speaker, take = Path(name).stem.split("_")[1:]
            for split, selects in splits.items():
                (folder / split).mkdir(parents=True, exist_ok=True)
                if selects(speaker, int(take)):
                    (folder / split / Path(name).name).write_bytes(archive.read(name))
    return {split: folder / split for split in splits}


def official_splits(folder: Path) -> dict[str, Path]:
    """Takes 0 to 4 of every word by every speaker are the test set, 5 to 7 the validation set."""
    return write_splits(
        folder,
        {
            "train": lambda speaker, take: take >= 8,
            "valid": lambda speaker, take: 5 <= take < 8,
            "test": lambda speaker, take: take < 5,
        },
    )


def leave_one_speaker_out(folder: Path, test_speaker: str) -> dict[str, Path]:
    """One speaker is the test set; takes 0 to 2 of the others are the validation set."""
    return write_splits(
        folder,
        {
            "train": lambda speaker, take: speaker != test_speaker and take >= 3,
            "valid": lambda speaker, take: speaker != test_speaker and take < 3,
            "test": lambda speaker, take: speaker == test_speaker,
        },
    )
