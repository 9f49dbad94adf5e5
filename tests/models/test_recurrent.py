"""The recurrent encoder is bidirectional, the language model causal; caches, packing and padding work."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from regard.models.recurrent import CELLS, SIZES, RecurrentConfig, RecurrentEncoder, RecurrentLM, RecurrentStack
from regard.parts.heads import Model

B, T, V, D, LAYERS = 3, 9, 19, 6, 2
CHUNKS = [(0, 4), (4, 7), (7, 8), (8, 9)]
LENGTHS = [T, 2, 5]
EVERY_CELL = pytest.mark.parametrize("cell", CELLS)
EVERY_BODY = pytest.mark.parametrize("kind", [RecurrentEncoder, RecurrentLM])


def ids(length: int = T) -> Tensor:
    return torch.randint(V - 1, (B, length), generator=torch.Generator().manual_seed(length))


def make_body(kind: type[RecurrentStack], cell: str = "lstm", **options: object) -> RecurrentStack:
    torch.manual_seed(1)
    return kind(RecurrentConfig(V, dim=D, layers=LAYERS, cell=cell, **options)).double().eval()


def influence(body: RecurrentStack) -> list[list[bool]]:
    """For each position, which outputs change if its token changes."""
    rows = []
    for changed in range(T):
        altered = ids()
        altered[:, changed] = (altered[:, changed] + 1) % (V - 1)
        rows.append(((body(altered) - body(ids())).abs().amax((0, 2)) > 1e-9).tolist())
    return rows


@EVERY_CELL
def test_lm_is_causal_and_encoder_is_bidirectional(cell: str) -> None:
    before = [[t >= changed for t in range(T)] for changed in range(T)]
    assert influence(make_body(RecurrentLM, cell)) == before
    assert influence(make_body(RecurrentEncoder, cell, unidirectional=True)) == before
    assert influence(make_body(RecurrentEncoder, cell)) == [[True] * T] * T


@EVERY_CELL
@EVERY_BODY
@pytest.mark.parametrize("extra", [0, 3])
def test_batch_equals_single_texts_and_padding_is_invisible(kind, cell: str, extra: int) -> None:
    body, text = make_body(kind, cell), ids(T + extra)
    mask = (torch.arange(T + extra) < torch.tensor(LENGTHS)[:, None])[:, None, None]
    y = body(text, mask)
    assert y.shape == (B, T + extra, D)
    for b, length in enumerate(LENGTHS):
        assert_close(y[b, :length], body(text[b : b + 1, :length])[0])


@EVERY_BODY
def test_packed_documents_are_independent(kind: type[RecurrentStack]) -> None:
    body, document = make_body(kind), torch.tensor([0, 0, 0, 1, 2, 2, 2, 2, 2])
    y = body(ids()[:1], (document[:, None] == document)[None, None])
    for number in range(3):
        assert_close(y[:, document == number], body(ids()[:1, document == number]))


@EVERY_CELL
def test_chunks_with_a_cache_equal_the_full_forward(cell: str) -> None:
    body = make_body(RecurrentLM, cell)
    with torch.inference_mode():
        caches = body.caches()
        chunks = [body(ids()[:, a:b], cache=caches) for a, b in CHUNKS]
    assert [cache.length for cache in caches] == [T] * LAYERS
    assert_close(torch.cat(chunks, 1), body(ids()))


@EVERY_CELL
@EVERY_BODY
def test_every_weight_has_a_gradient_and_dropout_acts_in_training_only(kind: type[RecurrentStack], cell: str) -> None:
    body = make_body(kind, cell)
    assert torch.equal(body(ids()), body(ids()))
    model = Model(body.train(), body.lm_head().double())
    assert not torch.equal(body(ids()), body(ids()))
    model.head.loss(body(ids()).flatten(0, 1), ids(T + 1)[:, 1:].flatten(), 0.1).backward()
    assert [name for name, w in model.named_parameters() if w.grad is None or w.grad.abs().max() < 1e-9] == []


def test_bptt_length_applies_to_every_layer() -> None:
    body = make_body(RecurrentLM, bptt_length=3)
    vectors = body.tokens(ids()).detach().requires_grad_()
    body.tokens.forward = lambda _: vectors
    (grad,) = torch.autograd.grad(body(ids())[:, 4].sum(), vectors)
    assert (grad.abs().amax((0, 2)) > 0).tolist() == [3 <= t <= 4 for t in range(T)]


@EVERY_CELL
def test_lm_head_is_tied_and_never_predicts_padding(cell: str) -> None:
    body = make_body(RecurrentLM, cell)
    model = Model(body, body.lm_head().double())
    assert model(ids()).shape == (B, T, V)
    assert model.head.weight is body.tokens.weight
    assert model(ids()).argmax(-1).max() < V - 1, "padding is never predicted"


@EVERY_CELL
def test_one_batch_can_be_memorised(cell: str) -> None:
    torch.manual_seed(1)
    body = RecurrentLM(RecurrentConfig(V, dim=16, layers=LAYERS, cell=cell, dropout=0.0))
    model = Model(body, body.lm_head())
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(60):
        loss = model.head.loss(body(ids()[:, :-1]).flatten(0, 1), ids()[:, 1:].flatten()) / (B * (T - 1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.1


def expected_count(c: RecurrentConfig, directions: int) -> int:
    """Per gate, an input matrix, a state matrix and two biases."""
    gates, hidden = {"rnn": 1, "gru": 3, "lstm": 4}[c.cell], c.dim // directions
    return c.vocab * c.dim + c.layers * directions * gates * hidden * (c.dim + hidden + 2)


@EVERY_CELL
@pytest.mark.parametrize("name", SIZES)
def test_parameter_count_equals_the_formula(name: str, cell: str) -> None:
    for kind, unidirectional, directions in (
        (RecurrentEncoder, False, 2),
        (RecurrentEncoder, True, 1),
        (RecurrentLM, False, 1),
    ):
        config = RecurrentConfig(1000, cell=cell, unidirectional=unidirectional, **SIZES[name])
        with torch.device("meta"):
            body = kind(config)
        assert sum(weight.numel() for weight in body.parameters()) == expected_count(config, directions)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"cell": "ltsm"}, "unknown cell 'ltsm': did you mean lstm"),
        ({"layers": 0}, "layers .*not 0"),
        ({"bptt_length": -1}, "bptt-length .*not -1"),
        ({"dropout": 1.0}, "dropout .*not 1"),
        ({"dim": 7}, "even, not 7"),
    ],
)
def test_invalid_values_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RecurrentConfig(V, **wrong)
    assert RecurrentConfig(V, dim=7, unidirectional=True).dim == 7


def test_pad_defaults_to_the_last_id() -> None:
    assert (RecurrentConfig(V).pad, RecurrentConfig(V, pad=2).pad) == (V - 1, 2)
