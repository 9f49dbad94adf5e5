"""An embedding is a one-hot vector times a matrix, and padding is nothing."""

import math

import torch
import torch.nn.functional as F
from torch.testing import assert_close

from regard.parts.embed import ScaledEmbedding
from regard.parts.heads import Unembed

B, T, D, V = 3, 5, 8, 11
PAD = V - 1


def test_a_one_hot_vector_times_the_matrix_is_the_look_up() -> None:
    torch.manual_seed(1)
    tokens, ids = ScaledEmbedding(V, D), torch.randint(V, (B, T))
    assert tokens(ids).shape == (B, T, D)
    assert_close(tokens(ids), F.one_hot(ids, V).float() @ tokens.weight * math.sqrt(D))


def test_words_start_as_large_as_positions() -> None:
    torch.manual_seed(1)
    vectors = ScaledEmbedding(400, 300)(torch.arange(400))
    assert_close(vectors.std(), torch.tensor(1.0), rtol=0.02, atol=0.0)


def test_padding_is_zero_and_stays_zero_when_the_tied_head_learns() -> None:
    torch.manual_seed(1)
    tokens = ScaledEmbedding(V, D, PAD)
    head = Unembed(tokens)
    optimizer = torch.optim.AdamW([*tokens.parameters(), head.bias], lr=0.1, weight_decay=0.1)
    before = tokens.weight.detach().clone()
    for _ in range(3):
        ids = torch.randint(V, (B, T))
        wanted = torch.randint(PAD, (B * T,))
        head.loss(tokens(ids).flatten(0, 1), wanted, smoothing=0.1).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert not tokens.weight[PAD].any()
    assert not tokens(torch.full((B, T), PAD)).any()
    assert (tokens.weight[:PAD] != before[:PAD]).all()
