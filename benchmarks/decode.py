"""How long a token takes: GPT-2 small and LLaMA 135M with random weights, one row and eight, beside all peers.

    python benchmarks/decode.py [--shapes gpt2 llama] [--rows 1 8] [--threads 1 2] [--tokens 33] [--seconds 40]

Everyone reads the same folder and the same prompt of 64 tokens, writes the same number of tokens greedily, and never
ends early. A step is (time of all tokens - time of the first) / (tokens - 1). Those with fp32 must say our tokens.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch
from peer_tables import Tables, options, runners_of
from shapes import folder_of

from regard.bench.backend import Backend
from regard.bench.benchmark import BYTES_PER_WEIGHT, token_agreement
from regard.bench.timing import time_rounds
from regard.bench.workload import GenerationWorkload, count_flops
from regard.load import load

NAMES = {"gpt2": "GPT-2 small", "llama": "LLaMA 135M"}
PROMPT = 64
ALIKE = 0.75  # of random logits some are nearly equal, and llama.cpp keeps keys and values in half precision


def measured(runners: list[Backend], work: GenerationWorkload, rows: int, seconds: float) -> dict[str, list[float]]:
    """Seconds of a step in each round."""
    acts = {
        (r.title, new): (lambda r=r, new=new: r.generate(work.rows[:rows], new, 1))
        for r in runners
        for new in (1, work.new_tokens)
    }
    took = time_rounds(acts, seconds)
    return {
        r.title: [
            max(all_ - first, 1e-9) / (work.new_tokens - 1)
            for all_, first in zip(took[r.title, work.new_tokens], took[r.title, 1], strict=True)
        ]
        for r in runners
    }


def refuse_others(runners: list[Backend], work: GenerationWorkload) -> None:
    """Whoever has fp32 says our next token after every beginning of the prompts. What comes after it says little: with
    random weights, one token of two that are nearly equal changes all the rest."""
    cut = dict.fromkeys(tuple(row[:length]) for length in range(PROMPT // 2, PROMPT, 4) for row in work.rows)
    rows = [[*row] for row in cut]
    right = [runners[0].generate([row], 1, 1)[0] for row in rows]
    for r in runners:
        if (
            r.precision == "fp32"
            and (share := token_agreement(right, [r.generate([row], 1, 1)[0] for row in rows])) < ALIKE
        ):
            raise SystemExit(f"{r.title} says only {share:.0%} of our tokens: it does not do the same work")


def main() -> None:
    parser = options(str(__doc__), 40.0)
    parser.add_argument("--shapes", nargs="+", default=["gpt2", "llama"], choices=["gpt2", "llama"])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--tokens", type=int, default=33, help="written after each prompt")
    said = parser.parse_args()
    tables = Tables()
    for threads in said.threads:
        most = tables.machine(threads)
        for shape in said.shapes:
            folder = folder_of(shape, said.out)
            with TemporaryDirectory() as room:
                plain = load(folder, "cpu")
                draw = torch.Generator().manual_seed(1)
                ids = torch.randint(3, plain.model.body.config.vocab, (max(said.rows), PROMPT), generator=draw)
                work = GenerationWorkload(ids.tolist(), said.tokens)
                read = count_flops(plain, work).step / 2  # weights
                del plain
                runners = runners_of(folder, threads, Path(room), said.peers)
                refuse_others(runners, work)
                for rows in said.rows:
                    costs = measured(runners, work, rows, said.seconds)
                    limit = {r.title: read * BYTES_PER_WEIGHT.get(r.precision, 4) / most.bandwidth for r in runners}
                    more = {name: f"{limit[name] / median(took):.0%} of the bandwidth" for name, took in costs.items()}
                    tables.add(
                        f"{NAMES[shape]}, {'one row' if rows == 1 else f'{rows} rows'}",
                        "ms a step",
                        costs,
                        lambda s: 1000 * s,
                        more,
                    )
    tables.rows("decode")


if __name__ == "__main__":
    main()
