"""Heads: they map the body's vectors to predictions; a body and a head together are a model.

BiasedLMHead     logits = x Eᵀ + b          E is the token embedding (Press & Wolf 2017)
LMHead           logits = x Wᵀ              W is the token embedding, or a matrix of its own
SoftcapLMHead    logits = c tanh(x Wᵀ / c)                     (Gemma Team 2024)
HeadTransform    norm(gelu(x A + a))        the extra layer of some families before the output
MaskedLMHead     logits = transform(x) Eᵀ + b                  (Devlin et al. 2019)
Classifier       logits = transform(pool(x)) W + b; TokenClassifier: the same per token
EmbeddingHead    pool(x), normalised to length 1 or not; ProjectionHead: the same of pool(x) W (Radford et al. 2021)
cross_entropy    Σ log Σ exp(logits) - Σ p · logits,   p = (1 - ε) one_hot + ε uniform         (Szegedy et al. 2016)
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
PAD_LOGIT = -10_000.0  # its probability is exactly 0, even in half precision


class Body(nn.Module):
    """The part of a model that maps inputs to vectors (B,T,D); its config has at least `dim` and `dropout`."""

    def __init__(self, config: Any):
        super().__init__()
        self.config = config

    def lm_head(self) -> nn.Module:
        """The output layer of a language model."""
        raise NotImplementedError

    def head_transform(self) -> nn.Module:
        """The layer that the family has before the output layer; the identity if it has none."""
        return nn.Identity()


class Model(nn.Module):
    """A body and a head; the body hands (B,T,D) to the head."""

    body: Any
    head: Any

    def __init__(self, body: nn.Module, head: nn.Module):
        super().__init__()
        self.body, self.head = body, head

    def forward(self, *inputs: Tensor, **context: object) -> Tensor:
        return self.head(self.body(*inputs, **context))

    def next_logits(self, ids: Tensor, caches: list[Any]) -> Tensor:
        """Logits of the token after `ids`: (B,T) -> (B,V)."""
        decode = getattr(self.body, "decode", self.body)
        return self.head(decode(ids, cache=caches)[:, -1])


def check_finite(scores: Tensor) -> Tensor:
    """Return the scores (...,N) unchanged; raises if a row contains NaN or +inf, or only -inf."""
    if not bool(scores.amax(-1).isfinite().all()):
        raise FloatingPointError(NOT_FINITE)
    return scores


class BiasedLMHead(nn.Module):
    """Output layer tied to the token embedding, with a bias. Padding is never predicted."""

    def __init__(self, tokens: nn.Embedding):
        super().__init__()
        self.weight = tokens.weight
        self.pad = tokens.padding_idx
        self.bias = nn.Parameter(torch.zeros(1, tokens.num_embeddings))
        if self.pad is not None:
            self.bias.data[0, self.pad] = PAD_LOGIT

    def forward(self, x: Tensor) -> Tensor:  # (B,T,D) -> (B,T,V)
        return F.linear(x, self.weight, self.bias[0])

    def loss(self, x: Tensor, targets: Tensor, label_smoothing: float = 0.0) -> Tensor:
        """Summed cross-entropy of (N,D) against (N,) ids; the (N,V) logits are never stored at once."""
        uniform = torch.full_like(self.bias[0], 1 / (len(self.weight) - (self.pad is not None)))
        if self.pad is not None:
            uniform[self.pad] = 0.0
        return cross_entropy(x, self.weight, self.bias[0], targets, uniform, label_smoothing)


class LMHead(nn.Module):
    """Output layer without a bias; `weight` (V,D) may be the token embedding."""

    def __init__(self, weight: Tensor):
        super().__init__()
        self.weight = weight

    def forward(self, x: Tensor) -> Tensor:  # (B,T,D) -> (B,T,V)
        return F.linear(x, self.weight)

    def loss(self, x: Tensor, targets: Tensor, label_smoothing: float = 0.0) -> Tensor:
        """Summed cross-entropy, as in BiasedLMHead."""
        return cross_entropy(x, self.weight, None, targets, None, label_smoothing)


class SoftcapLMHead(LMHead):
    """Soft-capped logits: all lie within ±cap."""

    def __init__(self, weight: Tensor, cap: float):
        super().__init__(weight)
        self.cap = cap

    def forward(self, x: Tensor) -> Tensor:
        return self.cap * torch.tanh(super().forward(x) / self.cap)

    def loss(self, x: Tensor, targets: Tensor, label_smoothing: float = 0.0) -> Tensor:
        return F.cross_entropy(self(x), targets, reduction="sum", label_smoothing=label_smoothing)


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
    """Predicts masked tokens: a HeadTransform, then an output layer tied to the token embedding, with a bias."""

    def __init__(self, weight: Tensor, transform: HeadTransform):
        super().__init__()
        self.transform, self.weight = transform, weight
        self.bias = nn.Parameter(torch.zeros(len(weight)))

    def forward(self, x: Tensor) -> Tensor:  # (B,T,D) -> (B,T,V)
        return F.linear(self.transform(x), self.weight, self.bias)

    def loss(self, x: Tensor, targets: Tensor, label_smoothing: float = 0.0) -> Tensor:
        """Summed cross-entropy, as in BiasedLMHead."""
        return cross_entropy(self.transform(x), self.weight, self.bias, targets, None, label_smoothing)


class Classifier(nn.Module):
    """One prediction for the whole input."""

    def __init__(
        self, dim: int, classes: int, pooling: nn.Module, dropout: float = 0.0, transform: nn.Module | None = None
    ):
        super().__init__()
        self.pooling, self.transform = pooling, transform or nn.Identity()
        self.drop, self.out = Dropout(dropout), nn.Linear(dim, classes)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (B,T,D) -> (B,classes)
        return self.out(self.drop(self.transform(self.pooling(x, mask))))


class EmbeddingHead(nn.Module):
    """One vector for the whole input, normalised to length 1 if `unit`."""

    def __init__(self, pooling: nn.Module, unit: bool = True):
        super().__init__()
        self.pooling, self.unit = pooling, unit

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (B,T,D) -> (B,D)
        pooled = self.pooling(x, mask)
        return F.normalize(pooled, dim=-1) if self.unit else pooled


class ProjectionHead(EmbeddingHead):
    """One vector for the whole input, projected to another width."""

    def __init__(self, pooling: nn.Module, dim: int, width: int, unit: bool = True):
        super().__init__(pooling, unit)
        self.out = nn.Linear(dim, width, bias=False)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (B,T,D) -> (B,width)
        projected = self.out(self.pooling(x, mask))
        return F.normalize(projected, dim=-1) if self.unit else projected


class TokenClassifier(nn.Module):
    """One prediction per token."""

    def __init__(self, dim: int, classes: int, dropout: float = 0.0, transform: nn.Module | None = None):
        super().__init__()
        self.transform = transform or nn.Identity()
        self.drop, self.out = Dropout(dropout), nn.Linear(dim, classes)

    def forward(self, x: Tensor) -> Tensor:  # (B,T,D) -> (B,T,classes)
        return self.out(self.drop(self.transform(x)))


class SpanHead(TokenClassifier):
    """Extractive question answering: a start score and an end score per token."""

    def __init__(self, dim: int, dropout: float = 0.0, transform: nn.Module | None = None):
        super().__init__(dim, 2, dropout, transform)


def cross_entropy(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    uniform: Tensor | None,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Summed. Label smoothing distributes its share by `uniform` (V,), by default over the whole vocabulary."""
    needs_grad = torch.is_grad_enabled()  # inside `apply` it is off
    if uniform is None:
        uniform = weight.detach().new_full((len(weight),), 1 / len(weight))
    return _CrossEntropy.apply(x, weight, bias, targets, uniform, label_smoothing, needs_grad)


