"""All the long proofs, one after the other, and what they came to in docs/reliability.md.

    python benchmarks/prove.py [kill faults signals calls kill_peers needle threads errors parity]

A proof prints rows of a table, "| what | how often | what came of it |", and leaves with 0 if every promise was kept.
Its rows replace those on the page between <!-- kill --> and <!-- /kill -->; one that is skipped leaves the old ones.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"
PROOFS = ("kill", "faults", "signals", "calls", "kill_peers", "needle", "threads", "errors", "parity")
HEAD = ["| what | how often | what came of it |", "|---|---|---|"]


def placed(page: str, proof: str, rows: list[str]) -> str:
    """The page with these rows in the place of the proof."""
    begin, end = f"<!-- {proof} -->\n", f"<!-- /{proof} -->"
    if page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError(f"{PAGE} needs one {begin.strip()} and one {end} for the rows of {proof}.py")
    before, rest = page.split(begin)
    return before + begin + "\n".join([*HEAD, *rows]) + "\n" + end + rest.split(end)[1]


def carried_out(proof: str) -> tuple[int, list[str]]:
    """The exit code of a proof, and its rows; what it says is shown as it comes."""
    words = [sys.executable, "-u", str(Path(__file__).with_name(f"{proof}.py"))]
    rows = []
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            print(line, end="", flush=True)
            if line.startswith("| "):
                rows.append(line.rstrip())
    return process.returncode, rows


def cli() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("proofs", nargs="*", default=PROOFS, metavar="PROOF", help=", ".join(PROOFS))
    failed = []
    for proof in parser.parse_args().proofs:
        print(f"== {proof}", flush=True)
        code, rows = carried_out(proof)
        if code:
            failed.append(proof)
        if rows:
            PAGE.write_text(placed(PAGE.read_text(encoding="utf-8"), proof, rows), encoding="utf-8")
    if failed:
        print(f"a promise was not kept, or a proof broke: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(cli())
