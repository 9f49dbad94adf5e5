"""Cold start of `regard run` on GPT-2 small with random weights: seconds until the first token, and peak memory.

    python benchmarks/cold_start.py [--rounds 7] [-o runs/speed]

Every round is a new process. The time is from after `import torch` until one token is written; compiled kernels are
cached. Memory is the peak RSS of a process that writes 32 tokens, minus that of Python with PyTorch. The int8 model is
loaded from a folder that `save` wrote.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

from recipes import describe_machine
from shapes import model_folder

from regard.bench.peak_rss import measure_peak_rss
from regard.bench.regard_backend import SPEEDS
from regard.load import load

SCRIPT = """
import sys, time, torch
start = time.perf_counter()
from regard.cli import main
main(["run", sys.argv[1], "word1 word2 word3", "--speed", sys.argv[2], "--max-new-tokens", "1"])
print("seconds", time.perf_counter() - start)
"""


def first_token_seconds(folder: Path, speed: str) -> float:
    command = [sys.executable, "-c", SCRIPT, str(folder), speed]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    output = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    return float(output.rsplit("seconds", 1)[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__), formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("-o", "--output-dir", type=Path, default=Path("runs/speed"))
    args = parser.parse_args()
    exact_folder = model_folder("gpt2", args.output_dir)
    print(describe_machine())
    int8_folder = exact_folder.with_name("gpt2-int8")
    if not int8_folder.exists():
        load(exact_folder, speed="int8").save_pretrained(int8_folder)
    cells = []
    for speed, folder in zip(SPEEDS, (exact_folder, int8_folder), strict=True):
        first_token_seconds(folder, speed)  # warm up
        seconds = [first_token_seconds(folder, speed) for _ in range(args.rounds)]
        memory = measure_peak_rss(folder, speed, None, 1)
        spread = f"({min(seconds):.2f} to {max(seconds):.2f})"
        print(f"GPT-2 small, {speed}: first token after {median(seconds):.2f} s {spread}")
        peak = f"{memory / 1e6:.0f} MB" if memory else "unknown"
        print(f"  peak RSS above Python with PyTorch: {peak}")
        cells.append(f"{speed} {median(seconds):.2f} s, {peak}")
    title = "cold `regard run`, GPT-2 small: first token after `import torch`, peak RSS above it"
    print(f"\n| {title} | {'; '.join(cells)} | | `benchmarks/cold_start.py` |")


if __name__ == "__main__":
    main()
