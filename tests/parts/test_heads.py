"""The loss in chunks is the loss of the formula, to the last digits, with its gradients."""

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
SMOOTHING = pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
# one row at a time, two, a divisor of N or not, all rows but one, all, more than all
CHUNKS = pytest.mark.parametrize("rows", [0, 1, 2, 5, N - 1, N, N + 1])


def leaves(seed: int = 1, n: int = N) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(seed)
    x, weight, bias = (torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((n, D), (V, D), (V,)))
    return x, weight, bias, torch.randint(PAD, (n,))


def uniform(*, pad: bool) -> Tensor:
    p = torch.full((V,), 1 / (V - pad), dtype=torch.float64)
    p[PAD] = 0.0 if pad else p[PAD]
    return p


def spelled_out(x: Tensor, weight: Tensor, bias: Tensor, wanted: Tensor, smoothing: float) -> Tensor:
    """Padding is no answer: it has no probability, neither the model's nor a share of the smoothing."""
    logits = (x @ weight.T + bias)[:, :PAD]
    p = (1 - smoothing) * F.one_hot(wanted, PAD).double() + smoothing / PAD
    return -(p * logits.log_softmax(-1)).sum()


@SMOOTHING
@CHUNKS
def test_without_padding_it_is_the_one_of_pytorch(smoothing: float, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_CrossEntropy, "CHUNK", rows * V)
    x, weight, bias, wanted = leaves()
    ours = cross_entropy(x, weight, bias, wanted, uniform(pad=False), smoothing) * 3
    theirs = F.cross_entropy(x @ weight.T + bias, wanted, label_smoothing=smoothing, reduction="sum") * 3
    assert_close(ours, theirs, **EXACT)
    gradients = [torch.autograd.grad(loss, (x, weight, bias)) for loss in (ours, theirs)]
    assert_close(*gradients, **EXACT)


def head_of(weight: Tensor, bias: Tensor, pad: int | None = PAD) -> BiasedLMHead:
    tokens = ScaledEmbedding(V, D, pad).double()
    with torch.no_grad():
        tokens.weight[:PAD] = weight[:PAD]
        head = BiasedLMHead(tokens).double()
        head.bias[0, :PAD] = bias[:PAD]
    return head


@SMOOTHING
@CHUNKS
def test_with_padding_it_is_the_formula_without_it(
    smoothing: float, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_CrossEntropy, "CHUNK", rows * V)
    x, weight, bias, wanted = leaves()
    head = head_of(weight, bias)
    ours = head.loss(x, wanted, smoothing)
    theirs = spelled_out(x, weight, bias, wanted, smoothing)
    assert_close(ours, theirs, **EXACT)
    got = torch.autograd.grad(ours, (x, head.weight, head.bias))
    want = torch.autograd.grad(theirs, (x, weight, bias))
    assert_close(got, (want[0], want[1], want[2][None]), **EXACT)
    assert not got[1][PAD].any()
    assert not got[2][0, PAD].any()


@given(seed=st.integers(0, 999), smoothing=st.sampled_from([0.0, 0.1]), rows=st.integers(1, 4))
@settings(deadline=None, derandomize=True, max_examples=30)
def test_the_gradient_is_the_slope(seed: int, smoothing: float, rows: int) -> None:
    x, weight, bias, wanted = leaves(seed)
    h = 1e-6

    def loss(*inputs: Tensor) -> Tensor:
        return cross_entropy(*inputs, wanted, uniform(pad=True), smoothing)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_CrossEntropy, "CHUNK", rows * V)
        gradients = torch.autograd.grad(loss(x, weight, bias), (x, weight, bias))
        way = [torch.randn_like(g) for g in gradients]
        ahead, behind = (
            loss(*(t.detach() + sign * h * w for t, w in zip((x, weight, bias), way, strict=True))) for sign in (1, -1)
        )
    climb = sum((g * w).sum() for g, w in zip(gradients, way, strict=True))
    assert_close((ahead - behind) / (2 * h), climb, rtol=1e-6, atol=1e-6)


def test_huge_logits_do_not_overflow() -> None:
    x, weight, bias, wanted = leaves()
    loss = cross_entropy(x * 1e4, weight, bias, wanted, uniform(pad=False), 0.1)
    assert_close(loss, F.cross_entropy(x * 1e4 @ weight.T + bias, wanted, label_smoothing=0.1, reduction="sum"))


