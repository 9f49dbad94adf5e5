"""The recurrent kernels equal their step functions, with chunks, packing, padding and traces."""

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
    find_spans,
    gru_step,
    lstm_step,
    rnn_step,
)

B, T, D, E = 3, 9, 5, 4
CHUNKS = [(0, 4), (4, 7), (7, 8), (8, 9)]
STEPS = {RNN: rnn_step, GRU: gru_step, LSTM: lstm_step}
EVERY_CELL = pytest.mark.parametrize("cell", STEPS, ids=lambda cell: cell.__name__)
EVERY_MIXER = pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM", "Bidirectional"])


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def mixer_of(cell: type[Recurrence], hidden: int = E, bptt_length: int = 0) -> Recurrence:
    """With nonzero biases, so that a missing one is noticed."""
    torch.manual_seed(3)
    mixer = cell(D, hidden, bptt_length=bptt_length).double()
    for weight in mixer.parameters():
        weight.data += 0.3 * torch.randn_like(weight)
    return mixer


def make_mixer(name: str) -> nn.Module:
    return Bidirectional(mixer_of(LSTM), mixer_of(GRU, E - 1)) if name == "Bidirectional" else mixer_of(globals()[name])


def run_steps(cell: type[Recurrence], mixer: Recurrence, x: Tensor, state: tuple[Tensor, ...]):
    outputs, gates = [], []
    for token in x.unbind(1):
        state, gate_values = STEPS[cell](token, state, list(mixer.cell.parameters()))
        outputs.append(state[0])
        gates.append(gate_values)
    return torch.stack(outputs, 1), state, gates


@EVERY_CELL
def test_kernel_equals_the_step_functions(cell: type[Recurrence]) -> None:
    mixer, x = mixer_of(cell), numbers(B, T, D)
    state = tuple(numbers(B, E) for _ in range(cell.states))
    outputs, end, _ = run_steps(cell, mixer, x, state)
    cache = Cache(state=state)
    y = mixer(x, cache=cache)
    assert y.shape == (B, T, E)
    assert_close(y, outputs, rtol=1e-12, atol=1e-12)
    assert_close(cache.state, end, rtol=1e-12, atol=1e-12)
    from_zero = mixer(x)
    assert_close(from_zero, run_steps(cell, mixer, x, tuple(torch.zeros_like(s) for s in state))[0])
    assert (from_zero - y).abs().max() > 1e-3, "the initial state has an effect"


@EVERY_CELL
def test_chunks_with_a_cache_equal_the_full_forward(cell: type[Recurrence]) -> None:
    mixer, x, cache = mixer_of(cell), numbers(B, T, D), Cache()
    chunks = []
    for a, b in CHUNKS:
        chunks.append(mixer(x[:, a:b], cache=cache))
        assert cache.length == b
    assert_close(torch.cat(chunks, 1), mixer(x))


@EVERY_CELL
def test_selected_rows_continue_from_their_state(cell: type[Recurrence]) -> None:
    mixer, x, new_tokens, rows = mixer_of(cell), numbers(B, T, D), numbers(4, 2, D), torch.tensor([2, 0, 0, 1])
    cache = Cache()
    mixer(x, cache=cache)
    cache.select(rows)
    assert_close(mixer(new_tokens, cache=cache), mixer(torch.cat((x[rows], new_tokens), 1))[:, T:])


@EVERY_CELL
@pytest.mark.parametrize("changed", range(T))
def test_later_tokens_change_no_earlier_output(cell: type[Recurrence], changed: int) -> None:
    mixer, x = mixer_of(cell), numbers(B, T, D)
    altered = x.clone()
    altered[:, changed] += 1
    changed_positions = (mixer(x) - mixer(altered)).abs().amax((0, 2)) > 1e-9
    assert changed_positions.tolist() == [t >= changed for t in range(T)]


