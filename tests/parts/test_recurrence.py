"""The fused kernels give what the formulas say, however the tokens are cut, packed or padded, and whoever looks."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from regard.look import look
from regard.parts.cache import Cache
from regard.parts.recurrence import (
    GRU,
    LSTM,
    RNN,
    Bidirectional,
    Recurrence,
    gru_step,
    lstm_step,
    rnn_step,
    runs_of,
)

B, T, D, E = 3, 9, 5, 4
PIECES = [(0, 4), (4, 7), (7, 8), (8, 9)]
STEPS = {RNN: rnn_step, GRU: gru_step, LSTM: lstm_step}
EVERY_CELL = pytest.mark.parametrize("cell", STEPS, ids=lambda cell: cell.__name__)
EVERY_MIXER = pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM", "BothWays"])


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def mixer_of(cell: type[Recurrence], hidden: int = E, bptt_length: int = 0) -> Recurrence:
    """With biases that are not 0, so that a forgotten one shows."""
    torch.manual_seed(3)
    mixer = cell(D, hidden, bptt_length=bptt_length).double()
    for weight in mixer.parameters():
        weight.data += 0.3 * torch.randn_like(weight)
    return mixer


def named(name: str) -> nn.Module:
    return Bidirectional(mixer_of(LSTM), mixer_of(GRU, E - 1)) if name == "BothWays" else mixer_of(globals()[name])


def run_openly(cell: type[Recurrence], mixer: Recurrence, x: Tensor, state: tuple[Tensor, ...]):
    outputs, gates = [], []
    for token in x.unbind(1):
        state, told = STEPS[cell](token, state, list(mixer.cell.parameters()))
        outputs.append(state[0])
        gates.append(told)
    return torch.stack(outputs, 1), state, gates


@EVERY_CELL
def test_the_kernel_does_what_the_open_step_says_at_every_token(cell: type[Recurrence]) -> None:
    mixer, x = mixer_of(cell), numbers(B, T, D)
    state = tuple(numbers(B, E) for _ in range(cell.states))
    outputs, end, _ = run_openly(cell, mixer, x, state)
    cache = Cache(state=state)
    y = mixer(x, cache=cache)
    assert y.shape == (B, T, E)
    assert_close(y, outputs, rtol=1e-12, atol=1e-12)
    assert_close(cache.state, end, rtol=1e-12, atol=1e-12)
    without = mixer(x)
    assert_close(without, run_openly(cell, mixer, x, tuple(torch.zeros_like(s) for s in state))[0])
    assert (without - y).abs().max() > 1e-3, "the state that was given counts"


@EVERY_CELL
def test_piece_by_piece_equals_all_at_once(cell: type[Recurrence]) -> None:
    mixer, x, cache = mixer_of(cell), numbers(B, T, D), Cache()
    pieces = []
    for a, b in PIECES:
        pieces.append(mixer(x[:, a:b], cache=cache))
        assert cache.length == b
    assert_close(torch.cat(pieces, 1), mixer(x))


@EVERY_CELL
def test_rows_that_are_selected_go_on_from_their_own_state(cell: type[Recurrence]) -> None:
    mixer, x, more, rows = mixer_of(cell), numbers(B, T, D), numbers(4, 2, D), torch.tensor([2, 0, 0, 1])
    cache = Cache()
    mixer(x, cache=cache)
    cache.select(rows)
    assert_close(mixer(more, cache=cache), mixer(torch.cat((x[rows], more), 1))[:, T:])


@EVERY_CELL
@pytest.mark.parametrize("changed", range(T))
def test_what_comes_later_cannot_change_what_came_before(cell: type[Recurrence], changed: int) -> None:
    mixer, x = mixer_of(cell), numbers(B, T, D)
    other = x.clone()
    other[:, changed] += 1
    differs = (mixer(x) - mixer(other)).abs().amax((0, 2)) > 1e-9
    assert differs.tolist() == [t >= changed for t in range(T)]


@EVERY_CELL
@pytest.mark.parametrize("truncate", [1, 2, 4, T, T + 5])
def test_truncation_stops_gradients_at_every_border_and_nothing_else(cell: type[Recurrence], bptt_length: int) -> None:
    whole, cut = mixer_of(cell), mixer_of(cell, bptt_length=bptt_length)
    x, state = numbers(B, T, D).requires_grad_(), tuple(numbers(B, E).requires_grad_() for _ in range(cell.states))
    y = cut(x, cache=Cache(state=state))
    assert_close(y, whole(x, cache=Cache(state=state)))
    for t in range(T):
        reached = torch.autograd.grad(y[:, t].sum(), (x, *state), retain_graph=True, allow_unused=True)
        border = t - t % bptt_length
        assert (reached[0].abs().amax((0, 2)) > 0).tolist() == [border <= s <= t for s in range(T)]
        assert [grad is not None and bool(grad.any()) for grad in reached[1:]] == [border == 0] * cell.states


class Packed:
    """Rows of several documents, and padding on the right."""

    def __init__(self, lengths: list[list[int]], padding: int):
        self.T = max(map(sum, lengths)) + padding
        self.runs = [(b, sum(row[:i]), n) for b, row in enumerate(lengths) for i, n in enumerate(row)]
        self.document = torch.full((len(lengths), self.T), -1)
        for number, (b, begin, n) in enumerate(self.runs):
            self.document[b, begin : begin + n] = number
        self.real = self.document >= 0

    def mask(self, *, causal: bool, padding_sees_itself: bool = False) -> Tensor:  # (B,1,T,T)
        mask = self.document[:, :, None] == self.document[:, None]
        mask &= padding_sees_itself | self.real[:, None]
        return (mask.tril() if causal else mask)[:, None]


PACKED = st.builds(
    Packed,
    st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=4), min_size=1, max_size=4),
    st.integers(0, 3),
)


@given(packed=PACKED, causal=st.booleans())
@settings(max_examples=40)
def test_a_mask_tells_row_begin_and_length_of_every_document(packed: Packed, causal: bool) -> None:
    runs = runs_of(packed.mask(causal=causal))
    assert list(zip(*(part.tolist() for part in runs), strict=True)) == packed.runs
    padding = runs_of(packed.real[:, None, None])
    whole = packed.real.sum(1).tolist()
    assert [part.tolist() for part in padding] == [[*range(len(whole))], [0] * len(whole), whole]


def test_a_row_without_a_token_has_no_run() -> None:
    mask = torch.tensor([[False, False, False], [True, True, False]])[:, None, None]
    assert [part.tolist() for part in runs_of(mask)] == [[1], [0], [2]]
    both, x = named("BothWays"), numbers(2, 3, D)
    assert_close(both(x, mask)[1, :2], both(x[1:, :2])[0])


@given(packed=PACKED, causal=st.booleans())
@settings(max_examples=40)
def test_apart_and_back_and_turned_twice_change_nothing(packed: Packed, causal: bool) -> None:
    x, runs = (
        torch.arange(packed.document.numel() * D).view(*packed.document.shape, D) + 1.0,
        runs_of(packed.mask(causal=causal)),
    )
    apart = runs.apart(x)
    for row, (b, begin, n) in zip(apart, packed.runs, strict=True):
        assert torch.equal(row[:n], x[b, begin : begin + n])
        assert not row[n:].any()
        assert torch.equal(runs.turned(x)[b, begin : begin + n], x[b, begin : begin + n].flip(0))
    assert torch.equal(runs.back(apart, like=x), x * packed.real[..., None])
    assert torch.equal(runs.turned(runs.turned(x)), x)


@EVERY_MIXER
@given(packed=PACKED, causal=st.booleans(), padding_sees_itself=st.booleans(), bptt_length=st.sampled_from([0, 2]))
@settings(max_examples=20)
def test_packed_documents_are_read_as_if_each_were_alone(
    name: str, packed: Packed, causal: bool, padding_sees_itself: bool, bptt_length: int
) -> None:
    mixer, x = named(name), numbers(*packed.document.shape, D).requires_grad_()
    for part in mixer.modules():
        part.bptt_length = bptt_length
    y = mixer(x, packed.mask(causal=causal, padding_sees_itself=padding_sees_itself))
    weighting = torch.randn_like(y)
    (grad,) = torch.autograd.grad((y * weighting * packed.real[..., None]).sum(), x)
    for b, begin, n in packed.runs:
        inside = slice(begin, begin + n)
        document = x[b : b + 1, inside].detach().requires_grad_()
        alone = mixer(document)
        assert_close(y[b, inside], alone[0])
        assert_close(grad[b, inside], torch.autograd.grad((alone[0] * weighting[b, inside]).sum(), document)[0][0])


@EVERY_MIXER
@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4), more=st.integers(0, 3))
@settings(max_examples=20)
def test_padding_is_invisible_whatever_stands_there(name: str, lengths: list[int], more: int) -> None:
    real = torch.arange(max(lengths) + more) < torch.tensor(lengths)[:, None]
    mixer, x = named(name), torch.where(real[..., None], numbers(*real.shape, D), 99.0)
    y = mixer(x, real[:, None, None])
    for b, length in enumerate(lengths):
        assert_close(y[b, :length], mixer(x[b : b + 1, :length])[0])


@EVERY_CELL
def test_both_ways_is_the_bidirectional_layer_of_pytorch(cell: type[Recurrence]) -> None:
    left, right = mixer_of(cell), mixer_of(cell)
    for weight in right.parameters():
        weight.data.neg_()
    theirs = cell.kernel(D, E, batch_first=True, bidirectional=True).double()
    for weight, copied in zip(theirs.parameters(), [*left.parameters(), *right.parameters()], strict=True):
        weight.data.copy_(copied)
    x = numbers(B, T, D)
    both = Bidirectional(left, right)
    assert both.hidden == 2 * E
    assert_close(both(x), theirs(x)[0])
    assert_close(both(x, torch.ones(1, 1, 1, T).bool()), theirs(x)[0])


def test_what_cannot_be_is_refused() -> None:
    x, mask = numbers(B, T, D), torch.ones(B, 1, 1, T).bool()
    with pytest.raises(AssertionError, match="no cache"):
        named("BothWays")(x, cache=Cache())
    with pytest.raises(AssertionError, match="nothing to mask"):
        mixer_of(GRU)(x, mask, Cache())


@EVERY_CELL
def test_looking_shows_the_gates_changes_no_bit_and_leaves_the_cache_alone(cell: type[Recurrence]) -> None:
    mixer, x = mixer_of(cell), numbers(B, T, D)
    state = tuple(numbers(B, E) for _ in range(cell.states))
    blind, seeing = Cache(state=state), Cache(state=state)
    before = mixer(x, cache=blind)
    with look(mixer) as seen:
        during = mixer(x, cache=seeing)
    assert torch.equal(before, during)
    assert all(map(torch.equal, blind.state, seeing.state))
    assert ("gates" in seen) == bool(cell.gates)
    for t, gates in enumerate(run_openly(cell, mixer, x, state)[2] if cell.gates else []):
        assert_close(seen["gates"][:, t], torch.stack(gates, 1))
    if cell.gates:
        assert seen["gates"].shape == (B, T, len(cell.gates), E)


@pytest.mark.parametrize("cell", [GRU, LSTM])
def test_the_gates_make_the_output(cell: type[Recurrence]) -> None:
    mixer, x = mixer_of(cell), numbers(B, T, D)
    with look(mixer) as seen:
        y = mixer(x)
    kept = torch.zeros(B, E).double()
    for t in range(T):
        gate = dict(zip(cell.gates, seen["gates"][:, t].unbind(1), strict=True))
        if cell is GRU:
            kept = gate["update"] * kept + (1 - gate["update"]) * gate["candidate"]
            assert_close(y[:, t], kept)
        else:
            kept = gate["forget"] * kept + gate["input"] * gate["candidate"]
            assert_close(y[:, t], gate["output"] * kept.tanh())


def test_the_gates_of_packed_documents_stand_where_their_tokens_do() -> None:
    packed, mixer = Packed([[2, 3], [4]], padding=1), mixer_of(LSTM)
    x = numbers(*packed.document.shape, D)
    with look(mixer) as seen:
        mixer(x, packed.mask(causal=True))
    for b, begin, n in packed.runs:
        with look(mixer) as alone:
            mixer(x[b : b + 1, begin : begin + n])
        assert_close(seen["gates"][b, begin : begin + n], alone["gates"][0])


@EVERY_CELL
def test_a_fresh_layer_turns_its_state_and_an_lstm_does_not_forget(cell: type[Recurrence]) -> None:
    torch.manual_seed(1)
    _, past, bias, other = cell(D, E).parameters()
    for matrix in past.split(E):
        assert_close(matrix @ matrix.T, torch.eye(E))
    wanted = torch.zeros_like(bias)
    if cell is LSTM:
        wanted[E : 2 * E] = 1
    assert torch.equal(bias + other, wanted)