def test_no_rows_have_no_loss() -> None:
    x, weight, bias, wanted = leaves(n=0)
    loss = cross_entropy(x, weight, bias, wanted, uniform(pad=True), 0.1)
    assert loss.item() == 0
    assert not any(g.any() for g in torch.autograd.grad(loss, (x, weight, bias)))


def test_without_gradients_the_loss_is_the_same() -> None:
    x, weight, bias, wanted = leaves()
    with torch.no_grad():
        quick = cross_entropy(x, weight, bias, wanted, uniform(pad=True), 0.1)
    assert_close(quick, cross_entropy(x, weight, bias, wanted, uniform(pad=True), 0.1), **EXACT)


def test_half_precision_goes_in_and_its_gradient_comes_out() -> None:
    x, weight, bias, wanted = leaves()
    half = x.detach().bfloat16().requires_grad_()
    loss = cross_entropy(half, weight, bias, wanted, uniform(pad=True), 0.1)
    assert_close(loss, cross_entropy(half.detach().double(), weight, bias, wanted, uniform(pad=True), 0.1), **EXACT)
    loss.backward()
    assert half.grad.dtype == torch.bfloat16


def test_padding_is_never_predicted() -> None:
    x, weight, bias, wanted = leaves()
    logits = head_of(weight, bias)(100 * x)
    assert not logits.softmax(-1)[:, PAD].any()
    assert not logits.half().softmax(-1)[:, PAD].any()
    assert (logits.argmax(-1) != PAD).all()


def test_the_head_is_the_embedding_itself() -> None:
    tokens = ScaledEmbedding(V, D, PAD)
    model = Model(tokens, BiasedLMHead(tokens))
    assert model.head.weight is tokens.weight
    ids = torch.tensor([[1, 2, 3]])
    assert_close(model(ids), tokens(ids) @ tokens.weight.T + model.head.bias[0])


def masked_output() -> MaskedLMHead:
    head = MaskedLMHead(nn.Embedding(V, D).weight, HeadTransform(D, 1e-12)).double()
    for weight in head.parameters():
        nn.init.normal_(weight)
    return head


@SMOOTHING
@CHUNKS
@pytest.mark.parametrize("kind", ["output", "masked"])
def test_the_loss_of_an_output_layer_is_that_of_its_logits(
    kind: str, smoothing: float, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_CrossEntropy, "CHUNK", rows * V)
    x, _, _, wanted = leaves()
    head = masked_output() if kind == "masked" else LMHead(nn.Embedding(V, D).weight).double()
    ours = head.loss(x, wanted, smoothing) * 3
    theirs = F.cross_entropy(head(x), wanted, label_smoothing=smoothing, reduction="sum") * 3
    assert_close(ours, theirs, **EXACT)
    gradients = [torch.autograd.grad(loss, (x, *head.parameters())) for loss in (ours, theirs)]
    assert_close(*gradients, **EXACT)


def test_a_masked_output_is_one_more_layer_and_the_embedding() -> None:
    x, head = leaves()[0], masked_output()
    inner = F.gelu(x @ head.transform.inner.weight.T + head.transform.inner.bias)
    assert_close(head(x), head.transform.norm(inner) @ head.weight.T + head.bias)
    tokens = nn.Embedding(V, D)
    assert MaskedLMHead(tokens.weight, HeadTransform(D, 1e-12)).weight is tokens.weight


@pytest.mark.parametrize("name", POOLINGS)
def test_a_classifier_answers_once_of_what_is_real(name: str) -> None:
    torch.manual_seed(1)
    head = Classifier(D, 4, POOLINGS[name](D), dropout=0.5).eval()
    x, mask = torch.randn(3, 7, D), (torch.arange(7) < torch.tensor([7, 2, 5])[:, None])[:, None, None]
    assert head(x, mask).shape == (3, 4)
    assert_close(head(x, mask), head.out(head.pooling(x, mask)))
    assert_close(head(x, mask)[1], head(x[1:2, :2])[0])
    head.train()
    assert not torch.equal(head(x, mask), head(x, mask))


def test_a_head_per_token_answers_of_each_alone() -> None:
    torch.manual_seed(1)
    head, x = TokenClassifier(D, 4, dropout=0.5).eval(), torch.randn(3, 7, D)
    assert head(x).shape == (3, 7, 4)
    assert_close(head(x)[1, 5], head.out(x[1, 5]))
    head.train()
    assert not torch.equal(head(x), head(x))
