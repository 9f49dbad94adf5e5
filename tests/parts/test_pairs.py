"""A bias of pairs is what its table says, reaches the layer it is for, and is gone when a forward is over."""

from threading import Thread

import pytest
import torch
from torch.testing import assert_close

from regard.parts.attention import SelfAttention, attention_weights, split
from regard.parts.pair_bias import LayerPairBias, PairBias, held

B, T, D, H, KINDS, LAYERS = 2, 4, 6, 3, 5, 2
PAIRS = torch.randint(KINDS, (B, T, T), generator=torch.Generator().manual_seed(1))


def table() -> PairBias:
    torch.manual_seed(2)
    made = PairBias(KINDS, LAYERS, H).double()
    torch.nn.init.normal_(made.weight)
    return made


def test_each_layer_and_head_has_a_number_for_each_kind_of_pair() -> None:
    biases = table()(PAIRS)
    assert biases.shape == (LAYERS, B, H, T, T)
    for layer in range(LAYERS):
        for head in range(H):
            assert_close(biases[layer, :, head], table().weight[:, layer * H + head][PAIRS])


def test_it_is_added_to_the_scores_of_its_layer() -> None:
    torch.manual_seed(3)
    attention, x = SelfAttention(D, H, score_bias=LayerPairBias(1)).double(), torch.randn(B, T, D, dtype=torch.float64)
    biases = table()(PAIRS)
    with held(biases):
        y = attention(x)
    q, k, v = (split(part(x), H) for part in (attention.query, attention.key, attention.value))
    wanted = attention_weights(q, k, bias=biases[1]) @ v
    assert_close(y, attention.out(wanted.transpose(1, 2).flatten(2)))


def test_nothing_is_left_of_it_even_after_an_error() -> None:
    def fail() -> None:
        with held(torch.zeros(1)):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with pytest.raises(LookupError):
        LayerPairBias(0)(T, T)


def test_the_bias_of_one_thread_is_not_that_of_another() -> None:
    found = []

    def other() -> None:
        with held(torch.full((1, 1), 2.0)):
            found.append(LayerPairBias(0)(1, 1).item())

    with held(torch.full((1, 1), 1.0)):
        thread = Thread(target=other)
        thread.start()
        thread.join()
        found.append(LayerPairBias(0)(1, 1).item())
    assert found == [2.0, 1.0]