@EVERY_CELL
@pytest.mark.parametrize("bptt_length", [1, 2, 4, T, T + 5])
def test_truncated_bptt_stops_gradients_and_changes_no_output(cell: type[Recurrence], bptt_length: int) -> None:
    full, truncated = mixer_of(cell), mixer_of(cell, bptt_length=bptt_length)
    x, state = numbers(B, T, D).requires_grad_(), tuple(numbers(B, E).requires_grad_() for _ in range(cell.states))
    y = truncated(x, cache=Cache(state=state))
    assert_close(y, full(x, cache=Cache(state=state)))
    for t in range(T):
        reached = torch.autograd.grad(y[:, t].sum(), (x, *state), retain_graph=True, allow_unused=True)
        border = t - t % bptt_length
        assert (reached[0].abs().amax((0, 2)) > 0).tolist() == [border <= s <= t for s in range(T)]
        assert [grad is not None and bool(grad.any()) for grad in reached[1:]] == [border == 0] * cell.states


class Packed:
    """Rows of several documents, and padding on the right."""

    def __init__(self, lengths: list[list[int]], padding: int):
        self.T = max(map(sum, lengths)) + padding
        self.spans = [(b, sum(row[:i]), n) for b, row in enumerate(lengths) for i, n in enumerate(row)]
        self.document = torch.full((len(lengths), self.T), -1)
        for number, (b, start, n) in enumerate(self.spans):
            self.document[b, start : start + n] = number
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
def test_find_spans_of_packed_documents(packed: Packed, causal: bool) -> None:
    spans = find_spans(packed.mask(causal=causal), len(packed.document))
    assert list(zip(*(part.tolist() for part in spans), strict=True)) == packed.spans
    padding = find_spans(packed.real[:, None, None], len(packed.real))
    full = packed.real.sum(1).tolist()
    assert [part.tolist() for part in padding] == [[*range(len(full))], [0] * len(full), full]


def test_empty_row_has_no_span() -> None:
    mask = torch.tensor([[False, False, False], [True, True, False]])[:, None, None]
    assert [part.tolist() for part in find_spans(mask, len(mask))] == [[1], [0], [2]]
    bidirectional, x = make_mixer("Bidirectional"), numbers(2, 3, D)
    assert_close(bidirectional(x, mask)[1, :2], bidirectional(x[1:, :2])[0])


@given(packed=PACKED, causal=st.booleans())
@settings(max_examples=40)
def test_unpack_and_repack_and_reverse_are_inverses(packed: Packed, causal: bool) -> None:
    x, spans = (
        torch.arange(packed.document.numel() * D).view(*packed.document.shape, D) + 1.0,
        find_spans(packed.mask(causal=causal), len(packed.document)),
    )
    unpacked = spans.unpack(x)
    for row, (b, start, n) in zip(unpacked, packed.spans, strict=True):
        assert torch.equal(row[:n], x[b, start : start + n])
        assert not row[n:].any()
        assert torch.equal(spans.reverse(x)[b, start : start + n], x[b, start : start + n].flip(0))
    assert torch.equal(spans.repack(unpacked, like=x), x * packed.real[..., None])
    assert torch.equal(spans.reverse(spans.reverse(x)), x)


@EVERY_MIXER
@given(packed=PACKED, causal=st.booleans(), padding_sees_itself=st.booleans(), bptt_length=st.sampled_from([0, 2]))
@settings(max_examples=20)
def test_packed_documents_are_independent(
    name: str, packed: Packed, causal: bool, padding_sees_itself: bool, bptt_length: int
) -> None:
    mixer, x = make_mixer(name), numbers(*packed.document.shape, D).requires_grad_()
    for part in mixer.modules():
        part.bptt_length = bptt_length
    y = mixer(x, packed.mask(causal=causal, padding_sees_itself=padding_sees_itself))
    weighting = torch.randn_like(y)
    (grad,) = torch.autograd.grad((y * weighting * packed.real[..., None]).sum(), x)
    for b, start, n in packed.spans:
        inside = slice(start, start + n)
        document = x[b : b + 1, inside].detach().requires_grad_()
        alone = mixer(document)
        assert_close(y[b, inside], alone[0])
        assert_close(grad[b, inside], torch.autograd.grad((alone[0] * weighting[b, inside]).sum(), document)[0][0])


