"""PairBias looks up its table; attention adds the bias that the model passes; mixers without scores refuse one."""

import pytest
import torch
from torch.testing import assert_close

from regard.parts.attention import SelfAttention, attention_weights, split_heads
from regard.parts.block import Block
from regard.parts.linear_attention import LinearAttention
from regard.parts.local_conv import LocalConv
from regard.parts.positions import Alibi, PairBias
from regard.parts.recurrence import GRU, LSTM, RNN, Bidirectional

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


@pytest.mark.parametrize("score_bias", [None, Alibi(H)], ids=["alone", "beside ALiBi"])
def test_a_block_adds_its_bias_to_the_scores(score_bias: Alibi | None) -> None:
    torch.manual_seed(3)
    attention, x = SelfAttention(D, H, score_bias=score_bias).double(), torch.randn(B, T, D, dtype=torch.float64)
    bias = random_pair_bias()(PAIRS)[1]
    y = Block(attention, torch.nn.Identity())(x, bias=bias)
    q, k, v = (split_heads(part(x), H) for part in (attention.query, attention.key, attention.value))
    total = bias if score_bias is None else bias + score_bias(T, T)
    assert_close(y, attention.out((attention_weights(q, k, bias=total) @ v).transpose(1, 2).flatten(2)))


@pytest.mark.parametrize(
    "mixer",
    [RNN(D), GRU(D), LSTM(D), Bidirectional(GRU(D, 3), GRU(D, 3)), LinearAttention(D, H), LocalConv(D, 3)],
    ids=lambda mixer: type(mixer).__name__,
)
def test_a_mixer_without_scores_refuses_a_bias(mixer: torch.nn.Module) -> None:
    with pytest.raises(AssertionError, match="bias"):
        mixer(torch.randn(B, T, D), bias=torch.zeros(B, H, T, T))
