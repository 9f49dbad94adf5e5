"""Decode latency: milliseconds per token of GPT-2 small and LLaMA 135M with random weights, batch sizes 1 and 8.

    python benchmarks/decode.py [--shapes gpt2 llama] [--rows 1 8] [--threads 1 2] [--tokens 33] [--seconds 40]

All backends read the same folder and the same prompts of 64 tokens, and decode the same number of tokens greedily,
without early stopping. Time per step = (time of all tokens - time of the first) / (tokens - 1). fp32 backends must
predict the same tokens as regard.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch
from peer_tables import SpeedTables, make_parser, open_backends
from shapes import model_folder

from regard.bench.backend import Backend
from regard.bench.benchmark import BYTES_PER_WEIGHT, token_agreement
from regard.bench.timing import time_rounds
from regard.bench.workload import GenerationWorkload, count_flops
from regard.load import load

NAMES = {"gpt2": "GPT-2 small", "llama": "LLaMA 135M"}
PROMPT_TOKENS = 64
MIN_AGREEMENT = 0.75  # random weights give nearly equal logits, and llama.cpp keeps its KV cache in half precision


def step_times(backends: list[Backend], work: GenerationWorkload, rows: int, seconds: float) -> dict[str, list[float]]:
    """Seconds per decode step of each backend in each round."""
    calls = {
        (b.title, new): (lambda b=b, new=new: b.generate(work.rows[:rows], new, 1))
        for b in backends
        for new in (1, work.new_tokens)
    }
    times = time_rounds(calls, seconds)
    return {
        b.title: [
            max(total - first, 1e-9) / (work.new_tokens - 1)
            for total, first in zip(times[b.title, work.new_tokens], times[b.title, 1], strict=True)
        ]
        for b in backends
    }


def check_agreement(backends: list[Backend], work: GenerationWorkload) -> None:
    """fp32 backends must predict the same next token after prefixes of the prompts. Later tokens are not compared: with
    random weights, one flip between two nearly equal logits changes all that follow."""
    lengths = range(PROMPT_TOKENS // 2, PROMPT_TOKENS, 4)
    rows = [[*row] for row in dict.fromkeys(tuple(row[:length]) for length in lengths for row in work.rows)]
    reference = [backends[0].generate([row], 1, 1)[0] for row in rows]
    for b in backends:
        if b.precision != "fp32":
            continue
        agreement = token_agreement(reference, [b.generate([row], 1, 1)[0] for row in rows])
        if agreement < MIN_AGREEMENT:
            raise SystemExit(f"{b.title} predicts only {agreement:.0%} of regard's tokens: not the same workload")


def main() -> None:
    parser = make_parser(str(__doc__), 40.0)
    parser.add_argument("--shapes", nargs="+", default=["gpt2", "llama"], choices=["gpt2", "llama"])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8], help="batch sizes")
    parser.add_argument("--tokens", type=int, default=33, help="tokens decoded after each prompt")
    args = parser.parse_args()
    tables = SpeedTables()
    for threads in args.threads:
        roofline = tables.set_num_threads(threads)
        for shape in args.shapes:
            folder = model_folder(shape, args.output_dir)
            with TemporaryDirectory() as scratch:
                plain = load(folder, "cpu")
                rng = torch.Generator().manual_seed(1)
                ids = torch.randint(3, plain.model.body.config.vocab, (max(args.rows), PROMPT_TOKENS), generator=rng)
                work = GenerationWorkload(ids.tolist(), args.tokens)
                weights = count_flops(plain, work).step / 2
                del plain
                backends = open_backends(folder, threads, Path(scratch), args.peers)
                check_agreement(backends, work)
                bandwidth = roofline.bandwidth
                bounds = {b.title: weights * BYTES_PER_WEIGHT.get(b.precision, 4) / bandwidth for b in backends}
                for rows in args.rows:
                    costs = step_times(backends, work, rows, args.seconds)
                    notes = {name: f"{bounds[name] / median(s):.0%} of the bandwidth" for name, s in costs.items()}
                    title = f"{NAMES[shape]}, batch size {rows}"
                    tables.add(title, "ms per step", costs, lambda s: 1000 * s, notes)
    tables.print_rows("decode")


if __name__ == "__main__":
    main()
