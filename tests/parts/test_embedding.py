"""Embeddings equal one-hot products, padding stays zero, and segments count separators."""

import math

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from regard.parts.embedding import ScaledEmbedding, segment_ids
from regard.parts.heads import BiasedLMHead

B, T, D, V = 3, 5, 8, 11
PAD = V - 1


def test_lookup_equals_one_hot_times_matrix() -> None:
    torch.manual_seed(1)
    tokens, ids = ScaledEmbedding(V, D), torch.randint(V, (B, T))
    assert tokens(ids).shape == (B, T, D)
    assert_close(tokens(ids), F.one_hot(ids, V).float() @ tokens.weight * math.sqrt(D))


def test_embeddings_start_with_unit_variance() -> None:
    torch.manual_seed(1)
    vectors = ScaledEmbedding(400, 300)(torch.arange(400))
    assert_close(vectors.std(), torch.tensor(1.0), rtol=0.02, atol=0.0)


def test_padding_stays_zero_when_the_tied_head_trains() -> None:
    torch.manual_seed(1)
    tokens = ScaledEmbedding(V, D, PAD)
    head = BiasedLMHead(tokens)
    optimizer = torch.optim.AdamW([*tokens.parameters(), head.bias], lr=0.1, weight_decay=0.1)
    before = tokens.weight.detach().clone()
    for _ in range(3):
        ids = torch.randint(V, (B, T))
        targets = torch.randint(PAD, (B * T,))
        head.loss(tokens(ids).flatten(0, 1), targets, label_smoothing=0.1).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert not tokens.weight[PAD].any()
    assert not tokens(torch.full((B, T), PAD)).any()
    assert (tokens.weight[:PAD] != before[:PAD]).all()


@given(
    texts=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=2, max_size=4), start=st.integers(0, 3)
)
@settings(deadline=None, derandomize=True, max_examples=60)
def test_second_segment_begins_after_the_separators_of_its_text(texts: list[list[int]], start: int) -> None:
    separator = 2
    targets = [[int(0 < start <= text[:i].count(separator)) for i in range(len(text))] for text in texts]
    for text, kinds in zip(texts, targets, strict=True):
        assert segment_ids(torch.tensor([text]), separator, start).tolist() == [kinds]
        mask = torch.ones(1, 1, 1, len(text), dtype=torch.bool)
        assert segment_ids(torch.tensor([text]), separator, start, mask).tolist() == [kinds]
    row = torch.tensor([sum(texts, [])])
    number = torch.tensor([i for i, text in enumerate(texts) for _ in text])
    assert segment_ids(row, separator, start, (number[:, None] == number)[None, None]).tolist() == [sum(targets, [])]
