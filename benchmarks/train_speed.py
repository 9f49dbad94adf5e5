"""How fast the loop learns: target tokens per second of our loop, beside the same model written with
torch.nn.Transformer in a plain loop (shuffled sentences, padded as they come, nn.CrossEntropyLoss, AdamW).

    python benchmarks/train_speed.py [--seconds 60] [--dropout 0.3] [--threads 2]

All have the same sizes, data, tokenizer, dropout rate, label smoothing and mean tokens a batch. nn.Transformer also
drops attention weights and inside the feed-forward, ours does not, so a third loop ("fewer drops") is the plain one
with dropout only where ours is. The loops take turns, so that a busy machine slows them alike.
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
from corpus import some_pairs
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from regard.data.pieces import Pieces, learn
from regard.data.tokens import Tokenizer
from regard.models.transformer import SIZES, Transformer, TransformerConfig
from regard.parts.positions import sinusoids
from regard.tasks.translate import Translate
from regard.training.loop import Progress, TrainOptions
from regard.training.loop import train_steps as learn_steps

TOKENS = 4096
TURNS = 6


def ours(task: Translate, examples: Any, dropout: float) -> Iterator[int]:
    config = TransformerConfig(vocab=len(task.tokenizer), dropout=dropout, **SIZES["tiny"])
    train_options = TrainOptions(steps=10**6, lr=0.001, warmup_steps=100, batch_tokens=TOKENS)
    progress = Progress.new(task.head(Transformer(config)), train_options)
    for step in learn_steps(progress, task, examples, train_options):
        yield step.count


class Plain(nn.Module):
    """The same model from PyTorch's own parts."""

    table: Tensor

    def __init__(self, vocab: int, pad: int, dropout: float, fewer: bool):
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
        for module in self.body.modules() if fewer else ():
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


def plain(tokenizer: Tokenizer, examples: Any, dropout: float, fewer: bool) -> Iterator[int]:
    pad, rows = tokenizer.pad, len(examples.sources)
    model = Plain(len(tokenizer), pad, dropout, fewer).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    loss_of = nn.CrossEntropyLoss(ignore_index=pad, label_smoothing=0.1)
    each = round(TOKENS / examples.lengths.max(1).mean())  # sentences, for as many tokens a batch as ours
    sources = [torch.from_numpy(examples.sources[i]).long() for i in range(rows)]
    targets = [torch.from_numpy(examples.targets[i]).long() for i in range(rows)]
    while True:
        for chosen in torch.randperm(rows).split(each):
            source = pad_sequence([sources[i] for i in chosen], batch_first=True, padding_value=pad)
            wanted = pad_sequence([targets[i] for i in chosen], batch_first=True, padding_value=pad)
            target = torch.cat((torch.full_like(wanted[:, :1], pad), wanted[:, :-1]), 1)
            loss = loss_of(model(source, target).flatten(0, 1), wanted.flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            yield int((wanted != pad).sum())


def turn(steps: Iterator[int], seconds: float) -> float:
    """Tokens per second over about this time."""
    began, count = time.perf_counter(), 0
    while (took := time.perf_counter() - began) < seconds:
        count += next(steps)
    return count / took


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=60.0, help="of each loop, in all")
    options.add_argument("--dropout", type=float, default=0.3, help="0.3 is what Transformer-Tiny was published with")
    options.add_argument("--threads", type=int, default=torch.get_num_threads())
    said = options.parse_args()
    torch.set_num_threads(said.threads)
    torch.manual_seed(1)
    warnings.filterwarnings("ignore", "enable_nested_tensor")
    name, pairs = some_pairs()
    tokenizer = learn((text for pair in pairs for text in pair), Pieces())
    task = Translate(tokenizer=tokenizer)
    examples = task.prepare(pairs)
    loops = {
        "regard": ours(task, examples, said.dropout),
        "plain": plain(tokenizer, examples, said.dropout, fewer=False),
        "fewer drops": plain(tokenizer, examples, said.dropout, fewer=True),
    }
    for steps in loops.values():
        turn(steps, 2.0)  # warm up
    speeds: dict[str, list[float]] = {name: [] for name in loops}
    for _ in range(TURNS):
        for loop, steps in loops.items():
            speeds[loop].append(turn(steps, said.seconds / TURNS))
    print(f"transformer tiny on {name}: {len(tokenizer)} pieces, dropout {said.dropout}, {said.threads} threads")
    print(f"{'':<12}{'target tokens/s':>16}{'regard is':>12}      medians of {TURNS} turns, and their range")
    cells = []
    for loop, measured in speeds.items():
        ratios = [a / b for a, b in zip(speeds["regard"], measured, strict=True)]
        spread = f"({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"{loop:<12}{median(measured):>16,.0f}{median(ratios):>11.2f}x      {spread}")
        cells.append(f"{median(measured):,.0f}" + ("" if loop == "regard" else f" ({median(ratios):.1f}x)"))
    what = f"training, Transformer `tiny`, dropout {said.dropout}: target tokens a second, {said.threads} threads"
    beside = f"`torch.nn.Transformer` in a plain loop {cells[1]}, with dropout only where ours is {cells[2]}"
    print(f"\n| {what} | {cells[0]} | {beside} | `benchmarks/train_speed.py` |")


if __name__ == "__main__":
    main()
