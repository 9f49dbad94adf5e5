"""Data sets of the benchmarks: Multi30k beside the project if it is there, else the bundled phrasebook."""

from __future__ import annotations

from pathlib import Path

from regard.data.rows import Row
from regard.modalities.synthetic import phrasebook
from regard.modalities.text.parallel_text import TextPair, read_pairs

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


def multi30k(split: str) -> list[tuple[str, str]]:
    """English-German pairs of one split: train, val, test_2016_flickr ..."""
    files = [SHARED / "multi30k" / f"{split}.{language}.gz" for language in ("en", "de")]
    if not files[0].exists():
        raise SystemExit(f"this benchmark needs Multi30k: {split}.en.gz and {split}.de.gz in {SHARED / 'multi30k'}")
    return [(row.input[0], row.target) for row in read_pairs(files) if isinstance(row, Row)]


def translation_pairs() -> tuple[str, list[tuple[str, str]]]:
    """Name of the data set, and its training pairs."""
    if (SHARED / "multi30k").exists():
        return "Multi30k, English to German", multi30k("train")
    return "the bundled phrasebook", [(p.english, p.german) for p in phrasebook.phrases()]


def text_rows(pairs: list[tuple[str, str]]) -> list[TextPair]:
    return [Row((source,), target, "pairs", line, source) for line, (source, target) in enumerate(pairs, 1)]
