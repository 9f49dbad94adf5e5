"""The chunked loss equals the cross-entropy of the logits, with gradients; heads equal their formulas."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from regard.parts.embedding import ScaledEmbedding
from regard.parts.heads import (
    BiasedLMHead,
    Classifier,
    HeadTransform,
    LMHead,
    MaskedLMHead,
    Model,
    TokenClassifier,
    _CrossEntropy,
    cross_entropy,
)
from regard.parts.pooling import POOLINGS

N, D, V = 13, 6, 9
PAD = V - 1
EXACT = {"rtol": 1e-12, "atol": 1e-12}
SMOOTHING = pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 0.7])
# one row at a time, two, a divisor of N or not, all rows but one, all, more than all
CHUNKS = pytest.mark.parametrize("rows", [0, 1, 2, 5, N - 1, N, N + 1])


def make_leaves(seed: int = 1, n: int = N) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(seed)
    x, weight, bias = (torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((n, D), (V, D), (V,)))
    return x, weight, bias, torch.randint(PAD, (n,))


def uniform(*, pad: bool) -> Tensor:
    p = torch.full((V,), 1 / (V - pad), dtype=torch.float64)
    p[PAD] = 0.0 if pad else p[PAD]
    return p


def reference_loss(x: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, label_smoothing: float) -> Tensor:
    """Padding has probability 0, from the model and from label smoothing."""
    logits = (x @ weight.T + bias)[:, :PAD]
    p = (1 - label_smoothing) * F.one_hot(targets, PAD).double() + label_smoothing / PAD
    return -(p * logits.log_softmax(-1)).sum()


@SMOOTHING
@CHUNKS
def test_loss_without_padding_equals_pytorch(
    label_smoothing: float, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_CrossEntropy, "CHUNK", rows * V)
    x, weight, bias, targets = make_leaves()
    ours = cross_entropy(x, weight, bias, targets, uniform(pad=False), label_smoothing) * 3
    theirs = F.cross_entropy(x @ weight.T + bias, targets, label_smoothing=label_smoothing, reduction="sum") * 3
    assert_close(ours, theirs, **EXACT)
    gradients = [torch.autograd.grad(loss, (x, weight, bias)) for loss in (ours, theirs)]
    assert_close(*gradients, **EXACT)


def make_head(weight: Tensor, bias: Tensor, pad: int | None = PAD) -> BiasedLMHead:
    tokens = ScaledEmbedding(V, D, pad).double()
    with torch.no_grad():
        tokens.weight[:PAD] = weight[:PAD]
        head = BiasedLMHead(tokens).double()
        head.bias[0, :PAD] = bias[:PAD]
    return head


@SMOOTHING
@CHUNKS
def test_loss_excludes_padding(label_smoothing: float, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_CrossEntropy, "CHUNK", rows * V)
    x, weight, bias, targets = make_leaves()
    head = make_head(weight, bias)
    ours = head.loss(x, targets, label_smoothing)
    theirs = reference_loss(x, weight, bias, targets, label_smoothing)
    assert_close(ours, theirs, **EXACT)
    actual = torch.autograd.grad(ours, (x, head.weight, head.bias))
    expected = torch.autograd.grad(theirs, (x, weight, bias))
    assert_close(actual, (expected[0], expected[1], expected[2][None]), **EXACT)
    assert not actual[1][PAD].any()
    assert not actual[2][0, PAD].any()


@given(seed=st.integers(0, 999), label_smoothing=st.sampled_from([0.0, 0.1]), rows=st.integers(1, 4))
@settings(deadline=None, derandomize=True, max_examples=30)
def test_gradient_equals_finite_differences(seed: int, label_smoothing: float, rows: int) -> None:
    x, weight, bias, targets = make_leaves(seed)
    h = 1e-6

    def loss(*inputs: Tensor) -> Tensor:
        return cross_entropy(*inputs, targets, uniform(pad=True), label_smoothing)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_CrossEntropy, "CHUNK", rows * V)
        gradients = torch.autograd.grad(loss(x, weight, bias), (x, weight, bias))
        direction = [torch.randn_like(g) for g in gradients]
        plus, minus = (
            loss(*(t.detach() + sign * h * w for t, w in zip((x, weight, bias), direction, strict=True)))
            for sign in (1, -1)
        )
    slope = sum((g * w).sum() for g, w in zip(gradients, direction, strict=True))
    assert_close((plus - minus) / (2 * h), slope, rtol=1e-6, atol=1e-6)


def test_large_logits_do_not_overflow() -> None:
    x, weight, bias, targets = make_leaves()
    loss = cross_entropy(x * 1e4, weight, bias, targets, uniform(pad=False), 0.1)
    assert_close(loss, F.cross_entropy(x * 1e4 @ weight.T + bias, targets, label_smoothing=0.1, reduction="sum"))


def test_loss_of_zero_rows_is_zero() -> None:
    x, weight, bias, targets = make_leaves(n=0)
    loss = cross_entropy(x, weight, bias, targets, uniform(pad=True), 0.1)
    assert loss.item() == 0
    assert not any(g.any() for g in torch.autograd.grad(loss, (x, weight, bias)))


def test_loss_without_gradients_is_equal() -> None:
    x, weight, bias, targets = make_leaves()
    with torch.no_grad():
        no_grad_loss = cross_entropy(x, weight, bias, targets, uniform(pad=True), 0.1)
    assert_close(no_grad_loss, cross_entropy(x, weight, bias, targets, uniform(pad=True), 0.1), **EXACT)


def test_bf16_input_has_a_bf16_gradient() -> None:
    x, weight, bias, targets = make_leaves()
    x_bf16 = x.detach().bfloat16().requires_grad_()
    loss = cross_entropy(x_bf16, weight, bias, targets, uniform(pad=True), 0.1)
    assert_close(loss, cross_entropy(x_bf16.detach().double(), weight, bias, targets, uniform(pad=True), 0.1), **EXACT)
    loss.backward()
    assert x_bf16.grad.dtype == torch.bfloat16


def test_padding_is_never_predicted() -> None:
    x, weight, bias, targets = make_leaves()
    logits = make_head(weight, bias)(100 * x)
    assert not logits.softmax(-1)[:, PAD].any()
    assert not logits.half().softmax(-1)[:, PAD].any()
    assert (logits.argmax(-1) != PAD).all()


def test_head_is_tied_to_the_embedding() -> None:
    tokens = ScaledEmbedding(V, D, PAD)
    model = Model(tokens, BiasedLMHead(tokens))
    assert model.head.weight is tokens.weight
    ids = torch.tensor([[1, 2, 3]])
    assert_close(model(ids), tokens(ids) @ tokens.weight.T + model.head.bias[0])


def make_masked_head() -> MaskedLMHead:
    head = MaskedLMHead(nn.Embedding(V, D).weight, HeadTransform(D, 1e-12)).double()
    for weight in head.parameters():
        nn.init.normal_(weight)
    return head


@SMOOTHING
@CHUNKS
@pytest.mark.parametrize("kind", ["lm", "masked"])
def test_head_loss_equals_the_cross_entropy_of_its_logits(
    kind: str, label_smoothing: float, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_CrossEntropy, "CHUNK", rows * V)
    x, _, _, targets = make_leaves()
    head = make_masked_head() if kind == "masked" else LMHead(nn.Embedding(V, D).weight).double()
    ours = head.loss(x, targets, label_smoothing) * 3
    theirs = F.cross_entropy(head(x), targets, label_smoothing=label_smoothing, reduction="sum") * 3
    assert_close(ours, theirs, **EXACT)
    gradients = [torch.autograd.grad(loss, (x, *head.parameters())) for loss in (ours, theirs)]
    assert_close(*gradients, **EXACT)


def test_masked_lm_head_equals_its_formula() -> None:
    x, head = make_leaves()[0], make_masked_head()
    inner = F.gelu(x @ head.transform.inner.weight.T + head.transform.inner.bias)
    assert_close(head(x), head.transform.norm(inner) @ head.weight.T + head.bias)
    tokens = nn.Embedding(V, D)
    assert MaskedLMHead(tokens.weight, HeadTransform(D, 1e-12)).weight is tokens.weight


@pytest.mark.parametrize("name", POOLINGS)
def test_classifier_ignores_padding(name: str) -> None:
    torch.manual_seed(1)
    head = Classifier(D, 4, POOLINGS[name](D), dropout=0.5).eval()
    x, mask = torch.randn(3, 7, D), (torch.arange(7) < torch.tensor([7, 2, 5])[:, None])[:, None, None]
    assert head(x, mask).shape == (3, 4)
    assert_close(head(x, mask), head.out(head.pooling(x, mask)))
    assert_close(head(x, mask)[1], head(x[1:2, :2])[0])
    head.train()
    assert not torch.equal(head(x, mask), head(x, mask))


def test_token_classifier_treats_tokens_independently() -> None:
    torch.manual_seed(1)
    head, x = TokenClassifier(D, 4, dropout=0.5).eval(), torch.randn(3, 7, D)
    assert head(x).shape == (3, 7, 4)
    assert_close(head(x)[1, 5], head.out(x[1, 5]))
    head.train()
    assert not torch.equal(head(x), head(x))
