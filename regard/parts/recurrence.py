"""Recurrence: a state passes from token to token and is all that a layer keeps of the past.

    RNN    h' = tanh(W x + U h + b)                       Elman 1990
    GRU    h' = (1 - z) · n + z · h                       Cho et al. 2014
    LSTM   c' = f · c + i · g,  h' = o · tanh(c')         Hochreiter & Schmidhuber 1997, Gers et al. 2000

These mixers have the call signature of attention. PyTorch's fused kernels compute them; the `_step` functions compute
one step in the open (a test compares the two) and yield the gates for a trace. Padding is on the right.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from regard.look import is_traced, record
from regard.parts.cache import Cache
from regard.parts.document_mask import DocumentMask, Mask

State = tuple[Tensor, ...]  # each (B,D)
Gates = tuple[Tensor, ...]  # each (B,D)
Weights = Sequence[Tensor]  # W, U, b, b' of all gates, in PyTorch's order


def rnn_step(x: Tensor, state: State, weights: Weights) -> tuple[State, Gates]:
    """h' = tanh(W x + b + U h + b'); there are no gates."""
    W, U, b, b2 = weights
    (h,) = state
    return ((x @ W.T + b + h @ U.T + b2).tanh(),), ()


def gru_step(x: Tensor, state: State, weights: Weights) -> tuple[State, Gates]:
    """The reset gate r limits what the candidate n sees of the state; the update gate z keeps the old state.

    r = σ(W x + b + U h + b'),  z = σ(the same form),  n = tanh(W x + b + r · (U h + b')),  h' = (1 - z) · n + z · h
    """
    W, U, b, b2 = weights
    (h,) = state
    input_part, state_part = (x @ W.T + b).chunk(3, -1), (h @ U.T + b2).chunk(3, -1)
    r, z = (input_part[0] + state_part[0]).sigmoid(), (input_part[1] + state_part[1]).sigmoid()
    n = (input_part[2] + r * state_part[2]).tanh()
    return ((1 - z) * n + z * h,), (r, z, n)


def lstm_step(x: Tensor, state: State, weights: Weights) -> tuple[State, Gates]:
    """The input gate i writes to the cell c, the forget gate f clears it, the output gate o exposes it.

    i, f, o = σ(W x + b + U h + b'),  g = tanh(the same form),  c' = f · c + i · g,  h' = o · tanh(c')
    """
    W, U, b, b2 = weights
    h, c = state
    i, f, g, o = (x @ W.T + b + h @ U.T + b2).chunk(4, -1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    c = f * c + i * g
    return (o * c.tanh(), c), (i, f, g, o)


class Recurrence(nn.Module):
    """Base class of RNN, GRU and LSTM. Truncated back-propagation through time: gradients stop every `bptt_length`
    tokens, while the state continues; 0 disables it."""

    kernel: ClassVar[type[nn.RNN] | type[nn.GRU] | type[nn.LSTM]]
    step: ClassVar[staticmethod[[Tensor, State, Weights], tuple[State, Gates]]]
    gates: ClassVar[tuple[str, ...]]  # names, in the order in which they are recorded
    states: ClassVar[int] = 1  # tensors in the state

    def __init__(self, dim: int, hidden: int | None = None, *, bptt_length: int = 0):
        super().__init__()
        self.hidden, self.bptt_length = hidden or dim, bptt_length
        self.cell = self.kernel(dim, self.hidden, batch_first=True)
        input_weight, state_weight, *biases = (w.detach() for w in self.cell.parameters())
        for matrix in input_weight.split(self.hidden):
            nn.init.xavier_uniform_(matrix)
        for matrix in state_weight.split(self.hidden):
            nn.init.orthogonal_(matrix)  # preserves the norm of the state
        for bias in biases:
            nn.init.zeros_(bias)

    def forward(
        self, x: Tensor, mask: Mask | None = None, cache: Cache | None = None, bias: Tensor | None = None
    ) -> Tensor:
        assert bias is None, "recurrence has no attention scores to add a bias to"
        assert mask is None or cache is None, "a state covers whole rows: a mask and a cache exclude each other"
        # Padding on the right does not influence the tokens before it, so a padding mask needs no treatment.
        is_packed = isinstance(mask, DocumentMask) or (mask is not None and mask.size(-2) > 1)
        spans = find_spans(mask, len(x)) if mask is not None and is_packed else None
        rows = x if spans is None else spans.unpack(x)
        state = self.initial_state(rows) if cache is None or cache.state is None else cache.state
        y, end = self.run(rows, state)  # (B,T,hidden)
        if cache is not None:
            cache.advance(end, x.size(1))
        if self.gates and is_traced():
            gates = self.compute_gates(rows, state)  # (B,T,gates,hidden)
            record(self, "gates", gates if spans is None else spans.repack(gates, like=x), fixed=True)
        return y if spans is None else spans.repack(y, like=x)

    def run(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        outputs: list[Tensor] = []
        for chunk in x.split(self.bptt_length or x.size(1), dim=1):
            if outputs:
                state = tuple(part.detach() for part in state)
            y, state = self.run_kernel(chunk, state)
            outputs.append(y)
        return torch.cat(outputs, 1), state

    def initial_state(self, x: Tensor) -> State:
        return (x.new_zeros(len(x), self.hidden),) * self.states

    def run_kernel(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        y, h = self.cell(x, state[0][None].contiguous())
        return y, (h[0],)

    def compute_gates(self, x: Tensor, state: State) -> Tensor:
        weights, steps = list(self.cell.parameters()), []
        for token in x.unbind(1):
            state, gates = self.step(token, state, weights)
            steps.append(torch.stack(gates, 1))
        return torch.stack(steps, 1)


class RNN(Recurrence):
    kernel, step, gates = nn.RNN, staticmethod(rnn_step), ()


class GRU(Recurrence):
    kernel, step, gates = nn.GRU, staticmethod(gru_step), ("reset", "update", "candidate")


class LSTM(Recurrence):
    """The state is (h, c). The forget gate starts open: a bias of 1 helps gradients (Jozefowicz et al. 2015)."""

    kernel, step, gates = nn.LSTM, staticmethod(lstm_step), ("input", "forget", "candidate", "output")
    states = 2

    def __init__(self, dim: int, hidden: int | None = None, *, bptt_length: int = 0):
        super().__init__(dim, hidden, bptt_length=bptt_length)
        _, _, bias, _ = (w.detach() for w in self.cell.parameters())
        nn.init.ones_(bias.chunk(4)[1])

    def run_kernel(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        h, c = (part[None].contiguous() for part in state)
        y, (h, c) = self.cell(x, (h, c))
        return y, (h[0], c[0])


class Bidirectional(nn.Module):
    """`left` reads forward and `right` backward; their outputs are concatenated (Schuster & Paliwal 1997).

    The recorded gates of `right` are in its reading order.
    """

    def __init__(self, left: Recurrence, right: Recurrence):
        super().__init__()
        self.left, self.right, self.hidden = left, right, left.hidden + right.hidden

    def forward(
        self, x: Tensor, mask: Mask | None = None, cache: Cache | None = None, bias: Tensor | None = None
    ) -> Tensor:
        assert bias is None, "recurrence has no attention scores to add a bias to"
        assert cache is None, "reading backward needs the whole sequence: there is no cache"
        if mask is None:
            right = self.right(x.flip(1)).flip(1)
        else:
            spans = find_spans(mask, len(x))
            right = spans.reverse(self.right(spans.reverse(x), mask))
        return torch.cat((self.left(x, mask), right), -1)  # (B,T,left+right)


class SequenceSpans(NamedTuple):
    """Consecutive tokens of one sequence: a text without its padding, or one of several documents packed into a row."""

    row: Tensor  # (N,) in the batch
    start: Tensor  # (N,)
    length: Tensor  # (N,)

    def tokens(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Row and time of every token, its span and its offset in the span."""
        span = torch.arange(len(self.row), device=self.row.device).repeat_interleave(self.length)
        before = self.length.cumsum(0) - self.length
        offset = torch.arange(len(span), device=span.device) - before[span]
        return self.row[span], self.start[span] + offset, span, offset

    def unpack(self, x: Tensor) -> Tensor:
        """Every span in its own row, padded on the right: (B,T,...) -> (N,longest,...)"""
        row, time, span, offset = self.tokens()
        rows = x.new_zeros(len(self.row), int(self.length.max()), *x.shape[2:])
        rows[span, offset] = x[row, time]
        return rows

    def repack(self, rows: Tensor, like: Tensor) -> Tensor:
        """The inverse of `unpack`, with 0 at padding: (N,longest,...) -> (B,T,...)"""
        row, time, span, offset = self.tokens()
        x = rows.new_zeros(*like.shape[:2], *rows.shape[2:])
        x[row, time] = rows[span, offset]
        return x

    def reverse(self, x: Tensor) -> Tensor:
        """Each span reversed in place; its own inverse."""
        row, time, span, offset = self.tokens()
        y = x.clone()
        y[row, time] = x[row, (self.start + self.length - 1)[span] - offset]
        return y


def find_spans(mask: Mask, rows: int) -> SequenceSpans:
    """The spans in a mask of packed documents, or one that broadcasts to (B,1,1,T) or (B,1,T,T): a token that does not
    see its predecessor starts a span, and a token that does not see itself is padding."""
    if isinstance(mask, DocumentMask):
        row, start = (mask.offsets == 0).nonzero(as_tuple=True)
        return SequenceSpans(row, start, torch.tensor([*chain(*mask.lengths)], device=start.device))
    mask = mask.expand(rows, 1, -1, -1)
    if mask.size(2) == 1:
        real = mask[:, 0, 0]  # (B,T)
        joined = real[:, 1:] & real[:, :-1]
    else:
        real = mask[:, 0].diagonal(0, 1, 2)  # (B,T)
        joined = real[:, 1:] & real[:, :-1] & mask[:, 0].diagonal(-1, 1, 2)
    first, last = real.clone(), real.clone()
    first[:, 1:] &= ~joined
    last[:, :-1] &= ~joined
    row, start = first.nonzero(as_tuple=True)
    return SequenceSpans(row, start, last.nonzero(as_tuple=True)[1] - start + 1)
