"""PairBias looks up its table, reaches its layer, and is reset after the forward."""

from threading import Thread

import pytest
import torch
from torch.testing import assert_close

from regard.parts.attention import SelfAttention, attention_weights, split_heads
from regard.parts.pair_bias import LayerPairBias, PairBias, use_pair_biases

B, T, D, H, KINDS, LAYERS = 2, 4, 6, 3, 5, 2
PAIRS = torch.randint(KINDS, (B, T, T), generator=torch.Generator().manual_seed(1))


def random_pair_bias() -> PairBias:
    torch.manual_seed(2)
    pair_bias = PairBias(KINDS, LAYERS, H).double()
    torch.nn.init.normal_(pair_bias.weight)
    return pair_bias


def test_each_layer_and_head_has_one_bias_per_pair_kind() -> None:
    biases = random_pair_bias()(PAIRS)
    assert biases.shape == (LAYERS, B, H, T, T)
    for layer in range(LAYERS):
        for head in range(H):
            assert_close(biases[layer, :, head], random_pair_bias().weight[:, layer * H + head][PAIRS])


def test_bias_is_added_to_the_scores_of_its_layer() -> None:
    torch.manual_seed(3)
    attention, x = SelfAttention(D, H, score_bias=LayerPairBias(1)).double(), torch.randn(B, T, D, dtype=torch.float64)
    biases = random_pair_bias()(PAIRS)
    with use_pair_biases(biases):
        y = attention(x)
    q, k, v = (split_heads(part(x), H) for part in (attention.query, attention.key, attention.value))
    expected = attention_weights(q, k, bias=biases[1]) @ v
    assert_close(y, attention.out(expected.transpose(1, 2).flatten(2)))


def test_context_is_reset_after_an_error() -> None:
    def fail() -> None:
        with use_pair_biases(torch.zeros(1)):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with pytest.raises(LookupError):
        LayerPairBias(0)(T, T)


def test_biases_are_local_to_a_thread() -> None:
    values = []

    def run_other_thread() -> None:
        with use_pair_biases(torch.full((1, 1), 2.0)):
            values.append(LayerPairBias(0)(1, 1).item())

    with use_pair_biases(torch.full((1, 1), 1.0)):
        thread = Thread(target=run_other_thread)
        thread.start()
        thread.join()
        values.append(LayerPairBias(0)(1, 1).item())
    assert values == [2.0, 1.0]
