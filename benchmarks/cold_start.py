"""How soon the first token comes, and how much memory it takes: a cold `regard run` on GPT-2 small, random weights.

    python benchmarks/cold_start.py [--rounds 7] [--out runs/speed]

Every round is a process of its own. The clock runs from the moment PyTorch is imported until one token is written; the
kernels were compiled and kept by an earlier use. Memory is the peak of a process that writes 32 tokens, above what
Python with PyTorch takes. The int8 model is read from a folder of its own, as `save` wrote it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

from recipes import machine
from shapes import folder_of

from regard.bench.peak_rss import measure_peak_rss
from regard.bench.regard_backend import SPEEDS
from regard.load import load

ONE = """
import sys, time, torch
began = time.perf_counter()
from regard.cli import main
main(["run", sys.argv[1], "word1 word2 word3", "--speed", sys.argv[2], "--longest", "1"])
print("took", time.perf_counter() - began)
"""


def first_token(folder: Path, speed: str) -> float:
    command = [sys.executable, "-c", ONE, str(folder), speed]
    usual = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    said = subprocess.run(command, capture_output=True, text=True, check=True, env=usual).stdout
    return float(said.rsplit("took", 1)[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__), formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path("runs/speed"))
    given = parser.parse_args()
    folder = folder_of("gpt2", given.out)
    print(machine())
    rounded = folder.with_name("gpt2-int8")
    if not rounded.exists():
        load(folder, speed="int8").save(rounded)
    told = []
    for speed, read in zip(SPEEDS, (folder, rounded), strict=True):
        first_token(read, speed)
        took = [first_token(read, speed) for _ in range(given.rounds)]
        memory = measure_peak_rss(read, speed, None, 1)
        print(f"GPT-2 small, {speed}: first token after {median(took):.2f} s ({min(took):.2f} to {max(took):.2f})")
        peak = f"{memory / 1e6:.0f} MB" if memory else "memory is not told"
        print(f"  peak of memory above Python with PyTorch: {peak}")
        told.append(f"{speed} {median(took):.2f} s, {peak}")
    what = "a cold `regard run`, GPT-2 small: first token after `import torch`, peak of memory above it"
    print(f"\n| {what} | {'; '.join(told)} | | `benchmarks/cold_start.py` |")


if __name__ == "__main__":
    main()
