"""Parity with transformers for random configurations of every Hugging Face family, in both directions.

    python benchmarks/parity.py [--seeds 60]

tests/test_parity_writers.py and tests/test_parity_readers.py do the same with a dozen of each: a model of transformers
with random sizes and options is saved, loaded by regard, compared (logits, hidden states, next tokens), saved, and
loaded by transformers again.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

sys.path.append(str(Path(__file__).parents[1] / "tests"))
import test_parity_readers as readers  # noqa: E402
import test_parity_writers as writers  # noqa: E402


def cli() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=60, help="configurations per family")
    seeds, failures = parser.parse_args().seeds, 0
    torch.set_num_threads(1)
    for name, both_ways in {
        **dict.fromkeys(writers.THEIRS, writers.both_ways),
        **dict.fromkeys(readers.FAMILIES, readers.both_ways),
    }.items():
        failed = []
        for seed in range(seeds):
            with TemporaryDirectory() as folder:
                try:
                    both_ways(name, seed, Path(folder))
                except Exception:
                    traceback.print_exc()
                    failed.append(seed)
        failures += len(failed)
        exceptions = f"; not for seeds {failed}" if failed else ""
        agree = f"{seeds - len(failed)} agree{exceptions}"
        print(f"| {name}: parity with transformers | {seeds} configurations | {agree} |", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(cli())