@EVERY_MIXER
@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4), new_tokens=st.integers(0, 3))
@settings(max_examples=20)
def test_padding_is_invisible(name: str, lengths: list[int], new_tokens: int) -> None:
    real = torch.arange(max(lengths) + new_tokens) < torch.tensor(lengths)[:, None]
    mixer, x = make_mixer(name), torch.where(real[..., None], numbers(*real.shape, D), 99.0)
    y = mixer(x, real[:, None, None])
    for b, length in enumerate(lengths):
        assert_close(y[b, :length], mixer(x[b : b + 1, :length])[0])


@EVERY_CELL
def test_bidirectional_equals_pytorch(cell: type[Recurrence]) -> None:
    left, right = mixer_of(cell), mixer_of(cell)
    for weight in right.parameters():
        weight.data.neg_()
    theirs = cell.kernel(D, E, batch_first=True, bidirectional=True).double()
    for weight, source in zip(theirs.parameters(), [*left.parameters(), *right.parameters()], strict=True):
        weight.data.copy_(source)
    x = numbers(B, T, D)
    bidirectional = Bidirectional(left, right)
    assert bidirectional.hidden == 2 * E
    assert_close(bidirectional(x), theirs(x)[0])
    assert_close(bidirectional(x, torch.ones(1, 1, 1, T).bool()), theirs(x)[0])


def test_unsupported_caches_are_refused() -> None:
    x, mask = numbers(B, T, D), torch.ones(B, 1, 1, T).bool()
    with pytest.raises(AssertionError, match="no cache"):
        make_mixer("Bidirectional")(x, cache=Cache())
    with pytest.raises(AssertionError, match="exclude each other"):
        mixer_of(GRU)(x, mask, Cache())


@EVERY_CELL
def test_trace_records_gates_and_changes_no_bit(cell: type[Recurrence]) -> None:
    mixer, x = mixer_of(cell), numbers(B, T, D)
    state = tuple(numbers(B, E) for _ in range(cell.states))
    cache, traced_cache = Cache(state=state), Cache(state=state)
    before = mixer(x, cache=cache)
    with look(mixer) as trace:
        during = mixer(x, cache=traced_cache)
    assert torch.equal(before, during)
    assert all(map(torch.equal, cache.state, traced_cache.state))
    assert ("gates" in trace) == bool(cell.gates)
    for t, gates in enumerate(run_steps(cell, mixer, x, state)[2] if cell.gates else []):
        assert_close(trace["gates"][:, t], torch.stack(gates, 1))
    if cell.gates:
        assert trace["gates"].shape == (B, T, len(cell.gates), E)


@pytest.mark.parametrize("cell", [GRU, LSTM])
def test_outputs_follow_from_the_gates(cell: type[Recurrence]) -> None:
    mixer, x = mixer_of(cell), numbers(B, T, D)
    with look(mixer) as trace:
        y = mixer(x)
    state_value = torch.zeros(B, E).double()
    for t in range(T):
        gate = dict(zip(cell.gates, trace["gates"][:, t].unbind(1), strict=True))
        if cell is GRU:
            state_value = gate["update"] * state_value + (1 - gate["update"]) * gate["candidate"]
            assert_close(y[:, t], state_value)
        else:
            state_value = gate["forget"] * state_value + gate["input"] * gate["candidate"]
            assert_close(y[:, t], gate["output"] * state_value.tanh())


def test_gates_of_packed_documents_are_at_their_tokens() -> None:
    packed, mixer = Packed([[2, 3], [4]], padding=1), mixer_of(LSTM)
    x = numbers(*packed.document.shape, D)
    with look(mixer) as trace:
        mixer(x, packed.mask(causal=True))
    for b, start, n in packed.spans:
        with look(mixer) as alone:
            mixer(x[b : b + 1, start : start + n])
        assert_close(trace["gates"][b, start : start + n], alone["gates"][0])


@EVERY_CELL
def test_initialisation_is_orthogonal_with_an_open_forget_gate(cell: type[Recurrence]) -> None:
    torch.manual_seed(1)
    _, state_weight, bias, altered = cell(D, E).parameters()
    for matrix in state_weight.split(E):
        assert_close(matrix @ matrix.T, torch.eye(E))
    expected = torch.zeros_like(bias)
    if cell is LSTM:
        expected[E : 2 * E] = 1
    assert torch.equal(bias + altered, expected)
