"""Where the benchmarks find their data: Multi30k beside the project if it is there, else the bundled phrasebook."""

from __future__ import annotations

from pathlib import Path

from regard.data.bundled import phrasebook
from regard.data.parallel_text import TextPair, read_pairs

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


def multi30k(part: str) -> list[tuple[str, str]]:
    """English-German pairs of one part: train, val, test_2016_flickr ..."""
    files = [SHARED / "multi30k" / f"{part}.{language}.gz" for language in ("en", "de")]
    if not files[0].exists():
        raise SystemExit(f"this benchmark needs Multi30k: {part}.en.gz and {part}.de.gz in {SHARED / 'multi30k'}")
    pairs = [pair for pair in read_pairs(files) if isinstance(pair, TextPair)]
    return [(pair.source, pair.target) for pair in pairs]


def some_pairs() -> tuple[str, list[tuple[str, str]]]:
    if (SHARED / "multi30k").exists():
        return "Multi30k, English to German", multi30k("train")
    return "the bundled phrasebook", [(p.english, p.german) for p in phrasebook.phrases()]
