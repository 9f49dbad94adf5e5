"""`regard serve` under hostile and lasting load. Every check prints PASS or FAIL with its numbers.

    python benchmarks/serve_soak.py [FOLDER] [--only same bits killed slow soak sigterm] [--minutes 10] [--quick]

same      500 requests at random times with random lengths, greedy and sampled: the texts of one by one
bits      the same with --reproducible: also the bits of the log-probabilities
killed    100 clients leave in the middle of an answer: queue, batch and KV cache return to zero
slow      headers that arrive byte by byte, and half bodies: others are not delayed, and they end with a deadline
soak      full load for --minutes: resident memory at the end within 2 % of that after the first minute
sigterm   SIGTERM under load: every request that was sent before it gets its whole answer, and the exit code is 0

FOLDER is a `write` model; without one, the GPT-2 small shape with random weights.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import mkdtemp

from serve_models import gpt_folder
from soak_checks import check_bits, check_killed, check_same, check_sigterm, check_slow, check_soak

CHECKS: dict[str, Callable[[argparse.Namespace], Awaitable[tuple[bool, str]]]] = {
    "same": check_same,
    "bits": check_bits,
    "killed": check_killed,
    "slow": check_slow,
    "soak": check_soak,
    "sigterm": check_sigterm,
}


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="folder of a write model")
    parser.add_argument("--only", nargs="+", choices=[*CHECKS], default=[*CHECKS])
    parser.add_argument("--minutes", type=float, default=10.0, help="of the soak")
    parser.add_argument("--requests", type=int, default=500, help="of same and bits")
    parser.add_argument("--max-prompt", type=int, default=128, help="tokens")
    parser.add_argument("--max-output", type=int, default=48, help="tokens")
    parser.add_argument("--long-output", type=int, default=400, help="tokens of answers whose clients leave")
    parser.add_argument("--patience", type=float, default=3.0, help="seconds within which they leave")
    parser.add_argument("--speed", choices=("exact", "int8"), default="exact")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="a tenth of the requests, half a minute of soak")
    parser.add_argument("--workdir", type=Path, help="folder of the model and the logs; kept")
    args = parser.parse_args()
    args.workdir = args.workdir or Path(mkdtemp(prefix="regard-soak-"))
    args.workdir.mkdir(parents=True, exist_ok=True)
    args.folder = args.folder or gpt_folder(args.workdir)
    args.killed, args.probes, args.seconds_before_sigterm = 100, 30, 5.0
    if args.quick:
        args.requests, args.killed, args.probes, args.minutes = args.requests // 10, 20, 10, 0.5
    return args


def main() -> int:
    args = parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the server ends too
    failed = 0
    for name in args.only:
        passed, shown = asyncio.run(CHECKS[name](args))
        failed += not passed
        print(f"{'PASS' if passed else 'FAIL'}  {name:<8} {shown}", flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
