"""All reliability proofs, one after the other; their rows go to docs/reliability.md: `make prove`.

    python benchmarks/prove.py [kill faults signals syscall_faults kill_peers batch_invariance threads errors parity]

A proof prints rows of a table, "| fault or case | number | outcome |", and exits with 0 if all of them hold. Its rows
replace those on the page between <!-- kill --> and <!-- /kill -->; a proof that is skipped leaves the old ones.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"
PROOFS = (
    "kill", "faults", "signals", "syscall_faults", "kill_peers", "batch_invariance", "threads", "errors", "parity",
)  # fmt: skip
HEADER = ["| fault or case | number | outcome |", "|---|---|---|"]


def replace_rows(page: str, proof: str, rows: list[str]) -> str:
    """The page with these rows for the proof."""
    begin, end = f"<!-- {proof} -->\n", f"<!-- /{proof} -->"
    if page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError(f"{PAGE} needs one {begin.strip()} and one {end} for the rows of {proof}.py")
    before, after = page.split(begin)
    return before + begin + "\n".join([*HEADER, *rows]) + "\n" + end + after.split(end)[1]


def run_proof(proof: str) -> tuple[int, list[str]]:
    """The exit code of a proof, and its rows; its output is passed through as it arrives."""
    command = [sys.executable, "-u", str(Path(__file__).with_name(f"{proof}.py"))]
    rows = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
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
        code, rows = run_proof(proof)
        if code:
            failed.append(proof)
        if rows:
            PAGE.write_text(replace_rows(PAGE.read_text(encoding="utf-8"), proof, rows), encoding="utf-8")
    if failed:
        print(f"failed proofs: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(cli())
