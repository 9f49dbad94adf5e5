"""A GPT as a short tutorial would write it: no part of regard, only PyTorch. The peer of shakespeare.py.

It follows the description of nanoGPT's recipe for a CPU: 4 layers, 4 heads, width 128, context 64, batches of 12,
2,000 steps, AdamW with betas 0.9 and 0.99, weight decay 0.1, rate 1e-3 falling to 1e-4 by a cosine after 100 steps of
warm-up, gradients clipped at 1, no dropout, no biases, random windows.
"""

from __future__ import annotations

import math
import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CONTEXT, BATCH, STEPS, WARMUP = 64, 12, 2_000, 100
RATE, LAST_RATE = 1e-3, 1e-4


class Layer(nn.Module):
    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(dim, bias=False), nn.LayerNorm(dim, bias=False)
        self.ask, self.mix = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.widen, self.narrow = nn.Linear(dim, 4 * dim, bias=False), nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        B, T, D = x.shape
        q, k, v = (t.view(B, T, self.heads, -1).transpose(1, 2) for t in self.ask(self.before(x)).split(D, 2))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.mix(seen.transpose(1, 2).reshape(B, T, D))
        return x + self.narrow(F.gelu(self.widen(self.between(x))))


class PlainGPT(nn.Module):
    def __init__(self, vocab: int, dim: int = 128, heads: int = 4, layers: int = 4):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocab, dim), nn.Embedding(CONTEXT, dim)
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(dim, bias=False)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                last = name.endswith(("mix.weight", "narrow.weight"))
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * layers) if last else 0.02)

    def forward(self, ids: Tensor) -> Tensor:  # (B,T) -> (B,T,V)
        x = self.tokens(ids) + self.places.weight[: ids.size(1)]
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.norm(x), self.tokens.weight)


def rate_at(step: int) -> float:
    if step < WARMUP:
        return RATE * (step + 1) / (WARMUP + 1)
    done = (step - WARMUP) / (STEPS - WARMUP)
    return LAST_RATE + 0.5 * (1 + math.cos(math.pi * done)) * (RATE - LAST_RATE)


def train(ids: Tensor, vocab: int, seed: int = 1) -> tuple[PlainGPT, float]:
    """The trained model, and the seconds that its steps took."""
    torch.manual_seed(seed)
    model = PlainGPT(vocab)
    decayed = [w for w in model.parameters() if w.dim() == 2]
    others = [w for w in model.parameters() if w.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, RATE, (0.9, 0.99))
    began = time.perf_counter()
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step)
        starts = torch.randint(len(ids) - CONTEXT, (BATCH,)).tolist()
        x = torch.stack([ids[i : i + CONTEXT] for i in starts])
        y = torch.stack([ids[i + 1 : i + 1 + CONTEXT] for i in starts])
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model, time.perf_counter() - began
