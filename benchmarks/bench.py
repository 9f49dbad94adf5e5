"""All that is said about speed, and at the end the README's table of it: `make bench`.

    python benchmarks/bench.py [--only decode marian]

About an hour and a quarter on two cores, which should do nothing else. What a script prints is passed on as it comes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

SCRIPTS = ("train_speed", "attention", "page", "start", "decode", "marian", "minilm", "quality")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=SCRIPTS, choices=SCRIPTS)
    rows = []
    for script in parser.parse_args().only:
        print(f"\n{script}:", flush=True)
        command = [sys.executable, "-u", str(Path(__file__).with_name(f"{script}.py"))]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
            for line in running.stdout or ():
                print(line, end="", flush=True)
                rows += [line] if line.startswith("|") else []
        if running.returncode:
            raise SystemExit(f"{script} failed: see above")
    print(
        "\n| what | regard | beside (so many times faster is ours) | by |\n|---|---|---|---|\n", *rows, sep="", end=""
    )


if __name__ == "__main__":
    main()
