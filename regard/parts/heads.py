"""A head turns the body's vectors into answers; body and head together are a model.

Unembed         logits = x Eᵀ + b          with E the token embedding itself (Press & Wolf 2017)
Output          logits = x Wᵀ              with W the token embedding, or a matrix of its own
CappedOutput    logits = c tanh(x Wᵀ / c)                    (Gemma Team 2024)
Thought         norm(gelu(x A + a))        one more layer that some families have before an answer
MaskedOutput    logits = thought(x) Eᵀ + b                   (Devlin et al. 2019)
Classifier      logits = thought(pool(x)) W + b;  PerToken the same of each token
Vector          pool(x), or that divided by its length;  Projection the same of pool(x) W (Radford et al. 2021, CLIP)
cross_entropy   Σ log Σ exp(logits) - Σ p · logits,   p = (1 - ε) wanted + ε uniform          (Szegedy et al. 2016)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.parts.dropout import Dropout
from regard.parts.norms import LayerNorm

NOT_FINITE = "the model gives no finite numbers"
NEVER = -10_000.0  # a logit whose probability is exactly 0, even in half precision


class Model(nn.Module):
    """Any body and any head that fit: (B,T,D) passes between them."""

    body: Any
    head: Any

    def __init__(self, body: nn.Module, head: nn.Module):
        super().__init__()
        self.body, self.head = body, head

    def forward(self, *inputs: Tensor, **context: Any) -> Tensor:
        return self.head(self.body(*inputs, **context))

    def next_logits(self, ids: Tensor, caches: list[Any]) -> Tensor:
        """Logits of what follows the newest ids: (B,T) -> (B,V)."""
        ask = getattr(self.body, "decode", self.body)
        return self.head(ask(ids, cache=caches)[:, -1])


def check_finite(scores: Tensor) -> Tensor:
    """The scores as they are, (...,N). A row with NaN or +inf in it, or with nothing but -inf, is no answer."""
    if not bool(scores.amax(-1).isfinite().all()):
        raise FloatingPointError(NOT_FINITE)
    return scores


class BiasedLMHead(nn.Module):
    """Scores every token of the vocabulary by its own embedding. Padding is never an answer."""

    def __init__(self, tokens: nn.Embedding):
        super().__init__()
        self.weight = tokens.weight
        self.pad = tokens.padding_idx
        self.bias = nn.Parameter(torch.zeros(1, tokens.num_embeddings))
        if self.pad is not None:
            self.bias.data[0, self.pad] = NEVER

    def forward(self, x: Tensor) -> Tensor:  # (B,T,D) -> (B,T,V)
        return F.linear(x, self.weight, self.bias[0])

    def loss(self, x: Tensor, wanted: Tensor, smoothing: float = 0.0) -> Tensor:
        """Summed cross-entropy of (N,D) against (N,) ids, without ever holding all (N,V) logits."""
        uniform = torch.full_like(self.bias[0], 1 / (len(self.weight) - (self.pad is not None)))
        if self.pad is not None:
            uniform[self.pad] = 0.0
        return cross_entropy(x, self.weight, self.bias[0], wanted, uniform, smoothing)


class LMHead(nn.Module):
    """Scores every token of the vocabulary by a row of `weight`."""

    def __init__(self, weight: Tensor):
        super().__init__()
        self.weight = weight

    def forward(self, x: Tensor) -> Tensor:  # (B,T,D) -> (B,T,V)
        return F.linear(x, self.weight)

    def loss(self, x: Tensor, wanted: Tensor, smoothing: float = 0.0) -> Tensor:
        """Summed, as that of Unembed."""
        return cross_entropy(x, self.weight, None, wanted, None, smoothing)


class SoftcapLMHead(LMHead):
    """The same, bent so that no logit leaves ±cap."""

    def __init__(self, weight: Tensor, cap: float):
        super().__init__(weight)
        self.cap = cap

    def forward(self, x: Tensor) -> Tensor:
        return self.cap * torch.tanh(super().forward(x) / self.cap)

    def loss(self, x: Tensor, wanted: Tensor, smoothing: float = 0.0) -> Tensor:
        return F.cross_entropy(self(x), wanted, reduction="sum", label_smoothing=smoothing)


class HeadTransform(nn.Module):
    def __init__(self, dim: int, eps: float, bias: bool = True, activation: Callable[[Tensor], Tensor] = F.gelu):
        super().__init__()
        self.inner = nn.Linear(dim, dim, bias)
        self.norm = LayerNorm(dim, eps, bias=bias)
        self.activation = activation
        nn.init.normal_(self.inner.weight, std=0.02)
        if bias:
            nn.init.zeros_(self.inner.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.activation(self.inner(x)))


class MaskedLMHead(nn.Module):
    """Guesses hidden tokens: one more layer, then every token of the vocabulary is scored by its own embedding."""

    def __init__(self, weight: Tensor, transform: HeadTransform):
        super().__init__()
        self.transform, self.weight = transform, weight
        self.bias = nn.Parameter(torch.zeros(len(weight)))

    def forward(self, x: Tensor) -> Tensor:  # (B,T,D) -> (B,T,V)
        return F.linear(self.transform(x), self.weight, self.bias)

    def loss(self, x: Tensor, wanted: Tensor, smoothing: float = 0.0) -> Tensor:
        """Summed, as that of Unembed."""
        return cross_entropy(self.transform(x), self.weight, self.bias, wanted, None, smoothing)


def head_transform(body: Any) -> nn.Module:
    """What a family has between its vectors and an answer: nothing, unless it says so."""
    return body.head_transform() if hasattr(body, "head_transform") else nn.Identity()


class Classifier(nn.Module):
    """One answer for the whole input."""

    def __init__(
        self, dim: int, classes: int, pooling: nn.Module, dropout: float = 0.0, transform: nn.Module | None = None
    ):
        super().__init__()
        self.pooling, self.transform = pooling, transform or nn.Identity()
        self.drop, self.out = Dropout(dropout), nn.Linear(dim, classes)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (B,T,D) -> (B,classes)
        return self.out(self.drop(self.transform(self.pooling(x, mask))))


class EmbeddingHead(nn.Module):
    """One vector for the whole input, of length 1 if `unit`."""

    def __init__(self, pooling: nn.Module, unit: bool = True):
        super().__init__()
        self.pooling, self.unit = pooling, unit

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (B,T,D) -> (B,D)
        pooled = self.pooling(x, mask)
        return F.normalize(pooled, dim=-1) if self.unit else pooled


class ProjectionHead(EmbeddingHead):
    """One vector for the whole input, mapped to another width."""

    def __init__(self, pooling: nn.Module, dim: int, width: int, unit: bool = True):
        super().__init__(pooling, unit)
        self.out = nn.Linear(dim, width, bias=False)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (B,T,D) -> (B,width)
        projected = self.out(self.pooling(x, mask))
        return F.normalize(projected, dim=-1) if self.unit else projected


class TokenClassifier(nn.Module):
    """One answer for each token."""

    def __init__(self, dim: int, classes: int, dropout: float = 0.0, transform: nn.Module | None = None):
        super().__init__()
        self.transform = transform or nn.Identity()
        self.drop, self.out = Dropout(dropout), nn.Linear(dim, classes)

    def forward(self, x: Tensor) -> Tensor:  # (B,T,D) -> (B,T,classes)
        return self.out(self.drop(self.transform(x)))


class SpanHead(TokenClassifier):
    """Where an answer begins and where it ends: two scores for each token."""

    def __init__(self, dim: int, dropout: float = 0.0, transform: nn.Module | None = None):
        super().__init__(dim, 2, dropout, transform)


def cross_entropy(
    x: Tensor, weight: Tensor, bias: Tensor | None, wanted: Tensor, uniform: Tensor | None, smoothing: float = 0.0
) -> Tensor:
    """Smoothing spreads its share as `uniform` says: over the whole vocabulary unless given."""
    learning = torch.is_grad_enabled()  # inside of `apply` it no longer is
    if uniform is None:
        uniform = weight.detach().new_full((len(weight),), 1 / len(weight))
    return _CrossEntropy.apply(x, weight, bias, wanted, uniform, smoothing, learning)


class _CrossEntropy(torch.autograd.Function):
    """The output layer and its loss in one, some rows at a time: logits stay in the processor's cache, and become their
    own gradient (softmax - p) in place, so the way back costs one multiplication."""

    CHUNK = 2**20  # logits held at once

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        wanted: Tensor,
        uniform: Tensor,
        smoothing: float,
        learning: bool,
    ) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            wide = x.to(weight.dtype)
            leaves = (wide, weight) if bias is None else (wide, weight, bias)
            grads = [torch.zeros_like(leaf) for leaf in leaves] if learning else []
            total = torch.zeros((), dtype=weight.dtype, device=x.device)
            rows = max(1, _CrossEntropy.CHUNK // len(weight))
            room = wide.new_empty(min(rows, len(x)), len(weight))
            for i in range(0, len(x), rows):
                part, ids = wide[i : i + rows], wanted[i : i + rows, None]
                logits = torch.mm(part, weight.T, out=room[: len(part)])
                if bias is not None:
                    logits.add_(bias)
                logits.sub_(logits.amax(-1, keepdim=True))
                total -= (1 - smoothing) * logits.gather(1, ids).sum()
                if smoothing:
                    total -= smoothing * (logits @ uniform).sum()
                d = logits.exp_()
                sums = d.sum(-1, keepdim=True)
                total += sums.log().sum()
                if learning:
                    d.div_(sums).scatter_add_(1, ids, d.new_full(ids.shape, smoothing - 1))
                    if smoothing:
                        d.sub_(smoothing * uniform)
                    torch.mm(d, weight, out=grads[0][i : i + rows])
                    grads[1].addmm_(d.T, part)
                    if bias is not None:
                        grads[2].add_(d.sum(0))
        ctx.save_for_backward(*grads)
        ctx.dtype = x.dtype
        return total

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, *bias = (t * grad[0] for t in ctx.saved_tensors)
        return x.to(ctx.dtype), weight, bias[0] if bias else None, None, None, None, None
