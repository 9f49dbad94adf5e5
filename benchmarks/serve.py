"""`regard serve` under load, beside other servers: throughput, time to first token and between tokens.

    python benchmarks/serve.py --llama-server PATH [--translator FOLDER] [--clients 1 8 32] [--rounds 3] [--seconds 15]
    python benchmarks/serve.py --quick

GPT-2 small shape (random weights, greedy, 16 to 128 tokens in, 64 to 192 out, log-uniformly drawn) and the translator
of `regard demo` (sentences of the phrasebook, beam 4). Every server runs in a process of its own on --threads threads
and is stopped (SIGSTOP) while another one is measured. A cell is one server with N clients for --seconds, after each
client has had an answer. All servers get the same requests, no prompt twice. Rounds are interleaved, medians count. The
load generator shares the processors with the servers.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import mkdtemp
from typing import Any

from load_summary import COLUMNS, Cell, summarize
from other_load import OtherLoad, wait_until_quiet
from serve_models import gpt_folder, text_requests, translation_requests
from serve_peers import HERE, Library, Server, ctranslate2_servers, gpt_peers, regard_server

PROMPT, OUTPUT = (16, 128), (64, 192)  # defaults of --prompt and --output
REQUESTS = 4_000  # of one cell; no prompt occurs twice, unless a translator finishes more
BOUNDED = ("--max-batch-tokens", "2048", "--max-queue-tokens", "512")  # about 16 requests in the server
BEAMS = 4
MAX_RAMP = 20.0  # seconds to wait until every client has had an answer
ATTEMPTS = 4  # at a cell, while other processes are busy

Target = Server | Library
Figures = dict[tuple[str, str, int], list[Cell]]  # model, server, clients


def measure(target: Target, items: list[dict[str, Any]], clients: int, seconds: float, ramp: float) -> Cell:
    spec = {"clients": clients, "seconds": seconds, "ramp": ramp, "max_ramp": max(ramp, MAX_RAMP)}
    spec["requests"] = target.requests(items)
    assert target.process is not None
    others = OtherLoad(target.process.pid)
    if isinstance(target, Library):
        result = target.run(spec)
    else:
        client = [sys.executable, str(HERE / "load_client.py")]
        data = json.dumps(spec | {"url": target.url}).encode()
        result = json.loads(subprocess.run(client, input=data, stdout=subprocess.PIPE, check=True).stdout)
    return replace(summarize(result), other_load=others.share())


def measure_quietly(target: Target, items: list[dict[str, Any]], clients: int, args: argparse.Namespace) -> Cell:
    """Measured again if other processes are busy; the last attempt counts in any case."""
    for _ in range(ATTEMPTS):
        wait_until_quiet(args.max_other_load, args.patience)
        target.resume()
        cell = measure(target, items, clients, args.seconds, args.ramp)
        target.pause()
        if cell.other_load <= args.max_other_load:
            break
        print(f"again: other processes keep {cell.other_load:.2f} processors busy", file=sys.stderr)
        items = items[REQUESTS // ATTEMPTS :]  # no prompt twice
    return cell


def start_all(targets: list[Target], workdir: Path, warmup: list[dict[str, Any]]) -> None:
    """Each is warmed up with a few requests at once, then paused."""
    for target in targets:
        target.start(workdir)
        cell = measure(target, warmup, 8, 2.0, 0.0)
        if cell.errors:
            raise SystemExit(f"{target.title} answers with errors: {cell.errors[0]}")
        target.pause()
        print(f"started {target.title}", file=sys.stderr)


def run_rounds(model: str, targets: list[Target], requests: Any, args: argparse.Namespace, figures: Figures) -> None:
    for number in range(args.rounds):
        for clients in args.clients:
            items = [*islice(requests(1_000 * number + clients), REQUESTS)]
            for target in targets:
                if target.name == "scheduler without a server" and clients != 8:
                    continue
                if "bounded" in target.name and clients == 1:
                    continue
                cell = measure_quietly(target, items, clients, args)
                figures[model, target.title, clients].append(cell)
                print(f"{model} round {number + 1} {clients:>2} clients {target.title:<36} {cell}", file=sys.stderr)


def gpt_targets(args: argparse.Namespace, workdir: Path) -> tuple[list[Target], Any]:
    folder = gpt_folder(workdir)
    targets: list[Target] = []
    if args.regard:
        for speed in ("exact", "int8"):
            targets += [regard_server(folder, speed, args.threads), Library(folder, speed, args.threads)]
        targets.append(regard_server(folder, "exact", args.threads, *BOUNDED, name="regard bounded"))
    targets += present(gpt_peers(folder, workdir, args.threads, args.llama_server)) if args.peers else []
    return targets, lambda seed: text_requests(folder, seed, tuple(args.prompt), tuple(args.output))


def translator_targets(args: argparse.Namespace, workdir: Path) -> tuple[list[Target], Any]:
    folder = args.translator or train_translator(workdir)
    targets: list[Target] = []
    languages = {"source": "en", "target": "de"}
    for speed in ("exact", "int8") if args.regard else ():
        server = regard_server(folder, speed, args.threads)
        server.path, server.fields = "/translate", languages
        targets += [server, Library(folder, speed, args.threads)]
    for peer in present(ctranslate2_servers(folder, workdir, args.threads)) if args.peers else ():
        assert isinstance(peer, Server)
        peer.path, peer.fields = "/translate", languages | {"num_beams": BEAMS}
        targets.append(peer)
    return targets, translation_requests


def train_translator(workdir: Path) -> Path:
    folder = workdir / "translator"
    subprocess.run([sys.executable, "-m", "regard", "demo", "--output-dir", str(folder)], check=True, stdout=sys.stderr)
    return folder


def present(peers: Any) -> list[Target]:
    for peer in (peers := [*peers]):
        if isinstance(peer, str):
            print(f"not compared: {peer}", file=sys.stderr)
    return [peer for peer in peers if not isinstance(peer, str)]


def print_tables(figures: Figures) -> None:
    by_table: dict[tuple[str, int], dict[str, list[Cell]]] = defaultdict(dict)
    for (model, title, clients), cells in figures.items():
        by_table[model, clients][title] = cells
    for (model, clients), rows in by_table.items():
        print(f"\n**{model}, {clients} client{'s' * (clients > 1)}**\n\n| server | " + " | ".join(COLUMNS) + " |")
        print("|---|" + "---:|" * len(COLUMNS))
        for title, cells in rows.items():
            print(f"| {title} | " + " | ".join(median_cell(cells).columns()) + " |")


def median_cell(cells: list[Cell]) -> Cell:
    return cells[0] if len(cells) == 1 else Cell.median_of(cells)


def print_ratios(figures: Figures) -> dict[str, float]:
    """The bars of the issue: each ratio is the median over the rounds."""
    ratios: dict[str, float] = {}

    def ratio(label: str, above: tuple[str, str, int], below: tuple[str, str, int], of: str = "work") -> None:
        if above in figures and below in figures:
            pairs = zip(figures[above], figures[below], strict=True)
            ratios[label] = median(getattr(a, of) / max(getattr(b, of), 1e-9) for a, b in pairs)

    for model in dict.fromkeys(key[0] for key in figures):
        for precision in ("fp32", "int8"):
            own = (model, f"regard {precision}", 8)
            peers = [key for key in figures if key[0] == model and key[2] == 8 and is_peer(key[1], precision)]
            best = max(peers, key=lambda key: median_cell(figures[key]).work, default=None)
            if best:
                ratio(f"{model} {precision}: 8 clients, regard / best peer ({best[1]})", own, best)
            ratio(f"{model} {precision}: regard, 8 clients / 1 client", own, (*own[:2], 1))
            alone = (model, f"scheduler without a server {precision}", 8)
            ratio(f"{model} {precision}: 8 clients, regard / the scheduler without a server", own, alone)
        bounded = (model, "regard bounded fp32")
        ratio(f"{model}: bounded queue, goodput at 32 clients / at 8", (*bounded, 32), (*bounded, 8))
        ratio(f"{model}: bounded queue, p95 of accepted at 32 / at 8", (*bounded, 32), (*bounded, 8), "latency_p95")
    for label, value in ratios.items():
        print(f"{value:6.2f}x  {label}")
    return ratios


def is_peer(title: str, precision: str) -> bool:
    return title.endswith(f" {precision}") and not title.startswith(("regard", "scheduler"))


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=("gpt2", "translator"), default=["gpt2", "translator"])
    parser.add_argument("--translator", type=Path, help="folder of `regard demo`; without one it is trained")
    parser.add_argument("--llama-server", default=shutil.which("llama-server"), help="the program of llama.cpp")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0, help="of one cell")
    parser.add_argument("--ramp", type=float, default=3.0, help="least seconds of load before a cell")
    parser.add_argument("--prompt", type=int, nargs=2, default=PROMPT, help="least and most tokens of a prompt")
    parser.add_argument("--output", type=int, nargs=2, default=OUTPUT, help="least and most tokens of an answer")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--max-other-load", type=float, default=0.2, help="processors that other processes may keep busy during a cell"
    )
    parser.add_argument("--patience", type=float, default=60.0, help="seconds to wait for them before an attempt")
    parser.add_argument("--only", nargs="+", help="only servers whose title contains one of these")
    parser.add_argument("--no-regard", dest="regard", action="store_false")
    parser.add_argument("--no-peers", dest="peers", action="store_false")
    parser.add_argument("--quick", action="store_true", help="one round of 4 seconds")
    parser.add_argument("--workdir", type=Path, help="folder of converted models and logs; kept")
    parser.add_argument("--json", type=Path, default=Path("serve.json"), help="file for all figures")
    args = parser.parse_args()
    if args.quick:
        args.rounds, args.seconds, args.ramp = 1, 4.0, 1.0
    return args


def main() -> None:
    args = parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the servers end too
    workdir = args.workdir or Path(mkdtemp(prefix="regard-serve-"))
    workdir.mkdir(parents=True, exist_ok=True)
    figures: Figures = defaultdict(list)
    for model in args.models:
        targets, requests = (gpt_targets if model == "gpt2" else translator_targets)(args, workdir)
        targets = [t for t in targets if not args.only or any(part in t.title for part in args.only)]
        try:
            start_all(targets, workdir, [*islice(requests(99), 64)])
            run_rounds(model, targets, requests, args, figures)
        finally:
            for target in targets:
                target.stop()
    print(f"{args.threads} threads, {args.rounds} rounds of {args.seconds:g} s, {platform.machine()}")
    print_tables(figures)
    print()
    ratios = print_ratios(figures)
    cells = [
        {"model": m, "server": title, "clients": n, "rounds": [cell.as_dict() for cell in rounds]}
        for (m, title, n), rounds in figures.items()
    ]
    args.json.write_text(
        json.dumps({"settings": {k: str(v) for k, v in vars(args).items()}, "ratios": ratios, "cells": cells})
    )


if __name__ == "__main__":
    main()
