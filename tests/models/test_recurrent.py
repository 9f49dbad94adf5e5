"""A reader sees both sides, a writer only what came before, and both say the same however they are asked."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from regard.models.recurrent import CELLS, SIZES, RecurrentConfig, RecurrentEncoder, RecurrentLM, RecurrentStack
from regard.parts.heads import Model

B, T, V, D, LAYERS = 3, 9, 19, 6, 2
PIECES = [(0, 4), (4, 7), (7, 8), (8, 9)]
LENGTHS = [T, 2, 5]
EVERY_CELL = pytest.mark.parametrize("cell", CELLS)
EVERY_BODY = pytest.mark.parametrize("kind", [RecurrentEncoder, RecurrentLM])


def ids(length: int = T) -> Tensor:
    return torch.randint(V - 1, (B, length), generator=torch.Generator().manual_seed(length))


def body_of(kind: type[RecurrentStack], cell: str = "lstm", **how: object) -> RecurrentStack:
    torch.manual_seed(1)
    return kind(RecurrentConfig(V, dim=D, layers=LAYERS, cell=cell, **how)).double().eval()


def changes(body: RecurrentStack) -> list[list[bool]]:
    """Which places change when one is changed."""
    told = []
    for changed in range(T):
        other = ids()
        other[:, changed] = (other[:, changed] + 1) % (V - 1)
        told.append(((body(other) - body(ids())).abs().amax((0, 2)) > 1e-9).tolist())
    return told


@EVERY_CELL
def test_a_writer_does_not_peek_ahead_and_a_reader_sees_both_sides(cell: str) -> None:
    before = [[t >= changed for t in range(T)] for changed in range(T)]
    assert changes(body_of(RecurrentLM, cell)) == before
    assert changes(body_of(RecurrentEncoder, cell, unidirectional=True)) == before
    assert changes(body_of(RecurrentEncoder, cell)) == [[True] * T] * T


@EVERY_CELL
@EVERY_BODY
@pytest.mark.parametrize("more", [0, 3])
def test_a_batch_equals_its_texts_one_by_one_and_padding_is_invisible(kind, cell: str, more: int) -> None:
    body, text = body_of(kind, cell), ids(T + more)
    mask = (torch.arange(T + more) < torch.tensor(LENGTHS)[:, None])[:, None, None]
    y = body(text, mask)
    assert y.shape == (B, T + more, D)
    for b, length in enumerate(LENGTHS):
        assert_close(y[b, :length], body(text[b : b + 1, :length])[0])


@EVERY_BODY
def test_packed_documents_are_read_as_if_each_were_alone(kind: type[RecurrentStack]) -> None:
    body, document = body_of(kind), torch.tensor([0, 0, 0, 1, 2, 2, 2, 2, 2])
    y = body(ids()[:1], (document[:, None] == document)[None, None])
    for number in range(3):
        assert_close(y[:, document == number], body(ids()[:1, document == number]))


@EVERY_CELL
def test_token_by_token_equals_all_at_once(cell: str) -> None:
    body = body_of(RecurrentLM, cell)
    with torch.inference_mode():
        caches = body.caches()
        pieces = [body(ids()[:, a:b], cache=caches) for a, b in PIECES]
    assert [cache.length for cache in caches] == [T] * LAYERS
    assert_close(torch.cat(pieces, 1), body(ids()))


@EVERY_CELL
@EVERY_BODY
def test_every_weight_learns_and_dropout_is_on_in_training_only(kind: type[RecurrentStack], cell: str) -> None:
    body = body_of(kind, cell)
    assert torch.equal(body(ids()), body(ids()))
    model = Model(body.train(), body.lm_head().double())
    assert not torch.equal(body(ids()), body(ids()))
    model.head.loss(body(ids()).flatten(0, 1), ids(T + 1)[:, 1:].flatten(), 0.1).backward()
    assert [name for name, w in model.named_parameters() if w.grad is None or w.grad.abs().max() < 1e-9] == []


def test_truncation_reaches_every_layer() -> None:
    body = body_of(RecurrentLM, bptt_length=3)
    vectors = body.tokens(ids()).detach().requires_grad_()
    body.tokens.forward = lambda _: vectors
    (grad,) = torch.autograd.grad(body(ids())[:, 4].sum(), vectors)
    assert (grad.abs().amax((0, 2)) > 0).tolist() == [3 <= t <= 4 for t in range(T)]


@EVERY_CELL
def test_the_vocabulary_is_the_embedding(cell: str) -> None:
    body = body_of(RecurrentLM, cell)
    model = Model(body, body.lm_head().double())
    assert model(ids()).shape == (B, T, V)
    assert model.head.weight is body.tokens.weight
    assert model(ids()).argmax(-1).max() < V - 1, "padding is never an answer"


@EVERY_CELL
def test_a_text_is_learnt_by_heart(cell: str) -> None:
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


def size_of(c: RecurrentConfig, ways: int) -> int:
    """For each gate a matrix from the input, one from the state, and two biases."""
    gates, hidden = {"rnn": 1, "gru": 3, "lstm": 4}[c.cell], c.dim // ways
    return c.vocab * c.dim + c.layers * ways * gates * hidden * (c.dim + hidden + 2)


@EVERY_CELL
@pytest.mark.parametrize("name", SIZES)
def test_every_size_has_the_weights_that_its_formula_counts(name: str, cell: str) -> None:
    for kind, unidirectional, ways in (
        (RecurrentEncoder, False, 2),
        (RecurrentEncoder, True, 1),
        (RecurrentLM, False, 1),
    ):
        config = RecurrentConfig(1000, cell=cell, unidirectional=unidirectional, **SIZES[name])
        with torch.device("meta"):
            body = kind(config)
        assert sum(weight.numel() for weight in body.parameters()) == size_of(config, ways)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"cell": "ltsm"}, "no cell named 'ltsm': did you mean lstm"),
        ({"layers": 0}, "layers .*not 0"),
        ({"truncate": -1}, "truncate .*not -1"),
        ({"dropout": 1.0}, "dropout .*not 1"),
        ({"dim": 7}, "even, not 7"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_its_name_and_number(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RecurrentConfig(V, **wrong)
    assert RecurrentConfig(V, dim=7, unidirectional=True).dim == 7


def test_padding_is_the_last_id_unless_told() -> None:
    assert (RecurrentConfig(V).pad, RecurrentConfig(V, pad=2).pad) == (V - 1, 2)
