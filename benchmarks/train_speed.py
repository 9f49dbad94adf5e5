"""Training throughput: target tokens per second of regard's loop, beside the same model of torch.nn.Transformer in a
plain loop (shuffled sentences, padded batches, nn.CrossEntropyLoss, AdamW).

    python benchmarks/train_speed.py [--seconds 60] [--dropout 0.3] [--threads 2]

All have the same sizes, data, tokenizer, dropout rate, label smoothing and mean tokens per batch. nn.Transformer also
has dropout on attention weights and inside the feed-forward, where regard has none, so a third loop ("same dropout") is
the plain one with dropout only where regard has it. The loops are interleaved, so that other load slows all alike.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Iterator
from statistics import median
from typing import Any

import torch
from corpus import text_rows, translation_pairs
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_train import TokenizerOptions, train_tokenizer
from regard.modalities.text.preprocessor import TextPreprocessor
from regard.models.transformer import SIZES, Transformer, TransformerConfig
from regard.parts.positions import sinusoids
from regard.tasks.translate import Translate
from regard.training.loop import Progress, TrainOptions
from regard.training.loop import train_steps as learn_steps

TOKENS = 4096
ROUNDS = 6


def regard_loop(task: Translate, examples: Any, dropout: float) -> Iterator[int]:
    config = TransformerConfig(vocab=len(task.tokenizer), dropout=dropout, **SIZES["tiny"])
    train_options = TrainOptions(steps=10**6, lr=0.001, warmup_steps=100, batch_tokens=TOKENS)
    progress = Progress.new(task.head(Transformer(config)), train_options)
    for step in learn_steps(progress, task, examples, train_options):
        yield step.count


class PlainTransformer(nn.Module):
    """The same model of PyTorch's own modules."""

    table: Tensor

    def __init__(self, vocab: int, pad: int, dropout: float, same_dropout: bool):
        super().__init__()
        size = SIZES["tiny"]
        self.pad, self.dim = pad, size["dim"]
        self.tokens = nn.Embedding(vocab, self.dim, padding_idx=pad)
        self.register_buffer("table", sinusoids(512, self.dim))
        self.drop = nn.Dropout(dropout)
        self.body = nn.Transformer(
            self.dim, size["heads"], size["encoder_layers"], size["decoder_layers"], size["hidden"],
            dropout, batch_first=True, norm_first=True,
        )  # fmt: skip
        for module in self.body.modules() if same_dropout else ():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
            elif isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout = nn.Identity()
        self.head = nn.Linear(self.dim, vocab)
        self.head.weight = self.tokens.weight

    def embed(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) * math.sqrt(self.dim) + self.table[: ids.size(1)]
        return self.drop(x)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        padding = source == self.pad
        causal = nn.Transformer.generate_square_subsequent_mask(target.size(1))
        y = self.body(
            self.embed(source), self.embed(target), tgt_mask=causal, tgt_is_causal=True,
            src_key_padding_mask=padding, memory_key_padding_mask=padding,
        )  # fmt: skip
        return self.head(y)


def plain_loop(tokenizer: Tokenizer, examples: Any, dropout: float, same_dropout: bool) -> Iterator[int]:
    pad, rows = tokenizer.pad_token_id, examples.sources.units
    model = PlainTransformer(len(tokenizer), pad, dropout, same_dropout).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    criterion = nn.CrossEntropyLoss(ignore_index=pad, label_smoothing=0.1)
    batch_size = round(TOKENS / examples.lengths.max(1).mean())  # as many tokens per batch as regard
    sources = [torch.from_numpy(examples.sources.ids[i]).long() for i in range(rows)]
    targets = [torch.from_numpy(examples.targets[i]).long() for i in range(rows)]
    while True:
        for indices in torch.randperm(rows).split(batch_size):
            source = pad_sequence([sources[i] for i in indices], batch_first=True, padding_value=pad)
            target = pad_sequence([targets[i] for i in indices], batch_first=True, padding_value=pad)
            decoder_input = torch.cat((torch.full_like(target[:, :1], pad), target[:, :-1]), 1)
            loss = criterion(model(source, decoder_input).flatten(0, 1), target.flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            yield int((target != pad).sum())


def measure_speed(steps: Iterator[int], seconds: float) -> float:
    """Tokens per second over about this time."""
    start, count = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - start) < seconds:
        count += next(steps)
    return count / elapsed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="total time of each loop")
    parser.add_argument("--dropout", type=float, default=0.3, help="0.3 is that of the published Transformer-Tiny")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    warnings.filterwarnings("ignore", "enable_nested_tensor")
    name, pairs = translation_pairs()
    tokenizer = train_tokenizer((text for pair in pairs for text in pair), TokenizerOptions())
    task = Translate(preprocessor=TextPreprocessor(tokenizer))
    examples = task.encode(text_rows(pairs))
    loops = {
        "regard": regard_loop(task, examples, args.dropout),
        "plain": plain_loop(tokenizer, examples, args.dropout, same_dropout=False),
        "same dropout": plain_loop(tokenizer, examples, args.dropout, same_dropout=True),
    }
    for steps in loops.values():
        measure_speed(steps, 2.0)  # warm up
    speeds: dict[str, list[float]] = {name: [] for name in loops}
    for _ in range(ROUNDS):
        for loop, steps in loops.items():
            speeds[loop].append(measure_speed(steps, args.seconds / ROUNDS))
    print(f"transformer tiny on {name}: {len(tokenizer)} tokens, dropout {args.dropout}, {args.threads} threads")
    print(f"{'':<14}{'target tokens/s':>16}{'regard is':>12}      medians of {ROUNDS} rounds, and their range")
    cells = []
    for loop, measured in speeds.items():
        ratios = [a / b for a, b in zip(speeds["regard"], measured, strict=True)]
        spread = f"({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"{loop:<14}{median(measured):>16,.0f}{median(ratios):>11.2f}x      {spread}")
        cells.append(f"{median(measured):,.0f}" + ("" if loop == "regard" else f" ({median(ratios):.1f}x)"))
    title = f"training, Transformer `tiny`, dropout {args.dropout}: target tokens per second, {args.threads} threads"
    peers = f"`torch.nn.Transformer` in a plain loop {cells[1]}, with the same dropout {cells[2]}"
    print(f"\n| {title} | {cells[0]} | {peers} | `benchmarks/train_speed.py` |")


if __name__ == "__main__":
    main()
