"""All speed benchmarks, and at the end the table of docs/benchmarks.md: `make bench`.

    python benchmarks/bench.py [--only decode marian]

About 75 minutes on two idle cores. The output of every script is passed through as it arrives.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

SCRIPTS = ("train_speed", "attention", "look_page", "cold_start", "decode", "marian", "minilm", "int8_quality")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=SCRIPTS, choices=SCRIPTS)
    rows = []
    for script in parser.parse_args().only:
        print(f"\n{script}:", flush=True)
        command = [sys.executable, "-u", str(Path(__file__).with_name(f"{script}.py"))]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout or ():
                print(line, end="", flush=True)
                rows += [line] if line.startswith("|") else []
        if process.returncode:
            raise SystemExit(f"{script} failed: see above")
    print("\n| workload | regard | peers (speedup of regard) | script |\n|---|---|---|---|\n", *rows, sep="", end="")


if __name__ == "__main__":
    main()
