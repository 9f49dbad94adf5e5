"""Recurrence: a state passes from token to token, and is all that is kept of what was read.

    RNN    h' = tanh(W x + U h + b)                       Elman 1990
    GRU    h' = (1 - z) · n + z · h                       Cho et al. 2014
    LSTM   c' = f · c + i · g,  h' = o · tanh(c')         Hochreiter & Schmidhuber 1997, Gers et al. 2000

These mixers answer to the same call as attention. PyTorch's fused kernels run; the `_step_openly` functions say what
one step computes, a test holds them equal, and they give the gates to whoever looks. Padding stands on the right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from regard.look import is_traced, record
from regard.parts.cache import Cache

State = tuple[Tensor, ...]  # each (B,D)
Gates = tuple[Tensor, ...]  # likewise
Weights = Sequence[Tensor]  # W, U, b, b' of all gates together, in the order of PyTorch


def rnn_step(x: Tensor, state: State, weights: Weights) -> tuple[State, Gates]:
    """h' = tanh(W x + b + U h + b'), without gates."""
    W, U, b, b2 = weights
    (h,) = state
    return ((x @ W.T + b + h @ U.T + b2).tanh(),), ()


def gru_step(x: Tensor, state: State, weights: Weights) -> tuple[State, Gates]:
    """The reset gate r hides the past from the candidate n, the update gate z keeps the past instead of it.

    r = σ(W x + b + U h + b'),  z = σ(likewise),  n = tanh(W x + b + r · (U h + b')),  h' = (1 - z) · n + z · h
    """
    W, U, b, b2 = weights
    (h,) = state
    new, old = (x @ W.T + b).chunk(3, -1), (h @ U.T + b2).chunk(3, -1)
    r, z = (new[0] + old[0]).sigmoid(), (new[1] + old[1]).sigmoid()
    n = (new[2] + r * old[2]).tanh()
    return ((1 - z) * n + z * h,), (r, z, n)


def lstm_step(x: Tensor, state: State, weights: Weights) -> tuple[State, Gates]:
    """The cell c is written to by the input gate i, cleared by the forget gate f and shown by the output gate o.

    i, f, o = σ(W x + b + U h + b'),  g = tanh(likewise),  c' = f · c + i · g,  h' = o · tanh(c')
    """
    W, U, b, b2 = weights
    h, c = state
    i, f, g, o = (x @ W.T + b + h @ U.T + b2).chunk(4, -1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    c = f * c + i * g
    return (o * c.tanh(), c), (i, f, g, o)


class Recurrence(nn.Module):
    """What RNN, GRU and LSTM share. Gradients stop every `truncate` tokens, while the state goes on; 0 is never."""

    kernel: ClassVar[type[nn.RNN] | type[nn.GRU] | type[nn.LSTM]]
    step: ClassVar[staticmethod[[Tensor, State, Weights], tuple[State, Gates]]]
    gates: ClassVar[tuple[str, ...]]  # in the order in which they are shown
    states: ClassVar[int] = 1  # tensors of a state

    def __init__(self, dim: int, hidden: int | None = None, *, bptt_length: int = 0):
        super().__init__()
        self.hidden, self.bptt_length = hidden or dim, bptt_length
        self.cell = self.kernel(dim, self.hidden, batch_first=True)
        weight, past, *biases = (w.detach() for w in self.cell.parameters())
        for matrix in weight.split(self.hidden):
            nn.init.xavier_uniform_(matrix)
        for matrix in past.split(self.hidden):
            nn.init.orthogonal_(matrix)  # a state is turned, and neither dies out nor explodes
        for bias in biases:
            nn.init.zeros_(bias)

    def forward(self, x: Tensor, mask: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        assert mask is None or cache is None, "a state is that of whole rows: with a cache there is nothing to mask"
        # What stands on the right has no influence on what stands left of it, so a padding mask asks for nothing.
        runs = None if mask is None or mask.size(-2) == 1 else runs_of(mask.expand(len(x), 1, -1, -1))
        rows = x if runs is None else runs.apart(x)
        state = self.start(rows) if cache is None or cache.state is None else cache.state
        y, end = self.run(rows, state)  # (B,T,hidden)
        if cache is not None:
            cache.advance(end, x.size(1))
        if self.gates and is_traced():
            gates = self.compute_gates(rows, state)  # (B,T,gates,hidden)
            record(self, "gates", gates if runs is None else runs.back(gates, like=x), fixed=True)
        return y if runs is None else runs.back(y, like=x)

    def run(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        pieces: list[Tensor] = []
        for piece in x.split(self.bptt_length or x.size(1), dim=1):
            if pieces:
                state = tuple(part.detach() for part in state)
            y, state = self.fused(piece, state)
            pieces.append(y)
        return torch.cat(pieces, 1), state

    def start(self, x: Tensor) -> State:
        return (x.new_zeros(len(x), self.hidden),) * self.states

    def fused(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        y, h = self.cell(x, state[0][None].contiguous())
        return y, (h[0],)

    def compute_gates(self, x: Tensor, state: State) -> Tensor:
        weights, found = list(self.cell.parameters()), []
        for token in x.unbind(1):
            state, gates = self.step(token, state, weights)
            found.append(torch.stack(gates, 1))
        return torch.stack(found, 1)


class RNN(Recurrence):
    kernel, step, gates = nn.RNN, staticmethod(rnn_step), ()


class GRU(Recurrence):
    kernel, step, gates = nn.GRU, staticmethod(gru_step), ("reset", "update", "candidate")


class LSTM(Recurrence):
    """The state is (h, c). The forget gate starts open: a bias of 1 lets gradients through (Jozefowicz et al. 2015)."""

    kernel, step, gates = nn.LSTM, staticmethod(lstm_step), ("input", "forget", "candidate", "output")
    states = 2

    def __init__(self, dim: int, hidden: int | None = None, *, bptt_length: int = 0):
        super().__init__(dim, hidden, bptt_length=bptt_length)
        _, _, bias, _ = (w.detach() for w in self.cell.parameters())
        nn.init.ones_(bias.chunk(4)[1])

    def fused(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        h, c = (part[None].contiguous() for part in state)
        y, (h, c) = self.cell(x, (h, c))
        return y, (h[0], c[0])


class Bidirectional(nn.Module):
    """One mixer reads forward and one backward, side by side (Schuster & Paliwal 1997).

    What the right one shows of its inside stands in the order in which it reads.
    """

    def __init__(self, left: Recurrence, right: Recurrence):
        super().__init__()
        self.left, self.right, self.hidden = left, right, left.hidden + right.hidden

    def forward(self, x: Tensor, mask: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        assert cache is None, "to read backward, the end must be known: there is no cache"
        if mask is None:
            right = self.right(x.flip(1)).flip(1)
        else:
            runs = runs_of(mask.expand(len(x), 1, -1, -1))
            right = runs.turned(self.right(runs.turned(x), mask))
        return torch.cat((self.left(x, mask), right), -1)  # (B,T,left+right)


class Runs(NamedTuple):
    """Tokens that are read in one go: a text without its padding, or one of several documents packed into a row."""

    row: Tensor  # (N,) of the batch
    begin: Tensor
    length: Tensor

    def tokens(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Row and time of every token, its run and its place in there."""
        run = torch.arange(len(self.row), device=self.row.device).repeat_interleave(self.length)
        before = self.length.cumsum(0) - self.length
        place = torch.arange(len(run), device=run.device) - before[run]
        return self.row[run], self.begin[run] + place, run, place

    def apart(self, x: Tensor) -> Tensor:
        """Every run in a row of its own, padded on the right: (B,T,...) -> (N,longest,...)"""
        row, time, run, place = self.tokens()
        apart = x.new_zeros(len(self.row), int(self.length.max()), *x.shape[2:])
        apart[run, place] = x[row, time]
        return apart

    def back(self, apart: Tensor, like: Tensor) -> Tensor:
        """Where they came from, and 0 where nothing was: (N,longest,...) -> (B,T,...)"""
        row, time, run, place = self.tokens()
        x = apart.new_zeros(*like.shape[:2], *apart.shape[2:])
        x[row, time] = apart[run, place]
        return x

    def turned(self, x: Tensor) -> Tensor:
        """Each run reversed where it stands. Twice is nothing."""
        row, time, run, place = self.tokens()
        turned = x.clone()
        turned[row, time] = x[row, (self.begin + self.length - 1)[run] - place]
        return turned


def runs_of(mask: Tensor) -> Runs:
    """What (B,1,1,T) or (B,1,T,T) says of who belongs together: a token that does not see the one before it is a first.

    A token that does not see itself is padding.
    """
    if mask.size(2) == 1:
        real = mask[:, 0, 0]  # (B,T)
        joined = real[:, 1:] & real[:, :-1]
    else:
        real = mask[:, 0].diagonal(0, 1, 2)  # (B,T)
        joined = real[:, 1:] & real[:, :-1] & mask[:, 0].diagonal(-1, 1, 2)
    first, last = real.clone(), real.clone()
    first[:, 1:] &= ~joined
    last[:, :-1] &= ~joined
    row, begin = first.nonzero(as_tuple=True)
    return Runs(row, begin, last.nonzero(as_tuple=True)[1] - begin + 1)
