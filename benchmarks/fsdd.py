"""Where the benchmarks of speech find their data: the Free Spoken Digit Dataset, 3,000 clips of six speakers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

from corpus import SHARED

SPEAKERS = ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")


def written(folder: Path, sets: dict[str, Callable[[str, int], bool]]) -> dict[str, Path]:
    """A folder of wav files for each set: those of which (speaker, number) is in it."""
    with ZipFile(SHARED / "fsdd" / "recordings.zip") as packed:
        for name in packed.namelist():
            if not name.endswith(".wav"):
                continue
            speaker, number = Path(name).stem.split("_")[1:]
            for part, wanted in sets.items():
                (folder / part).mkdir(parents=True, exist_ok=True)
                if wanted(speaker, int(number)):
                    (folder / part / Path(name).name).write_bytes(packed.read(name))
    return {part: folder / part for part in sets}


def official(folder: Path) -> dict[str, Path]:
    """The test set is the first five takes of every word by every speaker; three more are for choosing."""
    return written(
        folder,
        {
            "train": lambda speaker, number: number >= 8,
            "valid": lambda speaker, number: 5 <= number < 8,
            "test": lambda speaker, number: number < 5,
        },
    )


def without(folder: Path, left_out: str) -> dict[str, Path]:
    """Nothing of one speaker is learnt from or chosen by; the others have three takes of each word for choosing."""
    return written(
        folder,
        {
            "train": lambda speaker, number: speaker != left_out and number >= 3,
            "valid": lambda speaker, number: speaker != left_out and number < 3,
            "test": lambda speaker, number: speaker == left_out,
        },
    )