class _CrossEntropy(torch.autograd.Function):
    """Fused output layer and loss, in chunks of rows: the logits stay in the processor's cache and turn into their own
    gradient (softmax - p) in place, so the backward pass is one multiplication."""

    CHUNK = 2**20  # logits stored at once
    dtype: torch.dtype

    @staticmethod
    def forward(
        ctx: _CrossEntropy,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        uniform: Tensor,
        label_smoothing: float,
        needs_grad: bool,
    ) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            wide = x.to(weight.dtype)
            leaves = (wide, weight) if bias is None else (wide, weight, bias)
            grads = [torch.zeros_like(leaf) for leaf in leaves] if needs_grad else []
            total = torch.zeros((), dtype=weight.dtype, device=x.device)
            rows = max(1, _CrossEntropy.CHUNK // len(weight))
            buffer = wide.new_empty(min(rows, len(x)), len(weight))
            for i in range(0, len(x), rows):
                part, ids = wide[i : i + rows], targets[i : i + rows, None]
                logits = torch.mm(part, weight.T, out=buffer[: len(part)])
                if bias is not None:
                    logits.add_(bias)
                logits.sub_(logits.amax(-1, keepdim=True))
                total -= (1 - label_smoothing) * logits.gather(1, ids).sum()
                if label_smoothing:
                    total -= label_smoothing * (logits @ uniform).sum()
                d = logits.exp_()
                sums = d.sum(-1, keepdim=True)
                total += sums.log().sum()
                if needs_grad:
                    d.div_(sums).scatter_add_(1, ids, d.new_full(ids.shape, label_smoothing - 1))
                    if label_smoothing:
                        d.sub_(label_smoothing * uniform)
                    torch.mm(d, weight, out=grads[0][i : i + rows])
                    grads[1].addmm_(d.T, part)
                    if bias is not None:
                        grads[2].add_(d.sum(0))
        ctx.save_for_backward(*grads)
        ctx.dtype = x.dtype
        return total

    @staticmethod
    def backward(ctx: _CrossEntropy, *grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, *bias = (t * grad[0] for t in ctx.saved_tensors)
        return x.to(ctx.dtype), weight, bias[0] if bias else None, None, None, None, None
